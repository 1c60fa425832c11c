"""bm25s over the passages and terms of an index of pyfast."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import bm25s
import numpy as np

from pyfast.ops import TermCounts
from pyfast.retrieval import Index
from pyfast.retrieval.bm25 import BM25_PARAMETERS


def counted(index: Index) -> list[TermCounts]:
    """The term counts of the parts of an index, as `ops.bm25` needs them."""
    for part, counts in index.searched:
        part.check_columns(np.arange(len(counts.indptr) - 1, dtype=np.int32))
    return [counts for _, counts in index.searched]


@cache
def bm25s_of(index: Index, backend: str) -> Any:
    """bm25s over the same counts as the index, of one part; `backend` is "numpy" or "numba"."""
    (part,) = counted(index)
    column = np.repeat(np.arange(len(part.indptr) - 1), np.diff(part.indptr))
    order = np.argsort(part.documents, kind="stable")
    repeated = np.repeat(column[order], part.counts[order]).tolist()
    ends = [0, *np.cumsum(part.lengths).tolist()]
    tokens = [repeated[a:b] for a, b in pairwise(ends)]
    engine = bm25s.BM25(**BM25_PARAMETERS, backend=backend)
    engine.index((tokens, {term: i for i, term in enumerate(index.terms)}), show_progress=False)
    engine.unique_token_ids_set = range(len(index.terms))
    return engine
