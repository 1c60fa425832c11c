"""The forward index: documents x terms, TF-IDF. Also the cell values of table rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array

from pyfast.ops import Cells
from pyfast.ops.arrays import Int32
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
    value_offsets, term_offsets = [0], [0]
    ids: list[int] = []
    for cells in rows:
        for cell in cells:
            ids.extend(vocabulary[word] for word in analysis.tokens(cell) if word not in stop)
            term_offsets.append(len(ids))
        value_offsets.append(len(term_offsets) - 1)
    return Cells(
        np.array(value_offsets, dtype=np.int64),
        np.array(term_offsets, dtype=np.int64),
        np.array(ids, dtype=np.int32),
    )


def save_weights(folder: Path, x: csr_array) -> None:
    """Write X and X transposed, one file for each array."""
    folder.mkdir()
    for name, matrix in (("", x), ("transposed_", x.T.tocsr())):
        np.save(folder / f"{name}indptr.npy", matrix.indptr.astype(np.int64))
        np.save(folder / f"{name}indices.npy", matrix.indices.astype(np.int32))
        np.save(folder / f"{name}weights.npy", matrix.data)


def open_weights(folder: Path, terms: int) -> tuple[csr_array, csr_array]:
    """Map (X, X transposed). Data is read on first use."""

    def matrix(name: str, columns: int) -> csr_array:
        data, indices, indptr = (mapped(folder, f"{name}{array}") for array in ("weights", "indices", "indptr"))
        return _csr(data, indices, indptr, columns)

    x = matrix("", terms)
    return x, matrix("transposed_", x.shape[0])


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
    """Write the arrays, one file each."""
    folder.mkdir()
    for name in _CELLS:
        np.save(folder / f"{name}.npy", getattr(cells, name))


def open_cells(folder: Path) -> Cells:
    """Map the arrays."""
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
    return Cells(value_offsets, term_offsets, np.concatenate(ids))
