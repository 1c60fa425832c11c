"""BM25 search over the passages of an index. `ops.bm25` searches the term counts of all parts of the index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import pyfast.ops as ops
import pyfast.stop_words as stop_words
from pyfast.blocks import MappedFolder, check_lists
from pyfast.errors import IndexFormatError, InputError
from pyfast.ops.arrays import Int32, stack
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.forward_index import WORDS, fit_together, stop_columns, without_columns
from pyfast.retrieval.pools import Pool, split

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index

FOLDER = "bm25"
"""The name of the folder with the term counts, in the folder of a part"""
BM25_PARAMETERS: dict[str, Any] = {"method": "lucene", "k1": 1.5, "b": 0.75}
"""The default parameters of BM25"""
_TYPES: dict[str, tuple[type[np.generic], ...]] = {
    "indptr": (np.int64,),
    "documents": (np.int32,),
    "counts": (np.int32, np.uint8),
    "lengths": (np.int32,),
}
_ARRAYS = ("indptr", "documents", "counts", "lengths")


def term_counts(counts: csr_array, terms: Sequence[str], analysis: Analysis = WORDS) -> ops.TermCounts:
    """Convert the counts from `count_terms` to the form that `ops.bm25` reads. Stop words are left out."""
    return ops.TermCounts.of(without_columns(counts, stop_columns(terms, analysis.stop(stop_words.LUCENE))))


def save_term_counts(folder: Path, counts: ops.TermCounts) -> None:
    """Write the term counts into a new folder. Each array gets its own file."""
    folder.mkdir()
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", getattr(counts, name))


def open_term_counts(files: MappedFolder, passages: int, terms: int) -> ops.TermCounts:
    """Memory-map the term counts of a part.

    The function reads and checks only the lengths of passages. Check the columns of the other arrays with
    `check_columns` before you read them.
    """
    indptr, documents, counts, lengths = (
        files.file(f"{FOLDER}/{name}.npy").array(*_TYPES[name]) for name in _ARRAYS
    )
    fit_together(files, FOLDER, indptr, terms, documents, counts)
    if len(lengths) != passages:
        raise IndexFormatError(f"{files.folder}: {FOLDER} is of other passages; build the index again")
    file = files.file(f"{FOLDER}/lengths.npy")
    file.check_all()
    if len(lengths) and lengths.min() < 0:
        raise IndexFormatError(f"{file.path}: damaged: a length is negative; build the index again")
    return ops.TermCounts(indptr, documents, counts, lengths)


def check_columns(files: MappedFolder, columns: Int32, *others: npt.NDArray[Any]) -> None:
    """Compare the term counts of some terms with their checksums. `columns` are the numbers of the terms in
    the part.

    The arrays `others` have an entry for each term count. The function also compares the entries of these
    terms with their checksums. Raises `IndexFormatError` if an entry is damaged.
    """
    indptr, documents, counts = (files.file(f"{FOLDER}/{name}.npy").checked(*_TYPES[name]) for name in _ARRAYS[:3])
    check_lists(indptr, columns, documents, counts, *others)


class BM25Retriever:
    """The retriever `bm25`: it ranks the passages of an index by their BM25 scores."""

    def __init__(self, index: Index, k1: float = BM25_PARAMETERS["k1"], b: float = BM25_PARAMETERS["b"]) -> None:
        self._k1, self._b = k1, b
        self.fingerprint = f"bm25:method={BM25_PARAMETERS['method']},k1={k1},b={b}"
        self._analysis, self._folder = index.analysis, index.folder
        self._searched, self._place = index.searched, index.place

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages for each query, best first. Passages without a word of the query
        are left out.
        """
        asked = [self._analysis.tokens(query) for query in queries]
        words = list(dict.fromkeys(chain.from_iterable(asked)))
        columns = [part.terms.find(words) for part, _ in self._searched]
        known = np.any(np.array(columns).reshape(len(columns), len(words)) >= 0, axis=0).tolist()
        number = {word: i for i, (word, is_known) in enumerate(zip(words, known, strict=True)) if is_known}
        parts = []
        for (part, counts), column in zip(self._searched, columns, strict=True):
            part.check_columns(column[column >= 0])
            parts.append(counts.at(column))
        terms = stack([[number[word] for word in of_query if word in number] for of_query in asked], np.int32)
        offsets, documents, scores = ops.bm25(parts, *terms, k, k1=self._k1, b=self._b)
        return split(offsets, documents if self._place is None else self._place[documents], scores)


def open_bm25(index: Index, parameters: str = "") -> BM25Retriever:
    """Open the retriever `bm25`. `parameters` is a text such as `k1=0.9,b=0.4`. Raises `InputError` if
    `parameters` is not valid.
    """
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
