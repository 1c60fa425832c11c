"""bridge_rank against its reference (a linear solve) and networkx's PageRank."""

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, lists, problems, random_problem, scipy_graph
from references import bridge_rank_reference

from pyfast import ops
from pyfast.errors import ArrayError


@given(
    problem=problems(),
    edges=st.integers(1, 6),
    damping=st.sampled_from([0.0, 0.5, 0.95]),
    sharpness=st.sampled_from([0.0, 1.0, 4.0]),
    mix=st.sampled_from([0.0, 0.75, 1.0]),
)
def test_reference(problem: Problem, edges: int, damping: float, sharpness: float, mix: float) -> None:
    settings = (edges, damping, sharpness, mix)
    found = ops.bridge_rank(
        problem.X, problem.offsets, problem.docs, problem.semantic, problem.question_terms, *settings
    )
    assert np.all((found >= 0) & (found <= 1))
    for p in range(len(problem)):
        if len(problem.pool(p)):
            semantic = problem.part(problem.semantic, p)
            expected = bridge_rank_reference(problem.X, problem.pool(p), semantic, problem.mask(p), *settings)
            np.testing.assert_allclose(problem.part(found, p), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [2, 16, 17, 64, 65])
def test_reference_at_other_sizes(n: int) -> None:
    problem = random_problem([n], seed=n)
    found = ops.bridge_rank(problem.X, problem.offsets, problem.docs, problem.semantic, problem.question_terms)
    expected = bridge_rank_reference(problem.X, problem.docs, problem.semantic, problem.mask(0))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_networkx() -> None:
    problem = random_problem([60])
    X = problem.X.copy()
    X.data[np.isin(X.indices, problem.mask(0))] = 0.0
    squared = scipy_graph(X, problem.docs, "dot") ** 2
    strongest = np.zeros_like(squared)
    for i, row in enumerate(squared):
        best = np.argsort(-row, kind="stable")[:5]
        strongest[i, best] = strongest[best, i] = row[best]
    semantic = problem.semantic.astype(np.float64)
    semantic = (semantic - semantic.min()) / np.ptp(semantic)
    rank = networkx.pagerank(
        networkx.from_numpy_array(strongest),
        alpha=0.5,
        personalization=dict(enumerate(semantic**4)),
        tol=1e-12,
        dangling=dict(enumerate(semantic**4)),
    )
    expected = np.array([rank[v] for v in range(60)])
    found = ops.bridge_rank(
        problem.X, problem.offsets, problem.docs, problem.semantic, problem.question_terms, mix=1.0
    )
    np.testing.assert_allclose(found, expected / expected.max(), rtol=1e-5, atol=1e-6)


def test_without_edges_the_restart_ranks() -> None:
    problem = random_problem([6])
    everything = lists([range(problem.X.shape[1])])
    found = ops.bridge_rank(problem.X, problem.offsets, problem.docs, problem.semantic, everything, mix=1.0)
    semantic = (problem.semantic - problem.semantic.min()) / np.ptp(problem.semantic)
    np.testing.assert_allclose(found, semantic**4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"edges": 0}, "edges"),
        ({"damping": 1.0}, "damping"),
        ({"damping": -0.1}, "damping"),
        ({"damping": float("nan")}, "damping"),
        ({"mix": 1.1}, "mix"),
        ({"sharpness": -1.0}, "sharpness"),
        ({"sharpness": float("inf")}, "sharpness"),
        ({"threads": -1}, "threads"),
        ({"semantic": [1.0] * 6}, "semantic"),
        ({"semantic": [float("inf")] * 7}, "semantic"),
        ({"question_terms": ([0, 0], [])}, "question_terms"),
        ({"question_terms": ([0, 1, 1], [400])}, "term 400"),
        ({"question_terms": ([0, 1, 0], [1])}, "question_terms"),
    ],
)
def test_bad_settings(options: dict[str, object], name: str) -> None:
    problem = random_problem([3, 4])
    given_ = {"semantic": problem.semantic, "question_terms": problem.question_terms} | options
    with pytest.raises(ArrayError, match=name):
        ops.bridge_rank(problem.X, problem.offsets, problem.docs, **given_)
