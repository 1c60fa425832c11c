"""The forward index: documents x terms, TF-IDF. Also the cell values of table rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array

from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64
from pyfast.retrieval.analysis import Analysis

FORWARD = {"tf": "1 + log", "idf": "smooth", "norm": "l2", "stop_words": "english"}
"""The parameters of `weigh`, in scikit-learn's words"""
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
WORDS = Analysis()
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
    """X transposed, in the structure of the counts that X is made of.

    Entries of stop words, which X does not have, have the weight 0.
    """
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
    np.save(folder / "transposed_weights.npy", transposed.data)


def open_weights(folder: Path, counts: TermCounts) -> tuple[csr_array, csr_array]:
    """Map (X, X transposed). Data is read on first use."""
    data, indices, indptr = (mapped(folder, name) for name in ("weights", "indices", "indptr"))
    weights = mapped(folder, "transposed_weights")
    return (
        _csr(data, indices, indptr, len(counts.indptr) - 1),
        _csr(weights, counts.documents, counts.indptr, len(counts.lengths)),
    )


def narrow(x: csr_array) -> csr_array:
    """The array with 32-bit ids and 64-bit offsets, as in an opened index."""
    return _csr(x.data, x.indices.astype(np.int32), x.indptr.astype(np.int64), x.shape[1])


def _csr(data: Any, indices: Any, indptr: Any, columns: int) -> csr_array:
    x: Any = csr_array((len(indptr) - 1, columns), dtype=np.float32)
    # Set one by one: given together, SciPy would copy the indices, to make them int64 as indptr is.
    x.data, x.indices, x.indptr = data, indices, indptr
    x.has_sorted_indices = x.has_canonical_format = True  # as built; else SciPy would read all of it to see
    return cast(csr_array, x)


def mapped(folder: Path, name: str) -> Any:
    """An array in a folder, memory-mapped."""
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def save_cells(folder: Path, cells: Cells) -> None:
    """Write the arrays of the cell values, each into a file."""
    folder.mkdir()
    for name in _CELLS:
        np.save(folder / f"{name}.npy", getattr(cells, name))


def open_cells(folder: Path) -> Cells:
    """Open the cell values in a folder, memory-mapped."""
    return Cells(*(mapped(folder, name) for name in _CELLS))


def join_cells(cells: Sequence[Cells], live: Sequence[Mask], columns: Sequence[Int32]) -> Cells:
    """Join the cells of several parts: the live passages of each, with the new columns of its terms."""
    values, ends, ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for some, keep, column in zip(cells, live, columns, strict=True):
        per_passage, per_value = np.diff(some.value_offsets), np.diff(some.term_offsets)
        keep_value = np.repeat(keep, per_passage)
        values.append(per_passage[keep])
        ends.append(per_value[keep_value])
        ids.append(column[some.term_ids[np.repeat(keep_value, per_value)]])
    value_offsets, term_offsets = (np.concatenate([[0], np.cumsum(np.concatenate(it))]) for it in (values, ends))
    return Cells(narrow_offsets(value_offsets), narrow_offsets(term_offsets), np.concatenate(ids))
