"""The evidence graph of N2N-GQA: documents of a pool as nodes, shared TF-IDF terms as weighted edges."""

from __future__ import annotations

from ctypes import c_float
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyfast import _native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Float32, Int32, Int64, Ragged, array, call, forward, pools, ragged, thread_count
from pyfast.ops.backend import Backend, on_gpu

if TYPE_CHECKING:
    from numba.core.ccallback import CFunc

EdgeWeight = Literal["sum", "dot", "min"]
Idf = Literal["corpus", "pool"]


@dataclass(frozen=True, slots=True)
class EvidenceGraph:
    """The graphs of P pools with N nodes together, as one CSR whose column indices count within each pool.

    Its arrays are NumPy's, or, where it was made on a GPU, CuPy's or torch's.
    """

    pool_offsets: Int64
    """[P + 1] nodes of pool p: pool_offsets[p] to pool_offsets[p + 1]"""
    indptr: Int64
    """[N + 1] edges of node v: indptr[v] to indptr[v + 1]"""
    indices: Int32
    """[E] neighbour, as its position in the pool"""
    weights: Float32
    """[E] weight of the edge"""

    def pool(self, p: int) -> csr_array:
        """The adjacency of pool p, documents x documents. Of arrays on the CPU."""
        first, last = int(self.pool_offsets[p]), int(self.pool_offsets[p + 1])
        begin, end = int(self.indptr[first]), int(self.indptr[last])
        parts = (self.weights[begin:end], self.indices[begin:end], self.indptr[first : last + 1] - begin)
        return csr_array(parts, shape=(last - first, last - first))


def graph_arrays(g: EvidenceGraph) -> tuple[Int64, Int64, Int32, Float32]:
    """A graph, the native op's or made by hand, as the core reads it: (pool_offsets, indptr, indices, weights)."""
    try:
        return (
            array("g.pool_offsets", g.pool_offsets, np.int64),
            array("g.indptr", g.indptr, np.int64),
            array("g.indices", g.indices, np.int32),
            array("g.weights", g.weights, np.float32),
        )
    except AttributeError:
        raise ArrayError(f"g: expected an EvidenceGraph, got {type(g).__name__}") from None


def evidence_graph(
    X: csr_array,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    weight: EdgeWeight | CFunc = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask_terms: Ragged | None = None,
    idf: Idf = "corpus",
    threads: int | None = None,
    backend: Backend = "auto",
) -> EvidenceGraph:
    """Edges between the documents of each pool, weighted by their shared terms T = T(i) & T(j).

    `weight`: "sum" is the paper's sum of the shared terms' scores, sum over T of x_it + x_jt; "dot" sums
    x_it * x_jt; "min" sums min(x_it, x_jt). A `numba.cfunc` of signature float32(float32, float32) is summed over
    (x_it, x_jt); it is called from C++, with no Python in the loop (numba prints exceptions, and they count 0). A
    stored 0 counts as held.
    An edge stays where its weight is above `threshold`; with `top_k` each node keeps only its k strongest edges
    (ties: the earlier document), and symmetry is lost.
    `mask_terms`, (offsets[P + 1], term ids), names per pool the terms that count as shared by nobody.
    `idf`: with "corpus" X holds the weights. With "pool" it holds term frequencies, and each pool is weighed as a
    corpus of its own: smoothed idf and l2 norm, as scikit-learn's `TfidfTransformer` fitted on the pool would.

    With arrays on a GPU (see docs/gpu.md) the graph is one of arrays there; `backend` insists on either. A GPU has
    the named weights, and idf="corpus".

    Raises `ArrayError` (also a `ValueError`) for malformed arrays, negative or non-finite weights; `DeviceError`
    where there is no GPU to run on.
    """
    if on_gpu(backend, doc_ids):
        from pyfast.ops import gpu

        return EvidenceGraph(
            *gpu.evidence_graph(X, pool_offsets, doc_ids, weight, threshold, top_k, mask_terms, idf)
        )
    offsets, documents = pools(pool_offsets, doc_ids)
    mask = None if mask_terms is None else ragged("mask_terms", mask_terms)
    indptr, indices, weights = call(
        _native.evidence_graph,
        X=forward(X),
        pool_offsets=offsets,
        doc_ids=documents,
        weight=weight_argument(weight),
        idf=idf,
        threshold=threshold,
        top_k=top_k,
        mask_terms=mask,
        threads=thread_count(threads),
    )
    return EvidenceGraph(offsets, indptr, indices, weights)


def shared_terms(
    X: csr_array, i: int, j: int, weight: EdgeWeight | CFunc = "sum", mask_terms: npt.ArrayLike = ()
) -> tuple[Int32, Float32]:
    """(term ids, shares): what documents `i` and `j` of X share, and each term's share of their edge's weight.

    The largest share first (ties: the lower term id); the shares add up to the weight in `evidence_graph`, where
    `weight` and `mask_terms` are explained. For one edge at a time, as an explanation. Raises `ArrayError` on
    malformed input.
    """
    weight_argument(weight)  # refuses what is none
    indptr, indices, weights, _ = forward(X)
    documents = array("i, j", [i, j], np.int64)
    if documents.min() < 0 or documents.max() >= len(indptr) - 1:
        raise ArrayError(f"i, j: expected documents of the forward index of {len(indptr) - 1} documents")
    a, b = (slice(*indptr[d : d + 2].tolist()) for d in documents.tolist())
    terms, at_a, at_b = np.intersect1d(indices[a], indices[b], assume_unique=True, return_indices=True)
    shares = term_weights(weight, weights[a][at_a], weights[b][at_b]).astype(np.float32)
    order = np.argsort(-shares, kind="stable")
    order = order[~np.isin(terms[order], array("mask_terms", mask_terms, np.int32))]
    return terms[order], shares[order]


def weight_argument(weight: EdgeWeight | CFunc) -> str | int:
    """A weight as the core takes it: its name, or the address of a compiled function."""
    if isinstance(weight, str):
        if weight not in get_args(EdgeWeight):
            raise ArrayError(f"weight: expected 'sum', 'dot', 'min' or a numba.cfunc, got {weight!r}")
        return weight
    # Of a numba.cfunc; never the address of just anything.
    compiled, address = getattr(weight, "ctypes", None), getattr(weight, "address", None)
    if type(weight).__module__.partition(".")[0] != "numba" or compiled is None or not address:
        raise ArrayError(f"weight: expected 'sum', 'dot', 'min' or a numba.cfunc, got {type(weight).__name__}")
    if compiled.restype is not c_float or tuple(compiled.argtypes) != (c_float, c_float):
        raise ArrayError("weight: the numba.cfunc's signature must be float32(float32, float32)")
    return int(address)


def term_weights(weight: EdgeWeight | CFunc, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each shared term's share of an edge's weight, from its weights in the two documents."""
    if not isinstance(weight, str):
        return np.array([weight.ctypes(x, y) for x, y in zip(a, b, strict=True)])
    return np.asarray({"sum": a + b, "dot": a * b, "min": np.minimum(a, b)}[weight])


def weigh_reference(X: csr_array, pool: npt.ArrayLike) -> csr_array:
    """The rows of one pool, weighed by its own idf (`idf="pool"`), in float64."""
    rows: csr_array = X[np.asarray(pool, dtype=np.int64)].astype(np.float64)
    df = np.bincount(rows.indices, minlength=rows.shape[1])
    rows.data *= (np.log((1 + rows.shape[0]) / (1 + df)) + 1)[rows.indices]
    norm = np.sqrt(
        np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.data**2, rows.shape[0])
    )
    rows.data /= np.repeat(np.where(norm > 0, norm, 1.0), np.diff(rows.indptr))
    return rows


def evidence_graph_reference(
    X: csr_array,
    pool: npt.ArrayLike,
    weight: EdgeWeight | CFunc = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask: npt.ArrayLike = (),
    idf: Idf = "corpus",
) -> npt.NDArray[Any]:
    """The same for one pool, densely and in float64: the adjacency matrix, 0 where there is no edge."""
    sparse = weigh_reference(X, pool) if idf == "pool" else X[np.asarray(pool, dtype=np.int64)]
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
                out[i, j] = term_weights(weight, a, b).sum()
    out[out <= threshold] = 0.0
    if top_k is not None:
        for row in out:
            row[np.argsort(-row, kind="stable")[top_k:]] = 0.0
    return out
