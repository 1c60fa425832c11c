"""bm25s over the passages and terms of an index of pyfast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import bm25s
import numpy as np
from scipy.sparse import csc_array

from pyfast.ops import TermCounts
from pyfast.retrieval import Index
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.retrieval.terms import WORDS


def counted(index: Index) -> list[TermCounts]:
    """The term counts of the parts of an index, as `ops.bm25` needs them."""
    for part, counts in index.searched:
        part.check_columns(np.arange(len(counts.indptr) - 1, dtype=np.int32))
    return [counts for _, counts in index.searched]


def asked_terms(index: Index, questions: Iterable[str]) -> list[list[int]]:
    """The columns of each question's words in the index, in order, with repetitions, without unknown words."""
    found = (index.terms.find(WORDS.tokens(question)).tolist() for question in questions)
    return [[column for column in columns if column >= 0] for columns in found]


class Rows:
    """The terms of each passage as a list. A list is made when bm25s reads it, because all lists do not fit."""

    def __init__(self, part: TermCounts) -> None:
        shape = len(part.lengths), len(part.indptr) - 1
        self.rows = csc_array((part.counts, part.documents, part.indptr), shape=shape).tocsr()

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __iter__(self) -> Iterator[list[int]]:
        for a, b in pairwise(self.rows.indptr.tolist()):
            yield np.repeat(self.rows.indices[a:b], self.rows.data[a:b]).tolist()


@cache
def bm25s_of(index: Index, backend: str) -> Any:
    """bm25s over the same counts as the index, of one part; `backend` is "numpy" or "numba"."""
    (part,) = counted(index)
    engine = bm25s.BM25(**BM25_PARAMETERS, backend=backend)
    ids = range(len(index.terms))
    engine.scores = engine.build_index_from_ids(ids, Rows(part), show_progress=False)
    engine.vocab_dict, engine.unique_token_ids_set = {term: i for i, term in enumerate(index.terms)}, ids
    return engine
