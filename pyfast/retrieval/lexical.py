"""BM25 over the units, through bm25s."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32, thread_count
from pyfast.retrieval.forward import stop_columns, without_columns

LEXICAL = {"method": "lucene", "k1": 1.5, "b": 0.75}
"""Parameters of BM25"""


def build_lexical(folder: Path, counts: csr_array, terms: Sequence[str]) -> None:
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
    engine = bm25s.BM25(**LEXICAL)
    engine.index((tokens, {term: i for i, term in enumerate(terms)}), show_progress=False)
    engine.save(folder, show_progress=False)


class Lexical:
    """An opened lexical index, mapped from its files."""

    def __init__(self, folder: Path, terms: int) -> None:
        import bm25s

        self._engine = bm25s.BM25.load(folder, mmap=True, load_vocab=False, backend="numba")
        self._engine.unique_token_ids_set = range(terms)
        self.documents = int(self._engine.scores["num_docs"])
        _keep_compiled()

    def search(self, queries: Sequence[Sequence[int]], k: int) -> list[tuple[Int32, Float32]]:
        """For each list of term ids the (documents, scores) of the at most `k` best that share a term with it.

        Best first, ties by document (which of those that tie for the last place are in, bm25s's heap decides, the
        same each time). Each query is one thread's work: its result does not depend on the others.
        """
        found: list[tuple[Int32, Float32]] = [_NOTHING] * len(queries)
        asked = [i for i, query in enumerate(queries) if query]
        parts = np.array_split(np.array(asked, dtype=np.int64), min(thread_count(None), max(len(asked), 1)))

        def search_part(part: Any) -> None:
            if not len(part):
                return
            documents, scores = self._engine.retrieve(
                [list(queries[i]) for i in part],
                k=min(k, self.documents),
                n_threads=1,
                show_progress=False,
            )
            for i, ids, values in zip(part, documents, scores, strict=True):
                order = np.lexsort((ids, -values))
                order = order[values[order] > 0.0]
                found[i] = ids[order].astype(np.int32), values[order]

        if len(parts) == 1:
            search_part(parts[0])
        else:
            list(_threads().map(search_part, parts))
        return found


_NOTHING: tuple[Int32, Float32] = (np.empty(0, np.int32), np.empty(0, np.float32))
_pool: ThreadPoolExecutor | None = None


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(thread_count(None), thread_name_prefix="pyfast-lexical")
    return _pool


def _keep_compiled() -> None:
    """Have numba keep bm25s's compiled search on disk: compiling it takes seconds, in every new process."""
    from bm25s.numba import retrieve_utils

    with contextlib.suppress(RuntimeError):  # no writable place for it: compiled anew each time, then
        retrieve_utils._retrieve_internal_jitted_serial.enable_caching()
