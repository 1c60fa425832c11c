"""Eigenvector centrality of evidence graphs: a document is as central as those that lead to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Float32, call, thread_count
from pyfast.ops.convergence import warn_of
from pyfast.ops.evidence_graph import EvidenceGraph, graph_arrays


def eigenvector(
    g: EvidenceGraph, tolerance: float = 1e-7, max_iterations: int = 1000, threads: int | None = None
) -> Float32:
    """Eigenvector centrality of each node: a node is as central as those that lead to it.

    It is x with lambda * x_v = sum over edges (u, v) of w_uv * x_u, lambda the largest eigenvalue.

    Each pool has Euclidean norm 1. A pool without edges, or without cycles among them, is all equal, 1 / sqrt(n).
    Where the largest eigenvalue has several eigenvectors (components of equal strength), x is the one nearest to
    all equal. A self-loop is an edge like any other.

    Power iteration in float64 on A + s * I, s a quarter of the present estimate of lambda, so that bipartite
    graphs converge. After 50 steps, which few pools need, restarted Arnoldi bases take over. Ctrl-C is heard
    between products.

    Args:
        g: The graphs of P pools with N nodes.
        tolerance: A pool is done where ||A x - mu x|| <= tolerance * mu, mu = ||A x||: x is then the eigenvector
            of weights that differ by no more than that. Where the second eigenvalue is closer to the first than a
            share d, x is right to some tolerance / d. 0: iterate as far as rounding allows.
        max_iterations: Products with A for a pool, at most. A pool that needs more gets what was reached.
        threads: See `pyfast.ops`.

    Returns:
        float32[N], none negative.

    Raises:
        ArrayError: The graph or a number is malformed.

    Warns:
        ConvergenceWarning: Pools that needed more than `max_iterations`, or whose edges have no cycle: such a
            graph has no such x. The warning names them.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> star = ops.EvidenceGraph.from_scipy(csr_array([[0, 3, 4], [3, 0, 0], [4, 0, 0]]))
        >>> print((ops.eigenvector(star) ** 2).round(2))
        [0.5  0.18 0.32]
    """
    centrality, _, converged = call(
        _native.eigenvector,
        g=graph_arrays(g),
        tolerance=tolerance,
        max_iterations=max_iterations,
        threads=thread_count(threads),
    )
    warn_of("eigenvector", converged, max_iterations)
    return centrality


def eigenvector_reference(weights: npt.ArrayLike) -> npt.NDArray[Any]:
    """Centrality of one pool's symmetric adjacency matrix in float64, by `numpy.linalg.eigh`."""
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    values, vectors = np.linalg.eigh(edges)
    first = vectors[:, values > values.max() * (1 - 1e-9)] if values.max() > 0 else np.eye(n)
    x = first @ (first.T @ np.ones(n))  # all equal, projected
    return np.asarray(np.abs(x) / np.linalg.norm(x))
