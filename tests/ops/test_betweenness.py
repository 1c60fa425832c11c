"""betweenness against its reference (Brandes in NumPy), networkx and igraph."""

from dataclasses import replace

import igraph
import networkx
import numpy as np
import pytest
from graph_problems import graph, matrices, parts, random_matrix, weights_of
from hypothesis import given
from hypothesis import strategies as st
from interruption import Interrupted, interrupted
from pool_problems import Problem
from references import betweenness_reference, sources_reference

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.betweenness import EdgeLength

LENGTHS: list[EdgeLength] = ["inverse", "hops"]


def lengths_of(matrix: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Of the edges of graph([matrix]), from a matrix of lengths."""
    return lengths[matrix != 0]


@given(pools=st.lists(matrices(), max_size=4), length=st.sampled_from(LENGTHS))
def test_reference(pools: list[np.ndarray], length: EdgeLength) -> None:
    g = graph(pools)
    centrality = ops.betweenness(g, length)
    assert centrality.dtype == np.float32 and centrality.shape == (len(g.indptr) - 1,)
    for matrix, found in zip(pools, parts(g, centrality), strict=True):
        expected = betweenness_reference(weights_of(matrix), length)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def peer(matrix: np.ndarray, length: EdgeLength) -> np.ndarray:
    """networkx's, of the same lengths."""
    of = networkx.from_numpy_array(matrix, create_using=networkx.DiGraph)
    of.remove_edges_from(list(networkx.selfloop_edges(of)))
    for _, _, edge in of.edges(data=True):
        edge["length"] = 1 / edge["weight"]
    found = networkx.betweenness_centrality(of, weight="length" if length == "inverse" else None)
    return np.array([found[v] for v in range(len(matrix))])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("density", [0.03, 0.3, 1.0])
@pytest.mark.parametrize("n", [3, 7, 8, 9, 16, 65])
def test_reference_and_networkx_at_other_sizes(
    n: int, density: float, symmetric: bool, length: EdgeLength
) -> None:
    matrix = random_matrix(n, density, seed=n, symmetric=symmetric)
    found = ops.betweenness(graph([matrix]), length)
    np.testing.assert_allclose(found, betweenness_reference(matrix, length), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found, peer(matrix, length), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("n", [512, 513, 700])
def test_pools_of_one_task_and_of_several(n: int, length: EdgeLength) -> None:
    matrix = random_matrix(n, 6 / n, seed=n)
    undirected = igraph.Graph.Weighted_Adjacency(matrix, mode="undirected")
    lengths = [1 / w for w in undirected.es["weight"]] if length == "inverse" else None
    expected = np.array(undirected.betweenness(weights=lengths)) / ((n - 1) * (n - 2) / 2)
    g = graph([matrix])
    found = ops.betweenness(g, length, threads=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
    assert all(np.array_equal(found, ops.betweenness(g, length, threads=threads)) for threads in (2, 3, 7))


def test_dense_and_sparse_ways_agree() -> None:
    """The same graph with many isolated nodes beside it is sparse."""
    matrix = random_matrix(40, 0.9, seed=1, symmetric=False)
    wide = np.zeros((200, 200))
    wide[:40, :40] = matrix
    dense = ops.betweenness(graph([matrix])).astype(np.float64) * (39 * 38)
    sparse = ops.betweenness(graph([wide])).astype(np.float64)[:40] * (199 * 198)
    np.testing.assert_allclose(dense, sparse, rtol=1e-6)


def test_equally_long_paths_share_whatever_the_rounding() -> None:
    """0 to 5 by 1, 2 and by 3, 4: the same lengths, in another order. And then one of them truly longer."""
    a, b, c = (1 / float(np.float32(w)) for w in (0.1, 0.3, 0.2))
    assert (a + b) + c != (c + b) + a
    for weight, through in (
        (0.2, [0.0, 1.5, 1.5, 1.5, 1.5, 0.0]),
        (0.2 * (1 - 1e-5), [0.0, 1.0, 1.0, 2.0, 2.0, 0.0]),
    ):
        matrix = np.zeros((6, 6))
        for i, j, w in ((0, 1, 0.1), (1, 2, 0.3), (2, 5, weight), (0, 3, 0.2), (3, 4, 0.3), (4, 5, 0.1)):
            matrix[i, j] = w
        found = ops.betweenness(graph([matrix])) * (5 * 4)
        np.testing.assert_allclose(found, through, rtol=1e-6)


def test_an_edge_so_short_that_it_adds_nothing() -> None:
    """Beside lengths of 1e30 one of 1e-16 is lost in rounding; its nodes come one after the other all the same."""
    for order in ([0, 1, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0]):
        a, b, c, d = order
        matrix = np.zeros((4, 4))
        for i, j, w in ((a, b, 1e-30), (b, c, 1e16), (c, d, 1e-30)):
            matrix[i, j] = matrix[j, i] = w
        found = ops.betweenness(graph([matrix]))
        np.testing.assert_allclose(found[[a, b, c, d]], [0, 4 / 6, 4 / 6, 0], rtol=1e-6)


def test_igraph_on_real_pools(real: Problem) -> None:
    g = ops.evidence_graph(real.X, real.offsets, real.docs)
    found = parts(g, ops.betweenness(g))
    for p in range(0, len(real), 5):
        pool = g.pool(p).tocoo()
        n = len(found[p])
        upper = pool.row < pool.col
        of = igraph.Graph(n, np.stack([pool.row, pool.col], axis=1)[upper])
        expected = np.array(of.betweenness(weights=(1 / pool.data[upper].astype(np.float64)).tolist()))
        np.testing.assert_allclose(found[p], expected / ((n - 1) * (n - 2) / 2), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("length", LENGTHS)
def test_more_shortest_paths_than_a_double_counts(length: EdgeLength) -> None:
    """1,100 diamonds in a row: 2 ** 1100 shortest paths from end to end, half of them through each middle node."""
    diamonds = 1100
    n = 3 * diamonds + 1
    joints = 3 * np.arange(diamonds)
    tails = np.concatenate([joints, joints, joints + 1, joints + 2])
    heads = np.concatenate([joints + 1, joints + 2, joints + 3, joints + 3])
    order = np.lexsort((heads, tails))
    indptr = np.searchsorted(tails[order], np.arange(n + 1))
    g = replace(graph([[[0.0]]]), pool_offsets=[0, n], indptr=indptr, indices=heads[order])
    found = ops.betweenness(replace(g, weights=np.ones(len(heads))), length).astype(np.float64) * (n - 1) * (n - 2)
    before, after = 3 * np.arange(diamonds) + 1, n - 1 - 3 * (np.arange(diamonds) + 1) + 1
    np.testing.assert_allclose(found[joints + 1], before * after / 2, rtol=1e-6)


@pytest.mark.parametrize("n", [8, 30])
@pytest.mark.parametrize("seed", range(20))
def test_integer_lengths_as_networkx(n: int, seed: int) -> None:
    """Sums of small integers are often equal: the shortest paths are many, and 1 / length would not tell."""
    random = np.random.default_rng(seed)
    matrix = random_matrix(n, 0.4, seed)
    lengths = np.triu(random.integers(1, 10, (n, n))).astype(np.float64)
    lengths += np.triu(lengths, 1).T
    of = networkx.from_numpy_array(np.where(matrix != 0, lengths, 0.0))
    expected = networkx.betweenness_centrality(of, weight="weight")
    found = ops.betweenness(graph([matrix]), length=lengths_of(matrix, lengths))
    np.testing.assert_allclose(found, [expected[v] for v in range(n)], rtol=1e-6, atol=1e-9)


@given(
    pools=st.lists(matrices(), min_size=1, max_size=4), seed=st.integers(0, 99), k=st.sampled_from([None, 2, 4])
)
def test_lengths_and_sampling_of_a_batch(pools: list[np.ndarray], seed: int, k: int | None) -> None:
    """Lengths are of the batch's edges, those of weight 0 and self-loops included; a pool's sources its own."""
    g = graph(pools)
    random = np.random.default_rng(seed)
    lengths = [random.choice([0.5, 1.0, 2.0, 1e9], matrix.shape) for matrix in pools]
    of_edges = np.concatenate([own[matrix != 0] for own, matrix in zip(lengths, pools, strict=True)])
    together = parts(g, ops.betweenness(g, of_edges, k=k, seed=seed))
    for matrix, own, found in zip(pools, lengths, together, strict=True):
        expected = betweenness_reference(weights_of(matrix), own, k, seed)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        if len(matrix):
            alone = ops.betweenness(graph([matrix]), lengths_of(matrix, own), k=k, seed=seed)
            np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("length", LENGTHS)
def test_sampling_of_a_large_pool(length: EdgeLength) -> None:
    """As the reference, on all threads; all of the nodes where k is as many; other seeds, other sources."""
    matrix = random_matrix(600, 0.01, seed=5)
    g = graph([matrix])
    found = ops.betweenness(g, length, k=150, seed=7, threads=1)
    np.testing.assert_array_equal(found, ops.betweenness(g, length, k=150, seed=7, threads=3))
    np.testing.assert_array_equal(ops.betweenness(g, length, k=600), ops.betweenness(g, length))
    assert (ops.betweenness(g, length, k=150, seed=8) != found).any()
    few = random_matrix(60, 0.1, seed=5, symmetric=False)
    expected = betweenness_reference(few, length, 7, 2**64 - 1)
    np.testing.assert_allclose(
        ops.betweenness(graph([few]), length, k=7, seed=2**64 - 1), expected, rtol=1e-6, atol=1e-9
    )


def test_samples_scatter_about_the_whole() -> None:
    g = graph([random_matrix(40, 0.1, seed=2)])
    samples = np.array([ops.betweenness(g, k=10, seed=seed) for seed in range(400)], dtype=np.float64)
    spread = samples.std(axis=0) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - ops.betweenness(g)) <= 5 * spread + 1e-9).all()


def test_a_single_source_tells_nothing_of_itself() -> None:
    found = ops.betweenness(graph([random_matrix(9, 0.5, seed=1), np.ones((2, 2))]), k=1)
    assert np.isnan(found).sum() == 1 and np.isnan(found[sources_reference(9, 1, 0)]).all()


def test_ctrl_c() -> None:
    """What a signal's handler raises comes out of the op, long before its end."""
    with pytest.raises(Interrupted), interrupted():
        ops.betweenness(graph([random_matrix(1500, 0.4, seed=1)]), threads=2)


THREE = graph([np.ones((3, 3))])
BAD: list[tuple[dict[str, object], str]] = [
    ({"length": "weight"}, "length"),
    ({"length": np.ones(8)}, "length"),
    ({"length": np.ones((3, 3))}, "length"),
    ({"length": []}, "length"),
    ({"length": [*np.ones(8), 0.0]}, "length"),
    ({"length": [*np.ones(8), -1.0]}, "length"),
    ({"length": [*np.ones(8), np.nan]}, "length"),
    ({"length": [*np.ones(8), np.inf]}, "length"),
    ({"length": None}, "length"),
    ({"k": 0}, "k:"),
    ({"k": -1}, "k:"),
    ({"k": 1.5}, "k:"),
    ({"seed": -1}, "seed:"),
    ({"threads": 0}, "threads"),
]


@pytest.mark.parametrize(("options", "name"), BAD)
def test_bad_settings(options: dict[str, object], name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.betweenness(THREE, **options)
