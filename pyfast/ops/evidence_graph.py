"""The evidence graph of N2N-GQA: documents of a pool as nodes, shared TF-IDF terms as weighted edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyfast import _native
from pyfast.ops.arrays import Float32, Int32, Int64, Ragged, call, forward, pools, ragged, thread_count

EdgeWeight = Literal["sum", "dot", "min"]


@dataclass(frozen=True, slots=True)
class EvidenceGraph:
    """The graphs of P pools with N nodes together, as one CSR whose column indices count within each pool."""

    pool_offsets: Int64
    """[P + 1] nodes of pool p: pool_offsets[p] to pool_offsets[p + 1]"""
    indptr: Int64
    """[N + 1] edges of node v: indptr[v] to indptr[v + 1]"""
    indices: Int32
    """[E] neighbour, as its position in the pool"""
    weights: Float32
    """[E] weight of the edge"""

    def pool(self, p: int) -> csr_array:
        """The adjacency of pool p, documents x documents."""
        first, last = int(self.pool_offsets[p]), int(self.pool_offsets[p + 1])
        begin, end = int(self.indptr[first]), int(self.indptr[last])
        parts = (self.weights[begin:end], self.indices[begin:end], self.indptr[first : last + 1] - begin)
        return csr_array(parts, shape=(last - first, last - first))


def evidence_graph(
    X: csr_array,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    weight: EdgeWeight = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask_terms: Ragged | None = None,
    threads: int | None = None,
) -> EvidenceGraph:
    """Edges between the documents of each pool, weighted by their shared terms T = T(i) & T(j).

    `weight`: "sum" is the paper's sum of the shared terms' scores, sum over T of x_it + x_jt; "dot" sums
    x_it * x_jt; "min" sums min(x_it, x_jt). A stored 0 counts as held.
    An edge stays where its weight is above `threshold`; with `top_k` each node keeps only its k strongest edges
    (ties: the earlier document), and symmetry is lost.
    `mask_terms`, (offsets[P + 1], term ids), names per pool the terms that count as shared by nobody.

    Raises `ArrayError` (also a `ValueError`) for malformed arrays, negative or non-finite weights.
    """
    offsets, documents = pools(pool_offsets, doc_ids)
    mask = None if mask_terms is None else ragged("mask_terms", mask_terms)
    indptr, indices, weights = call(
        _native.evidence_graph,
        forward(X),
        offsets,
        documents,
        weight,
        threshold,
        top_k,
        mask,
        thread_count(threads),
    )
    return EvidenceGraph(offsets, indptr, indices, weights)


def evidence_graph_reference(
    X: csr_array,
    pool: npt.ArrayLike,
    weight: EdgeWeight = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask: npt.ArrayLike = (),
) -> npt.NDArray[Any]:
    """The same for one pool, densely and in float64: the adjacency matrix, 0 where there is no edge."""
    sparse = X[np.asarray(pool, dtype=np.int64)]
    rows = sparse.toarray().astype(np.float64)
    held = csr_array((np.ones(sparse.nnz), sparse.indices, sparse.indptr), shape=sparse.shape).toarray() > 0
    held[:, np.asarray(mask, dtype=np.int64)] = False
    n = len(rows)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            shared = held[i] & held[j]
            a, b = rows[i][shared], rows[j][shared]
            if i != j:
                out[i, j] = {"sum": a + b, "dot": a * b, "min": np.minimum(a, b)}[weight].sum()
    out[out <= threshold] = 0.0
    if top_k is not None:
        for row in out:
            row[np.argsort(-row, kind="stable")[top_k:]] = 0.0
    return out
