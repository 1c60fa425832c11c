"""Retrieve facts for a sub-question, from the store and the triples that the run has learned so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyfast.knowledge.extracts import Statement
from pyfast.knowledge.names import escape_name, is_named_in, name_key, relation_name
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.systems.subqrag.learned import Learned
from pyfast.utils.token_budget import join

MAX_TRIPLES = 1000  # the maximum number of triples per fact, to bound memory; no prompt holds so many
_A_FEW = 5  # values of a fact to show if the answer is none of them, such as their number


@dataclass(frozen=True, slots=True)
class RetrievedFact:
    """A fact: triples that share head and relation, or relation and tail. Each part of a triple is a string."""

    triples: tuple[tuple[str, str, str], ...]
    places: tuple[int, ...] = ()
    """The numbers of the triples in the store. Empty for a learned triple"""
    segment: int | None = None
    """For a learned triple: the id of the segment that states it. Otherwise None"""

    @classmethod
    def of_statement(cls, statement: Statement) -> RetrievedFact:
        """Make a fact from a learned triple."""
        triple = statement.head, relation_name(statement.relation), statement.tail
        return cls((triple,), (), statement.segment)

    def line(self, budget: int | None = None) -> str:
        """Write the fact on one line, as ``head | relation | tail; tail`` or ``head; head | relation |
        tail``. The line has about `budget` characters, and says how many names did not fit. If `budget` is
        None, no name is left out.
        """
        heads, tails = (list(dict.fromkeys(escape_name(triple[end]) for triple in self.triples)) for end in (0, 2))
        relation = escape_name(self.triples[0][1])
        if len(heads) > 1:
            end = f" | {relation} | {tails[0]}"
            return join(heads, budget and budget - len(end)) + end
        start = f"{heads[0]} | {relation} | "
        return start + join(tails, budget and budget - len(start))

    def with_answers(self, answers: Sequence[str], or_some: bool = True) -> RetrievedFact | None:
        """Reduce the fact to those triples whose head or tail is an answer.

        If there is none, a head or tail that contains an answer is enough, as "Paris, France" contains "Paris".
        If there is still none, the result is a few triples of the fact if `or_some` is true, and otherwise None.
        """
        keys = {name_key(escape_name(text)) for text in answers}
        ends = [{name_key(escape_name(head)), name_key(escape_name(tail))} for head, _, tail in self.triples]
        chosen = [i for i, names in enumerate(ends) if keys & names]
        chosen = chosen or [
            i for i, names in enumerate(ends) if any(is_named_in(k, end) for k in keys for end in names)
        ]
        if not chosen and not or_some:
            return None
        places = chosen or range(min(len(self.triples), _A_FEW))
        triples = tuple(self.triples[i] for i in places)
        return RetrievedFact(triples, tuple(self.places[i] for i in places if self.places), self.segment)

    def segments(self, store: Knowledge) -> list[int]:
        """Return the ids of the segments that state the fact's triples."""
        if self.segment is not None:
            return [self.segment]
        return [segment for segments in store.sources(self.places) for segment in segments]


Item = tuple[str, Learned, Int32 | None]
"""A sub-question, the learned triples, and the numbers of the allowed triples (None: all)"""


def retrieve_facts(items: Sequence[Item], store: Knowledge, k: int, named: int) -> list[list[RetrievedFact]]:
    """Find the `k` facts nearest to each sub-question by cosine (SubQRAG's equation 3).

    Of the triples in the store, the result contains only the allowed ones.

    The result begins with at most `named` facts about entities that the sub-question names. The cosine alone
    would often miss them, because vectors hardly distinguish names. First among these are the facts whose
    relation the sub-question names too, because the vector of a fact with many values says less about the
    relation. All other facts follow, by cosine.
    """
    queries = store.encode([text for text, _, _ in items])
    nearest, _ = store.search("facts", queries, k)
    learned = _learned([(text, known) for text, known, _ in items], queries, k)
    return [
        _best(item, new, query, near[near >= 0], store, k, named)
        for item, new, query, near in zip(items, learned, queries, nearest, strict=True)
    ]


_New = tuple[int, float, bool]
"""A learned statement that is a candidate for the result of `retrieve_facts`: its position, its cosine, and
whether the sub-question names its head or tail"""


def _learned(items: Sequence[tuple[str, Learned]], queries: Float32, k: int) -> list[list[_New]]:
    """For each sub-question, find the `k` nearest learned statements, and all statements about entities that the
    sub-question names. Sub-questions with the same `Learned` object share one search."""
    new: list[list[_New]] = [[] for _ in items]
    for learned in {id(one): one for _, one in items}.values():
        rows = [row for row, (_, one) in enumerate(items) if one is learned]
        vectors = learned.vectors()
        nearest, _ = vectors.search(queries[rows], k)
        for row, near in zip(rows, nearest.tolist(), strict=True):
            named = [place for place in learned.named_in(items[row][0]) if place < len(vectors)]
            places = sorted({*named, *near})
            cosines = vectors.cosines(np.array(places, np.int32), queries[row]).tolist() if places else []
            new[row] = [(*one, one[0] in named) for one in zip(places, cosines, strict=True)]
    return new


def _best(
    item: Item, new: Sequence[_New], query: Float32, near: Int64, store: Knowledge, k: int, named: int
) -> list[RetrievedFact]:
    (text, learned, allowed), facts = item, store.facts
    ranges = [facts.about_offsets[i : i + 2] for i in (store.entities_named_in(text) if named else ())]
    about = np.concatenate([np.empty(0, np.int32), *(facts.about[begin:end] for begin, end in ranges)])
    if allowed is not None:  # There are few, so all of them are compared.
        near = facts.with_any_of(allowed)
        about = about[np.isin(about, near)]
    places = np.unique(np.concatenate([about, near])).astype(np.int32)
    scores, relations = -store.cosines(places, query), store.relation[facts.triples[facts.offsets[places]]]
    is_named, key = np.isin(places, about), name_key(text)
    of_named = np.unique(relations[is_named]).tolist()
    asked = [relation for relation in of_named if is_named_in(name_key(store.relations[relation]), key)]
    # 2: the text names an entity and the relation; 1: only an entity
    rank = np.where(is_named, 1 + np.isin(relations, asked), 0)
    order, by_rank = np.lexsort((places, scores)), np.lexsort((places, scores, -rank))
    # An entity may have thousands of facts, so only the best are kept.
    best = np.union1d(order[:k], by_rank[: min(named, np.count_nonzero(is_named))])
    # (negative cosine, whether learned, position, rank), best first
    stored = zip(scores[best].tolist(), places[best].tolist(), rank[best].tolist(), strict=True)
    candidates = [(score, False, place, of_place) for score, place, of_place in stored]
    for place, cosine, has_name in new:
        names_relation = is_named_in(name_key(relation_name(learned.statements[place].relation)), key)
        candidates.append((-cosine, True, place, has_name and 1 + names_relation))
    candidates.sort()
    first = sorted((fact for fact in candidates if fact[3]), key=lambda fact: -fact[3])[:named]
    rest = [fact for fact in candidates if fact not in first]
    return [
        RetrievedFact.of_statement(learned.statements[place]) if is_new else _retrieved(store, place, allowed)
        for _, is_new, place, _ in (first + rest)[:k]
    ]


def _retrieved(store: Knowledge, fact: int, allowed: Int32 | None) -> RetrievedFact:
    places = store.facts.of(fact)
    places = (places if allowed is None else places[np.isin(places, allowed)])[:MAX_TRIPLES]
    return RetrievedFact(tuple(store.triples(places)), tuple(places.tolist()))
