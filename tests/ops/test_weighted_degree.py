"""weighted_degree against its reference and the row sums of SciPy's adjacency."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, problems, random_problem, scipy_graph
from references import weighted_degree_reference
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.evidence_graph import EdgeWeight

WEIGHTS: list[EdgeWeight] = ["sum", "dot", "min"]


@given(problem=problems(), weight=st.sampled_from(WEIGHTS))
def test_reference(problem: Problem, weight: EdgeWeight) -> None:
    degree = ops.weighted_degree(problem.X, problem.offsets, problem.docs, weight)
    for p in range(len(problem)):
        expected = weighted_degree_reference(problem.X, problem.pool(p), weight)
        np.testing.assert_array_equal(problem.part(degree, p), expected.astype(np.float32))


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 520])
def test_around_the_widths_of_vectors_and_of_the_small_pool(n: int, weight: EdgeWeight) -> None:
    problem = random_problem([n], seed=n)
    degree = ops.weighted_degree(problem.X, problem.offsets, problem.docs, weight)
    np.testing.assert_allclose(degree, scipy_graph(problem.X, problem.docs, weight).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_real_pools(real: Problem, weight: EdgeWeight) -> None:
    degree = ops.weighted_degree(real.X, real.offsets, real.docs, weight)
    for p in range(0, len(real), 20 if weight == "min" else 1):  # scipy_graph is slow at `min`
        expected = scipy_graph(real.X, real.pool(p), weight).sum(axis=1)
        np.testing.assert_allclose(real.part(degree, p), expected, rtol=1e-5)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_is_the_row_sum_of_the_evidence_graph(real: Problem, weight: EdgeWeight) -> None:
    graph = ops.evidence_graph(real.X, real.offsets, real.docs, weight)
    degree = ops.weighted_degree(real.X, real.offsets, real.docs, weight)
    rows = np.repeat(np.arange(len(real.docs)), np.diff(graph.indptr))
    expected = np.bincount(rows, graph.weights, minlength=len(real.docs))
    np.testing.assert_allclose(degree, expected, rtol=1e-5)


@pytest.mark.parametrize("weight", ["sum", "dot"])
@given(seed=st.integers(0, 2**32), documents=st.integers(2, 12))
def test_weights_as_far_apart_as_they_may_be(weight: EdgeWeight, seed: int, documents: int) -> None:
    """Where one weight is nearly all of a term's sum, the rest of the sum counts all the same."""
    random = np.random.default_rng(seed)
    held = random.random((documents, 8)) < 0.5
    X = csr_array(np.where(held, 10.0 ** random.uniform(-20, 15.9, held.shape), 0.0).astype(np.float32))
    pool = np.arange(documents)
    found = ops.weighted_degree(X, [0, documents], pool, weight)
    np.testing.assert_allclose(found, weighted_degree_reference(X, pool, weight), rtol=1e-6, atol=1e-37)


def test_dot_beside_a_weight_that_is_nearly_all() -> None:
    X = csr_array(np.array([[1e15, 1e-3], [1e-6, 1.0], [1e-6, 0.0]], dtype=np.float32))
    found = ops.weighted_degree(X, [0, 3], [0, 1, 2], "dot")
    np.testing.assert_allclose(found, [2e9 + 1e-3, 1e9 + 1e-12 + 1e-3, 1e9 + 1e-12], rtol=1e-6)


@pytest.mark.parametrize("weight", ["", "max", None, 3])
def test_bad_weight(weight: object) -> None:
    problem = random_problem([3, 4])
    with pytest.raises(ArrayError, match="weight"):
        ops.weighted_degree(problem.X, problem.offsets, problem.docs, weight)  # type: ignore[arg-type]
