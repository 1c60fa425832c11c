"""pagerank against its reference (a linear solve), networkx and igraph."""

import warnings

import igraph
import networkx
import numpy as np
import pytest
from graph_problems import graph, matrices, parts, random_matrix, weights_of
from hypothesis import given
from hypothesis import strategies as st
from interruption import Interrupted, interrupted
from pool_problems import Problem
from references import pagerank_reference

from pyfast import ops
from pyfast.errors import ArrayError, ConvergenceWarning


@given(
    pools=st.lists(matrices(), max_size=4),
    damping=st.sampled_from([0.0, 0.5, 0.85, 0.99]),
    restart=st.sampled_from(["uniform", "ones", "zeros", "some"]),
)
def test_reference(pools: list[np.ndarray], damping: float, restart: str) -> None:
    g = graph(pools)
    n = len(g.indptr) - 1
    shares = {"uniform": None, "ones": np.ones(n), "zeros": np.zeros(n), "some": np.arange(n) % 3}[restart]
    rank = ops.pagerank(g, damping, shares, tolerance=1e-10, max_iterations=10_000)
    assert rank.dtype == np.float32 and rank.shape == (n,)
    given_ = [None] * len(pools) if shares is None else parts(g, shares)
    for matrix, found, share in zip(pools, parts(g, rank), given_, strict=True):
        if len(matrix):
            expected = pagerank_reference(weights_of(matrix), damping, share)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
            assert abs(found.sum(dtype=np.float64) - 1) < 1e-6


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("density", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("n", [2, 15, 16, 17, 33, 50, 65, 130])
def test_reference_and_networkx_at_other_sizes(n: int, density: float, symmetric: bool) -> None:
    matrix = random_matrix(n, density, seed=n, symmetric=symmetric)
    shares = np.arange(n, dtype=np.float32) ** 2
    for share in (None, shares):
        found = ops.pagerank(graph([matrix]), 0.85, share)
        expected = pagerank_reference(matrix, 0.85, share)
        np.testing.assert_allclose(found, expected, rtol=5e-6, atol=1e-8)
    of_peer = networkx.pagerank(
        networkx.from_numpy_array(matrix, create_using=networkx.DiGraph),
        personalization=dict(enumerate(shares.tolist())),
        tol=1e-12,
        max_iter=1000,
    )
    np.testing.assert_allclose(found, [of_peer[v] for v in range(n)], rtol=5e-6, atol=1e-8)


def test_igraph_on_real_pools(real: Problem) -> None:
    g = ops.evidence_graph(real.X, real.offsets, real.docs)
    found = parts(g, ops.pagerank(g))
    compared = 0
    for p in range(len(real)):
        pool = g.pool(p).tocoo()
        if np.diff(g.pool(p).indptr).all():  # igraph restarts otherwise from nodes without edges
            peer = igraph.Graph(len(found[p]), np.stack([pool.row, pool.col], axis=1), directed=True)
            expected = peer.pagerank(weights=pool.data.astype(np.float64).tolist())
            np.testing.assert_allclose(found[p], expected, rtol=5e-6)
            compared += 1
    assert compared > 100


def test_a_self_loop_keeps_its_share() -> None:
    matrix = np.array([[3.0, 1.0], [1.0, 0.0]])
    expected = networkx.pagerank(
        networkx.from_numpy_array(matrix, create_using=networkx.DiGraph), tol=1e-12, max_iter=1000
    )
    np.testing.assert_allclose(ops.pagerank(graph([matrix])), [expected[0], expected[1]], rtol=1e-6)


def test_the_tolerance_bounds_the_error() -> None:
    matrix = random_matrix(60, 0.05, seed=3, symmetric=False)
    exact = pagerank_reference(matrix, 0.9)
    for tolerance in (1e-1, 1e-3, 1e-5):
        error = np.abs(ops.pagerank(graph([matrix]), 0.9, tolerance=tolerance) - exact).sum()
        assert error <= tolerance * 0.9 / (1 - 0.9) + 1e-6


def test_too_few_iterations_are_told() -> None:
    matrix = random_matrix(60, 0.05, seed=3, symmetric=False)
    g = graph([np.zeros((4, 4)), matrix, np.zeros((0, 0)), matrix[:30, :30]])
    with pytest.warns(ConvergenceWarning, match="pagerank.*max_iterations=3") as told:
        rank = ops.pagerank(g, 0.9, max_iterations=3)
    assert [warning.message.pools for warning in told] == [(1, 3)] and told[0].filename == __file__
    assert np.abs(parts(g, rank)[1] - pagerank_reference(matrix, 0.9)).sum() > 1e-3


def test_rounding_is_an_end_and_a_standstill_is_not() -> None:
    """With a tolerance of 0 the last step is one that rounding keeps from changing less."""
    matrix = random_matrix(60, 0.05, seed=3, symmetric=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = ops.pagerank(graph([matrix]), tolerance=0)
    np.testing.assert_allclose(found, pagerank_reference(matrix), rtol=1e-6)
    star = np.zeros((20, 20))
    star[0, 1:] = star[1:, 0] = 1.0
    with pytest.warns(ConvergenceWarning):  # it goes to and fro, and loses 1e-16 of that in a step
        ops.pagerank(graph([star]), 1 - 2**-53)


def test_ctrl_c() -> None:
    """What a signal's handler raises comes out of the op, long before its end."""
    star = np.zeros((200, 200))
    star[0, 1:] = star[1:, 0] = 1.0
    with pytest.raises(Interrupted), interrupted():
        ops.pagerank(graph([star]), 1 - 1e-12, max_iterations=2**31 - 1)


BAD = [
    ({"damping": 1.0}, "damping"),
    ({"damping": -0.1}, "damping"),
    ({"damping": float("nan")}, "damping"),
    ({"tolerance": -1e-9}, "tolerance"),
    ({"tolerance": float("nan")}, "tolerance"),
    ({"max_iterations": 0}, "max_iterations"),
    ({"threads": 0}, "threads"),
    ({"personalization": [1.0]}, "personalization"),
    ({"personalization": []}, "personalization"),
    ({"personalization": [1.0, -1.0, 1.0]}, "personalization"),
    ({"personalization": [1.0, float("nan"), 1.0]}, "personalization"),
    ({"personalization": [1.0, float("inf"), 1.0]}, "personalization"),
]


@pytest.mark.parametrize(("options", "name"), BAD)
def test_bad_settings(options: dict[str, object], name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.pagerank(graph([np.ones((3, 3))]), **options)
