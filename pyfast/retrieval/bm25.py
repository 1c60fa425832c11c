"""BM25 over the passages, through bm25s."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32, Int64, thread_count
from pyfast.retrieval.forward_index import stop_columns, without_columns
from pyfast.retrieval.pools import Pool, split
from pyfast.retrieval.tokenization import term_ids

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index

FOLDER = "bm25"
"""In an index"""
BM25_PARAMETERS: dict[str, Any] = {"method": "lucene", "k1": 1.5, "b": 0.75}
"""Parameters of BM25"""


def build_bm25(folder: Path, counts: csr_array, terms: Sequence[str]) -> None:
    """Score the terms of every document, Lucene's stop words left out, and save them in `folder`."""
    import bm25s
    from bm25s.stopwords import STOPWORDS_EN

    content = without_columns(counts, stop_columns(terms, STOPWORDS_EN))
    if not content.nnz:
        raise InputError("no usable document: the sources given hold nothing but stop words")
    # bm25s takes lists of tokens; their order does not matter, so the counts are enough to make them.
    times = content.data.astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(times)])[content.indptr]
    repeated = np.repeat(content.indices, times).tolist()
    tokens = [repeated[begin:end] for begin, end in pairwise(ends.tolist())]
    engine = bm25s.BM25(**BM25_PARAMETERS)
    engine.index((tokens, {term: i for i, term in enumerate(terms)}), show_progress=False)
    engine.save(folder, show_progress=False)


class BM25Retriever:
    """BM25 over the passages of an index."""

    fingerprint = "bm25:" + ",".join(f"{name}={value}" for name, value in BM25_PARAMETERS.items())

    def __init__(self, index: Index) -> None:
        self._vocabulary = index.vocabulary
        self._folder = index.folder / FOLDER

    @cached_property
    def _bm25(self) -> BM25Index:
        """Opened with the first search: that takes longer than all else that a finished run has to do."""
        return BM25Index(self._folder, len(self._vocabulary))

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """The `k` best passages for each query (fewer where fewer share a word with it), best first."""
        return split(*self._bm25.search([term_ids(query, self._vocabulary) for query in queries], k))


def open_bm25(index: Index) -> BM25Retriever:
    """The entry point `bm25`."""
    return BM25Retriever(index)


class BM25Index:
    """An opened lexical index, mapped from its files."""

    def __init__(self, folder: Path, terms: int) -> None:
        import bm25s

        self._engine = bm25s.BM25.load(folder, mmap=True, load_vocab=False, backend="numba")
        self._engine.unique_token_ids_set = range(terms)
        self.documents = int(self._engine.scores["num_docs"])
        _keep_compiled()

    def search(self, queries: Sequence[Sequence[int]], k: int) -> tuple[Int64, Int32, Float32]:
        """For each list of term ids the at most `k` best documents that share a term with it, and their scores.

        As pools, (offsets [queries + 1], documents, scores). Best first, ties by document (which of those that
        tie for the last place are in, bm25s's heap decides, the same each time). Each query is one thread's work:
        its result does not depend on the others.
        """
        asked = [query for query in queries if query]
        k = min(k, self.documents)
        threads = thread_count(None)
        parts = [asked[i::threads] for i in range(min(threads, len(asked)))]
        documents = np.empty((len(asked), k), np.int32)
        scores = np.empty((len(asked), k), np.float32)
        for i, found in enumerate(_threads(threads).map(partial(self._search, k=k), parts)):
            documents[i::threads], scores[i::threads] = found
        order = np.lexsort((documents, -scores))
        documents = np.take_along_axis(documents, order, axis=1)
        scores = np.take_along_axis(scores, order, axis=1)
        good = scores > 0.0
        found_by = np.zeros(len(queries), np.int64)
        found_by[[bool(query) for query in queries]] = np.count_nonzero(good, axis=1)
        return np.concatenate([[0], np.cumsum(found_by)]), documents[good], scores[good]

    def _search(self, queries: list[Sequence[int]], k: int) -> Any:
        return self._engine.retrieve(queries, k=k, n_threads=1, show_progress=False)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="pyfast-lexical")


def _keep_compiled() -> None:
    """Have numba keep bm25s's compiled search on disk: compiling it takes seconds, in every new process."""
    from bm25s.numba import retrieve_utils

    with contextlib.suppress(RuntimeError):  # no writable place for it: compiled anew each time, then
        retrieve_utils._retrieve_internal_jitted_serial.enable_caching()
