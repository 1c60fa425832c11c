"""The terms that explain edges are those that a plain search finds, even when they come from memory."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import random_array

from pyfast.retrieval.part_files import narrow
from pyfast.retrieval.rerank import TERMS, strongest_shared_terms
from pyfast.systems import n2n_graphs as graphs
from pyfast.systems.n2n_graphs import SharedTerms


def searched(weights: Any, first: Any, second: Any) -> list[tuple[int, int]]:
    found = []
    for pair, (a, b) in enumerate(zip(weights[first], weights[second], strict=True)):
        shared = np.flatnonzero((a > 0) & (b > 0)).tolist()
        found += [(pair, term) for term in sorted(shared, key=lambda term: -(a[term] + b[term]))[:TERMS]]
    return found


@pytest.mark.parametrize("held", [graphs.HELD, 50])
def test_the_strongest_shared_terms(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(graphs, "HELD", held)
    rng = np.random.default_rng(0)
    weights = random_array((40, 30), density=0.5, format="csr", dtype=np.float32, rng=rng)
    weights.data = np.ceil(weights.data * 8) / 8  # so that many are equal
    x, kept = narrow(weights), SharedTerms()
    for pairs in (60, 0, 400, 400, 1):
        first, second = rng.integers(0, 40, (2, pairs), dtype=np.int32)
        expected = searched(weights.toarray(), first, second)
        for edge, terms in (strongest_shared_terms(x, first, second), kept.find(x, first, second)):
            assert list(zip(edge.tolist(), terms.tolist(), strict=True)) == expected
    assert len(expected) == TERMS
