"""Knowledge units. A knowledge unit is a source text, together with the triples from it that a keyword search
found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge

import numpy as np

from pyfast.knowledge.session import Session
from pyfast.knowledge.store import IN_TEXT, Knowledge
from pyfast.ops.arrays import Float32, Int32

DECAY = 0.8
"""The factor by which the score of a second-hop fact is multiplied"""
# the maximum number of neighbours whose facts are examined: those with the fewest facts first, because they
# are the most specific
MAX_NEIGHBOURS = 1000
MAX_TRIPLES = 100  # the maximum number of triples of a fact or relation key


@dataclass(frozen=True, slots=True)
class Keywords:
    """The keywords of a search."""

    detailed: tuple[str, ...]
    """Names and details. The search compares them with the names of entities"""
    general: tuple[str, ...] = ()
    """Themes (what a text is about, in a few words). The search compares them with keys: with names of
    relations, phrases for relations, and themes of texts"""


@dataclass(frozen=True, slots=True)
class KnowledgeUnit:
    """A source text, with its triples and entities that a search found."""

    passage: int
    """The number of the passage in the index"""
    triples: tuple[tuple[str, str, str], ...]
    score: float
    """The score of the best search result (a fact, an entity or a theme) that led to this source text"""
    descriptions: tuple[str, ...] = ()
    """For each triple, a sentence that describes it, or an empty string if no LLM has written one"""
    entities: tuple[tuple[str, str, str], ...] = ()
    """(name, kind, description) of entities that the text describes"""


@dataclass(frozen=True, slots=True)
class _Lead:
    """One search result: a fact, the segments that describe an entity, or the segments with a theme (what a
    text is about)."""

    score: float
    fact: int | None = None
    entity: int | None = None
    segments: Sequence[int] = ()


@dataclass(slots=True)
class _Gathered:
    """A knowledge unit under construction."""

    score: float
    triples: dict[int, None] = field(default_factory=dict)
    entities: dict[int, None] = field(default_factory=dict)


def knowledge_units(
    items: Sequence[Keywords], session: Session, entities: int, relations: int, units: int
) -> list[list[KnowledgeUnit]]:
    """Search the knowledge graph for knowledge units (MTQA, step 2).

    Detailed keywords match entities. General keywords match keys (names of relations, phrases for relations,
    and themes of texts). The search finds four kinds of facts:

    - facts about the matched entities (first hop)
    - facts that contain a triple with a matched key
    - facts about the neighbours of the matched entities (second hop)
    - facts about the heads and tails of the triples that have a matched key (second hop)

    A fact's score is the product of two cosines: that of the fact and all keywords of the search, joined into
    one text, and that of the matched entity or key and its keyword. If several matches lead to the same fact,
    the best match counts. For the second hop, the score is also multiplied by `DECAY`.

    The texts that state these facts become knowledge units, and so do texts that describe a matched entity
    without triples, and texts with a matched key as their theme (what a text is about).

    Args:
        items: The keywords of each search.
        session: The run's session, with its knowledge graph.
        entities: The number of entities that each detailed keyword matches.
        relations: The number of keys that each general keyword matches.
        units: The number of units to return per search.

    Returns:
        For each search, its knowledge units, best first.
    """
    store = session.store
    detailed = _matched(store, "entities", [item.detailed for item in items], entities)
    general = _matched(store, "keys", [item.general for item in items], relations)
    queries = store.encode([", ".join((*item.detailed, *item.general)) for item in items])
    return [
        _gathered(session, _facts(store, query, names, keys), _texts(store, query, names, keys), units)
        for query, names, keys in zip(queries, detailed, general, strict=True)
    ]


def _matched(store: Knowledge, what: str, keywords: Sequence[Sequence[str]], k: int) -> list[dict[int, float]]:
    """Find the `k` entities or keys nearest to each keyword. `what` is "entities" or "keys".

    Returns for each search a mapping from the number of an entity or key to its highest cosine with one of
    the search's keywords. One vector search serves all keywords.
    """
    texts = list(dict.fromkeys(word for words in keywords for word in words))
    row = {text: i for i, text in enumerate(texts)}
    places, cosines = store.search(what, store.encode(texts), k)
    matches: list[dict[int, float]] = []
    for words in keywords:
        best: dict[int, float] = {}
        for word in words:
            for place, cosine in zip(places[row[word]].tolist(), cosines[row[word]].tolist(), strict=True):
                if place >= 0:
                    best[place] = max(cosine, best.get(place, 0.0))
        matches.append(best)
    return matches


def _facts(store: Knowledge, query: Float32, names: dict[int, float], keys: dict[int, float]) -> list[_Lead]:
    """Find the facts of a search, best first. Of facts with equal scores, the one with the lower number comes
    first.

    `names` are the matched entities and `keys` the matched keys, as `_matched` returns them.
    """
    facts = store.facts
    of_key = {key: store.triples_of_key(key, query, MAX_TRIPLES) for key in keys}
    near = _neighbours(store, names, {key: (match, of_key[key]) for key, match in keys.items()})
    entities = np.array([*names, *near], np.int32)
    worth = np.array([*names.values(), *(DECAY * match for match in near.values())], np.float32)
    about, which = facts.around(entities)
    facts_of_keys = [store.fact_of[triples] for triples in of_key.values()]
    matches = np.repeat([keys[key] for key in of_key], [len(triples) for triples in of_key.values()])
    places, each = np.unique(np.concatenate([about, *facts_of_keys]), return_inverse=True)
    weight = np.zeros(len(places), np.float32)
    np.maximum.at(weight, each, np.concatenate([worth[which], matches]).astype(np.float32))
    scores = store.cosines(places.astype(np.int32), query) * weight
    order = np.argsort(-scores, kind="stable")
    return list(map(_Lead, scores[order].tolist(), places[order].tolist()))


def _texts(store: Knowledge, query: Float32, names: dict[int, float], keys: dict[int, float]) -> list[_Lead]:
    """Find the segments with a matched key as a theme (what a text is about), and the segments that describe
    matched entities without facts, best first."""
    about = store.facts.about_offsets
    alone = [entity for entity in names if about[entity] == about[entity + 1]]
    cosines = store.cosines(alone, query, "entities").tolist()
    leads = [
        _Lead(names[entity] * cosine, None, entity, segments)
        for entity, cosine, segments in zip(alone, cosines, store.mentions(alone), strict=True)
    ]
    themes = [
        (key, segments) for key, segments in zip(keys, store.theme_sources(list(keys)), strict=True) if segments
    ]
    cosines = store.cosines([key for key, _ in themes], query, "keys").tolist()
    leads += [
        _Lead(keys[key] * cosine, segments=segments)
        for (key, segments), cosine in zip(themes, cosines, strict=True)
    ]
    return sorted(leads, key=lambda lead: -lead.score)


def _neighbours(
    store: Knowledge, names: dict[int, float], keys: dict[int, tuple[float, Int32]]
) -> dict[int, float]:
    """Return the entities for a search's second hop: the neighbours of the matched entities, and the entities
    in the triples of the matched keys (names of relations, and phrases for relations).

    Only the `MAX_NEIGHBOURS` entities with the fewest facts are returned, each with the highest cosine of the
    matches that lead to it.

    Args:
        store: The knowledge graph.
        names: The cosine of each matched entity.
        keys: For each matched key, its cosine and the numbers of its triples.
    """
    best: dict[int, float] = {}
    lists = store.neighbours(np.array(list(names), np.int32), 1) if names else []
    ends = [(match, np.union1d(store.head[triples], store.tail[triples])) for match, triples in keys.values()]
    for match, near in [*zip(names.values(), lists, strict=True), *ends]:
        for entity in near.tolist():
            best[entity] = max(match, best.get(entity, 0.0))
    about = store.facts.about_offsets
    fewest = sorted(best, key=lambda entity: (about[entity + 1] - about[entity], entity))
    return {entity: best[entity] for entity in fewest[:MAX_NEIGHBOURS]}


def _gathered(session: Session, facts: Sequence[_Lead], texts: Sequence[_Lead], limit: int) -> list[KnowledgeUnit]:
    """Build at most `limit` knowledge units of a search, best first. `facts` comes from `_facts`, and `texts`
    from `_texts`. Several results that lead to the same source text become a single unit."""
    units: dict[int, _Gathered] = {}
    for lead in merge(facts, texts, key=lambda lead: -lead.score):
        if lead.fact is not None:
            _add_fact(lead.fact, lead.score, units, session, limit)
        for passage in session.passages(lead.segments):
            if passage in units or len(units) < limit:
                gathered = units.setdefault(passage, _Gathered(lead.score))
                gathered.entities |= {} if lead.entity is None else {lead.entity: None}
        if len(units) == limit:
            break
    return [_unit(passage, gathered, session) for passage, gathered in units.items()]


def _add_fact(fact: int, score: float, units: dict[int, _Gathered], session: Session, limit: int) -> None:
    triples = session.store.strongest(fact, MAX_TRIPLES).tolist()
    budget = min(len(units) + IN_TEXT, limit)  # The fact's vector covers only this many passages.
    for triple, segments in zip(triples, session.store.sources(triples), strict=True):
        here = session.passages(segments)
        # Each triple goes to one passage.
        for passage in [passage for passage in here if passage in units][:1] or here[:1]:
            if passage in units or len(units) < budget:
                units.setdefault(passage, _Gathered(score)).triples[triple] = None


def _unit(passage: int, gathered: _Gathered, session: Session) -> KnowledgeUnit:
    store, index = session.store, session.index
    segment = int(index.corpus.ids[index.passages[passage]])
    triples = list(gathered.triples)
    ends = [int(end[triple]) for triple in triples for end in (store.head, store.tail)]
    entities = list(dict.fromkeys((*gathered.entities, *ends)))
    told = store.entity_descriptions([(entity, segment) for entity in entities])
    return KnowledgeUnit(
        passage,
        tuple(map(store.triple, triples)),
        gathered.score,
        tuple(store.relation_descriptions([(triple, segment) for triple in triples])),
        tuple((store.entities[one], *said) for one, said in zip(entities, told, strict=True) if any(said)),
    )
