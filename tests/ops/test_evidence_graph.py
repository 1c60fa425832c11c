"""evidence_graph against its reference, SciPy's sparse products, and its own contract."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, problems, random_problem, scipy_graph

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.evidence_graph import EdgeWeight, evidence_graph_reference

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
