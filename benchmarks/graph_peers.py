"""The graphs of the real pools, as each library holds them; built outside of what is timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import igraph
import networkx
import numpy as np
from measuring import DOCUMENTS, POOLS, RealPools

from pyfast import ops


@dataclass(frozen=True)
class RealGraphs:
    """Undirected, built once; of each edge the `weight`, and the `length` 1 / weight."""

    batch: ops.EvidenceGraph
    of_igraph: list[Any]
    of_networkx: list[Any]
    """of the first 20 pools"""

    @property
    def bytes(self) -> int:
        """What a centrality reads and writes: the edges, and a number per node."""
        g = self.batch
        return g.indptr.nbytes + g.indices.nbytes + g.weights.nbytes + 4 * DOCUMENTS * POOLS

    def __getitem__(self, p: int) -> slice:
        """The nodes of pool p."""
        return slice(p * DOCUMENTS, (p + 1) * DOCUMENTS)


def igraph_of(graphs: RealGraphs, p: int) -> Any:
    """Pool p's graph from the arrays of the batch, as a user of igraph has to make it."""
    pool = graphs.batch.pool(p).tocoo()
    upper = pool.row < pool.col
    weights = pool.data[upper].astype(np.float64)
    edges = np.stack([pool.row[upper], pool.col[upper]], axis=1)
    return igraph.Graph(DOCUMENTS, edges, edge_attrs={"weight": weights, "length": 1 / weights})


def real_graphs(real: RealPools) -> RealGraphs:
    batch = ops.evidence_graph(real.X, real.offsets, real.docs.ravel())
    of_igraph, of_networkx = [], []
    for p in range(POOLS):
        pool = batch.pool(p).tocoo()
        upper = pool.row < pool.col
        weights = pool.data[upper].astype(np.float64)
        edges = np.stack([pool.row, pool.col], axis=1)[upper].tolist()
        attributes = {"weight": weights.tolist(), "length": (1 / weights).tolist()}
        of_igraph.append(igraph.Graph(DOCUMENTS, edges, edge_attrs=attributes))
        if p < 20:
            graph = networkx.empty_graph(DOCUMENTS)
            graph.add_edges_from(
                (a, b, {"weight": w, "length": 1 / w}) for (a, b), w in zip(edges, weights.tolist(), strict=True)
            )
            of_networkx.append(graph)
    return RealGraphs(batch, of_igraph, of_networkx)


def values(centrality: dict[int, float]) -> np.ndarray:
    """networkx's result as an array."""
    return np.array([centrality[v] for v in range(DOCUMENTS)])
