"""The search of LightRAG in the knowledge graph: the local level finds entities and their relations, the global
level finds relations and their entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from pyfast.knowledge import Session
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Int32
from pyfast.retrieval import Pool
from pyfast.systems.rivals.common import NOTHING
from pyfast.systems.rivals.phrase_graph import nearest_allowed

T = TypeVar("T")
Level = Literal["local", "global"]
_AROUND = 100
"""The maximum number of relations of an entity or of a key: of an entity, those with the most relations around"""
_STATED = 20
"""The maximum number of relations of an entity whose texts are found"""
_DESCRIPTIONS = 3
"""The maximum number of texts from which the description of an entity comes"""


class Found(NamedTuple):
    """What a search found in the graph, best first."""

    entities: tuple[int, ...] = ()
    triples: tuple[int, ...] = ()
    texts: Pool = NOTHING
    """The passages that state the relations or describe the entities"""


def found_in_graph(items: Sequence[tuple[str, Session]], store: Knowledge, level: Level, k: int) -> list[Found]:
    """Search a level of the graph. An item is the keywords as one text, and the session of the question.

    The local level finds the `k` entities with the nearest names, and all their relations. The global level finds
    the `k` relations with the nearest keys, and their heads and tails. The relations are in an order: those whose
    ends have the most relations come first, then the strongest.
    """
    sessions, queries = [session for _, session in items], store.encode([text for text, _ in items])
    if level == "local":
        near = nearest_allowed(sessions, store, "entities", queries, k)
        return [_local([hit for hit in hits if hit[1] > 0], at) for hits, at in zip(near, sessions, strict=True)]
    places, cosines = store.search("keys", queries, k)
    keys = [
        [(key, cosine) for key, cosine in zip(*pair, strict=True) if key >= 0 and cosine > 0]
        for pair in zip(places.tolist(), cosines.tolist(), strict=True)
    ]
    found = []
    for hits, query, session in zip(keys, queries, sessions, strict=True):
        of_each = [(session.usable(store.triples_of_key(key, query, _AROUND)), at) for key, at in hits]
        best: dict[int, float] = {}
        for triples, cosine in of_each:
            for triple in triples.tolist():
                best.setdefault(triple, cosine)
        chosen = dict(list(best.items())[:k])
        themes = [(segment, at) for key, at in hits for (ids,) in [store.theme_sources([key])] for segment in ids]
        found.append(_global(chosen, themes, session))
    return found


def _local(hits: Sequence[tuple[int, float]], session: Session) -> Found:
    store, leads = session.store, list[tuple[int, float]]()
    every, of_entity = [np.empty(0, np.int32)], []
    for entity, _ in hits:
        of_entity.append(_ranked(session.around(entity), store)[:_AROUND])
        every.append(of_entity[-1])
    triples = _ranked(np.unique(np.concatenate(every)), store)
    entities = [entity for entity, _ in hits]
    for (_, cosine), around, segments in zip(hits, of_entity, store.mentions(entities), strict=True):
        stating = Counter(segment for ids in store.sources(around[:_STATED].tolist()) for segment in ids)
        # Texts that state more of the relations come first.
        leads += [(segment, cosine) for segment, _ in stating.most_common()]
        leads += [(segment, cosine) for segment in segments]
    return Found(tuple(entities), tuple(triples.tolist()), _texts(leads, session))


def _global(chosen: dict[int, float], themes: Iterable[tuple[int, float]], session: Session) -> Found:
    store = session.store
    triples = _ranked(np.array(list(chosen), np.int32), store).tolist()
    ends = dict.fromkeys(int(end[triple]) for triple in triples for end in (store.head, store.tail))
    stated = zip(triples, store.sources(triples), strict=True)
    leads = [(segment, chosen[triple]) for triple, segments in stated for segment in segments]
    return Found(tuple(ends), tuple(triples), _texts([*leads, *themes], session))


def _ranked(triples: Int32, store: Knowledge) -> Int32:
    """Order triples: those whose ends have the most triples come first, then the strongest."""
    degree = np.diff(store.incident[0])
    around = degree[store.head[triples]] + degree[store.tail[triples]]
    return triples[np.lexsort((triples, -store.strength[triples], -around))]


def _texts(leads: Sequence[tuple[int, float]], session: Session) -> Pool:
    best: dict[int, float] = {}
    for segment, cosine in leads:
        for passage in session.passages([segment]):
            best.setdefault(passage, cosine)
    return Pool(np.array(list(best), np.int32), np.array(list(best.values()), np.float32))


def joined_levels(levels: Sequence[Found]) -> Found:
    """Join what several searches found: the first of each, then the second of each, and so on. What is found twice
    stays at its first place."""
    texts = dict[int, float]()
    for passage, score in _in_turn([list(level.texts) for level in levels]):
        texts.setdefault(passage, score)
    return Found(
        tuple(dict.fromkeys(_in_turn([level.entities for level in levels]))),
        tuple(dict.fromkeys(_in_turn([level.triples for level in levels]))),
        Pool(np.array(list(texts), np.int32), np.array(list(texts.values()), np.float32)),
    )


def _in_turn(lists: Sequence[Sequence[T]]) -> list[T]:
    nothing = object()
    return [one for one in chain.from_iterable(zip_longest(*lists, fillvalue=nothing)) if one is not nothing]  # type: ignore[misc]


def described(items: Sequence[tuple[Found, Session]], store: Knowledge) -> list[tuple[list[str], list[str]]]:
    """Write the entities and the relations of each item as lines, with descriptions from texts that the question
    may use."""
    return [
        (
            [_entity(entity, session) for entity in found.entities],
            [_relation(one, session) for one in found.triples],
        )
        for found, session in items
    ]


def _entity(entity: int, session: Session) -> str:
    store = session.store
    (ids,) = store.mentions([entity])
    here = [segment for segment in ids if len(session.segments([segment]))][:_DESCRIPTIONS]
    told = [": ".join(filter(None, one[1:])) for segment in here for one in store.described_in([entity], segment)]
    return " – ".join([store.entities[entity], *(["; ".join(dict.fromkeys(told))] if told else [])])


def _relation(triple: int, session: Session) -> str:
    store = session.store
    (ids,) = store.sources([triple])
    here = [segment for segment in ids if len(session.segments([segment]))][:1]
    told = [text for segment in here for text in store.relation_descriptions([triple], segment) if text]
    return " – ".join([" | ".join(store.triple(triple)), *told])


def nearest_relations(items: Sequence[Found], store: Knowledge, most: int) -> list[tuple[int, ...]]:
    """Choose relations of the entities that a local search found: first those that join two of them, then at most
    `most` for each entity. Of these, those come first whose other end has relations with the most of the entities.
    Otherwise their order stays."""
    chosen = []
    for found in items:
        near = set(found.entities)
        ends = {triple: (int(store.head[triple]), int(store.tail[triple])) for triple in found.triples}
        inside = [triple for triple, pair in ends.items() if near.issuperset(pair)]
        outside = {
            triple: next(end for end in pair if end not in near)
            for triple, pair in ends.items()
            if not near.issuperset(pair)
        }
        pairs = {(other, end) for triple, other in outside.items() for end in ends[triple] if end != other}
        links = Counter(other for other, _ in pairs)
        ranked = sorted(outside, key=lambda triple: -links[outside[triple]])
        chosen.append((*inside, *ranked[: most * len(near)]))
    return chosen
