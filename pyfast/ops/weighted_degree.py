"""Weighted degree centrality of the evidence graph, in closed form: no edge is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Csr, Float32, call, forward, pools, thread_count
from pyfast.ops.backend import Backend, on_gpu
from pyfast.ops.evidence_graph import EdgeWeight, Idf, evidence_graph_reference, weight_argument

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
    """float32[N]: for each node the sum of its edges' weights in the unpruned evidence graph of its pool.

    With df_t the pool's documents that hold t and S_t the sum of their weights, "sum" gives
    sum over t in i of (df_t - 2) * x_it + S_t, and "dot" sum of x_it * (S_t - x_it), where the difference is
    added up from the other documents: O(nnz). "min" and a `numba.cfunc` go over the edges. `weight` and `idf` are
    those of `evidence_graph`.
    `backend` as in `evidence_graph`; a GPU has the degrees of "sum" and "dot".
    Raises `ArrayError` and `DeviceError` as that does.
    """
    if on_gpu(backend, doc_ids):
        from pyfast.ops import gpu

        on_device: Float32 = gpu.weighted_degree(X, pool_offsets, doc_ids, weight, idf)
        return on_device
    offsets, documents = pools(pool_offsets, doc_ids)
    return call(
        _native.weighted_degree,
        X=forward(X),
        pool_offsets=offsets,
        doc_ids=documents,
        weight=weight_argument(weight),
        idf=idf,
        threads=thread_count(threads),
    )


def weighted_degree_reference(
    X: Csr, pool: npt.ArrayLike, weight: EdgeWeight | CFunc = "sum", idf: Idf = "corpus"
) -> npt.NDArray[Any]:
    """The same for one pool: row sums of the dense adjacency."""
    return np.asarray(evidence_graph_reference(X, pool, weight, idf=idf).sum(axis=1))
