"""What questions ask of a store, for many at once: `Context.call` batches these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.retrieval import Index


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The nearest to a query, best first."""

    places: Int64
    """[n] facts, entities or relation keys"""
    cosines: Float32
    """[n]"""
    query: Float32
    """[dimensions] the query's vector"""


def search_facts(index: Index, queries: Sequence[str], store: Knowledge, k: int) -> list[Found]:
    """The `k` facts nearest to each query (equation 3 of SubQRAG)."""
    return _search(store, "facts", queries, k)


def search_entities(index: Index, queries: Sequence[str], store: Knowledge, k: int) -> list[Found]:
    """The `k` entities whose names are nearest to each query."""
    return _search(store, "entities", queries, k)


def search_keys(index: Index, queries: Sequence[str], store: Knowledge, k: int) -> list[Found]:
    """The `k` relation keys nearest to each query."""
    return _search(store, "keys", queries, k)


def _search(store: Knowledge, what: str, queries: Sequence[str], k: int) -> list[Found]:
    vectors = store.encode(queries)
    places, cosines = store.search(what, vectors, k)
    found = zip(places, cosines, vectors, strict=True)
    return [Found(place[place >= 0], cosine[place >= 0], vector) for place, cosine, vector in found]


def neighbours(index: Index, entities: Sequence[int], store: Knowledge, hops: int) -> list[Int32]:
    """For each entity those that are 1 to `hops` triples away."""
    return store.neighbours(np.asarray(entities, np.int32), hops)


def encode(index: Index, texts: Sequence[str], store: Knowledge) -> list[Float32]:
    """The vector of each text."""
    return list(store.encode(texts))
