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
    """float32[N]: x of lambda * x_v = sum over edges (u, v) of w_uv * x_u, lambda the largest eigenvalue.

    None is negative, and each pool has Euclidean norm 1. A pool without edges, or without cycles among them: all
    equal, 1 / sqrt(n). Where the largest eigenvalue has several eigenvectors (components of equal strength): the
    one nearest to all equal. A self-loop is an edge like any other.

    A pool is done where ||A x - mu x|| <= tolerance * mu, mu = ||A x||: x is then the eigenvector of weights that
    differ by no more than that; where the second eigenvalue is as close as 1 - d to the first, relatively, it is
    right to some tolerance / d. A tolerance of 0: as far as rounding lets it fall.

    Power iteration in float64 on A + s * I, s a quarter of the present estimate of lambda, so that bipartite
    graphs converge; after 50 steps, which few pools need, restarted Arnoldi bases find where it would come to.
    `max_iterations` limits a pool's products with A. A pool that needs more is given what was reached, with a
    `ConvergenceWarning` that names it; so is one whose edges have no cycle, for it has no such x. Ctrl-C is heard
    between products. Raises `ArrayError` on malformed input.
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
    """The same for one pool's symmetric adjacency matrix, by `numpy.linalg.eigh` in float64."""
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    values, vectors = np.linalg.eigh(edges)
    first = vectors[:, values > values.max() * (1 - 1e-9)] if values.max() > 0 else np.eye(n)
    x = first @ (first.T @ np.ones(n))  # all equal, projected
    return np.asarray(np.abs(x) / np.linalg.norm(x))
