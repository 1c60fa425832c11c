"""The forward index X (the TF-IDF weights of each passage's terms), and the cell values of table rows."""

from __future__ import annotations

import contextlib
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

import pyfast.ops as ops
import pyfast.stop_words as stop_words
from pyfast.blocks import MappedFolder, are_checked, check_lists, raw
from pyfast.errors import IndexFormatError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Float32, Int32, Int64, places_of, thread_count, utf8
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.terms import Terms

FORWARD = {"tf": "1 + log", "idf": "smooth", "norm": "l2", "stop_words": "english"}
"""The parameters of `weigh`, with scikit-learn's names"""
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
WORDS = Analysis()
_X = (("indptr", np.int64), ("indices", np.int32), ("weights", np.float32))
_TRANSPOSED = "transposed_weights"
_AT_ONCE = 1 << 20
"""About how many values are read in one step"""
_LEAST = 1 << 17
_RANGES = 8
"""In one pass over all counts, `_entries` finds the entries of this many ranges of passages"""
_SHARES = 64
"""`weighted` divides the passages into this many ranges. But a range has at least `_LEAST` and at most
`_AT_ONCE` values, so there can be fewer or more ranges. The computation of a range takes about ten times as
much memory as its values
"""
_CELLS = ("value_offsets", "term_offsets", "term_ids")


def count_terms(texts: Iterable[str], analysis: Analysis = WORDS) -> tuple[csr_array, list[str]]:
    """Count the terms of texts. Returns the counts (a sparse float32 matrix, texts x terms, with sorted rows) and
    the term of each column.
    """
    known = bool(analysis.stemmer) or analysis.tokenizer != "words"
    words = (" ".join(analysis.tokens(text)) if known else analysis.form(text) for text in texts)
    offsets, columns, counts, terms = ops.count_words(utf8(words), separated=known)
    shape = len(offsets) - 1, len(terms)
    return csr_array((counts.astype(np.float32), columns, offsets), shape=shape), terms


def stop_columns(terms: Sequence[str], words: Iterable[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each term whether it is a stop word: bool[terms]."""
    stop = frozenset(words)
    if isinstance(terms, Terms):  # Few words are found faster than all terms are read.
        found = np.zeros(len(terms), dtype=bool)
        places = terms.find(list(stop))
        found[places[places >= 0]] = True
        return found
    return np.fromiter(map(stop.__contains__, terms), dtype=bool, count=len(terms))


def without_columns(x: csr_array, columns: np.ndarray[Any, np.dtype[np.bool_]]) -> csr_array:
    """Remove all entries of the given columns from `x`. The shape does not change."""
    keep = ~columns[x.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[x.indptr]
    return csr_array((x.data[keep], x.indices[keep], indptr), shape=x.shape)


def weigh(counts: csr_array, terms: Sequence[str], analysis: Analysis = WORDS) -> csr_array:
    """Compute TF-IDF weights: scikit-learn's smoothed idf over the corpus, logarithmic tf, l2 norm, no stop words.

    Logarithmic tf without stop words gave the best recall with `bridge_rank`.
    """
    content = without_columns(counts, stop_columns(terms, analysis.stop(stop_words.ENGLISH)))
    passages = np.bincount(content.indices, minlength=len(terms))
    weights = _tfidf(content.data, content.indices, content.indptr, _idf(passages, content.shape[0]))
    return csr_array((weights, content.indices, content.indptr), shape=content.shape)


def _idf(passages: npt.NDArray[np.integer[Any]], total: int) -> Float32:
    """Return the smoothed idf of each term, from the number of passages that have it: float32[terms]."""
    idf: Float32 = np.log(np.float32(total + 1) / (passages.astype(np.float32) + np.float32(1))) + np.float32(1)
    return idf


def _tfidf(times: Float32, terms: Int32, rows: npt.NDArray[np.integer[Any]], idf: Float32) -> Float32:
    """Weigh the counts (`times`) of the terms of some passages. `rows` is where each passage begins and ends."""
    weights: Float32 = (np.log(times.astype(np.float32)) + np.float32(1)) * idf[terms]
    if not len(weights):
        return weights
    lengths = np.diff(rows)
    has_terms = lengths > 0
    norms = np.sqrt(np.add.reduceat(weights.astype(np.float64) ** 2, rows[:-1][has_terms]))
    np.divide(weights, np.repeat(norms, lengths[has_terms]), out=weights, casting="unsafe")
    return weights


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
    values, terms = (narrow_offsets(np.frombuffer(some, np.int64)) for some in (value_offsets, term_offsets))
    return Cells(values, terms, np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32))


def narrow_offsets(offsets: Int64) -> Int32 | Int64:
    """Convert offsets to 32 bits, if they are small enough."""
    return offsets.astype(np.int32) if offsets[-1] <= np.iinfo(np.int32).max else offsets


Rows = tuple[Int64, Int32, Float32, Int64, Float32]
"""The weights of some passages as a tuple. For X: the number of entries in each row, the term of each entry,
the weight of each entry. For the transpose of X: the position of each entry in the term counts, the weight of
each entry
"""


def weighted(counts: TermCounts, terms: Sequence[str], analysis: Analysis = WORDS) -> Iterator[Rows]:
    """Compute the forward index X and its transpose, with the weights of `weigh`. Yields the weights of some
    passages at a time.

    X has no entries of stop words. The transpose has these entries, with the weight 0. So the entries of the
    transpose have the same positions as the term counts.
    """
    stop = stop_columns(terms, analysis.stop(stop_words.ENGLISH))
    passages = len(counts.lengths)
    idf = _idf(np.diff(counts.indptr), passages)
    some = min(max(counts.total_length // _SHARES, _LEAST), _AT_ONCE)
    ranges = list(pieces(np.append(0, np.cumsum(counts.lengths, dtype=np.int64)), some))

    def of_range(first: int, last: int, entries: Int64) -> Rows:
        at = np.searchsorted(entries, counts.indptr)
        numbers, rows_of = np.arange(len(entries), dtype=np.int32), counts.documents[entries] - first
        place = csc_array((numbers, rows_of, at), shape=(last - first, len(terms))).tocsr()
        content = ~stop[place.indices]
        rows = np.append(0, np.cumsum(content))[place.indptr]
        chosen, columns = place.data[content], place.indices[content].astype(np.int32)
        times = counts.counts[entries[chosen]].astype(np.float32)
        weights = _tfidf(times, columns, rows, idf)
        of_entries = np.zeros(len(entries), np.float32)
        of_entries[chosen] = weights
        return np.diff(rows), columns, weights, entries, of_entries

    found = _entries(counts, ranges)
    if len(ranges) == 1 or thread_count(None) == 1:
        yield from (of_range(*one) for one in found)
        return
    with ThreadPoolExecutor(2) as both:
        begun: deque[Future[Rows]] = deque()
        for one in found:
            begun.append(both.submit(of_range, *one))
            if len(begun) > 2:  # More results than the caller takes would fill the memory.
                yield begun.popleft().result()
        for rest in begun:
            yield rest.result()


def pieces(offsets: Int64, size: int = _AT_ONCE) -> Iterator[tuple[int, int]]:
    """Divide many lists into ranges of consecutive lists. The lists of a range have about `size` values in
    total. `offsets` has the start of each list, and the end of the last one.

    Yields (the first list, the list after the last) of each range.
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1, first + 1)
        yield first, last
        first = last


def _entries(counts: TermCounts, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, Int64]]:
    """Yield for each range of passages: the first passage, the passage after the last, and the positions of
    their entries in the term counts. One pass over all counts serves several ranges.
    """
    for k in range(0, len(ranges), _RANGES):
        some = ranges[k : k + _RANGES]
        found = [np.empty(0, np.int64)]
        for start in range(0, len(counts.documents), _AT_ONCE):
            documents = counts.documents[start : start + _AT_ONCE]
            found.append(np.flatnonzero((documents >= some[0][0]) & (documents < some[-1][1])) + start)
        entries = np.concatenate(found)
        del found
        documents = counts.documents[entries]
        for first, last in some:
            yield first, last, entries[(documents >= first) & (documents < last)]


def save_weights(folder: Path, counts: TermCounts, terms: Sequence[str], analysis: Analysis = WORDS) -> None:
    """Compute the forward index X. Write X and the weights of its transpose into a new folder. The positions
    of the transpose's weights are not written: they are the same as in the stored term counts.
    """
    folder.mkdir()
    content = ~stop_columns(terms, analysis.stop(stop_words.ENGLISH))
    size = int(np.diff(counts.indptr)[content].sum())
    lengths = [np.zeros(1, np.int64)]
    path = folder / f"{_TRANSPOSED}.npy"
    transposed = np.lib.format.open_memmap(path, "w+", np.float32, (len(counts.documents),))
    with (
        new_array(folder / "indices.npy", np.int32, size) as ids,
        new_array(folder / "weights.npy", np.float32, size) as weights,
    ):
        for of_rows, columns, values, entries, of_entries in weighted(counts, terms, analysis):
            lengths.append(of_rows)
            ids(columns)
            weights(values)
            transposed[entries] = of_entries
    np.save(folder / "indptr.npy", np.cumsum(np.concatenate(lengths)))


@contextlib.contextmanager
def new_array(path: Path, kind: npt.DTypeLike, size: int) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """Create a `.npy` file for an array of this size. Yields a function that appends values to the file."""
    with path.open("wb") as file:
        header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda values: values.astype(kind, copy=False).tofile(file)


def open_weights(files: MappedFolder, folder: str, counts: TermCounts) -> tuple[csr_array, csr_array]:
    """Memory-map the forward index X and its transpose. Check rows with `check_rows` before you read them."""
    passages, terms = len(counts.lengths), len(counts.indptr) - 1
    indptr, indices, data = (files.file(f"{folder}/{name}.npy").array(dtype) for name, dtype in _X)
    fit_together(files, folder, indptr, passages, indices, data)
    weights = files.file(f"{folder}/{_TRANSPOSED}.npy").array(np.float32)
    fit_together(files, folder, counts.indptr, terms, weights)
    return to_csr(data, indices, indptr, terms), to_csr(weights, counts.documents, counts.indptr, passages)


def check_rows(files: MappedFolder, folder: str, rows: npt.NDArray[Any]) -> None:
    """Compare some rows of the forward index X with their checksums. `rows` are the numbers of the rows.

    Raises `IndexFormatError` if a row is damaged.
    """
    indptr, indices, data = (files.file(f"{folder}/{name}.npy").checked(dtype) for name, dtype in _X)
    check_lists(indptr, rows, indices, data)


def transposed_weights(files: MappedFolder, folder: str) -> Any:
    """Memory-map the weights of the transpose of the forward index X. They are checked when they are read."""
    return files.file(f"{folder}/{_TRANSPOSED}.npy").checked(np.float32)


def fit_together(files: MappedFolder, folder: str, offsets: Any, lists: int, *values: Any) -> None:
    """Raise `IndexFormatError` if the offsets do not match the number of lists and the number of values."""
    if len(offsets) != lists + 1 or any(len(one) != int(offsets[-1]) for one in values):
        raise IndexFormatError(f"{files.folder}: the arrays of {folder} do not go together; build the index again")


def narrow(x: csr_array) -> csr_array:
    """Convert a sparse array to 32-bit column numbers and 64-bit offsets, the types in an opened index."""
    return to_csr(x.data, x.indices.astype(np.int32), x.indptr.astype(np.int64), x.shape[1])


def to_csr(data: Any, indices: Any, indptr: Any, columns: int) -> csr_array:
    """Make a sparse array from its three arrays without copying them."""
    x: Any = csr_array((len(indptr) - 1, columns), dtype=np.float32)
    # Set one by one. If SciPy gets them together, it copies the indices to int64, the dtype of indptr.
    x.data, x.indices, x.indptr = data, indices, indptr
    # They are sorted by construction. Without this, SciPy would read all of them to find out.
    x.has_sorted_indices = x.has_canonical_format = True
    return cast(csr_array, x)


def take_rows(x: csr_array, rows: Int32) -> csr_array:
    """Copy some rows of `x`, in the order of `rows`.

    SciPy's `x[rows]` first copies the indices of all of `x` to int64: gigabytes for millions of passages.
    """
    indptr, places = places_of(x.indptr, rows)
    return to_csr(x.data[places], x.indices[places], indptr, x.shape[1])


def save_cells(folder: Path, cells: Cells) -> None:
    """Write the cell values of table rows. Each array gets its own file."""
    folder.mkdir()
    for name in _CELLS:
        np.save(folder / f"{name}.npy", getattr(cells, name))


def open_cells(files: MappedFolder, folder: str, passages: int) -> Cells:
    """Memory-map the arrays of the cell values. The arrays are checked when they are read."""
    values, terms, ids = (
        files.file(f"{folder}/{name}.npy").checked(*((np.int32,) if name == "term_ids" else (np.int64, np.int32)))
        for name in _CELLS
    )
    fit_together(files, folder, values, passages)
    fit_together(files, folder, terms, int(values[-1]), ids)
    return Cells(values, terms, ids)


def cells_of(cells: Cells, passages: npt.NDArray[Any]) -> Cells:
    """Return all cell values in the form that ops read. Only those of the given passages are checked
    first."""
    values, terms, ids = cells.value_offsets, cells.term_offsets, cells.term_ids
    check_lists(values, passages, terms)
    first, last = raw(values)[passages], raw(values)[passages + 1]
    some = first < last
    if some.any() and not are_checked(terms, ids):
        check_lists(terms, np.concatenate(list(map(np.arange, first[some], last[some]))), ids)
    return Cells(raw(values), raw(terms), raw(ids))
