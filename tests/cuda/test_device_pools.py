"""weighted_degree, graph_rank and evidence_graph, their CUDA executed on the CPU, against the CPU's."""

from itertools import pairwise

import device_ops
import numpy as np
import pytest
from hypothesis import strategies as st
from pool_problems import Problem, problems, random_problem
from references import weighted_degree_reference
from scipy.sparse import csr_array

from conftest import Way
from pyfast import ops
from pyfast.ops.evidence_graph import EdgeWeight

# Around what blocks, warps and tables have room for.
LARGE = random_problem([0, 1, 2, 31, 33, 64, 130], per_row=12)
LONG_ROWS = random_problem([3, 4], terms=3000, per_row=900)
PARTS = random_problem([2, 40, 1], terms=9000, per_row=250)  # its terms do not fit a table at once


def first(problem: Problem, pools: int) -> Problem:
    """Only the first pools."""
    nodes = int(problem.offsets[pools])
    terms, values = problem.question_terms
    return Problem(
        problem.X,
        problem.XT,
        problem.offsets[: pools + 1],
        problem.docs[:nodes],
        problem.semantic[:nodes],
        problem.is_table[:nodes],
        (terms[: pools + 1], values[: terms[pools]]),
        problem.cells,
    )


def check_degree(way: Way, q: Problem, weight: EdgeWeight) -> None:
    degree = device_ops.weighted_degree(way.device, q.X, q.offsets, q.docs, weight)
    np.testing.assert_allclose(degree, ops.weighted_degree(q.X, q.offsets, q.docs, weight), rtol=2e-7)


@pytest.mark.parametrize("weight", ["sum", "dot"])
def test_weighted_degree(way: Way, weight: EdgeWeight) -> None:
    """Drawn weights add up exactly: no bit may differ."""

    def check(q: Problem) -> None:
        degree = device_ops.weighted_degree(way.device, q.X, q.offsets, q.docs, weight)
        np.testing.assert_array_equal(degree, ops.weighted_degree(q.X, q.offsets, q.docs, weight))

    way.every(problems(), check)


@pytest.mark.parametrize("weight", ["sum", "dot"])
def test_weighted_degree_of_weights_far_apart(way: Way, weight: EdgeWeight) -> None:
    """Where one weight is nearly all of a term's sum, the rest of the sum counts all the same."""
    X = csr_array(np.array([[1e15, 1e-3], [1e-6, 1.0], [1e-6, 0.0]], dtype=np.float32))
    degree = device_ops.weighted_degree(way.device, X, np.array([0, 3]), np.array([0, 1, 2], np.int32), weight)
    np.testing.assert_allclose(degree, weighted_degree_reference(X, [0, 1, 2], weight), rtol=1e-6)


def test_weighted_degree_of_larger_pools(way: Way) -> None:
    check_degree(way, LARGE, "sum")
    check_degree(way, LONG_ROWS, "dot")


def test_degrees_of_a_vocabulary_in_parts(way: Way) -> None:
    """Fused and not, beside pools whose terms fit a table."""
    if way.examples < 10:
        pytest.skip("takes the interpreter some time: see its long run")
    q = PARTS
    terms = [len(np.unique(q.X[q.docs[a:b]].indices)) for a, b in pairwise(q.offsets)]
    assert terms[1] > 3072 > terms[0]  # what a table of the largest size takes
    for weight in ("sum", "dot"):
        check_degree(way, q, weight)
    degree, score = device_ops.degree_rank(way.device, q.X, q.offsets, q.docs, q.semantic, "sum", 0.85)
    expected = ops.weighted_degree(q.X, q.offsets, q.docs)
    np.testing.assert_allclose(degree, expected, rtol=2e-7)
    np.testing.assert_allclose(score, ops.graph_rank(q.semantic, expected, q.offsets), rtol=1e-5, atol=1e-6)


def test_bounds_of_pools(way: Way) -> None:
    def check(q: Problem) -> None:
        found = device_ops.pool_bounds(way.device, q.X, q.offsets, q.docs)
        assert found == device_ops.bounds(q.X, q.offsets, q.docs)

    way.every(problems(), check)


def test_degree_and_rank_in_one(way: Way) -> None:
    def check(q: Problem) -> None:
        degree, score = device_ops.degree_rank(way.device, q.X, q.offsets, q.docs, q.semantic, "sum", 0.85)
        expected = ops.weighted_degree(q.X, q.offsets, q.docs)
        np.testing.assert_array_equal(degree, expected)
        np.testing.assert_array_equal(score, ops.graph_rank(q.semantic, expected, q.offsets))

    way.every(problems(), check)


def test_graph_rank(way: Way) -> None:
    def check(drawn: tuple[Problem, float]) -> None:
        q, alpha = drawn
        structural = q.semantic * np.float32(7) % np.float32(3)
        score = device_ops.graph_rank(way.device, q.semantic, structural, q.offsets, alpha)
        np.testing.assert_array_equal(score, ops.graph_rank(q.semantic, structural, q.offsets, alpha))

    way.every(st.tuples(problems(), st.sampled_from([0.0, 0.25, 0.85, 1.0])), check)


@pytest.mark.parametrize("weight", ["sum", "dot", "min"])
def test_evidence_graph(way: Way, weight: EdgeWeight) -> None:
    def check(drawn: tuple[Problem, float, int | None, bool]) -> None:
        q, threshold, top_k, masked = drawn
        mask = q.question_terms if masked else None
        g = device_ops.evidence_graph(way.device, q.X, q.offsets, q.docs, weight, threshold, top_k, mask)
        expected = ops.evidence_graph(
            q.X, q.offsets, q.docs, weight, threshold=threshold, top_k=top_k, mask_terms=mask
        )
        for name in ("indptr", "indices", "weights"):
            np.testing.assert_array_equal(getattr(g, name), getattr(expected, name), err_msg=name)

    options = (st.sampled_from([0.0, 0.25, 2.0]), st.sampled_from([None, 1, 3]), st.booleans())
    way.every(st.tuples(problems(), *options), check)


def check_graph(way: Way, q: Problem, weight: EdgeWeight) -> None:
    """The weights to 1e-5; and of the strongest, those that are stronger by more than that."""
    whole = ops.evidence_graph(q.X, q.offsets, q.docs, weight, mask_terms=q.question_terms)
    g = device_ops.evidence_graph(way.device, q.X, q.offsets, q.docs, weight, mask_terms=q.question_terms)
    np.testing.assert_array_equal(g.indptr, whole.indptr)
    np.testing.assert_array_equal(g.indices, whole.indices)
    np.testing.assert_allclose(g.weights, whole.weights, rtol=1e-5)
    few = device_ops.evidence_graph(way.device, q.X, q.offsets, q.docs, weight, 0.0, 4, q.question_terms)
    for p in range(len(q)):
        matrix, kept = whole.pool(p).toarray(), few.pool(p).toarray()
        bar = -np.sort(-np.pad(matrix, ((0, 0), (0, 4))), axis=1)[:, 3:4]
        assert ((kept > 0).sum(axis=1) == np.minimum((matrix > 0).sum(axis=1), 4)).all()
        assert (kept[matrix > bar * (1 + 2e-5)] > 0).all() and not kept[matrix < bar * (1 - 2e-5)].any()


@pytest.mark.parametrize("weight", ["sum", "dot", "min"])
def test_evidence_graph_of_larger_pools(way: Way, weight: EdgeWeight) -> None:
    if way.examples < 10:
        pytest.skip("takes the interpreter some time: see its long run")
    check_graph(way, LARGE if way.pools > 1 else first(LARGE, 5), weight)
    check_graph(way, LONG_ROWS, weight)


def test_real_pools(way: Way, real: Problem) -> None:
    if not way.pools:
        pytest.skip("takes the interpreter some time: see its long run")
    q = first(real, way.pools)
    check_degree(way, q, "sum")
    check_degree(way, q, "dot")
    check_graph(way, q, "dot")
