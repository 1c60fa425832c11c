"""betweenness by edge lengths of 1 / weight: the graphs of pools of 50 documents, all edges."""

import networkx
import numpy as np
import pytest
from graph_peers import RealGraphs, igraph_of, values
from measuring import DOCUMENTS, THREADS, Measure

from pyfast import ops

OP = "betweenness"
PAIRS = (DOCUMENTS - 1) * (DOCUMENTS - 2) / 2  # igraph adds up over pairs in one order


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_pyfast(graphs: RealGraphs, measure: Measure, threads: int) -> None:
    measure.op(OP, threads, lambda: ops.betweenness(graphs.batch, threads=threads), moved=graphs.bytes)


def test_igraph(graphs: RealGraphs, measure: Measure) -> None:
    run = lambda p: graphs.of_igraph[p].betweenness(weights="length")  # noqa: E731

    def compare() -> None:
        found = ops.betweenness(graphs.batch)
        for p in range(len(graphs.of_igraph)):
            np.testing.assert_allclose(found[graphs[p]] * PAIRS, run(p), rtol=1e-5, atol=1e-6)

    measure.check(compare)
    measure.peer(OP, "igraph, graphs at hand", 4, run)


def test_igraph_from_the_arrays(graphs: RealGraphs, measure: Measure) -> None:
    measure.peer(OP, "igraph", 10, lambda p: igraph_of(graphs, p).betweenness(weights="length"))


def test_networkx(graphs: RealGraphs, measure: Measure) -> None:
    run = lambda p: networkx.betweenness_centrality(graphs.of_networkx[p], weight="length")  # noqa: E731

    def compare() -> None:
        found = ops.betweenness(graphs.batch)
        for p in range(len(graphs.of_networkx)):
            np.testing.assert_allclose(found[graphs[p]], values(run(p)), rtol=1e-5, atol=1e-8)

    measure.check(compare)
    measure.peer(OP, "networkx", 500, run, pools=20)
