"""Recall: the facts that a sub-question is answered from, of the store and of what was learned since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from pyfast.knowledge.records import Statement, key_of, relation_name, shown, stands_in
from pyfast.knowledge.session import Learned
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Float32, Int64
from pyfast.retrieval import Index

MOST_TRIPLES = 1000  # of a fact, for memory's sake: no prompt holds so many
_A_FEW = 5  # of a fact that gave an answer which is none of its values, such as a number of them


@dataclass(frozen=True, slots=True)
class Recalled:
    """A fact in words: triples that share an end and the relation."""

    triples: tuple[tuple[str, str, str], ...]
    places: tuple[int, ...] = ()
    """of the triples in the store; none for what was learned"""
    segment: int | None = None
    """id of the segment that it was learned from"""

    @classmethod
    def of_statement(cls, said: Statement) -> Recalled:
        """What was learned."""
        return cls(((said.head, relation_name(said.relation), said.tail),), (), said.segment)

    def line(self, room: int | None = None) -> str:
        """``head | relation | tail; tail``; in about `room` characters, saying how much is left out."""
        heads, tails = (list(dict.fromkeys(shown(triple[end]) for triple in self.triples)) for end in (0, 2))
        relation = shown(self.triples[0][1])
        if len(heads) > 1:
            told = f" | {relation} | {tails[0]}"
            return listed(heads, room and room - len(told)) + told
        told = f"{heads[0]} | {relation} | "
        return told + listed(tails, room and room - len(told))

    def with_answers(self, answers: Sequence[str], or_some: bool = True) -> Recalled | None:
        """Those of its triples that have an answer as an end; where none has, a few of them, or None."""
        keys = {key_of(shown(text)) for text in answers}
        ends = [{key_of(shown(head)), key_of(shown(tail))} for head, _, tail in self.triples]
        chosen = [i for i, names in enumerate(ends) if keys & names]
        if not chosen and not or_some:
            return None
        kept = chosen or range(min(len(self.triples), _A_FEW))
        return Recalled(
            tuple(self.triples[i] for i in kept), tuple(self.places[i] for i in kept if self.places), self.segment
        )

    def segments(self, store: Knowledge) -> list[int]:
        """The ids of the segments that say it."""
        if self.segment is not None:
            return [self.segment]
        return [segment for segments in store.sources(self.places) for segment in segments]


def recall(
    index: Index, items: Sequence[tuple[str, Learned]], store: Knowledge, k: int, named: int
) -> list[list[Recalled]]:
    """For each (sub-question, what was learned) the `k` facts of the highest cosine (SubQRAG's equation 3).

    But first, whatever their cosine, come the `named` best facts about entities that the sub-question names: to a
    vector one name is much like another, and facts of other entities may be nearer than those that are asked for.
    Of these in turn those are best whose relation it names as well: a fact's many values blur what they are of.
    """
    queries = store.encode([text for text, _ in items])
    nearest, _ = store.search("facts", queries, k)
    return [
        _best(text, learned, query, near[near >= 0], store, k, named)
        for (text, learned), query, near in zip(items, queries, nearest, strict=True)
    ]


def _best(
    text: str, learned: Learned, query: Float32, near: Int64, store: Knowledge, k: int, named: int
) -> list[Recalled]:
    facts = store.facts
    ranges = [facts.about_offsets[i : i + 2] for i in (store.named_in(text) if named else ())]
    about = np.concatenate([np.empty(0, np.int32), *(facts.about[begin:end] for begin, end in ranges)])
    places = np.unique(np.concatenate([about, near])).astype(np.int32)
    scores, relations = -store.cosines(places, query), store.relation[facts.triples[facts.offsets[places]]]
    is_named, key = np.isin(places, about), key_of(text)
    told = [it for it in np.unique(relations[is_named]).tolist() if stands_in(key_of(store.relations[it]), key)]
    rank = np.where(is_named, 1 + np.isin(relations, told), 0)  # 2: entity and relation are named
    order, by_rank = np.lexsort((places, scores)), np.lexsort((places, scores, -rank))
    best = np.union1d(order[:k], by_rank[: min(named, np.count_nonzero(is_named))])  # of a hub's thousands
    # (cosine, whether learned, place, rank), best first
    found = [*zip(scores[best].tolist(), repeat(False), places[best].tolist(), rank[best].tolist(), strict=False)]
    for i, (said, cosine) in enumerate(zip(learned.statements, learned.cosines(query), strict=False)):
        about_it = stands_in(key_of(said.head), key) or stands_in(key_of(said.tail), key)
        found.append((-cosine, True, i, about_it and 1 + stands_in(key_of(relation_name(said.relation)), key)))
    found.sort()
    first = sorted((fact for fact in found if fact[3]), key=lambda fact: -fact[3])[:named]
    rest = [fact for fact in found if fact not in first]
    return [
        Recalled.of_statement(learned.statements[place]) if new else _recalled(store, place)
        for _, new, place, _ in (first + rest)[:k]
    ]


def _recalled(store: Knowledge, fact: int) -> Recalled:
    places = store.facts.of(fact)[:MOST_TRIPLES]
    return Recalled(tuple(store.triples(places)), tuple(places.tolist()))


def in_room(told: Sequence[Callable[[int | None], str]], room: int) -> list[str]:
    """What each tells of itself, such as `Recalled.line`, in about `room` characters together.

    What is short is told whole; the long ones share what it leaves.
    """
    sizes = [len(tell(None)) for tell in told]
    lines = [""] * len(told)
    for left, i in zip(range(len(told), 0, -1), sorted(range(len(told)), key=sizes.__getitem__), strict=True):
        lines[i] = told[i](max(room // left - 1, 0))
        room -= len(lines[i]) + 1
    return lines


def listed(values: Sequence[str], room: int | None) -> str:
    """``value; value``; in about `room` characters, but for the first of them, saying how many are left out."""
    kept: list[str] = []
    for value in values:
        room = None if room is None else room - len(value) - 2
        if room is not None and room < -2 and kept:  # no `; ` behind the last
            return f"{'; '.join(kept)}; and {len(values) - len(kept)} more"
        kept.append(value)
    return "; ".join(kept)
