"""Link questions to the knowledge graph: find the nearest facts and entities among those that a question may
use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyfast.knowledge import Session
from pyfast.knowledge.store import IN_TEXT, Knowledge
from pyfast.ops.arrays import Float32
from pyfast.systems.subqrag.fact_retrieval import RetrievedFact

Fact = tuple[float, RetrievedFact]
"""A fact, and its cosine with the question"""
Near = tuple[int, float]
"""The number of an entity or a fact, and its cosine with the question"""


def linked_facts(items: Sequence[tuple[str, Session]], store: Knowledge, k: int) -> list[list[Fact]]:
    """For each question, find the `k` nearest facts, nearest first. Each triple is in only one fact, and a fact
    contains only those of its triples from which its vector is computed.

    An item is the question and its session, which determines what the question may use.
    """
    sessions = [session for _, session in items]
    nearest = nearest_allowed(sessions, store, "facts", store.encode([text for text, _ in items]), 2 * k)
    return [_distinct(session, near, k) for session, near in zip(sessions, nearest, strict=True)]


def linked_phrases(items: Sequence[tuple[str, Session]], store: Knowledge, k: int) -> list[list[Near]]:
    """For each question, find the `k` entities with the nearest names, and their cosines. Items are as in
    `linked_facts`."""
    queries = store.encode([text for text, _ in items])
    nearest = nearest_allowed([session for _, session in items], store, "entities", queries, k)
    return [[seed for seed in near if seed[1] > 0] for near in nearest]


def _distinct(session: Session, near: Sequence[Near], k: int) -> list[Fact]:
    store, found, seen = session.store, list[Fact](), set[int]()
    for place, cosine in near:
        triples = session.usable(store.facts.of(place))
        new = [triple for triple in triples[:IN_TEXT].tolist() if triple not in seen]
        if new and cosine > 0 and len(found) < k:
            seen.update(new)
            found.append((cosine, RetrievedFact(tuple(map(store.triple, new)), tuple(new))))
    return found


def nearest_allowed(
    sessions: Sequence[Session], store: Knowledge, kind: str, queries: Float32, k: int
) -> list[list[Near]]:
    """For each query, find the `k` nearest facts or entities, and their cosines, among those that the query's
    session allows."""
    found: list[list[Near]] = [[] for _ in sessions]
    for session in dict.fromkeys(sessions):
        rows = [row for row, one in enumerate(sessions) if one is session]
        if (allowed := session.allowed) is None:
            places, cosines = store.search(kind, queries[rows], k)
        else:
            ends = store.head[allowed], store.tail[allowed]
            usable = store.facts.with_any_of(allowed) if kind == "facts" else np.union1d(*ends).astype(np.int64)
            known = np.array([store.cosines(usable.tolist(), queries[row], kind) for row in rows])
            order = np.argsort(-known, axis=1, kind="stable")[:, :k]
            places, cosines = usable[order], np.take_along_axis(known, order, axis=1)
        for row, *pairs in zip(rows, places.tolist(), cosines.tolist(), strict=True):
            found[row] = [pair for pair in zip(*pairs, strict=True) if pair[0] >= 0]
    return found
