"""evidence_graph against its reference, SciPy's sparse products, and its own contract."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, problems, random_problem, scipy_graph
from references import evidence_graph_reference, weighted_degree_reference
from sklearn.feature_extraction.text import TfidfTransformer

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.evidence_graph import EdgeWeight

WEIGHTS: list[EdgeWeight] = ["sum", "dot", "min"]


@given(
    problem=problems(),
    weight=st.sampled_from(WEIGHTS),
    threshold=st.sampled_from([0.0, 0.5, 2.0]),
    top_k=st.none() | st.integers(1, 6),
    masked=st.booleans(),
)
def test_reference(
    problem: Problem, weight: EdgeWeight, threshold: float, top_k: int | None, masked: bool
) -> None:
    mask_terms = problem.question_terms if masked else None
    graph = ops.evidence_graph(problem.X, problem.offsets, problem.docs, weight, threshold, top_k, mask_terms)
    for p in range(len(problem)):
        mask = problem.mask(p) if masked else ()
        expected = evidence_graph_reference(problem.X, problem.pool(p), weight, threshold, top_k, mask)
        assert np.array_equal(graph.pool(p).toarray(), expected)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 520])
def test_around_the_widths_of_vectors_and_of_the_small_pool(n: int, weight: EdgeWeight) -> None:
    problem = random_problem([n], seed=n)
    graph = ops.evidence_graph(problem.X, problem.offsets, problem.docs, weight)
    np.testing.assert_allclose(graph.pool(0).toarray(), scipy_graph(problem.X, problem.docs, weight), rtol=1e-5)


@pytest.mark.parametrize("weight", ["sum", "dot"])
def test_real_pools(real: Problem, weight: EdgeWeight) -> None:
    graph = ops.evidence_graph(real.X, real.offsets, real.docs, weight)
    for p in range(len(real)):
        np.testing.assert_allclose(graph.pool(p).toarray(), scipy_graph(real.X, real.pool(p), weight), rtol=1e-5)


@numba.cfunc("float32(float32, float32)")  # type: ignore[misc]
def lopsided(x: float, y: float) -> float:
    """Exact in float32 on the problems' weights, and not symmetric."""
    return 2 * x - y


@numba.cfunc("float32(float32, float32)")  # type: ignore[misc]
def endless(x: float, y: float) -> float:
    return x * y + np.inf


@given(problem=problems(), top_k=st.none() | st.integers(1, 6), masked=st.booleans())
def test_a_users_own_weight(problem: Problem, top_k: int | None, masked: bool) -> None:
    mask_terms = problem.question_terms if masked else None
    graph = ops.evidence_graph(problem.X, problem.offsets, problem.docs, lopsided, 0.0, top_k, mask_terms)
    degree = ops.weighted_degree(problem.X, problem.offsets, problem.docs, lopsided)
    for p in range(len(problem)):
        mask = problem.mask(p) if masked else ()
        expected = evidence_graph_reference(problem.X, problem.pool(p), lopsided, 0.0, top_k, mask)
        assert np.array_equal(graph.pool(p).toarray(), expected)
        expected = weighted_degree_reference(problem.X, problem.pool(p), lopsided)
        np.testing.assert_array_equal(problem.part(degree, p), expected)


@pytest.mark.parametrize("n", [17, 64, 513])
def test_a_users_own_weight_in_larger_pools(n: int) -> None:
    problem = random_problem([n], seed=n)
    product = numba.cfunc("float32(float32, float32)")(lambda x, y: x * y)
    graph = ops.evidence_graph(problem.X, problem.offsets, problem.docs, product)
    np.testing.assert_allclose(graph.pool(0).toarray(), scipy_graph(problem.X, problem.docs, "dot"), rtol=1e-5)


def test_a_users_own_weight_must_be_finite() -> None:
    problem = random_problem([20])
    for op in (ops.evidence_graph, ops.weighted_degree):
        with pytest.raises(ArrayError, match="weight: the function's values add up to"):
            op(problem.X, problem.offsets, problem.docs, endless)


@given(problem=problems(), weight=st.sampled_from(WEIGHTS))
def test_scikit_learn_on_the_pool_alone(problem: Problem, weight: EdgeWeight) -> None:
    """`idf="pool"`: X holds term frequencies; each pool is weighed as if it were all there is."""
    problem.X.data += 0.125  # scikit-learn counts no stored zeros
    problem.X.data *= 8 / problem.X.data.min(initial=1.0)  # and does not see tiny frequencies
    graph = ops.evidence_graph(problem.X, problem.offsets, problem.docs, weight, idf="pool")
    degree = ops.weighted_degree(problem.X, problem.offsets, problem.docs, weight, idf="pool")
    for p in range(len(problem)):
        frequencies = problem.X[problem.pool(p)].astype(np.float64)
        weighed = frequencies
        if len(problem.pool(p)) and frequencies.nnz:
            weighed = TfidfTransformer().fit_transform(frequencies)
        expected = scipy_graph(weighed, np.arange(weighed.shape[0]), weight)
        np.testing.assert_allclose(graph.pool(p).toarray(), expected, rtol=1e-5)
        np.testing.assert_allclose(problem.part(degree, p), expected.sum(axis=1), rtol=1e-5, atol=1e-6)


def test_the_pools_idf_counts_masked_terms_too(real: Problem) -> None:
    few = slice(0, 1000)
    offsets = real.offsets[:21]
    mask = (real.question_terms[0][:21], real.question_terms[1][: real.question_terms[0][20]])
    graph = ops.evidence_graph(real.X, offsets, real.docs[few], "dot", mask_terms=mask, idf="pool")
    for p in range(0, 20, 4):
        expected = evidence_graph_reference(real.X, real.pool(p), "dot", mask=real.mask(p), idf="pool")
        np.testing.assert_allclose(graph.pool(p).toarray(), expected, rtol=1e-4, atol=1e-7)


def test_indices_ascend_and_no_node_is_its_own_neighbour(real: Problem) -> None:
    graph = ops.evidence_graph(real.X, real.offsets, real.docs, top_k=7)
    rows = np.repeat(np.arange(len(real.docs)), np.diff(graph.indptr))
    assert np.all(np.diff(graph.indices)[np.diff(rows) == 0] > 0)
    assert np.all(graph.indices != rows - np.repeat(real.offsets[:-1], np.diff(real.offsets))[rows])
    assert np.diff(graph.indptr).max() <= 7 and np.all(graph.weights > 0)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"weight": "jaccard"}, "weight"),
        ({"weight": 4096}, "weight"),
        ({"weight": lambda x, y: x}, "weight"),
        ({"weight": numba.njit(lambda x, y: x)}, "weight"),
        ({"weight": numba.cfunc("float64(float64, float64)")(lambda x, y: x)}, "signature"),
        ({"weight": numba.cfunc("float32(float32)")(lambda x: x)}, "signature"),
        ({"idf": "document"}, "idf"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": float("inf")}, "threshold"),
        ({"top_k": 0}, "top_k"),
        ({"threads": 0}, "threads"),
        ({"mask_terms": ([0], [])}, "mask_terms"),
        ({"mask_terms": ([0, 2, 1], [0])}, "mask_terms"),
        ({"mask_terms": ([0, 1, 1], [400])}, "mask"),
        ({"mask_terms": ([0, 1, 1], [-1])}, "mask"),
        ({"mask_terms": ([0, 1, 1], [0.5])}, "mask_terms"),
        ({"mask_terms": [1, 2]}, "mask_terms"),
    ],
)
def test_bad_settings(options: dict[str, object], name: str) -> None:
    problem = random_problem([3, 4])
    with pytest.raises(ArrayError, match=name):
        ops.evidence_graph(problem.X, problem.offsets, problem.docs, **options)
