"""eigenvector against its reference (numpy.linalg.eigh) and networkx."""

import networkx
import numpy as np
import pytest
from graph_problems import graph, matrices, parts, random_matrix, weights_of
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.eigenvector import eigenvector_reference


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
    if len(matrix) and not np.any((gaps > 1e-12) & (gaps < 1e-2)):
        found = ops.eigenvector(graph([matrix]), tolerance=1e-9, max_iterations=10_000)
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


def test_without_convergence_the_neighbours_do_not_notice() -> None:
    path = np.diag(np.ones(5), 1)  # directed, without cycles: no eigenvalue but 0
    dense = random_matrix(50, 1.0, seed=2)
    g = graph([path, dense, path])
    first, middle, last = parts(g, ops.eigenvector(g, max_iterations=200))
    assert np.array_equal(first, last) and np.isfinite(first).all()
    assert np.array_equal(middle, ops.eigenvector(graph([dense])))


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
