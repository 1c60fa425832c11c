"""Betweenness of evidence graphs: the share of a pool's shortest paths that go through a document."""

from __future__ import annotations

import operator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Float32, array, call, thread_count
from pyfast.ops.evidence_graph import EvidenceGraph, graph_arrays

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
            raise ArrayError(f"length: expected a number for each of {len(arrays[2])} edges, got {len(length)}")
    if not hasattr(seed, "__index__") or not 0 <= operator.index(seed) < 2**64:
        raise ArrayError(f"seed: expected an integer of 0 to 2**64 - 1, got {seed!r}")
    return call(native.betweenness, g=arrays, length=length, k=k, seed=seed, threads=thread_count(threads))


def betweenness_reference(
    weights: npt.ArrayLike,
    length: EdgeLength | npt.ArrayLike = "inverse",
    k: int | None = None,
    seed: int = 0,
) -> npt.NDArray[Any]:
    """Compute the betweenness of one pool in float64, by Brandes's published algorithm on the adjacency matrix.

    `length` is "inverse", "hops", or a matrix with the length of each edge.
    """
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    out = np.zeros(n)
    neighbours = [[w for w in range(n) if edges[v, w] > 0 and w != v] for v in range(n)]
    if isinstance(length, str):
        lengths = np.ones((n, n)) if length == "hops" else 1.0 / np.where(edges > 0, edges, 1.0)
    else:
        lengths = np.asarray(length, dtype=np.float64)
    cost = np.where(edges > 0, lengths, np.inf)
    sources = sources_reference(n, k, seed)
    for s in sources:
        distance = np.full(n, np.inf)
        distance[s] = 0.0
        waiting, order = set(range(n)), []
        while waiting:
            v = min(waiting, key=lambda u: (distance[u], u))
            waiting.remove(v)
            if distance[v] == np.inf:
                break
            order.append(v)
            for w in neighbours[v]:
                distance[w] = min(distance[w], distance[v] + cost[v, w])
        place = {v: at for at, v in enumerate(order)}
        on_path = {
            v: [
                w
                for w in neighbours[v]
                if place[w] > place[v] and distance[v] + cost[v, w] <= distance[w] * (1 + 1e-10)
            ]
            for v in order
        }
        paths = np.zeros(n)
        paths[s] = 1.0
        for v in order:
            paths[on_path[v]] += paths[v]
        dependency = np.zeros(n)
        for v in reversed(order):
            dependency[v] = sum(paths[v] / paths[w] * (1.0 + dependency[w]) for w in on_path[v])
        dependency[s] = 0.0
        out += dependency
    if n <= 2:
        return out
    own = np.isin(np.arange(n), sources) & (len(sources) < n)
    pairs = (np.where(len(sources) < n, len(sources), n - 1) - own) * (n - 2)
    return np.asarray(np.divide(out, pairs, out=np.full(n, np.nan), where=pairs > 0))


def sources_reference(n: int, k: int | None, seed: int) -> list[int]:
    """Draw the k sources of a pool of n nodes. They are the first k nodes of a shuffle with SplitMix64. The
    result is in ascending order."""
    nodes = list(range(n))
    if k is None or k >= n:
        return nodes
    state = seed
    for i in range(k):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        bits = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
        j = i + (bits ^ (bits >> 31)) % (n - i)
        nodes[i], nodes[j] = nodes[j], nodes[i]
    return sorted(nodes[:k])
