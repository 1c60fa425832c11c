"""The forward index: documents x terms, TF-IDF; and the cell values of table rows beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.ops import Cells
from pyfast.retrieval.tokenization import term_ids

FORWARD = {"tf": "1 + log", "idf": "smooth", "norm": "l2", "stop_words": "english"}
"""How `weigh` weighs, in scikit-learn's words"""


def count_terms(texts: Iterable[str]) -> tuple[csr_array, list[str]]:
    """(counts float32, documents x terms, rows sorted; the terms in the order of the columns)."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(dtype=np.float32)
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
    """`x` with the given columns emptied; the shape stays."""
    keep = ~columns[x.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[x.indptr]
    return csr_array((x.data[keep], x.indices[keep], indptr), shape=x.shape)


def weigh(counts: csr_array, terms: Sequence[str]) -> csr_array:
    """TF-IDF weights: scikit-learn's smoothed idf over the corpus, logarithmic tf, l2 norm, no stop words.

    The choice of tf and stop words is what `bridge_rank` was found to like best.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer

    content = without_columns(counts, stop_columns(terms, ENGLISH_STOP_WORDS))
    weights = csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(content))
    return weights.astype(np.float32)


def cell_terms(rows: Iterable[Sequence[str]], vocabulary: Mapping[str, int], x: csr_array) -> Cells:
    """The cell values of each passage (none for passages) as term ids, stop words left out."""
    in_x = np.zeros(x.shape[1], dtype=bool)
    in_x[x.indices] = True
    value_offsets, term_offsets = [0], [0]
    ids: list[int] = []
    for cells in rows:
        for cell in cells:
            ids.extend(t for t in term_ids(cell, vocabulary) if in_x[t])
            term_offsets.append(len(ids))
        value_offsets.append(len(term_offsets) - 1)
    return Cells(
        np.array(value_offsets, dtype=np.int64),
        np.array(term_offsets, dtype=np.int64),
        np.array(ids, dtype=np.int32),
    )


def save_forward(folder: Path, x: csr_array, cells: Cells) -> None:
    """Write the arrays, one file each: X, X transposed, and the cells."""
    folder.mkdir()
    for name, matrix in (("", x), ("transposed_", x.T.tocsr())):
        np.save(folder / f"{name}indptr.npy", matrix.indptr.astype(np.int64))
        np.save(folder / f"{name}indices.npy", matrix.indices.astype(np.int32))
        np.save(folder / f"{name}weights.npy", matrix.data)
    for name in ("value_offsets", "term_offsets", "term_ids"):
        np.save(folder / f"{name}.npy", getattr(cells, name))


def open_forward(folder: Path, terms: int) -> tuple[csr_array, csr_array, Cells]:
    """(X, X transposed, cells), mapped; nothing is read before it is used."""

    def mapped(name: str) -> Any:
        return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    def matrix(name: str, columns: int) -> Any:
        indptr = mapped(f"{name}indptr")
        x: Any = csr_array((len(indptr) - 1, columns), dtype=np.float32)
        # Set one by one: given together, SciPy would copy the indices, to make them int64 as indptr is.
        x.data, x.indices, x.indptr = mapped(f"{name}weights"), mapped(f"{name}indices"), indptr
        x.has_sorted_indices = x.has_canonical_format = True  # as built; else SciPy would read all of it to see
        return x

    x = matrix("", terms)
    cells = Cells(mapped("value_offsets"), mapped("term_offsets"), mapped("term_ids"))
    return x, matrix("transposed_", x.shape[0]), cells
