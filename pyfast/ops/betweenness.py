"""Betweenness of evidence graphs: the share of a pool's shortest paths that go through a document."""

from __future__ import annotations

import operator
from typing import Literal

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Float32, array, call, graph_arrays, thread_count
from pyfast.ops.evidence_graph import EvidenceGraph

EdgeLength = Literal["inverse", "hops"]


def betweenness(
    g: EvidenceGraph,
    length: EdgeLength | npt.ArrayLike = "inverse",
    threads: int | None = None,
    k: int | None = None,
    seed: int = 0,
) -> Float32:
    """Compute the betweenness centrality of each node: the share of shortest paths that go through the node.

    For a node v of a pool of n nodes, the result is the mean over ordered pairs (s, t) of other nodes of

        (number of shortest paths from s to t through v) / (number of shortest paths from s to t)

    A pair without a path counts as 0. The mean is the sum divided by (n - 1) * (n - 2), or 0 if n <= 2. Edges
    of weight 0 and self-loops do not count. Two paths count as equally long if their lengths differ by at
    most a factor of 1 + 1e-10. The op takes one source s after the other. Ctrl-C stops it between two
    sources.

    Args:
        g: The graphs of P pools with N nodes and E edges.
        length: The length of an edge. "inverse": 1 / weight, because a weight is a strength. "hops": each edge
            has length 1. You can also give float64[E], a finite number above 0 for each edge in `g.indices`.
        threads: See `pyfast.ops`.
        k: Use only k nodes of each pool as sources s, drawn without replacement (Brandes and Pich 2007). The
            mean is then over the pairs with these sources, as in networkx: k * (n - 2) pairs, or (k - 1) * (n -
            2) pairs for a node that is a source. If k is 1, the source gets NaN. A pool of at most k nodes gets
            exact results. None: use all nodes.
        seed: The seed of the draw, from 0 to 2**64 - 1. Pools of the same size draw the same positions.

    Returns:
        float32[N], in [0, 1].

    Raises:
        ArrayError: The graph, `length`, `k` or `seed` is malformed.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> path = ops.EvidenceGraph.from_scipy(csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
        >>> ops.betweenness(path).tolist()
        [0.0, 1.0, 0.0]
    """
    arrays = graph_arrays(g)
    if not isinstance(length, str):
        length = array("length", length, np.float64)
        if len(length) != len(arrays[2]):
            raise ArrayError(f"length: expected one number for each edge ({len(arrays[2])}), got {len(length)}")
    if not hasattr(seed, "__index__") or not 0 <= operator.index(seed) < 2**64:
        raise ArrayError(f"seed: expected an integer from 0 to 2**64 - 1, got {seed!r}")
    return call(native.betweenness, g=arrays, length=length, k=k, seed=seed, threads=thread_count(threads))
