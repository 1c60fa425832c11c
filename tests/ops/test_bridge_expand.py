"""bridge_expand against its reference, SciPy's sparse product, and its own contract."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, problems, random_problem
from references import bridge_expand_reference
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.errors import ArrayError


def expand(q: Problem, **options: Any) -> list[list[tuple[list[int], np.ndarray[Any, Any]]]]:
    """For each pool, for each of its nodes as a seed: (documents, similarities)."""
    ends, documents, similarities = ops.bridge_expand(q.X, q.XT, q.offsets, q.docs, q.question_terms, **options)
    lists = [(documents[a:b].tolist(), similarities[a:b]) for a, b in pairwise(ends.tolist())]
    return [lists[a:b] for a, b in pairwise(q.offsets.tolist())]


@given(problem=problems(), k=st.integers(1, 6), norm=st.none() | st.just(1e15))
def test_reference(problem: Problem, k: int, norm: float | None) -> None:
    for p, found in enumerate(expand(problem, k=k, largest_norm=norm)):
        for seed, (documents, similarities) in zip(problem.pool(p).tolist(), found, strict=True):
            expected, values = bridge_expand_reference(problem.X, seed, problem.mask(p), k)
            assert documents == expected.tolist()  # sums are exact here: ties too
            np.testing.assert_array_equal(similarities, values.astype(np.float32))


def test_scipy_on_real_pools(real: Problem) -> None:
    """The best documents of a question lead where a product with all of the corpus leads."""
    real = real.first(40)
    expanded = {k: list(expand(real, k=k, largest_norm=1.0)) for k in (1, 10, 200)}
    for p in range(0, len(real), 10):
        X = real.X.copy()
        X.data[np.isin(X.indices, real.mask(p))] = 0.0
        product = (X[real.pool(p)] @ X.T).toarray()
        product[np.arange(len(product)), real.pool(p)] = 0.0
        for k, pools in expanded.items():
            for row, (documents, similarities) in zip(product, pools[p], strict=True):
                best = np.sort(row)[::-1][:k]
                np.testing.assert_allclose(similarities, best[best > 0], rtol=1e-5)
                np.testing.assert_allclose(similarities, row[documents], rtol=1e-5)
                assert len(set(documents)) == len(documents)


def test_many_equally_similar_documents_keep_the_order_of_the_corpus() -> None:
    """Of a thousand candidates, most are as similar as others: small integers as weights, so sums are exact."""
    rng = np.random.default_rng(23)
    X = csr_array(rng.integers(0, 3, (1000, 12)).astype(np.float32))
    for k in (1, 5, 300, 1000):
        for seed in (0, 500, 999):
            _, documents, similarities = ops.bridge_expand(X, X.T.tocsr(), [0, 1], [seed], ([0, 1], [3]), k)
            expected, values = bridge_expand_reference(X, seed, [3], k)
            assert documents.tolist() == expected.tolist()
            np.testing.assert_array_equal(similarities, values.astype(np.float32))


def test_a_limit_costs_documents_but_not_their_similarities(real: Problem) -> None:
    real = real.first(40)
    whole = [dict(zip(*found, strict=True)) for pool in expand(real, largest_norm=1.0) for found in pool]
    for limit, least in ((1, 0.0), (1000, 0.5), (100_000, 0.999)):
        cut = [
            dict(zip(*found, strict=True))
            for pool in expand(real, largest_norm=1.0, max_entries=limit)
            for found in pool
        ]
        shared = sum(len(a.keys() & b.keys()) for a, b in zip(whole, cut, strict=True))
        assert least <= shared / sum(map(len, whole)) <= 1.0
        assert all(b[d] == a[d] for a, b in zip(whole, cut, strict=True) for d in a.keys() & b.keys())


NAN = float("nan")
BAD_XT: dict[str, tuple[str, int, float]] = {
    "a document too large": ("indices", -1, 10**6),
    "a negative document": ("indices", 0, -1),
    "NaN": ("data", 0, NAN),
    "a negative weight": ("data", -1, -1.0),
    "an offset beyond": ("indptr", -1, 2**31 - 1),
    "an offset that decreases": ("indptr", 1, -1),
}


@pytest.mark.parametrize("case", BAD_XT)
def test_malformed_transposed_index(case: str) -> None:
    """Found, named, and without a trace in the next call."""
    terms = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=np.float32)
    X = csr_array(terms)
    good = ops.bridge_expand(X, X.T.tocsr(), [0, 3], [0, 1, 2], ([0, 0], []))
    part, place, value = BAD_XT[case]
    XT = X.T.tocsr()
    getattr(XT, part)[place] = value
    XT.has_canonical_format = True
    with pytest.raises(ArrayError, match=r"^XT[.:]"):
        ops.bridge_expand(X, XT, [0, 3], [0, 1, 2], ([0, 0], []))
    for a, b in zip(good, ops.bridge_expand(X, X.T.tocsr(), [0, 3], [0, 1, 2], ([0, 0], [])), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"k": 0}, "k"),
        ({"k": "3"}, "^k: expected an integer"),
        ({"max_entries": 0}, "max_entries"),
        ({"largest_norm": 0.0}, "largest_norm"),
        ({"largest_norm": NAN}, "largest_norm"),
        ({"largest_norm": float("inf")}, "largest_norm"),
        ({"threads": 0}, "threads"),
        ({"question_terms": ([0], [])}, "question_terms"),
        ({"question_terms": ([0, 1, 1], [400])}, "question_terms: term"),
        ({"question_terms": ([0, 1, 1], [-1])}, "question_terms: term"),
        ({"XT": csr_array(np.ones((3, 3), np.float32))}, "XT"),
        ({"XT": None}, "XT"),
    ],
)
def test_bad_settings(options: dict[str, Any], name: str) -> None:
    problem = random_problem([3, 4])
    given = {"XT": problem.XT, "question_terms": problem.question_terms} | options
    with pytest.raises(ArrayError, match=name):
        ops.bridge_expand(problem.X, seed_offsets=problem.offsets, seed_ids=problem.docs, **given)
