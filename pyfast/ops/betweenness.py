"""Betweenness of evidence graphs: the share of a pool's shortest paths that lead through a document."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Float32, call, thread_count
from pyfast.ops.evidence_graph import EvidenceGraph, graph_arrays

EdgeLength = Literal["inverse", "hops"]


def betweenness(g: EvidenceGraph, length: EdgeLength = "inverse", threads: int | None = None) -> Float32:
    """float32[N]: of each node v of a pool of n, the mean over ordered pairs (s, t) of other nodes of

    (number of shortest paths from s to t through v) / (number of shortest paths from s to t),

    0 for a pair without a path: the sum divided by (n - 1) * (n - 2), and 0 where n <= 2.

    `length` of an edge: "inverse", 1 / weight, for weights are strengths; or "hops", 1. Edges of weight 0 and
    self-loops are on no path. Paths whose lengths differ by at most 1e-10 of them count as equally long. Raises
    `ArrayError` on malformed input.
    """
    return call(_native.betweenness, g=graph_arrays(g), length=length, threads=thread_count(threads))


def betweenness_reference(weights: npt.ArrayLike, length: EdgeLength = "inverse") -> npt.NDArray[Any]:
    """The same for one pool's adjacency matrix, in float64: Brandes's algorithm, as he wrote it."""
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    out = np.zeros(n)
    neighbours = [[w for w in range(n) if edges[v, w] > 0 and w != v] for v in range(n)]
    cost = np.where(edges > 0, 1.0 if length == "hops" else 1.0 / np.where(edges > 0, edges, 1.0), np.inf)
    for s in range(n):
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
    return out / ((n - 1) * (n - 2)) if n > 2 else out
