"""BM25 against a slow and independent NumPy BM25, and against itself in other company."""

from pathlib import Path

import numpy as np
import pytest
from slow_words import slow_terms

from pyfast.corpus import TextDocument
from pyfast.engine import Question
from pyfast.retrieval import Index, Pool, build_index
from pyfast.retrieval.index.part_maker import indexed_text

# The stop words of Lucene's EnglishAnalyzer.
STOP = {
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
}  # fmt: skip


class SlowBM25:
    """Lucene's variant, k1 = 1.5, b = 0.75, one document after the other."""

    def __init__(self, texts: list[str]) -> None:
        self.documents = [slow_terms(text, STOP) for text in texts]
        self.average = np.mean([len(words) for words in self.documents])
        self.df: dict[str, int] = {}
        for words in self.documents:
            for word in set(words):
                self.df[word] = self.df.get(word, 0) + 1

    def scores(self, query: str) -> np.ndarray:
        n = len(self.documents)
        scores = np.zeros(n)
        for word in slow_terms(query, STOP):
            df = self.df.get(word, 0)
            idf = np.log(1 + (n - df + 0.5) / (df + 0.5))
            for d, words in enumerate(self.documents):
                tf = words.count(word)
                scores[d] += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(words) / self.average))
        return scores


@pytest.fixture(scope="module")
def slow(small: Index) -> SlowBM25:
    return SlowBM25([indexed_text(small.corpus, i, 0) for i in small.passages.tolist()])


def test_scores_are_bm25(small: Index, slow: SlowBM25, example_questions: list[dict[str, str]]) -> None:
    queries = [question["question"] for question in example_questions]
    for query, pool in zip(queries, small.search(queries, len(small.passages)), strict=True):
        expected = slow.scores(query)
        assert set(pool.passages.tolist()) == set(np.flatnonzero(expected > 0).tolist())
        np.testing.assert_allclose(pool.scores, expected[pool.passages], rtol=1e-5)
        assert pool.passages.tolist() == sorted(pool.passages, key=lambda u, p=dict(pool): (-p[u], u))


def test_the_k_best_are_kept(small: Index, slow: SlowBM25, example_questions: list[dict[str, str]]) -> None:
    queries = [question["question"] for question in example_questions]
    for query, pool in zip(queries, small.search(queries, 7), strict=True):
        best = np.sort(slow.scores(query))[::-1][:7]
        np.testing.assert_allclose(pool.scores, best[best > 0], rtol=1e-5)


def same(a: Pool, b: Pool) -> bool:
    return a.passages.tobytes() == b.passages.tobytes() and a.scores.tobytes() == b.scores.tobytes()


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_company_and_threads_do_not_matter(
    hybridqa: Index, hybridqa_questions: list[Question], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [question.text for question in hybridqa_questions][:60]
    alone = [hybridqa.search([query], 20)[0] for query in queries]
    monkeypatch.setenv("PYFAST_THREADS", threads)
    order = np.random.default_rng(0).permutation(2 * len(queries)) % len(queries)
    mixed = [queries[i] for i in order]
    mixed[3:3] = ["", "zzzz"]
    found = hybridqa.search(mixed, 20)
    del found[3:5]
    assert all(same(pool, alone[i]) for i, pool in zip(order, found, strict=True))


def test_queries_that_find_nothing(small: Index) -> None:
    pools = small.search(["", "  ?! ", "qwertyuiop", "the of and", "Titan"], 5)
    assert [len(pool) for pool in pools[:4]] == [0, 0, 0, 0] and len(pools[4])
    assert pools[0].passages.dtype == np.int32 and pools[0].scores.dtype == np.float32
    assert small.search([], 5) == []


def test_k_beyond_the_corpus(tmp_path: Path) -> None:
    documents = [TextDocument(str(i), "", f"moon number{i}") for i in range(3)]
    index = build_index([*documents, TextDocument("x", "", "sun")], tmp_path / "i")
    pool = index.search(["moon"], 1000)[0]
    assert pool.passages.tolist() == [0, 1, 2]  # equal scores: in order
    assert list(pool.head(2)) == list(pool)[:2]


def test_a_question_masks_its_own_words(small: Index) -> None:
    ids = small.question_terms("Titan, the moon; TITAN unheardofword")
    assert ids == sorted(small.terms.find(["titan", "the", "moon"]).tolist())
