"""eigenvector against its reference (numpy.linalg.eigh) and networkx."""

import warnings

import networkx
import numpy as np
import pytest
import scipy.linalg
from graph_problems import graph, matrices, parts, random_matrix, weights_of
from hypothesis import given
from hypothesis import strategies as st
from interruption import Interrupted, interrupted
from pool_problems import Problem
from references import eigenvector_reference

from pyfast import ops
from pyfast.errors import ArrayError, ConvergenceWarning


@pytest.mark.filterwarnings("ignore::pyfast.errors.ConvergenceWarning")
@given(pools=st.lists(matrices(), max_size=4))
def test_properties(pools: list[np.ndarray]) -> None:
    g = graph(pools)
    centrality = ops.eigenvector(g, max_iterations=100)
    assert centrality.dtype == np.float32 and centrality.shape == (len(g.indptr) - 1,)
    for matrix, found in zip(pools, parts(g, centrality), strict=True):
        assert np.all(found >= 0)
        if len(matrix):
            assert abs(np.linalg.norm(found.astype(np.float64)) - 1) < 1e-6
        if not weights_of(matrix).any():
            np.testing.assert_allclose(found, 1 / np.sqrt(max(len(matrix), 1)), rtol=1e-6)


@given(matrix=matrices(symmetric=True))
def test_reference(matrix: np.ndarray) -> None:
    """Where the largest eigenvalue stands apart from the others, or is there twice."""
    weights = weights_of(matrix)
    values = np.linalg.eigvalsh(weights) / max(weights.max(initial=0), 1e-300)
    gaps = 1 - values / values.max(initial=1e-300)
    if len(matrix) and not np.any((gaps > 1e-12) & (gaps < 1e-7)):
        found = ops.eigenvector(graph([matrix]), tolerance=0)
        np.testing.assert_allclose(found, eigenvector_reference(weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", [2, 7, 16, 17, 50, 65, 130])
def test_networkx(n: int, density: float) -> None:
    matrix = random_matrix(n, density, seed=n)
    of = networkx.from_numpy_array(matrix)
    largest = sorted(max(networkx.connected_components(of), key=len))
    matrix = matrix[np.ix_(largest, largest)]
    if len(matrix) > 2:  # the solver wants as many
        expected = networkx.eigenvector_centrality_numpy(networkx.from_numpy_array(matrix), weight="weight")
        found = ops.eigenvector(graph([matrix]))
        np.testing.assert_allclose(found, [expected[v] for v in range(len(matrix))], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found, eigenvector_reference(matrix), rtol=1e-4, atol=1e-6)


def test_directed_as_networkx() -> None:
    """Central is what central nodes lead to."""
    matrix = random_matrix(30, 0.3, seed=0, symmetric=False)
    of = networkx.from_numpy_array(matrix, create_using=networkx.DiGraph)
    expected = networkx.eigenvector_centrality_numpy(of, weight="weight")
    found = ops.eigenvector(graph([matrix]))
    np.testing.assert_allclose(found, [expected[v] for v in range(30)], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("leaves", [1, 2, 5, 200])
def test_bipartite_stars_converge(leaves: int) -> None:
    """Their eigenvalues are plus and minus the root of the number of leaves."""
    matrix = np.zeros((leaves + 1, leaves + 1))
    matrix[0, 1:] = matrix[1:, 0] = 3.0
    found = ops.eigenvector(graph([matrix]), max_iterations=100)
    np.testing.assert_allclose(found, [0.5**0.5, *[(0.5 / leaves) ** 0.5] * leaves], rtol=1e-5)


def path(n: int) -> np.ndarray:
    """Of eigenvalues that lie close: at 200 nodes the second is 4e-4 below the first."""
    return np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)


def bridged(n: int) -> np.ndarray:
    """Two cliques of n, one a little stronger, that a thin edge joins: 3e-6 apart at n = 100."""
    matrix = np.zeros((2 * n, 2 * n))
    matrix[:n, :n] = matrix[n:, n:] = 1 - np.eye(n)
    matrix[0, 1] = matrix[1, 0] = 1.01
    matrix[n - 1, n] = matrix[n, n - 1] = 0.01
    return matrix


def nearest_neighbours(n: int, seed: int) -> np.ndarray:
    """Directed, as after `top_k`: each point of the plane leads to the five nearest."""
    points = np.random.default_rng(seed).random((n, 2))
    far = ((points[:, None] - points[None]) ** 2).sum(axis=-1) + 9 * np.eye(n)
    return np.exp(-far) * (far <= np.sort(far, axis=1)[:, 4:5])


HARD = {
    "path": path(200),
    "paths of equal strength": np.kron(np.eye(3), path(60)),
    "bridged cliques": bridged(100),
    "a cycle of other weights": np.roll(np.diag(np.linspace(0.5, 1.5, 100)), 1, axis=1),
    **{f"nearest neighbours {seed}": nearest_neighbours(200, seed) for seed in range(3)},
}


@pytest.mark.parametrize("case", HARD)
def test_close_eigenvalues(case: str) -> None:
    """Power iteration alone takes thousands of steps, and is half off after the thousand that it has."""
    matrix = HARD[case].astype(np.float32).astype(np.float64)
    if np.array_equal(matrix, matrix.T):
        expected = eigenvector_reference(matrix)
    else:
        values, vectors = scipy.linalg.eig(matrix.T)
        expected = np.abs(vectors[:, values.real.argmax()])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        np.testing.assert_allclose(ops.eigenvector(graph([matrix])), expected, rtol=1e-2, atol=1e-4)
        np.testing.assert_allclose(ops.eigenvector(graph([matrix]), tolerance=0), expected, rtol=1e-4, atol=1e-6)


def test_an_eigenvalue_that_is_twice_one_of_a_single_vector() -> None:
    found = ops.eigenvector(graph([[[1.0, 1.0], [0.0, 1.0]]]))
    np.testing.assert_allclose(found, [0, 1], atol=1e-3)


def test_without_convergence_the_neighbours_do_not_notice() -> None:
    acyclic = np.diag(np.ones(5), 1)  # directed: no eigenvalue but 0
    dense = random_matrix(50, 1.0, seed=2)
    g = graph([acyclic, dense, acyclic, np.zeros((3, 3)), np.zeros((0, 0)), path(2000)])
    with pytest.warns(ConvergenceWarning, match="eigenvector.*max_iterations=200") as told:
        found = parts(g, ops.eigenvector(g, max_iterations=200))
    assert [warning.message.pools for warning in told] == [(0, 2, 5)]
    assert told[0].filename == __file__
    np.testing.assert_allclose(found[0], 1 / np.sqrt(6), rtol=1e-6)
    assert np.array_equal(found[0], found[2]) and all(np.isfinite(each).all() for each in found)
    assert np.array_equal(found[1], ops.eigenvector(graph([dense])))


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c(threads: int) -> None:
    """What a signal's handler raises comes out of the op, whichever thread is at work."""
    g = graph([path(100), path(2000)])
    with pytest.raises(Interrupted), interrupted():
        ops.eigenvector(g, tolerance=0, max_iterations=2**31 - 1, threads=threads)


def test_real_pools(real: Problem) -> None:
    g = ops.evidence_graph(real.X, real.offsets, real.docs)
    for p, found in enumerate(parts(g, ops.eigenvector(g))):
        np.testing.assert_allclose(found, eigenvector_reference(g.pool(p).toarray()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tolerance": -1e-9}, "tolerance"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"threads": 0}, "threads"),
    ],
)
def test_bad_settings(options: dict[str, object], name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.eigenvector(graph([np.ones((3, 3))]), **options)
