"""evidence_graph: full edges of pools of 50 documents."""

import networkx
import numpy as np
import pytest
from measuring import THREADS, Measure, RealPools
from peers import networkx_graph, pool_weights, scipy_graph

from pyfast import ops

OP = "evidence_graph"


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_pyfast(real: RealPools, measure: Measure, threads: int) -> None:
    docs = real.docs.ravel()
    graph = ops.evidence_graph(real.X, real.offsets, docs)
    moved = real.bytes + graph.indptr.nbytes + graph.indices.nbytes + graph.weights.nbytes
    measure.op(OP, threads, lambda: ops.evidence_graph(real.X, real.offsets, docs, threads=threads), moved=moved)


def test_scipy(real: RealPools, measure: Measure) -> None:
    def compare() -> None:
        graph = ops.evidence_graph(real.X, real.offsets, real.docs.ravel())
        for p, pool in enumerate(real.docs):
            found, expected = graph.pool(p).toarray(), scipy_graph(real.X, pool).toarray()
            np.testing.assert_allclose(found, expected, rtol=1e-5)

    measure.check(compare)
    measure.peer(OP, "scipy", 25, lambda p: scipy_graph(real.X, real.docs[p]))


def test_networkx(real: RealPools, measure: Measure) -> None:
    def compare() -> None:
        for texts in real.texts[:10]:
            X = pool_weights(texts)
            found = ops.evidence_graph(X, [0, len(texts)], range(len(texts))).pool(0).toarray()
            expected = networkx.to_numpy_array(networkx_graph(texts))
            np.testing.assert_allclose(found, expected, rtol=1e-5)

    measure.check(compare)
    measure.peer(OP, "scikit-learn + networkx", 400, lambda p: networkx_graph(real.texts[p]), pools=60)
