"""networkx's own tests of betweenness, eigenvector and PageRank, with pyfast's ops in place of its functions.

Its functions become thin adapters, and its test classes run as they are. What is not ours is left out by name,
below, with the reason; where networkx promises an error, the adapter raises it as networkx would.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pytest
from networkx.algorithms.centrality.tests import test_betweenness_centrality as of_betweenness
from networkx.algorithms.centrality.tests import test_eigenvector_centrality as of_eigenvector
from networkx.algorithms.link_analysis.tests import test_pagerank as of_pagerank
from references import sources_reference
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.errors import ConvergenceWarning
from pyfast.ops import EvidenceGraph

NO_ENDPOINTS = "ours does not count a path's ends"
LEFT_OUT = {
    "test_K5_endpoints": NO_ENDPOINTS,
    "test_P3_endpoints": NO_ENDPOINTS,
    "test_disconnected_path_endpoints": NO_ENDPOINTS,
    "test_k_out_of_bounds_raises": "our k is of a batch: a pool of fewer nodes takes them all",
    "test_google_matrix": "of a matrix that we do not have",
    "test_dangling_matrix": "of a matrix that we do not have",
    "test_dangling_pagerank": "ours restarts where a walk is stuck, in proportion to the personalization",
    "test_dangling_scipy_pagerank": "ours restarts where a walk is stuck, in proportion to the personalization",
    "test_numpy_pagerank": "of networkx's other implementation",
    "test_empty_scipy": "of networkx's other implementation",
    "test_scipy_pagerank": "of networkx's other implementation",
    "test_scipy_pagerank_max_iter": "of networkx's other implementation",
    "test_zero_personalization_vector": "ours takes all zeros as uniform",
    "test_zero_nstart": "ours begins from all equal, always",
}


def arrays(G: Any, weight: str | None, parallel: Callable[..., float]) -> tuple[EvidenceGraph, np.ndarray]:
    """The graph with edges of weight 1, in both directions where it is undirected; and the numbers of its edges,
    made of those of `parallel` ones.
    """
    matrix = csr_array(networkx.to_numpy_array(G, weight=weight, multigraph_weight=parallel))
    ends = np.array([0, len(G)]), matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    return EvidenceGraph(*ends, np.ones(len(matrix.data), np.float32)), matrix.data


def weighted(G: Any, weight: str | None) -> EvidenceGraph:
    g, weights = arrays(G, weight, sum)
    return EvidenceGraph(g.pool_offsets, g.indptr, g.indices, weights.astype(np.float32))


def by_node(G: Any, values: np.ndarray) -> dict[Any, float]:
    return dict(zip(G, values.tolist(), strict=True))


def betweenness_centrality(
    G: Any,
    k: int | None = None,
    normalized: bool = True,
    weight: str | None = None,
    endpoints: bool = False,
    seed: int | None = None,
) -> dict[Any, float]:
    if endpoints:
        pytest.skip(NO_ENDPOINTS)
    n, own_seed = len(G), 0
    if k is not None and k < n:  # ours that draws what networkx would
        theirs = sorted(random.Random(seed).sample(range(n), k))
        own_seed = next(s for s in range(10_000) if sources_reference(n, k, s) == theirs)
    g, lengths = arrays(G, weight, min)
    found = ops.betweenness(g, "hops" if weight is None else lengths, k=k, seed=own_seed).astype(np.float64)
    if not normalized:
        found *= (n - 1) * (n - 2) / (1 if G.is_directed() else 2)
    return by_node(G, found)


def eigenvector_centrality(
    G: Any, max_iter: int = 100, tol: float = 1e-6, nstart: object = None, weight: str | None = None
) -> dict[Any, float]:
    if G.is_multigraph() or not len(G):
        raise networkx.NetworkXException("of one edge a pair, and some node")
    return by_node(G, as_networkx(max_iter, lambda: ops.eigenvector(weighted(G, weight), tol, max_iter)))


def eigenvector_centrality_numpy(
    G: Any, weight: str | None = None, max_iter: int = 50, tol: float = 0
) -> dict[Any, float]:
    connected = networkx.is_strongly_connected if G.is_directed() else networkx.is_connected
    if len(G) and not G.is_multigraph() and not connected(G):
        raise networkx.AmbiguousSolution("does not give consistent results for disconnected graphs")
    return eigenvector_centrality(G, 1000, tol, weight=weight)


def pagerank(
    G: Any,
    alpha: float = 0.85,
    personalization: dict[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: object = None,
    weight: str | None = "weight",
) -> dict[Any, float]:
    shares = None if personalization is None else [personalization.get(v, 0.0) for v in G]
    if not len(G):
        return {}
    return by_node(
        G, as_networkx(max_iter, lambda: ops.pagerank(weighted(G, weight), alpha, shares, tol, max_iter))
    )


def as_networkx(max_iter: int, run: Callable[[], np.ndarray]) -> np.ndarray:
    """The result; networkx's error where that has not converged, or has no iteration to do so."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return run()
        except (ConvergenceWarning, ValueError):
            raise networkx.PowerIterationFailedConvergence(max_iter) from None


OURS = (betweenness_centrality, eigenvector_centrality, eigenvector_centrality_numpy, pagerank)


@pytest.fixture(autouse=True)
def in_place_of_networkx(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in OURS:
        monkeypatch.setattr(networkx, function.__name__, function)
    # Ours are float32: beside the absolute tolerances of the tests a relative one.
    approx = pytest.approx
    monkeypatch.setattr(pytest, "approx", lambda expected, **how: approx(expected, **({"rel": 1e-6} | how)))


def of_ours(theirs: type) -> type:
    """Their class without what is left out; its tests of several implementations become tests of ours."""
    changed: dict[str, Any] = {}
    for name in dir(theirs):
        test = getattr(theirs, name)
        marks = getattr(test, "pytestmark", ())
        if any(mark.name == "parametrize" and mark.args[0] == "alg" for mark in marks):
            changed[name] = lambda self, test=test: test(self, pagerank)
    return type(theirs.__name__, (theirs,), changed | {name: None for name in LEFT_OUT if hasattr(theirs, name)})


TestBetweenness = of_ours(of_betweenness.TestBetweennessCentrality)
TestWeightedBetweenness = of_ours(of_betweenness.TestWeightedBetweennessCentrality)
TestEigenvector = of_ours(of_eigenvector.TestEigenvectorCentrality)
TestEigenvectorDirected = of_ours(of_eigenvector.TestEigenvectorCentralityDirected)
TestEigenvectorExceptions = of_ours(of_eigenvector.TestEigenvectorCentralityExceptions)
TestPageRank = of_ours(of_pagerank.TestPageRank)


def test_what_is_left_out_is_there() -> None:
    """A test that networkx has renamed or dropped would be left out in vain."""
    modules = of_betweenness, of_eigenvector, of_pagerank
    theirs = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    assert {name for each in theirs for name in dir(each)} >= LEFT_OUT.keys()


def test_les_miserables_with_its_weights() -> None:
    """Of 77 characters, weighted by the scenes that two share: as lengths, and as strengths."""
    G = networkx.les_miserables_graph()
    for lengths in ("weight", "inverse"):
        for _, _, edge in G.edges(data=True):
            edge["inverse"] = 1 / edge["weight"]
        expected = networkx.algorithms.centrality.betweenness.betweenness_centrality(G, weight=lengths)
        found = betweenness_centrality(G, weight=lengths)
        np.testing.assert_allclose([found[v] for v in G], [expected[v] for v in G], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        ops.betweenness(weighted(G, "weight")), [expected[v] for v in G], rtol=1e-6, atol=1e-9
    )
