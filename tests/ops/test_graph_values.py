"""EvidenceGraph as a value: made of SciPy's and networkx's graphs, and compared."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from pool_problems import random_problem
from scipy.sparse import coo_array, csr_array, csr_matrix, random_array

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops import EvidenceGraph


def test_pools_go_to_scipy_and_back() -> None:
    q = random_problem([0, 7, 1, 20])
    g = ops.evidence_graph(q.X, q.offsets, q.docs, "dot", top_k=3)
    again = EvidenceGraph.from_scipy(*[g.pool(p) for p in range(4)])
    assert again == g
    assert EvidenceGraph.from_scipy() == EvidenceGraph(*(np.array(part) for part in ([0], [0], [], [])))
    assert EvidenceGraph.from_scipy(*[g.pool(p) for p in range(3)]) != g
    assert g != EvidenceGraph(g.pool_offsets, g.indptr, g.indices, g.weights * 2)
    assert g != "a graph"
    with pytest.raises(TypeError, match="hash"):
        hash(g)


@pytest.mark.parametrize("of", [csr_array, csr_matrix, coo_array, lambda x: csr_array(x).tocsc()])
def test_any_sparse_format_is_the_matrix_that_it_is(of: Any) -> None:
    dense = random_array((9, 9), density=0.4, random_state=1).toarray().astype(np.float32)
    g = EvidenceGraph.from_scipy(of(dense))
    assert np.array_equal(g.pool(0).toarray(), dense)
    assert g.pool_offsets.dtype == g.indptr.dtype == np.int64
    assert g.indices.dtype == np.int32 and g.weights.dtype == np.float32


def test_entries_out_of_order_or_twice_and_the_callers_stay() -> None:
    parts = np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), np.array([0, 3, 3])
    x = csr_array(tuple(part.copy() for part in parts), shape=(2, 2))
    assert EvidenceGraph.from_scipy(x).pool(0).toarray().tolist() == [[2, 5], [0, 0]]
    assert all(map(np.array_equal, (x.data, x.indices, x.indptr), parts))


def broken() -> csr_array:
    x = csr_array(np.ones((3, 3)))
    x.indices[0] = 10**6
    return x


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (csr_array(np.ones((2, 3))), "square"),
        (np.ones((2, 2)), "sparse"),
        (csr_array(np.ones((2, 2), complex)), "real"),
        (broken(), "adjacency"),
    ],
)
def test_what_is_no_adjacency(given: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=rf"^adjacency\[1\].*{message}" if message != "adjacency" else message):
        EvidenceGraph.from_scipy(csr_array((1, 1)), given)


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx(kind: type[Any]) -> None:
    graph = kind()
    graph.add_nodes_from("dcba")
    for u, v, weight in [("a", "b", 2.0), ("b", "a", 0.5), ("c", "c", 3.0), ("a", "c", 1.5), ("a", "c", 0.25)]:
        graph.add_edge(u, v, weight=weight)
    graph.add_edge("d", "a")  # no weight: 1
    g = EvidenceGraph.from_networkx(graph, kind())
    assert np.array_equal(g.pool(0).toarray(), nx.to_numpy_array(graph, list(graph)).astype(np.float32))
    assert g.pool_offsets.tolist() == [0, 4, 4]
    hops = EvidenceGraph.from_networkx(graph, weight=None).pool(0).toarray()
    assert np.array_equal(hops, nx.to_numpy_array(graph, list(graph), weight=None))


def test_a_direction_is_kept() -> None:
    star = nx.DiGraph([(1, 0), (2, 0), (3, 0)])
    found = ops.pagerank(EvidenceGraph.from_networkx(star))
    expected = nx.pagerank(star, tol=1e-12)
    np.testing.assert_allclose(found, [expected[v] for v in star], rtol=1e-5)


@pytest.mark.parametrize("given", [[nx.Graph()], None, nx.Graph([(0, 1, {"weight": "strong"})])])
def test_what_is_no_graph(given: Any) -> None:
    with pytest.raises(ArrayError, match=r"graphs\[0\]|adjacency\[0\]"):
        EvidenceGraph.from_networkx(given)
