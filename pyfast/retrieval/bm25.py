"""BM25 over the passages of an index: `ops.bm25` over the term counts of its parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.ops.arrays import stack
from pyfast.retrieval.forward_index import mapped, stop_columns, without_columns
from pyfast.retrieval.pools import Pool, split
from pyfast.retrieval.tokenization import term_ids

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index

FOLDER = "bm25"
"""In a part"""
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


def term_counts(counts: csr_array, terms: Sequence[str]) -> ops.TermCounts:
    """How often each term is in each passage, by term; stop words are left out."""
    return ops.TermCounts.of(without_columns(counts, stop_columns(terms, STOP_WORDS)))


def save_term_counts(folder: Path, counts: ops.TermCounts) -> None:
    """Write the arrays, one file each."""
    folder.mkdir()
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", getattr(counts, name))


def open_term_counts(folder: Path) -> ops.TermCounts:
    """The term counts in a folder, mapped."""
    return ops.TermCounts(*(mapped(folder, name) for name in _ARRAYS))


class BM25Retriever:
    """BM25 over the passages of an index."""

    fingerprint = "bm25:" + ",".join(f"{name}={value}" for name, value in BM25_PARAMETERS.items())

    def __init__(self, index: Index) -> None:
        self._vocabulary = index.vocabulary
        self.parts = index.term_counts
        self._place = index.place

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """The `k` best passages for each query, best first; fewer if fewer share a word with it."""
        asked = stack([term_ids(query, self._vocabulary) for query in queries], np.int32)
        offsets, found, scores = ops.bm25(self.parts, *asked, k, k1=BM25_PARAMETERS["k1"], b=BM25_PARAMETERS["b"])
        return split(offsets, found if self._place is None else self._place[found], scores)


def open_bm25(index: Index) -> BM25Retriever:
    """The entry point `bm25`."""
    return BM25Retriever(index)
