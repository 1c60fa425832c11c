"""The evidence graph of N2N-GQA. Its nodes are the documents of a pool. Its edges join documents that share
terms.
"""

from __future__ import annotations

from ctypes import c_float
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

import pyfast._native as native
import pyfast.ops.gpu as gpu
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Csr, Float32, Int32, Int64, Ragged, arguments, array, call, ragged
from pyfast.ops.backend import Backend, on_gpu

if TYPE_CHECKING:
    from numba.core.ccallback import CFunc

EdgeWeight = Literal["sum", "dot", "min"]
Idf = Literal["corpus", "pool"]


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceGraph:
    """The graphs of P pools, which have N nodes and E edges together.

    One sparse CSR matrix contains all graphs, and each pool is a block of the matrix. Row v of the matrix has
    the edges of node v. They lead to the nodes in `indices`. The arrays are NumPy arrays, or arrays of CuPy
    or torch if an op made them on a GPU. Two graphs are equal if all four arrays have the same numbers.
    Graphs cannot be hashed.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> g = ops.EvidenceGraph.from_scipy(csr_array([[0, 2], [2, 0]]), csr_array([[0]]))
        >>> g.pool_offsets.tolist(), g.indices.tolist(), g.weights.tolist()
        ([0, 2, 3], [1, 0], [2.0, 2.0])
    """

    pool_offsets: Int64
    """[P + 1] pool p has the nodes pool_offsets[p] to pool_offsets[p + 1]"""
    indptr: Int64
    """[N + 1] node v has the edges indptr[v] to indptr[v + 1]"""
    indices: Int32
    """[E] the node to which each edge leads, as its position in the pool"""
    weights: Float32
    """[E] the weight of each edge"""

    def pool(self, p: int) -> csr_array:
        """Return the adjacency matrix of one pool, documents x documents.

        Args:
            p: The number of the pool, from 0. The arrays of the graph must be on the CPU.
        """
        first, last = int(self.pool_offsets[p]), int(self.pool_offsets[p + 1])
        begin, end = int(self.indptr[first]), int(self.indptr[last])
        parts = (self.weights[begin:end], self.indices[begin:end], self.indptr[first : last + 1] - begin)
        return csr_array(parts, shape=(last - first, last - first))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EvidenceGraph):
            return NotImplemented
        return all(_same(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    @classmethod
    def from_scipy(cls, *adjacency: Any) -> EvidenceGraph:
        """Create a graph from SciPy sparse arrays or matrices, each of which becomes one pool. `pool(p)` returns
        the matrix of a pool.

        Args:
            *adjacency: Square and real matrices. Entry (u, v) is the edge from u to v, so an undirected graph
                is a symmetric matrix. Entries are converted to float32. Duplicate entries are added up. A
                stored 0 stays in the graph, but ops do not treat it as an edge. The matrices do not change.

        Raises:
            ArrayError: A matrix is not square, not sparse, or not real.
        """
        each = [_adjacency(f"adjacency[{p}]", matrix) for p, matrix in enumerate(adjacency)]
        degrees = [np.diff(x.indptr) for x in each]
        with np.errstate(over="ignore"):  # An overflow gives infinity, which the ops refuse by name.
            return cls(
                np.cumsum([0, *map(len, degrees)]),
                np.concatenate([[0], *degrees]).cumsum().astype(np.int64),
                np.concatenate([np.empty(0), *[x.indices for x in each]]).astype(np.int32),
                np.concatenate([np.empty(0), *[x.data for x in each]]).astype(np.float32),
            )

    @classmethod
    def from_networkx(cls, *graphs: Any, weight: str | None = "weight") -> EvidenceGraph:
        """Create a graph from networkx graphs, each of which becomes one pool. Node i is the i-th node of
        `graph.nodes`.

        An edge (u, v) of a `Graph` leads in both directions. An edge (u, v) of a `DiGraph` leads from u to v.
        Weights of parallel edges in a multigraph are added up.

        Args:
            *graphs: The networkx graphs.
            weight: The name of the edge attribute with the weight. The weight must be a strength, not a length. An
                edge without this attribute weighs 1. None: all edges weigh 1.

        Raises:
            ArrayError: A value is not a networkx graph, or a weight is not a number.
        """
        from networkx import NetworkXException, to_scipy_sparse_array

        each = []
        for p, graph in enumerate(graphs):
            try:
                # networkx refuses a graph without nodes.
                each.append(to_scipy_sparse_array(graph, weight=weight) if len(graph) else csr_array((0, 0)))
            except (NetworkXException, AttributeError, TypeError, ValueError) as error:
                raise ArrayError(f"graphs[{p}]: cannot be read as a networkx graph: {error}") from error
        return cls.from_scipy(*each)


def _same(a: Any, b: Any) -> bool:
    """Return whether two arrays contain the same numbers. Both are NumPy arrays, or arrays of one GPU library."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return a is b or (len(a) == len(b) and bool((a == b).all()))


def _adjacency(name: str, given: Any) -> csr_array:
    """Copy a matrix as CSR with sorted indices. Raises `ArrayError` if it is not a square and real sparse
    matrix."""
    is_sparse: bool = issparse(given)
    if not is_sparse or len(given.shape) != 2 or given.shape[0] != given.shape[1]:
        shape = getattr(given, "shape", type(given).__name__)
        raise ArrayError(f"{name}: expected a square sparse SciPy array, got {shape}")
    if given.dtype.kind not in "biuf":
        raise ArrayError(f"{name}: expected real numbers, got {given.dtype}")
    own = given.copy()
    try:
        if hasattr(own, "check_format"):  # SciPy would follow invalid offsets out of bounds.
            own.check_format(full_check=True)
        x = csr_array(own, dtype=np.float64)
    except ValueError as error:
        raise ArrayError(f"{name}: {error}") from error
    x.sum_duplicates()
    return x


def evidence_graph(
    X: Csr,
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
    """Build the evidence graph of each pool. A weighted edge joins documents that share terms (N2N-GQA).

    Below, T is the set of terms that documents i and j share, and x_it is the weight of term t in document i. A
    term with a stored weight of 0 also belongs to T. If the arrays are on a GPU, the graph is computed there and
    stays there (docs/gpu.md). On a GPU, `weight` must be a name and `idf` must be "corpus".

    Args:
        X: The forward index, documents x terms.
        pool_offsets: int64[P + 1], where each pool begins.
        doc_ids: int32[N], documents of X.
        weight: The weight of an edge. "sum": the sum over T of x_it + x_jt, as in the paper. "dot": the sum
            of x_it * x_jt. "min": the sum of min(x_it, x_jt). You can also give a `numba.cfunc` of signature
            float32(float32, float32). The weight is then the sum over T of its results for (x_it, x_jt). C++
            calls the function directly, without Python. If it raises an exception, numba prints the
            exception, and the term counts as 0.
        threshold: Only edges with a weight above this number stay.
        top_k: The number of strongest edges that each node keeps. Of edges with equal weights, the edge to
            the earlier document stays. If `top_k` is given, an edge can exist in one direction only, so the
            graph is not symmetric.
        mask_terms: (offsets int64[P + 1], term ids): for each pool, the terms that do not count as shared.
        idf: "corpus": X has the weights. "pool": X has term frequencies. The op then computes the weights of
            each pool as if the pool were the whole corpus. It uses smoothed idf and the l2 norm, as
            scikit-learn's `TfidfTransformer` does if it is fitted on the pool.
        threads: See `pyfast.ops`.
        backend: "auto": the op runs where the arrays are. "cpu" or "cuda": the op must run there.

    Returns:
        The graphs, one for each pool.

    Raises:
        ArrayError: An array is malformed, or a weight is negative or not finite.
        DeviceError: The op should run on a GPU, but no GPU can be used.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> X = csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], np.float32))
        >>> ops.evidence_graph(X, [0, 3], [0, 1, 2]).pool(0).toarray().tolist()
        [[0.0, 2.0, 0.0], [2.0, 0.0, 2.0], [0.0, 2.0, 0.0]]
    """
    if on_gpu(backend, doc_ids):
        there = gpu.evidence_graph(X, pool_offsets, doc_ids, weight, threshold, top_k, mask_terms, idf)
        return EvidenceGraph(*there)
    given = arguments(X=X, pool_offsets=pool_offsets, doc_ids=doc_ids, threads=threads)
    given["mask_terms"] = None if mask_terms is None else ragged("mask_terms", mask_terms)
    given["weight"] = weight_argument(weight)
    indptr, indices, weights = call(native.evidence_graph, **given, idf=idf, threshold=threshold, top_k=top_k)
    return EvidenceGraph(given["pool_offsets"], indptr, indices, weights)


def shared_terms(
    X: Csr, i: int, j: int, weight: EdgeWeight | CFunc = "sum", mask_terms: npt.ArrayLike = ()
) -> tuple[Int32, Float32]:
    """Explain one edge: which terms the two documents share, and how much each term adds to the weight.

    Args:
        X: The forward index, documents x terms.
        i: A document of X.
        j: Another document of X.
        weight: As in `evidence_graph`.
        mask_terms: Term ids that do not count as shared.

    Returns:
        (term ids int32, shares float32), the largest share first. If shares are equal, the lower term id comes
        first. The sum of all shares is the weight of the edge in `evidence_graph`.

    Raises:
        ArrayError: An array is malformed, or X has no such document.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> X = csr_array(np.array([[1, 1, 0], [0, 1, 1]], np.float32))
        >>> terms, shares = ops.shared_terms(X, 0, 1)
        >>> terms.tolist(), shares.tolist()
        ([1], [2.0])
    """
    weight_argument(weight)  # This refuses an invalid weight.
    indptr, indices, weights, _ = arguments(X=X)["X"]
    documents = array("i, j", [i, j], np.int64)
    if documents.min() < 0 or documents.max() >= len(indptr) - 1:
        raise ArrayError(
            f"i, j: expected document numbers from 0 to {len(indptr) - 2},"
            f" as the forward index has {len(indptr) - 1} documents"
        )
    (a, of_a), (b, of_b) = (_row(indices, weights, slice(*indptr[d : d + 2].tolist())) for d in documents.tolist())
    terms, at_a, at_b = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    shares = term_weights(weight, of_a[at_a], of_b[at_b]).astype(np.float32)
    order = np.argsort(-shares, kind="stable")
    order = order[~np.isin(terms[order], array("mask_terms", mask_terms, np.int32))]
    return terms[order], shares[order]


def _row(indices: npt.NDArray[Any], weights: npt.NDArray[Any], entries: slice) -> tuple[Int32, Float32]:
    """Return the term ids of a row of X, sorted and without duplicates, and the weight of each term. Weights
    of duplicate entries are added up."""
    terms, place = np.unique(indices[entries], return_inverse=True)
    return terms.astype(np.int32), np.bincount(place, weights[entries], len(terms)).astype(np.float32)


def weight_argument(weight: EdgeWeight | CFunc) -> str | int:
    """Convert `weight` to what the core expects: a name, or the address of a compiled function.

    Raises `ArrayError` for any other value of `weight`.
    """
    if isinstance(weight, str):
        if weight not in get_args(EdgeWeight):
            raise ArrayError(f"weight: expected 'sum', 'dot', 'min' or a numba.cfunc, got {weight!r}")
        return weight
    # The address of a numba.cfunc. Other objects with an address are refused.
    compiled, address = getattr(weight, "ctypes", None), getattr(weight, "address", None)
    if type(weight).__module__.partition(".")[0] != "numba" or compiled is None or not address:
        raise ArrayError(f"weight: expected 'sum', 'dot', 'min' or a numba.cfunc, got {type(weight).__name__}")
    if compiled.restype is not c_float or tuple(compiled.argtypes) != (c_float, c_float):
        raise ArrayError("weight: the numba.cfunc's signature must be float32(float32, float32)")
    return int(address)


def term_weights(weight: EdgeWeight | CFunc, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute how much each shared term adds to the weight of an edge, from the term's weights in the two
    documents.
    """
    if not isinstance(weight, str):
        return np.array([weight.ctypes(x, y) for x, y in zip(a, b, strict=True)])
    return np.asarray({"sum": a + b, "dot": a * b, "min": np.minimum(a, b)}[weight])
