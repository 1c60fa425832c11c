"""select_sentences against a slow reference, its budget, and malformed input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import select_sentences_reference
from scipy.sparse import csr_array, random_array

from pyfast import ops
from pyfast.errors import ArrayError

Problem = tuple[Any, ...]


def problem(seed: int, pools: int = 3, terms: int = 40) -> Problem:
    """Pools of up to 5 passages with up to 5 sentences, in random terms."""
    rng = np.random.default_rng(seed)
    pool_offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 6, pools))])
    passages = int(pool_offsets[-1])
    cuts = np.concatenate([[0], np.cumsum(rng.integers(0, 6, passages))]).astype(np.int64)
    sentences = int(cuts[-1])
    rows = sentences + passages + pools
    counts = random_array((rows, terms), density=0.15, rng=rng, dtype=np.float32).tocsr()
    idf = rng.random(terms, dtype=np.float32)
    X = csr_array((idf[counts.indices], counts.indices, counts.indptr), counts.shape)
    X.sort_indices()
    semantic = rng.normal(1, 1, passages).astype(np.float32)
    lengths = rng.integers(1, 200, sentences)
    dependent = rng.integers(0, 2, sentences).astype(np.uint8)
    return X, pool_offsets, cuts, semantic, lengths, dependent, rng.integers(0, 900, pools)


@given(st.integers(0, 10**6))
def test_it_chooses_what_its_description_says(seed: int) -> None:
    given = problem(seed)
    np.testing.assert_array_equal(ops.select_sentences(*given), select_sentences_reference(*given))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_pools_do_not_depend_on_each_other_or_on_threads(threads: int) -> None:
    X, offsets, cuts, semantic, lengths, dependent, budgets = problem(3, pools=40)
    together = ops.select_sentences(X, offsets, cuts, semantic, lengths, dependent, budgets, threads=threads)
    passages, sentences = len(semantic), len(lengths)
    for p in range(40):
        first, stop = int(offsets[p]), int(offsets[p + 1])
        begin, end = int(cuts[first]), int(cuts[stop])
        rows = [*range(begin, end), *range(sentences + first, sentences + stop), sentences + passages + p]
        alone = ops.select_sentences(
            X[rows], [0, stop - first], cuts[first : stop + 1] - begin, semantic[first:stop],
            lengths[begin:end], dependent[begin:end], [budgets[p]],
        )  # fmt: skip
        np.testing.assert_array_equal(together[begin:end], alone)


def test_the_budget_is_kept_except_by_the_best_sentence() -> None:
    X, offsets, cuts, semantic, lengths, dependent, _ = problem(5, pools=30)
    for budget in (-1, 0, 50, 300, 10**9):
        kept = ops.select_sentences(X, offsets, cuts, semantic, lengths, dependent, [budget] * 30)
        for p in range(30):
            some = slice(cuts[offsets[p]], cuts[offsets[p + 1]])
            chosen = lengths[some][kept[some]]
            assert chosen.sum() <= budget or len(chosen) == 1 or not len(chosen)
            assert len(chosen) >= min(1, len(lengths[some]))
            assert budget < 10**9 or kept[some].all()


MALFORMED = {
    "pool_offsets": [0, 99],
    "sentence_offsets": [0, 5, 3],
    "semantic": [np.nan],
    "lengths": [-1],
    "dependent": [1],
    "budgets": [1, 2, 3, 4, 5],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_arrays_are_refused(name: str) -> None:
    names = ("X", "pool_offsets", "sentence_offsets", "semantic", "lengths", "dependent", "budgets")
    given = dict(zip(names, problem(1), strict=True))
    assert ops.select_sentences(**given).dtype == bool
    for wrong in (MALFORMED[name], np.asarray(given[name])[:-1]):
        with pytest.raises(ArrayError):
            ops.select_sentences(**{**given, name: wrong})
    for place, value in (("semantic", np.inf), ("lengths", -5), ("lengths", 2**40)):
        spoiled = np.array(given[place])
        spoiled[-1] = value
        with pytest.raises(ArrayError, match=place):
            ops.select_sentences(**{**given, place: spoiled})


def test_x_has_a_row_for_each_sentence_title_and_question() -> None:
    X, *others = problem(1)
    for wrong in (X[:-1], csr_array((X.data, X.indices + 7, X.indptr), shape=X.shape)):
        with pytest.raises(ArrayError, match="X"):
            ops.select_sentences(wrong, *others)
