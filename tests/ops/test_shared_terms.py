"""shared_terms explains the edges of evidence_graph."""

from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, problems, random_problem

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.evidence_graph import EdgeWeight


@given(problem=problems(), weight=st.sampled_from(["sum", "dot", "min"]), masked=st.booleans())
def test_shares_add_up_to_the_edge(problem: Problem, weight: EdgeWeight, masked: bool) -> None:
    mask_terms = problem.question_terms if masked else None
    graph = ops.evidence_graph(problem.X, problem.offsets, problem.docs, weight, mask_terms=mask_terms)
    dense = problem.X.toarray()
    for p in range(len(problem)):
        adjacency, pool = graph.pool(p).toarray(), problem.pool(p)
        mask = problem.mask(p) if masked else []
        for a, b in islice(combinations(range(len(pool)), 2), 10):
            terms, shares = ops.shared_terms(problem.X, pool[a], pool[b], weight, mask)
            assert shares.sum() == adjacency[a, b]  # exact on these weights
            assert np.all(np.diff(shares) <= 0) and not set(terms.tolist()) & set(np.asarray(mask).tolist())
            assert np.all(dense[pool[a], terms[shares > 0]] + dense[pool[b], terms[shares > 0]] > 0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1, 0), "i, j"),
        ((0, 10**9), "i, j"),
        ((0.5, 1), "i, j"),
        ((0, 1, "jaccard"), "weight"),
        ((0, 1, "sum", [0.5]), "mask_terms"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.shared_terms(random_problem([3]).X, *arguments)
