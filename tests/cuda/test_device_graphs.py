"""pagerank, its CUDA executed on the CPU, against the CPU's."""

from dataclasses import replace

import device_ops
import numpy as np
from graph_problems import graph, matrices, random_matrix
from hypothesis import strategies as st
from pool_problems import Problem
from test_device_pools import first

from conftest import Way
from pyfast import ops


def test_pagerank(way: Way) -> None:
    def check(drawn: tuple[list[np.ndarray], float, str]) -> None:
        pools, damping, restart = drawn
        g = graph(pools)
        n = len(g.indptr) - 1
        shares = {"uniform": None, "ones": np.ones(n), "zeros": np.zeros(n), "some": np.arange(n) % 3}[restart]
        if shares is not None:
            shares = shares.astype(np.float32)
        rank = device_ops.pagerank(way.device, g, damping, shares)
        np.testing.assert_allclose(rank, ops.pagerank(g, damping, shares), rtol=1e-5, atol=1e-7)

    restarts = st.sampled_from(["uniform", "ones", "zeros", "some"])
    way.every(st.tuples(st.lists(matrices(), max_size=4), st.sampled_from([0.0, 0.5, 0.85]), restarts), check)


def test_pagerank_tells_what_did_not_converge(way: Way) -> None:
    g = graph([random_matrix(5, 0.5, seed=1), np.zeros((2, 2)), np.zeros((0, 0))])
    for steps, expected in ((2, [0, 1, 1]), (1000, [1, 1, 1])):
        _, converged = device_ops.pagerank_within(way.device, g, 0.85, None, steps)
        np.testing.assert_array_equal(converged, expected)


def test_pagerank_of_larger_pools(way: Way) -> None:
    """Below and above what shared memory has room for, with few edges and with many."""
    sizes = [1, 31, 33, 128, 129, 40, 3, 3, 3] if way.examples > 10 else [5, 33, 3]
    for density in (0.2, 0.9):
        g = graph([random_matrix(n, density, seed=n, symmetric=n % 2 == 0) for n in sizes])
        np.testing.assert_allclose(device_ops.pagerank(way.device, g), ops.pagerank(g), rtol=1e-6)


def test_room_behind_the_last_edge(way: Way) -> None:
    g = graph([random_matrix(6, 0.5, seed=1), random_matrix(3, 0.9, seed=2)])
    behind = np.array([-1, 99], np.int32), np.array([np.nan, -1.0], np.float32)
    more = replace(g, indices=np.append(g.indices, behind[0]), weights=np.append(g.weights, behind[1]))
    rank = device_ops.pagerank(way.device, more)
    np.testing.assert_array_equal(rank, device_ops.pagerank(way.device, g))


def test_pagerank_of_real_pools(way: Way, real: Problem) -> None:
    q = first(real, max(way.pools, 1))
    g = ops.evidence_graph(q.X, q.offsets, q.docs, "dot", top_k=None if way.pools > 1 else 5)
    np.testing.assert_allclose(device_ops.pagerank(way.device, g), ops.pagerank(g), rtol=1e-6)
