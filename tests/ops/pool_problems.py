"""Problems for ops: a forward index, pools, and what the ops need to know of them; drawn or random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.ops.evidence_graph import EdgeWeight

Array = npt.NDArray[Any]
Lists = tuple[Array, Array]
"""(offsets, values)"""


@dataclass(frozen=True)
class Problem:
    """The arguments of every op for one batch of pools."""

    X: csr_array
    XT: csr_array
    """X transposed"""
    offsets: Array
    docs: Array
    semantic: Array
    is_table: Array
    question_terms: Lists
    cells: ops.Cells

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, values: Array, p: int) -> Array:
        """The values of pool p's nodes."""
        return values[self.offsets[p] : self.offsets[p + 1]]

    def pool(self, p: int) -> Array:
        return self.part(self.docs, p)

    def mask(self, p: int) -> Array:
        offsets, values = self.question_terms
        return values[offsets[p] : offsets[p + 1]]

    def alone(self, p: int) -> Problem:
        """Pool p as a batch of one."""
        own = {name: self.part(getattr(self, name), p) for name in ("docs", "semantic", "is_table")}
        return replace(
            self,
            offsets=np.array([0, len(own["docs"])]),
            question_terms=(np.array([0, len(self.mask(p))]), self.mask(p)),
            **own,
        )

    def first(self, pools: int) -> Problem:
        """Only the first pools."""
        nodes = int(self.offsets[pools])
        terms, values = self.question_terms
        own = {name: getattr(self, name)[:nodes] for name in ("docs", "semantic", "is_table")}
        return replace(
            self,
            offsets=self.offsets[: pools + 1],
            question_terms=(terms[: pools + 1], values[: terms[pools]]),
            **own,
        )


def ends(values: list[Any]) -> Array:
    """The offsets of a ragged list of lists."""
    return np.cumsum([0, *map(len, values)]).astype(np.int64)


def lists(values: list[Any]) -> Lists:
    """A ragged list of lists of ids."""
    return ends(values), np.array([v for inner in values for v in inner], dtype=np.int32)


# Every op on a problem; its results as one tuple of arrays per pool.


def evidence_graph(weight: EdgeWeight, masked: bool = False, **options: Any) -> Callable[..., list[Any]]:
    def run(q: Problem, threads: int = 1) -> list[tuple[Array, ...]]:
        mask = q.question_terms if masked else None
        g = ops.evidence_graph(q.X, q.offsets, q.docs, weight=weight, mask_terms=mask, threads=threads, **options)
        assert len(g.indptr) == len(q.docs) + 1 and len(g.indices) == len(g.weights) == g.indptr[-1]
        pools = (g.pool(p) for p in range(len(q)))
        return [(pool.data, pool.indices, pool.indptr) for pool in pools]

    return run


def scores(op: Callable[[Problem, int], Array]) -> Callable[..., list[Any]]:
    def run(q: Problem, threads: int = 1) -> list[tuple[Array, ...]]:
        found = op(q, threads)
        assert found.dtype == np.float32 and found.shape == q.docs.shape
        return [(q.part(found, p),) for p in range(len(q))]

    return run


def centrality(op: Callable[..., Array]) -> Callable[..., list[Any]]:
    """Of the graph of all edges, and of a directed one."""

    def run(q: Problem, threads: int = 1) -> list[tuple[Array, ...]]:
        graphs = [ops.evidence_graph(q.X, q.offsets, q.docs, "dot", top_k=k, threads=threads) for k in (None, 3)]
        whole, directed = (op(g, threads=threads) for g in graphs)
        assert whole.dtype == directed.dtype == np.float32 and whole.shape == directed.shape == q.docs.shape
        return [(q.part(whole, p), q.part(directed, p)) for p in range(len(q))]

    return run


def _bridge_expand(q: Problem, threads: int = 1) -> list[tuple[Array, ...]]:
    ends, documents, similarities = ops.bridge_expand(
        q.X, q.XT, q.offsets, q.docs, q.question_terms, k=3, threads=threads
    )
    assert len(ends) == len(q.docs) + 1 and len(documents) == len(similarities) == ends[-1]
    spans = [ends[first : last + 1] for first, last in pairwise(q.offsets)]
    return [(span - span[0], documents[span[0] : span[-1]], similarities[span[0] : span[-1]]) for span in spans]


def _prune(q: Problem, threads: int = 1) -> list[tuple[Array, ...]]:
    offsets, nodes = ops.prune(q.semantic, q.is_table, q.offsets)
    return [(nodes[offsets[p] : offsets[p + 1]],) for p in range(len(q))]


OPS: dict[str, Callable[..., list[tuple[Array, ...]]]] = {
    "evidence_graph sum": evidence_graph("sum", masked=True),
    "evidence_graph dot": evidence_graph("dot", top_k=3),
    "evidence_graph min": evidence_graph("min", threshold=0.25),
    "evidence_graph pool idf": evidence_graph("dot", masked=True, idf="pool"),
    "weighted_degree pool idf": scores(
        lambda q, t: ops.weighted_degree(q.X, q.offsets, q.docs, idf="pool", threads=t)
    ),
    "weighted_degree sum": scores(lambda q, t: ops.weighted_degree(q.X, q.offsets, q.docs, threads=t)),
    "weighted_degree dot": scores(lambda q, t: ops.weighted_degree(q.X, q.offsets, q.docs, "dot", threads=t)),
    "weighted_degree min": scores(lambda q, t: ops.weighted_degree(q.X, q.offsets, q.docs, "min", threads=t)),
    "betweenness inverse": centrality(ops.betweenness),
    "betweenness hops": centrality(partial(ops.betweenness, length="hops")),
    "bridge_expand": _bridge_expand,
    "bridge_rank": scores(
        lambda q, t: ops.bridge_rank(q.X, q.offsets, q.docs, q.semantic, q.question_terms, threads=t)
    ),
    "bridge_select": scores(
        lambda q, t: ops.bridge_select(q.X, q.offsets, q.docs, q.semantic, q.is_table, q.cells)
    ),
    "eigenvector": centrality(ops.eigenvector),
    "graph_rank": scores(lambda q, t: ops.graph_rank(q.semantic, np.float32(q.semantic) * 7 % 1, q.offsets)),
    "pagerank": centrality(ops.pagerank),
    "prune": _prune,
}
READS_X = [name for name in OPS if name not in ("graph_rank", "prune")]


def same(a: list[tuple[Array, ...]], b: list[tuple[Array, ...]]) -> bool:
    """Whether two results are bitwise the same."""

    def bits(result: list[tuple[Array, ...]]) -> list[list[bytes]]:
        return [[part.tobytes() for part in pool] for pool in result]

    return bits(a) == bits(b)


def spoil(arrays: dict[str, Array], changes: list[tuple[str, int, float]]) -> None:
    """Put each value at its place of the array of that name, where the dtype can hold it."""
    for name, place, value in changes:
        array = arrays[name]
        if array.dtype.kind == "f":
            array[place % len(array)] = value
        elif np.isfinite(value) and abs(value) < 2**32:
            array[place % len(array)] = np.int64(value).astype(array.dtype)


# Weights are small multiples of a power of two: their sums and products are exact in float32 and in any
# order, so results can be compared with a reference for equality, ties included.


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A small batch: empty pools, duplicates, equal scores, empty rows, stored zeros, tiny and large weights."""
    terms = draw(st.integers(1, 12))
    unit = 2.0 ** draw(st.sampled_from([0, 0, 0, -40, 40])) / 8
    weights = st.just(1) if draw(st.booleans()) else st.integers(0, 16)
    rows = draw(st.lists(st.dictionaries(st.integers(0, terms - 1), weights, max_size=terms), max_size=10))
    indptr, indices = lists([sorted(row) for row in rows])
    data = np.array([row[t] * unit for row in rows for t in sorted(row)], dtype=np.float32)
    X = csr_array((data, indices, indptr), shape=(len(rows), terms))
    if draw(st.booleans()):
        X.indptr = X.indptr.astype(np.int64)
    documents = st.lists(st.integers(0, len(rows) - 1), max_size=20) if rows else st.just([])
    pools = draw(st.lists(documents, max_size=5))
    offsets, docs = lists(pools)
    n = len(docs)
    semantic = draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)) if draw(st.booleans()) else [1] * n
    tables = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    words = st.lists(st.integers(0, terms - 1), max_size=3)
    questions = draw(st.lists(words, min_size=len(pools), max_size=len(pools)))
    cells = draw(st.lists(st.lists(words, max_size=3), min_size=len(rows), max_size=len(rows)))
    term_offsets, term_ids = lists([value for document in cells for value in document])
    return Problem(
        X,
        X.T.tocsr(),
        offsets,
        docs,
        np.array(semantic, dtype=np.float32),
        np.array(tables, dtype=np.uint8),
        lists(questions),
        ops.Cells(ends(cells), term_offsets, term_ids),
    )


def random_problem(sizes: list[int], terms: int = 400, per_row: int = 30, seed: int = 0) -> Problem:
    """Pools of the given sizes over documents of frequent and rare terms, with weights of every kind."""
    random = np.random.default_rng(seed)
    documents = max([*sizes, 1]) + 7
    # Squares of uniform numbers: low term ids are in most documents, high ones in few.
    rows = [
        np.unique((random.random(random.integers(0, 2 * per_row)) ** 3 * terms).astype(np.int32))
        for _ in range(documents)
    ]
    indptr, indices = lists(rows)
    data = random.random(len(indices), dtype=np.float32)
    offsets, docs = lists([random.integers(0, documents, size) for size in sizes])
    values = [[random.integers(0, terms, 1)] * 2 for _ in range(documents)]
    term_offsets, term_ids = lists([value for document in values for value in document])
    X = csr_array((data, indices, indptr), shape=(documents, terms))
    return Problem(
        X,
        X.T.tocsr(),
        offsets,
        docs,
        random.random(len(docs), dtype=np.float32),
        random.integers(0, 2, len(docs)).astype(np.uint8),
        lists([random.integers(0, terms, 4) for _ in sizes]),
        ops.Cells(ends(values), term_offsets, term_ids),
    )


def scipy_graph(X: csr_array, pool: Array, weight: str) -> Array:
    """The adjacency of one pool by sparse products (`min` has none: row by row), dense."""
    a = X[pool].astype(np.float64)
    b = a.copy()
    b.data = np.ones_like(b.data)
    if weight == "dot":
        out = (a @ a.T).toarray()
    elif weight == "sum":
        out = (a @ b.T + b @ a.T).toarray()
    else:
        dense = a.toarray()
        out = np.array([np.minimum(row, dense).sum(axis=1) for row in dense]).reshape(len(pool), len(pool))
    np.fill_diagonal(out, 0.0)
    return out
