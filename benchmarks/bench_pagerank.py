"""pagerank: the graphs of pools of 50 documents, all edges."""

import networkx
import numpy as np
import pytest
from graph_peers import RealGraphs, igraph_of, values
from measuring import THREADS, Measure

from pyfast import ops

OP = "pagerank"


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_pyfast(graphs: RealGraphs, measure: Measure, threads: int) -> None:
    measure.op(OP, threads, lambda: ops.pagerank(graphs.batch, threads=threads), moved=graphs.bytes)


def test_igraph(graphs: RealGraphs, measure: Measure) -> None:
    run = lambda p: graphs.of_igraph[p].pagerank(weights="weight")  # noqa: E731

    def compare() -> None:
        found = ops.pagerank(graphs.batch)
        for p in range(len(graphs.of_igraph)):
            np.testing.assert_allclose(found[graphs[p]], run(p), rtol=1e-5, atol=1e-8)

    measure.check(compare)
    measure.peer(OP, "igraph, graphs at hand", 4, run)


def test_igraph_from_the_arrays(graphs: RealGraphs, measure: Measure) -> None:
    measure.peer(OP, "igraph", 20, lambda p: igraph_of(graphs, p).pagerank(weights="weight"))


def test_networkx(graphs: RealGraphs, measure: Measure) -> None:
    run = lambda p: networkx.pagerank(graphs.of_networkx[p])  # noqa: E731

    def compare() -> None:
        found = ops.pagerank(graphs.batch)
        for p in range(len(graphs.of_networkx)):
            np.testing.assert_allclose(found[graphs[p]], values(run(p)), atol=1e-5)

    measure.check(compare)
    measure.peer(OP, "networkx", 400, run, pools=20)
