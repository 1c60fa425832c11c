"""Weighted degree centrality of the evidence graph, by a formula that does not need the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt

import pyfast._native as native
import pyfast.ops.gpu as gpu
from pyfast.ops.arrays import Csr, Float32, arguments, call
from pyfast.ops.backend import Backend, on_gpu
from pyfast.ops.evidence_graph import EdgeWeight, Idf, weight_argument

if TYPE_CHECKING:
    from numba.core.ccallback import CFunc


def weighted_degree(
    X: Csr,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    weight: EdgeWeight | CFunc = "sum",
    idf: Idf = "corpus",
    threads: int | None = None,
    backend: Backend = "auto",
) -> Float32:
    """Compute the weighted degree of each node: the sum of its edges' weights in the evidence graph of its pool.

    All edges of the graph count: there is no `threshold` and no `top_k`. df_t is the number of documents of the
    pool with term t, and S_t is the sum of the weights of t in these documents. The degree of document i is:

    - "sum": the sum over t in i of (df_t - 2) * x_it + S_t
    - "dot": the sum over t in i of x_it * (S_t - x_it). The op computes S_t - x_it as the sum of the weights
      of t in the other documents, without a subtraction

    "sum" and "dot" take time in proportion to the stored entries of X in the rows of the pools. "min" and a
    `numba.cfunc` need a pass over all edges.

    Args:
        X: The forward index, documents x terms.
        pool_offsets: int64[P + 1], where each pool begins.
        doc_ids: int32[N], documents of X.
        weight: As in `evidence_graph`; a GPU supports "sum" and "dot".
        idf: As in `evidence_graph`.
        threads: See `pyfast.ops`.
        backend: As in `evidence_graph`.

    Returns:
        float32[N], the degree of each node.

    Raises:
        ArrayError: An array is malformed, or a weight is negative or not finite.
        DeviceError: The op should run on a GPU, but no GPU can be used.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> X = csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], np.float32))
        >>> ops.weighted_degree(X, [0, 3], [0, 1, 2]).tolist()
        [2.0, 4.0, 2.0]
    """
    if on_gpu(backend, doc_ids):
        return gpu.weighted_degree(X, pool_offsets, doc_ids, weight, idf)
    given = arguments(X=X, pool_offsets=pool_offsets, doc_ids=doc_ids, threads=threads)
    return call(native.weighted_degree, **given, weight=weight_argument(weight), idf=idf)
