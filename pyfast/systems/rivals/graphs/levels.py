"""LightRAG's search in the knowledge graph: the local level finds entities and their relations, and the global
level finds relations and their entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice, zip_longest
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from pyfast.knowledge import Session
from pyfast.knowledge.store import Knowledge
from pyfast.retrieval import Pool
from pyfast.systems.rivals.common import NOTHING
from pyfast.systems.rivals.linking import nearest_allowed

T = TypeVar("T")
Level = Literal["local", "global"]
_AROUND = 100
"""The maximum number of relations per entity or key: for an entity, those with the most relations around them"""
_STATED = 20
"""The maximum number of relations per entity whose texts are found"""
_DESCRIPTIONS = 3
"""The maximum number of texts from which an entity's description comes"""


class Found(NamedTuple):
    """What a search found in the graph, best first."""

    entities: tuple[int, ...] = ()
    triples: tuple[int, ...] = ()
    texts: Pool = NOTHING
    """The passages that state the relations or describe the entities"""


def found_in_graph(items: Sequence[tuple[str, Session]], store: Knowledge, level: Level, k: int) -> list[Found]:
    """Search a level of the graph. An item is the keywords as one string, and the question's session.

    The local level finds the `k` entities with the nearest names, and all their relations. The global level
    finds the `k` relations with the nearest keys, and their heads and tails. Relations are ordered by the
    number of their ends' relations, and then by strength.
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
        themes = store.theme_sources([key for key, _ in hits])
        leads = [(segment, at) for (_, at), ids in zip(hits, themes, strict=True) for segment in ids]
        found.append(_global(chosen, leads, session))
    return found


def _local(hits: Sequence[tuple[int, float]], session: Session) -> Found:
    store, leads = session.store, list[tuple[int, float]]()
    entities = [entity for entity, _ in hits]
    of_each = [store.ranked(session.around(entity))[:_AROUND] for entity in entities]
    triples = store.ranked(np.unique(np.concatenate([np.empty(0, np.int32), *of_each])))
    first = [around[:_STATED].tolist() for around in of_each]
    stated = iter(store.sources(list(chain.from_iterable(first))))
    for (_, cosine), around, segments in zip(hits, first, store.mentions(entities), strict=True):
        stating = Counter(chain.from_iterable(islice(stated, len(around))))
        # Texts that state more of the relations come first.
        leads += [(segment, cosine) for segment, _ in stating.most_common()]
        leads += [(segment, cosine) for segment in segments]
    return Found(tuple(entities), tuple(triples.tolist()), _texts(leads, session))


def _global(chosen: dict[int, float], themes: Iterable[tuple[int, float]], session: Session) -> Found:
    store = session.store
    triples = store.ranked(np.array(list(chosen), np.int32))
    ends = dict.fromkeys(np.stack([store.head[triples], store.tail[triples]], axis=1).ravel().tolist())
    stated = zip(triples.tolist(), store.sources(triples.tolist()), strict=True)
    leads = [(segment, chosen[triple]) for triple, segments in stated for segment in segments]
    return Found(tuple(ends), tuple(triples.tolist()), _texts([*leads, *themes], session))


def _texts(leads: Iterable[tuple[int, float]], session: Session) -> Pool:
    best: dict[int, float] = {}
    for segment, cosine in leads:
        best.setdefault(segment, cosine)
    numbers = session.numbers(list(best))
    here = numbers >= 0
    return Pool(numbers[here].astype(np.int32), np.array(list(best.values()), np.float32)[here])


def joined_levels(levels: Sequence[Found]) -> Found:
    """Merge the results of several searches: the first of each, then the second of each, and so on.
    Duplicates keep their first position."""
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
    """Write each item's entities and relations as lines, with descriptions from texts that the question may
    use."""
    return [
        (_about_entities(found.entities, session), _about_relations(found.triples, session))
        for found, session in items
    ]


def _about_entities(entities: Sequence[int], session: Session) -> list[str]:
    store = session.store
    mentions = _describing(store.mentions(entities), session, _DESCRIPTIONS)
    pairs = [(entity, segment) for entity, ids in zip(entities, mentions, strict=True) for segment in ids]
    told = iter(store.entity_descriptions(pairs))
    lines = []
    for entity, ids in zip(entities, mentions, strict=True):
        texts = dict.fromkeys(": ".join(filter(None, said)) for said in islice(told, len(ids)) if any(said))
        lines.append(" – ".join([store.entities[entity], *filter(None, ["; ".join(texts)])]))
    return lines


def _about_relations(triples: Sequence[int], session: Session) -> list[str]:
    store = session.store
    sources = zip(triples, _describing(store.sources(triples), session, 1), strict=True)
    pairs = [(triple, segment) for triple, ids in sources for segment in ids]
    told = {triple: text for (triple, _), text in zip(pairs, store.relation_descriptions(pairs), strict=True)}
    named = zip(triples, store.triples(np.array(triples, np.int32)), strict=True)
    return [" – ".join(filter(None, [" | ".join(words), told.get(triple, "")])) for triple, words in named]


def _describing(lists: Sequence[Sequence[int]], session: Session, most: int) -> list[list[int]]:
    """Keep the first `most` ids of each list whose passages the question may use. Without any descriptions in the
    graph, keep none."""
    if not session.store.is_described:
        return [[] for _ in lists]
    here = iter((session.numbers(list(chain.from_iterable(lists))) >= 0).tolist())
    of_each = [list(zip(ids, islice(here, len(ids)), strict=True)) for ids in lists]
    return [[segment for segment, is_here in pairs if is_here][:most] for pairs in of_each]


def nearest_relations(items: Sequence[Found], store: Knowledge, most: int) -> list[tuple[int, ...]]:
    """Choose relations of the entities that a local search found: first those that join two of them, then at
    most `most` per entity. Among the latter, those whose other end has relations with the most of the
    entities come first; otherwise their order stays."""
    chosen = []
    for found in items:
        near, triples = set(found.entities), np.array(found.triples, np.int32)
        pairs = np.stack([store.head[triples], store.tail[triples]], axis=1).tolist()
        ends = dict(zip(found.triples, pairs, strict=True))
        inside = [triple for triple, pair in ends.items() if near.issuperset(pair)]
        outside = {
            triple: next(end for end in pair if end not in near)
            for triple, pair in ends.items()
            if not near.issuperset(pair)
        }
        joined = {(other, end) for triple, other in outside.items() for end in ends[triple] if end != other}
        links = Counter(other for other, _ in joined)
        ranked = sorted(outside, key=lambda triple: -links[outside[triple]])
        chosen.append((*inside, *ranked[: most * len(near)]))
    return chosen
