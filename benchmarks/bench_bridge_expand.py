"""bridge_expand: the 10 nearest documents of 5 seeds a question, at 26,000 and at a million documents.

The million is HybridQA 39 times over. Terms that 5 documents or fewer hold, names for the most part, are each
copy's own; the others are the same in all copies, and so as frequent as in a corpus of that size, but in each copy
they are dealt out to the documents again, so that no document is another one's double.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring import NOTES, POOLS, THREADS, Measure, open_index
from scipy.sparse import block_diag, csr_array, csr_matrix, hstack
from sklearn.preprocessing import normalize
from sparse_dot_topn import sp_matmul_topn

from pyfast import ops
from pyfast.ops.arrays import stack

SEEDS, NEAREST = 5, 10


@dataclass(frozen=True)
class Corpus:
    name: str
    X: csr_array
    XT: csr_array
    seeds: Any
    terms: Any

    def expand(self, threads: int = THREADS, max_entries: int | None = None) -> tuple[Any, Any, Any]:
        settings = {"k": NEAREST, "largest_norm": 1.0, "max_entries": max_entries, "threads": threads}
        return ops.bridge_expand(self.X, self.XT, *self.seeds, self.terms, **settings)

    def masked(self, q: int) -> csr_matrix:
        """The seeds of question q without its terms."""
        (offsets, seeds), (term_offsets, terms) = self.seeds, self.terms
        rows = csr_matrix(self.X[seeds[offsets[q] : offsets[q + 1]]])
        rows.data[np.isin(rows.indices, terms[term_offsets[q] : term_offsets[q + 1]])] = 0.0
        return rows


def copies(X: csr_array, count: int) -> tuple[csr_array, Any]:
    """(`X` so many times over, where each of its terms now is); see above. Frequent terms come first."""
    common = np.bincount(X.indices, minlength=X.shape[1]) > 5
    shuffled = np.random.default_rng(0).permuted(np.tile(np.arange(X.shape[0]), (count, 1)), axis=1)
    shuffled[0] = np.arange(X.shape[0])
    frequent, rare = csr_array(X[:, common]), block_diag([X[:, ~common]] * count)
    x = normalize(hstack([frequent[shuffled.ravel()], rare], format="csr"))
    place = np.where(common, np.cumsum(common) - 1, common.sum() + np.cumsum(~common) - 1)
    return narrow(x), place


def narrow(x: Any) -> csr_array:
    """With ids of 32 bits, as an index has them: others would be copied at each call."""
    x = csr_array((x.data, x.indices.astype(np.int32), x.indptr.astype(np.int32)), shape=x.shape)
    x.sum_duplicates()
    return x


@pytest.fixture(scope="module", params=[1, 39], ids=["26,000", "1,000,000"])
def corpus(data: Path, request: pytest.FixtureRequest) -> Corpus:
    index = open_index(request, data / "hybridqa" / "corpus.jsonl")
    with (data / "hybridqa" / "questions.jsonl").open(encoding="utf-8") as file:
        questions = [json.loads(line)["question"] for line in file][:POOLS]
    seeds = [pool.passages for pool in index.search(questions, SEEDS)]
    X, place = copies(index.X, request.param)
    terms = [place[index.question_terms(question)] for question in questions]
    name = f"bridge_expand, {X.shape[0]:,}"
    return Corpus(name, X, narrow(X.T.tocsr()), stack(seeds, np.int32), stack(terms, np.int32))


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
@pytest.mark.parametrize("max_entries", [None, 250, 2000, 20_000])
def test_pyfast(corpus: Corpus, measure: Measure, threads: int, max_entries: int | None) -> None:
    name = corpus.name + ("" if max_entries is None else f", limit {max_entries}")
    measure.op(name, threads, lambda: corpus.expand(threads, max_entries), rounds=10)
    if max_entries is not None and threads == THREADS:
        (offsets, whole, _), (cut_offsets, cut, _) = corpus.expand(), corpus.expand(max_entries=max_entries)
        pairs = zip(pairwise(offsets), pairwise(cut_offsets), strict=True)
        shared = sum(len(set(whole[a:b].tolist()) & set(cut[c:d].tolist())) for (a, b), (c, d) in pairs)
        NOTES.append(f"{name}: finds {shared / len(whole):.1%} of the {NEAREST} nearest")


def test_sparse_dot_topn(corpus: Corpus, measure: Measure) -> None:
    masked = [corpus.masked(q) for q in range(20)]
    XT = csr_matrix(corpus.XT)  # it takes no csr_array
    run = lambda q: sp_matmul_topn(masked[q], XT, top_n=NEAREST + 1, n_threads=THREADS, sort=True)  # noqa: E731

    def compare() -> None:
        offsets, _, found = corpus.expand()
        for q in range(20):
            for s, row in zip(range(*corpus.seeds[0][q : q + 2]), run(q), strict=True):
                mine = found[offsets[s] : offsets[s + 1]]
                # Without the mask of its own terms a seed would be its own nearest; whichever it is, it goes.
                theirs = np.sort(row.data[row.indices != corpus.seeds[1][s]])[::-1][: len(mine)]
                np.testing.assert_allclose(mine, theirs, rtol=1e-4)

    measure.check(compare)
    measure.peer(corpus.name, "sparse_dot_topn", 2, run, pools=20)
