"""BM25 over the passages of an index: `ops.bm25` over the term counts of its parts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.errors import InputError
from pyfast.ops.arrays import stack
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.forward_index import WORDS, mapped, stop_columns, without_columns
from pyfast.retrieval.pools import Pool, split

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index

FOLDER = "bm25"
"""The number of passages in a part"""
BM25_PARAMETERS: dict[str, Any] = {"method": "lucene", "k1": 1.5, "b": 0.75}
"""Parameters of BM25"""
# The stop words of Lucene's EnglishAnalyzer.
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these"
        " they this to was will with",
    )
)
_ARRAYS = ("indptr", "documents", "counts", "lengths")


def term_counts(counts: csr_array, terms: Sequence[str], analysis: Analysis = WORDS) -> ops.TermCounts:
    """How often each term is in each passage, by term, without stop words."""
    return ops.TermCounts.of(without_columns(counts, stop_columns(terms, analysis.stop(STOP_WORDS))))


def save_term_counts(folder: Path, counts: ops.TermCounts) -> None:
    """Write the term counts, each array into a file."""
    folder.mkdir()
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", getattr(counts, name))


def open_term_counts(folder: Path) -> ops.TermCounts:
    """The term counts in a folder, memory-mapped."""
    return ops.TermCounts(*(mapped(folder, name) for name in _ARRAYS))


class BM25Retriever:
    """BM25 over the passages of an index."""

    def __init__(self, index: Index, k1: float = BM25_PARAMETERS["k1"], b: float = BM25_PARAMETERS["b"]) -> None:
        self._k1, self._b = k1, b
        self.fingerprint = f"bm25:method={BM25_PARAMETERS['method']},k1={k1},b={b}"
        self._vocabulary, self._analysis = index.vocabulary, index.analysis
        self.parts = index.term_counts
        self._place = index.place

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """The `k` best passages for each query, best first. There are fewer if fewer share a word with it."""
        asked = stack([self._analysis.term_ids(query, self._vocabulary) for query in queries], np.int32)
        offsets, documents, scores = ops.bm25(self.parts, *asked, k, k1=self._k1, b=self._b)
        return split(offsets, documents if self._place is None else self._place[documents], scores)


def open_bm25(index: Index, parameters: str = "") -> BM25Retriever:
    """The entry point `bm25`. `parameters` is text such as `k1=0.9,b=0.4`. Raises `InputError`."""
    given = dict(part.partition("=")[::2] for part in parameters.split(",")) if parameters else {}
    try:
        values = {name: float(value) for name, value in given.items()}
    except ValueError:
        values = {"": 0.0}
    if (
        not values.keys() <= {"k1", "b"}
        or not 0 <= values.get("k1", 0) < math.inf
        or not 0 <= values.get("b", 0) <= 1
    ):
        raise InputError(
            f"bm25:{parameters}: expected k1 of at least 0 and b from 0 to 1, such as bm25:k1=0.9,b=0.4"
        )
    return BM25Retriever(index, **values)
