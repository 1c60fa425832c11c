"""Eigenvector centrality of evidence graphs: a document is central if edges from central documents lead to
it."""

from __future__ import annotations

from typing import Any

import pyfast._native as native
from pyfast.ops.arrays import Float32, arguments, call, warn_of
from pyfast.ops.evidence_graph import EvidenceGraph


def eigenvector(
    g: EvidenceGraph, tolerance: float = 1e-7, max_iterations: int = 1000, threads: int | None = None
) -> Float32:
    """Compute the eigenvector centrality of each node: a node is central if edges from central nodes lead to
    it.

    The result x satisfies lambda * x_v = sum over edges (u, v) of w_uv * x_u, where lambda is the largest
    eigenvalue.

    The values of each pool, as a vector, have Euclidean norm 1. If the edges of a pool have no cycle, all its
    values are 1 / sqrt(n). If two components of a graph have the same largest eigenvalue, this eigenvalue has
    several eigenvectors. x is then the one that is nearest to a vector of equal values. A self-loop counts as
    an edge.

    A is the transpose of the pool's adjacency matrix. The op uses power iteration in float64 on A + s * I,
    where s is a quarter of the current estimate of lambda. The shift s makes bipartite graphs converge. If a
    pool needs more than 50 steps, which is rare, the op continues with the restarted Arnoldi method. Ctrl-C
    stops the op between two products with A.

    Args:
        g: The graphs of P pools with N nodes.
        tolerance: A pool has converged if ||A x - mu x|| <= tolerance * mu, where mu = ||A x||. x is then the
            exact eigenvector of a matrix that differs from A by at most tolerance * mu. If the second largest
            eigenvalue is (1 - d) * lambda with a small d, the error of x is about tolerance / d. With 0, the
            op iterates until rounding errors prevent further progress.
        max_iterations: The maximum number of products with A for a pool. If a pool needs more products, its
            result is the last iterate.
        threads: See `pyfast.ops`.

    Returns:
        float32[N], the centrality of each node, at least 0.

    Raises:
        ArrayError: The graph or a number is malformed.

    Warns:
        ConvergenceWarning: Some pools needed more than `max_iterations`, or the edges of a pool have no
            cycle, so that its largest eigenvalue is 0. `pools` of the warning has the numbers of these pools.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> star = ops.EvidenceGraph.from_scipy(csr_array([[0, 3, 4], [3, 0, 0], [4, 0, 0]]))
        >>> print((ops.eigenvector(star) ** 2).round(2))
        [0.5  0.18 0.32]
    """
    steps: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations}
    centrality, _, converged = call(native.eigenvector, **arguments(g=g, threads=threads), **steps)
    warn_of("eigenvector", converged, max_iterations)
    return centrality
