"""Bitwise the same with any number of threads and in any batch; and what the graph's symmetry promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from pool_problems import OPS, Problem, problems, random_problem, same

from pyfast import ops
from pyfast.ops.evidence_graph import EdgeWeight

# 512 documents is where a pool's graph changes from the full matrix to one row at a time.
SIZES = [0, 1, 2, 15, 16, 17, 50, 63, 64, 65, 0, 130, 511, 512, 513, 520]
LARGE = random_problem(SIZES)


@pytest.mark.parametrize("op", OPS)
@settings(max_examples=40)
@given(problem=problems())
def test_small_batches(op: str, problem: Problem) -> None:
    run = OPS[op]
    together = run(problem)
    assert all(same(run(problem, threads), together) for threads in (2, 5))
    assert same([run(problem.alone(p))[0] for p in range(len(problem))], together)


@pytest.mark.parametrize("op", OPS)
def test_large_pools(op: str) -> None:
    run = OPS[op]
    together = run(LARGE)
    assert all(same(run(LARGE, threads), together) for threads in (2, 5))
    assert same([run(LARGE.alone(p))[0] for p in range(len(LARGE))], together)


@pytest.mark.parametrize("weight", ["sum", "dot", "min"])
def test_unpruned_graph_is_symmetric_bit_for_bit(weight: EdgeWeight) -> None:
    graph = ops.evidence_graph(LARGE.X, LARGE.offsets, LARGE.docs, weight)
    for p in range(len(LARGE)):
        adjacency = graph.pool(p).toarray()
        assert np.array_equal(adjacency, adjacency.T)


@given(problem=problems())
def test_scratch_of_one_call_does_not_leak_into_the_next(problem: Problem) -> None:
    before = {name: run(LARGE.alone(6)) for name, run in OPS.items()}
    for run in OPS.values():
        run(problem)
    assert all(same(run(LARGE.alone(6)), before[name]) for name, run in OPS.items())
