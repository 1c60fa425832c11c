"""The terms of each passage, counted for BM25, and the cell values of table rows as terms."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import pyfast.ops as ops
import pyfast.stop_words as stop_words
from pyfast.blocks import MappedFolder, are_checked, check_lists, raw
from pyfast.errors import IndexFormatError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64, utf8
from pyfast.retrieval.analysis import WORDS, Analysis
from pyfast.retrieval.part_files import CELLS, TERM_COUNTS, Mask, fit_together, save_arrays
from pyfast.retrieval.terms import Terms

_COUNTS: dict[str, tuple[type[np.generic], ...]] = {
    "indptr": (np.int64,),
    "documents": (np.int32,),
    "counts": (np.int32, np.uint8),
    "lengths": (np.int32,),
}
_OFFSETS = (np.int64, np.int32)
_CELLS = {"value_offsets": _OFFSETS, "term_offsets": _OFFSETS, "term_ids": (np.int32,)}
"""The arrays of term counts and of cell values, each with its types"""


def count_terms(texts: Iterable[str], analysis: Analysis = WORDS) -> tuple[csr_array, list[str]]:
    """Count the terms of texts. Returns the counts (a sparse float32 matrix, texts x terms, with sorted rows) and
    the term of each column.
    """
    known = bool(analysis.stemmer) or analysis.tokenizer != "words"
    words = (" ".join(analysis.tokens(text)) if known else analysis.form(text) for text in texts)
    offsets, columns, counts, terms = ops.count_words(utf8(words), separated=known)
    shape = len(offsets) - 1, len(terms)
    return csr_array((counts.astype(np.float32), columns, offsets), shape=shape), terms


def stop_columns(terms: Sequence[str], words: Iterable[str]) -> Mask:
    """Return for each term whether it is a stop word: bool[terms]."""
    stop = frozenset(words)
    if not isinstance(terms, Terms):
        return np.fromiter(map(stop.__contains__, terms), dtype=bool, count=len(terms))
    found = np.zeros(len(terms), dtype=bool)  # Few words are found faster than all terms are read.
    places = terms.find(list(stop))
    found[places[places >= 0]] = True
    return found


def without_columns(x: csr_array, columns: Mask) -> csr_array:
    """Remove all entries of the given columns from `x`. The shape does not change."""
    keep = ~columns[x.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[x.indptr]
    return csr_array((x.data[keep], x.indices[keep], indptr), shape=x.shape)


def term_counts(counts: csr_array, terms: Sequence[str], analysis: Analysis) -> TermCounts:
    """Convert the counts from `count_terms` to the form that `ops.bm25` reads. Stop words are left out."""
    return TermCounts.of(without_columns(counts, stop_columns(terms, analysis.stop(stop_words.LUCENE))))


def save_term_counts(folder: Path, counts: TermCounts) -> None:
    """Write the term counts into the folder of a part."""
    save_arrays(folder / TERM_COUNTS, **{name: getattr(counts, name) for name in _COUNTS})


def open_term_counts(files: MappedFolder, passages: int, terms: int) -> TermCounts:
    """Memory-map the term counts of a part.

    The function reads and checks only the lengths of passages. Check the columns of the other arrays with
    `check_columns` before you read them.
    """
    opened = {name: files.file(f"{TERM_COUNTS}/{name}.npy") for name in _COUNTS}
    indptr, documents, counts, lengths = (file.array(*_COUNTS[name]) for name, file in opened.items())
    fit_together(files, TERM_COUNTS, indptr, terms, documents, counts)
    if len(lengths) != passages:
        raise IndexFormatError(f"{files.folder}: {TERM_COUNTS} is of other passages; build the index again")
    file = opened["lengths"]
    file.check_all()
    if len(lengths) and lengths.min() < 0:
        raise IndexFormatError(f"{file.path}: damaged: a length is negative; build the index again")
    return TermCounts(indptr, documents, counts, lengths)


def check_columns(files: MappedFolder, columns: Int32, *others: npt.NDArray[Any]) -> None:
    """Compare the term counts of some terms with their checksums. `columns` are the numbers of the terms in
    the part.

    The arrays `others` have an entry for each term count. The function also compares the entries of these
    terms with their checksums. Raises `IndexFormatError` if an entry is damaged.
    """
    indptr, documents, counts = (
        files.file(f"{TERM_COUNTS}/{name}.npy").checked(*_COUNTS[name])
        for name in ("indptr", "documents", "counts")
    )
    check_lists(indptr, columns, documents, counts, *others)


def cell_terms(rows: Iterable[Sequence[str]], vocabulary: Mapping[str, int], analysis: Analysis = WORDS) -> Cells:
    """Return the cell values of each passage as term ids, without stop words. A passage of text has no cell
    values."""
    stop = analysis.stop(stop_words.ENGLISH)
    value_offsets, term_offsets, ids = array("q", [0]), array("q", [0]), array("i")
    for cells in rows:
        for cell in cells:
            ids.extend(vocabulary[word] for word in analysis.tokens(cell) if word not in stop)
            term_offsets.append(len(ids))
        value_offsets.append(len(term_offsets) - 1)
    values, terms = (_narrow(np.frombuffer(some, np.int64)) for some in (value_offsets, term_offsets))
    return Cells(values, terms, np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32))


def _narrow(offsets: Int64) -> Int32 | Int64:
    """Convert offsets to 32 bits, if they are small enough."""
    return offsets.astype(np.int32) if offsets[-1] <= np.iinfo(np.int32).max else offsets


def save_cells(folder: Path, cells: Cells) -> None:
    """Write the cell values of table rows into the folder of a part."""
    save_arrays(folder / CELLS, **{name: getattr(cells, name) for name in _CELLS})


def open_cells(files: MappedFolder, passages: int) -> Cells:
    """Memory-map the arrays of the cell values. The arrays are checked when they are read."""
    values, terms, ids = (files.file(f"{CELLS}/{name}.npy").checked(*types) for name, types in _CELLS.items())
    fit_together(files, CELLS, values, passages)
    fit_together(files, CELLS, terms, int(values[-1]), ids)
    return Cells(values, terms, ids)


def cells_of(cells: Cells, passages: npt.NDArray[Any]) -> Cells:
    """Return all cell values in the form that ops read. Only those of the given passages are checked first."""
    values, terms, ids = cells.value_offsets, cells.term_offsets, cells.term_ids
    check_lists(values, passages, terms)
    first, last = raw(values)[passages], raw(values)[passages + 1]
    some = first < last
    if some.any() and not are_checked(terms, ids):
        check_lists(terms, np.concatenate(list(map(np.arange, first[some], last[some]))), ids)
    return Cells(raw(values), raw(terms), raw(ids))
