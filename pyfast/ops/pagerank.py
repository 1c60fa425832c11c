"""PageRank of evidence graphs: how often a random walk over a pool's graph visits a document."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

import pyfast._native as native
import pyfast.ops.gpu as gpu
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Float32, arguments, call, warn_of
from pyfast.ops.backend import Backend, on_gpu
from pyfast.ops.evidence_graph import EvidenceGraph


def pagerank(
    g: EvidenceGraph,
    damping: float = 0.85,
    personalization: npt.ArrayLike | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 1000,
    threads: int | None = None,
    backend: Backend = "auto",
) -> Float32:
    """Compute the PageRank of each node. The ranks of a pool add up to 1.

        rank_v = damping * sum over edges (u, v) of rank_u * w_uv / total_u
                 + (1 - damping + damping * stuck) * restart_v

    total_u is the sum of the weights of u's edges. stuck is the sum of the ranks of all nodes u whose total_u
    is 0. At such a node, the walk restarts. An edge leads from the node of its row in `g` to the node in
    `g.indices`. A self-loop counts as an edge.

    The op uses power iteration in float64, and Ctrl-C stops it between two steps.

    Args:
        g: The graphs of P pools with N nodes.
        damping: The probability that the walk follows an edge and does not restart, in [0, 1).
        personalization: N numbers of at least 0, one for each node. `restart_v` in the equation is in
            proportion to them. If `personalization` is None, or all numbers of a pool are 0, all nodes of the
            pool have the same `restart_v`.
        tolerance: A pool has converged if the changes of its ranks in a step add up to at most this number. The
            remaining error is at most tolerance * damping / (1 - damping).
        max_iterations: The maximum number of steps for a pool. If a pool needs more steps, the op returns the
            ranks of the last step. Each step multiplies the error by at most `damping`. With the defaults, 118
            steps are enough for any graph.
        threads: See `pyfast.ops`.
        backend: As in `evidence_graph`.

    Returns:
        float32[N], the rank of each node.

    Raises:
        ArrayError: The graph, `personalization` or a number is malformed.
        DeviceError: The op should run on a GPU, but no GPU can be used.

    Warns:
        ConvergenceWarning: Some pools needed more than `max_iterations`. `pools` of the warning has the
            numbers of these pools.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> path = ops.EvidenceGraph.from_scipy(csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
        >>> print(ops.pagerank(path).round(3))
        [0.257 0.486 0.257]
    """
    if on_gpu(backend, getattr(g, "weights", None)):
        on_device: Float32
        on_device, converged = gpu.pagerank(g, damping, personalization, tolerance, max_iterations)
        warn_of("pagerank", converged, max_iterations)
        return on_device
    shares = () if personalization is None else personalization
    given = arguments(g=g, personalization=shares, threads=threads)
    nodes, found = len(given["g"][1]) - 1, len(given["personalization"])
    if personalization is not None and found != nodes:
        raise ArrayError(f"personalization: expected {nodes} numbers, got {found}")
    steps: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations}
    rank, _, converged = call(native.pagerank, **given, damping=damping, **steps)
    warn_of("pagerank", converged, max_iterations)
    return rank
