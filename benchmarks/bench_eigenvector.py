"""eigenvector: the graphs of pools of 50 documents, all edges."""

import networkx
import numpy as np
import pytest
from graph_peers import RealGraphs, igraph_of, values
from measuring import THREADS, Measure

from pyfast import ops

OP = "eigenvector"


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_pyfast(graphs: RealGraphs, measure: Measure, threads: int) -> None:
    measure.op(OP, threads, lambda: ops.eigenvector(graphs.batch, threads=threads), moved=graphs.bytes)


def test_igraph(graphs: RealGraphs, measure: Measure) -> None:
    run = lambda p: graphs.of_igraph[p].eigenvector_centrality(weights="weight")  # noqa: E731

    def compare() -> None:
        found = ops.eigenvector(graphs.batch)
        for p in range(len(graphs.of_igraph)):
            np.testing.assert_allclose(found[graphs[p]] / found[graphs[p]].max(), run(p), rtol=1e-4, atol=1e-6)

    measure.check(compare)
    measure.peer(OP, "igraph, graphs at hand", 10, run)


def test_igraph_from_the_arrays(graphs: RealGraphs, measure: Measure) -> None:
    measure.peer(OP, "igraph", 20, lambda p: igraph_of(graphs, p).eigenvector_centrality(weights="weight"))


def test_networkx(graphs: RealGraphs, measure: Measure) -> None:
    run = lambda p: networkx.eigenvector_centrality(graphs.of_networkx[p], weight="weight")  # noqa: E731

    def compare() -> None:
        found = ops.eigenvector(graphs.batch)
        for p in range(len(graphs.of_networkx)):
            np.testing.assert_allclose(found[graphs[p]], values(run(p)), atol=1e-4)

    measure.check(compare)
    measure.peer(OP, "networkx", 1000, run, pools=20)
