"""The forward index: documents x terms, TF-IDF. Also the cell values of table rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyfast.blocks import MappedFolder, are_checked, check_lists, raw
from pyfast.errors import IndexFormatError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64
from pyfast.retrieval.analysis import Analysis

FORWARD = {"tf": "1 + log", "idf": "smooth", "norm": "l2", "stop_words": "english"}
"""The parameters of `weigh`, with scikit-learn's names"""
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
WORDS = Analysis()
_X = (("indptr", np.int64), ("indices", np.int32), ("weights", np.float32))
_TRANSPOSED = "transposed_weights"
_CELLS = ("value_offsets", "term_offsets", "term_ids")


def count_terms(texts: Iterable[str], analysis: Analysis = WORDS) -> tuple[csr_array, list[str]]:
    """Return (counts float32, documents x terms, rows sorted; the terms in column order)."""
    from sklearn.feature_extraction.text import CountVectorizer

    analyzer = "word" if analysis.is_default else analysis.tokens
    vectorizer = CountVectorizer(dtype=np.float32, analyzer=analyzer)
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # scikit-learn: empty vocabulary
        matrix = np.empty((0, 0), dtype=np.float32)
        return csr_array(matrix), []
    counts = csr_array(matrix)
    counts.sort_indices()
    return counts, vectorizer.get_feature_names_out().tolist()


def stop_columns(terms: Sequence[str], stop_words: Iterable[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which columns are stop words: bool[terms]."""
    stop = frozenset(stop_words)
    return np.fromiter((term in stop for term in terms), dtype=bool, count=len(terms))


def without_columns(x: csr_array, columns: np.ndarray[Any, np.dtype[np.bool_]]) -> csr_array:
    """`x` with the given columns emptied. The shape stays."""
    keep = ~columns[x.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[x.indptr]
    return csr_array((x.data[keep], x.indices[keep], indptr), shape=x.shape)


def weigh(counts: csr_array, terms: Sequence[str], analysis: Analysis = WORDS) -> csr_array:
    """TF-IDF weights: scikit-learn's smoothed idf over the corpus, logarithmic tf, l2 norm, no stop words.

    Logarithmic tf without stop words gave the best recall with `bridge_rank`.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer

    content = without_columns(counts, stop_columns(terms, analysis.stop(ENGLISH_STOP_WORDS)))
    if not content.nnz:
        return content.astype(np.float32)
    weights = csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(content))
    return weights.astype(np.float32)


def cell_terms(rows: Iterable[Sequence[str]], vocabulary: Mapping[str, int], analysis: Analysis = WORDS) -> Cells:
    """The cell values of each passage as term ids, without stop words. A passage of text has none."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    stop = analysis.stop(ENGLISH_STOP_WORDS)
    value_offsets, term_offsets, ids = array("q", [0]), array("q", [0]), array("i")
    for cells in rows:
        for cell in cells:
            ids.extend(vocabulary[word] for word in analysis.tokens(cell) if word not in stop)
            term_offsets.append(len(ids))
        value_offsets.append(len(term_offsets) - 1)
    values, terms = (narrow_offsets(np.frombuffer(some, np.int64)) for some in (value_offsets, term_offsets))
    return Cells(values, terms, np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32))


def narrow_offsets(offsets: Int64) -> Int32 | Int64:
    """Offsets in 32 bits, if they fit."""
    return offsets.astype(np.int32) if offsets[-1] <= np.iinfo(np.int32).max else offsets


def transpose(x: csr_array, counts: TermCounts) -> csr_array:
    """X transposed, with the same structure as the counts. Entries of stop words have the weight 0."""
    transposed = x.T.tocsr()
    there = np.diff(transposed.indptr) > 0
    weights = np.zeros(len(counts.documents), np.float32)
    weights[np.repeat(there, np.diff(counts.indptr))] = transposed.data
    return _csr(weights, counts.documents, counts.indptr, x.shape[0])


def save_weights(folder: Path, x: csr_array, transposed: csr_array) -> None:
    """Write X, and only the weights of its transpose, because the counts have the same structure."""
    folder.mkdir()
    np.save(folder / "indptr.npy", x.indptr.astype(np.int64))
    np.save(folder / "indices.npy", x.indices.astype(np.int32))
    np.save(folder / "weights.npy", x.data)
    np.save(folder / f"{_TRANSPOSED}.npy", transposed.data)


def open_weights(files: MappedFolder, folder: str, counts: TermCounts) -> tuple[csr_array, csr_array]:
    """Map (X, X transposed). Check the rows before you read them (`check_rows`)."""
    passages, terms = len(counts.lengths), len(counts.indptr) - 1
    indptr, indices, data = (files.file(f"{folder}/{name}.npy").array(dtype) for name, dtype in _X)
    fit_together(files, folder, indptr, passages, indices, data)
    weights = files.file(f"{folder}/{_TRANSPOSED}.npy").array(np.float32)
    fit_together(files, folder, counts.indptr, terms, weights)
    return _csr(data, indices, indptr, terms), _csr(weights, counts.documents, counts.indptr, passages)


def check_rows(files: MappedFolder, folder: str, rows: npt.NDArray[Any]) -> None:
    """Check some rows of the X that `open_weights` mapped."""
    indptr, indices, data = (files.file(f"{folder}/{name}.npy").checked(dtype) for name, dtype in _X)
    check_lists(indptr, rows, indices, data)


def transposed_weights(files: MappedFolder, folder: str) -> Any:
    """The weights of X transposed. They are checked when they are read."""
    return files.file(f"{folder}/{_TRANSPOSED}.npy").checked(np.float32)


def fit_together(files: MappedFolder, folder: str, offsets: Any, lists: int, *values: Any) -> None:
    """Raise `IndexFormatError` unless the offsets match the number of lists and the number of values."""
    if len(offsets) != lists + 1 or any(len(one) != int(offsets[-1]) for one in values):
        raise IndexFormatError(f"{files.folder}: the arrays of {folder} do not go together; build the index again")


def narrow(x: csr_array) -> csr_array:
    """The array with 32-bit ids and 64-bit offsets, as in an opened index."""
    return _csr(x.data, x.indices.astype(np.int32), x.indptr.astype(np.int64), x.shape[1])


def _csr(data: Any, indices: Any, indptr: Any, columns: int) -> csr_array:
    x: Any = csr_array((len(indptr) - 1, columns), dtype=np.float32)
    # Set one by one: given together, SciPy would copy the indices, to make them int64 as indptr is.
    x.data, x.indices, x.indptr = data, indices, indptr
    x.has_sorted_indices = x.has_canonical_format = True  # as built; else SciPy would read all of it to see
    return cast(csr_array, x)


def save_cells(folder: Path, cells: Cells) -> None:
    """Write the arrays of the cell values, each into a file."""
    folder.mkdir()
    for name in _CELLS:
        np.save(folder / f"{name}.npy", getattr(cells, name))


def open_cells(files: MappedFolder, folder: str, passages: int) -> Cells:
    """Map the arrays of the cell values. They are checked when they are read."""
    values, terms, ids = (
        files.file(f"{folder}/{name}.npy").checked(*((np.int32,) if name == "term_ids" else (np.int64, np.int32)))
        for name in _CELLS
    )
    fit_together(files, folder, values, passages)
    fit_together(files, folder, terms, int(values[-1]), ids)
    return Cells(values, terms, ids)


def cells_of(cells: Cells, passages: npt.NDArray[Any]) -> Cells:
    """The cells as an op reads them, after the cells of some passages were checked."""
    values, terms, ids = cells.value_offsets, cells.term_offsets, cells.term_ids
    check_lists(values, passages, terms)
    first, last = raw(values)[passages], raw(values)[passages + 1]
    some = first < last
    if some.any() and not are_checked(terms, ids):
        check_lists(terms, np.concatenate(list(map(np.arange, first[some], last[some]))), ids)
    return Cells(raw(values), raw(terms), raw(ids))


def join_cells(cells: Sequence[Cells], live: Sequence[Mask], columns: Sequence[Int32]) -> Cells:
    """Join the cells of several parts: the live passages of each, with the new columns of its terms."""
    values, ends, ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for some, keep, column in zip(cells, live, columns, strict=True):
        of_passages: Int64 = np.asarray(some.value_offsets)
        of_values: Int64 = np.asarray(some.term_offsets)
        per_passage, per_value = np.diff(of_passages), np.diff(of_values)
        keep_value = np.repeat(keep, per_passage)
        values.append(per_passage[keep])
        ends.append(per_value[keep_value])
        ids.append(column[some.term_ids[np.repeat(keep_value, per_value)]])
    value_offsets, term_offsets = (np.concatenate([[0], np.cumsum(np.concatenate(it))]) for it in (values, ends))
    return Cells(narrow_offsets(value_offsets), narrow_offsets(term_offsets), np.concatenate(ids))
