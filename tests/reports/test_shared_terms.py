"""The terms that a report keeps are those that are found anew."""

import numpy as np
import pytest
from scipy.sparse import random_array

from pyfast.reports import shared_terms
from pyfast.reports.shared_terms import SharedTerms
from pyfast.retrieval.forward_index import narrow
from pyfast.retrieval.strongest_edges import TERMS, strongest_shared_terms


@pytest.mark.parametrize("held", [shared_terms.HELD, 50])
def test_kept_terms_are_those_found_anew(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(shared_terms, "HELD", held)
    rng = np.random.default_rng(0)
    weights = random_array((40, 30), density=0.4, format="csr", dtype=np.float32, rng=rng)
    x, kept, most = narrow(weights), SharedTerms(), 0
    for pairs in (60, 0, 400, 400, 1):
        first, second = rng.integers(0, 40, (2, pairs), dtype=np.int32)
        second = np.where(first == second, (second + 1) % 40, second).astype(np.int32)
        expected = strongest_shared_terms(x, first, second)
        for found, wanted in zip(kept.find(x, first, second), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        most = max(most, np.bincount(expected[0], minlength=1).max())
    assert most == TERMS
