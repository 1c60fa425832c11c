"""weighted_degree and graph_rank together: the structural score of N2N-GQA without edges."""

import numpy as np
import pytest
from measuring import THREADS, Measure, RealPools
from peers import networkx_graph_rank, pool_weights, scipy_graph_rank
from scipy.sparse import csr_array

from pyfast import ops

OP = "weighted_degree + graph_rank"


def rank(X: csr_array, offsets: object, docs: object, semantic: object, threads: int = THREADS) -> np.ndarray:
    return ops.graph_rank(semantic, ops.weighted_degree(X, offsets, docs, threads=threads), offsets)


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_pyfast(real: RealPools, measure: Measure, threads: int) -> None:
    docs, semantic = real.docs.ravel(), real.semantic.ravel()
    moved = real.bytes + 3 * semantic.nbytes  # semantic in, degree, rank out
    measure.op(OP, threads, lambda: rank(real.X, real.offsets, docs, semantic, threads), moved=moved)


def test_scipy(real: RealPools, measure: Measure) -> None:
    def compare() -> None:
        found = rank(real.X, real.offsets, real.docs.ravel(), real.semantic.ravel()).reshape(real.docs.shape)
        for p, pool in enumerate(real.docs):
            expected = scipy_graph_rank(real.X, pool, real.semantic[p])
            np.testing.assert_allclose(found[p], expected, rtol=1e-5, atol=1e-6)

    measure.check(compare)
    measure.peer(OP, "scipy", 100, lambda p: scipy_graph_rank(real.X, real.docs[p], real.semantic[p]))


def test_networkx(real: RealPools, measure: Measure) -> None:
    def compare() -> None:
        for texts, semantic in zip(real.texts[:10], real.semantic, strict=False):
            n = len(texts)
            found = rank(pool_weights(texts), [0, n], range(n), semantic)
            expected = networkx_graph_rank(texts, semantic)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    measure.check(compare)
    run = lambda p: networkx_graph_rank(real.texts[p], real.semantic[p])  # noqa: E731
    measure.peer(OP, "scikit-learn + networkx", 1500, run, pools=60)
