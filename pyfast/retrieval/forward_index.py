"""The forward index X: the TF-IDF weights of each passage's terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

import pyfast.utils.stop_words as stop_words
from pyfast.ops import TermCounts
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.retrieval.part_files import TERM_COUNTS, WEIGHTS, below, fit_together, new_array, pieces, to_csr
from pyfast.retrieval.terms import WORDS, Analysis, check_columns, stop_columns
from pyfast.utils.blocks import MappedFolder, check_lists, map_folder, save_array, write_checksums
from pyfast.utils.processes import scratch_folder

FORWARD = {"tf": "1 + log", "idf": "smooth", "norm": "l2", "stop_words": "english"}
"""The parameters of `weigh`, with scikit-learn's names"""
_X = {f"{WEIGHTS}/indptr.npy": np.int64, f"{WEIGHTS}/indices.npy": np.int32, f"{WEIGHTS}/weights.npy": np.float32}
_TRANSPOSED = f"{WEIGHTS}/transposed_weights.npy"
_AT_ONCE = 1 << 20
"""About how many values are read in one step"""
_LEAST = 1 << 17
_RANGES = 8
"""In one pass over all counts, `_entries` finds the entries of this many ranges of passages"""
_SHARES = 64
"""`_entries` divides the passages into this many ranges, or into fewer or more, because a range has at least
`_LEAST` and at most `_AT_ONCE` values
"""


def weigh(counts: csr_array, terms: Sequence[str], analysis: Analysis = WORDS) -> csr_array:
    """Compute TF-IDF weights: scikit-learn's smoothed idf over the corpus, logarithmic tf, l2 norm, no stop words.

    Logarithmic tf without stop words gave the best recall with `bridge_rank`.
    """
    idf = smooth_idf(np.bincount(counts.indices, minlength=len(terms)), counts.shape[0])
    idf[stop_columns(terms, analysis.stop(stop_words.ENGLISH))] = 0
    weights = tfidf(counts.data, counts.indices, counts.indptr, idf)
    x = csr_array((weights, counts.indices, counts.indptr), shape=counts.shape, copy=True)
    x.eliminate_zeros()
    return x


def smooth_idf(passages: npt.NDArray[np.integer[Any]], total: int | Int64) -> Float32:
    """Return the smoothed idf of each term, from the number of passages that have it: float32[terms]. `total` is
    the number of all passages. It can differ between terms."""
    return np.log(np.float32(total + 1) / (passages.astype(np.float32) + np.float32(1))) + np.float32(1)


def tfidf(times: Float32, terms: Int32, rows: npt.NDArray[np.integer[Any]], idf: Float32) -> Float32:
    """Weigh the counts (`times`) of the terms of some passages. `rows` is where each passage begins and ends. A
    term whose `idf` is 0, such as a stop word, has the weight 0.
    """
    weights: Float32 = (np.log(times.astype(np.float32)) + np.float32(1)) * idf[terms]
    if not len(weights):
        return weights
    lengths = np.diff(rows)
    has_terms = lengths > 0
    squares = np.add.reduceat(weights.astype(np.float64) ** 2, rows[:-1][has_terms])
    norms = np.sqrt(np.where(squares > 0, squares, 1))
    np.divide(weights, np.repeat(norms, lengths[has_terms]), out=weights, casting="unsafe")
    return weights


def _terms_weighted(counts: TermCounts, idf: Float32) -> Iterator[tuple[Int32, Float32]]:
    """Yield for some terms at a time: the passage and the weight of each of their counts. The weights are not
    normalised.
    """
    for first, last in pieces(counts.indptr, _AT_ONCE):
        cuts = counts.indptr[first : last + 1]
        times = counts.counts[cuts[0] : cuts[-1]].astype(np.float32)
        weights = (np.log(times) + np.float32(1)) * np.repeat(idf[first:last], np.diff(cuts))
        yield counts.documents[cuts[0] : cuts[-1]], weights


def _entries(counts: TermCounts) -> Iterator[tuple[int, int, Int64]]:
    """Divide the passages into ranges. Yields for each range: its first passage, the passage after its last, and
    the positions of their entries in the term counts. One pass over all counts serves several ranges.
    """
    size = min(max(counts.total_length // _SHARES, _LEAST), _AT_ONCE)
    ranges = list(pieces(np.append(0, np.cumsum(counts.lengths, dtype=np.int64)), size))
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


@dataclass(frozen=True, slots=True, eq=False)
class ForwardIndex:
    """The forward index X, and its transpose. In the rows of stop words, the transpose can have stored zeros."""

    x: csr_array
    transposed: csr_array
    files: MappedFolder | None = None
    """The files of the part, which are checked before they are read. None: nothing needs a check"""

    @classmethod
    def of(cls, counts: TermCounts, terms: Sequence[str], analysis: Analysis) -> ForwardIndex:
        """Compute the forward index of a part into temporary files."""
        with scratch_folder() as folder:
            save_weights(folder, counts, terms, analysis)
            write_checksums(folder)
            return replace(cls.map(map_folder(folder), counts), files=None)

    @classmethod
    def map(cls, files: MappedFolder, counts: TermCounts) -> ForwardIndex:
        """Memory-map the forward index of a part. `counts` are the part's term counts."""
        passages, terms = len(counts.lengths), len(counts.indptr) - 1
        indptr, indices, data = (files.file(name).array(dtype) for name, dtype in _X.items())
        fit_together(files, WEIGHTS, indptr, passages, indices, data)
        weights = files.file(_TRANSPOSED).array(np.float32)
        fit_together(files, WEIGHTS, counts.indptr, terms, weights)
        transposed = to_csr(weights, counts.documents, counts.indptr, passages)
        return cls(to_csr(data, indices, indptr, terms), transposed, files)

    def rows(self, passages: npt.NDArray[Any]) -> csr_array:
        """Compare the rows of these passages with their checksums. Return the whole X.

        Raises `IndexFormatError` if a row is damaged.
        """
        if self.files is not None:
            indptr, indices, data = (self.files.file(name).checked(dtype) for name, dtype in _X.items())
            check_lists(indptr, passages, indices, data)
        return self.x

    def columns(self, passages: npt.NDArray[Any]) -> tuple[csr_array, csr_array]:
        """Check the rows of these passages, and the rows of their terms in the transpose. Return the whole X and
        its whole transpose. Raises `IndexFormatError` if a row is damaged.
        """
        x = self.rows(passages)
        if self.files is not None:
            used = [x.indices[x.indptr[row] : x.indptr[row + 1]] for row in np.unique(passages).tolist()]
            weights = self.files.file(_TRANSPOSED).checked(np.float32)
            check_columns(self.files, np.concatenate([np.empty(0, np.int32), *used]), weights)
        return x, self.transposed

    def check_all(self) -> None:
        """Compare X and its transpose with their checksums. Raises `IndexFormatError` if one differs."""
        if self.files is not None:
            self.files.check_all(below(self.files, WEIGHTS, TERM_COUNTS))

    def frequencies(self, terms: npt.NDArray[Any]) -> Int64:
        """Return the number of passages with each term. It is 0 for stop words, because their weights are 0."""
        offsets: npt.NDArray[Any] = self.transposed.indptr
        weights: npt.NDArray[Any] = self.transposed.data
        if self.files is not None:
            offsets = self.files.file(f"{TERM_COUNTS}/indptr.npy").checked(np.int64)
            weights = self.files.file(_TRANSPOSED).checked(np.float32)
        first, last = offsets[terms], offsets[terms + 1]
        held = np.flatnonzero((first >= 0) & (first < last) & (last <= len(weights)))
        found = np.zeros(len(terms), np.int64)
        found[held] = (last - first)[held] * (weights[first[held]] != 0)
        return found


def save_weights(folder: Path, counts: TermCounts, terms: Sequence[str], analysis: Analysis) -> None:
    """Compute the forward index X, with the weights of `weigh`. Write X and the weights of its transpose into the
    folder of a part.

    X has no entries of stop words. The transpose has these entries, with the weight 0, so its entries have the
    same positions as the term counts, and these positions are not written again.
    """
    (folder / WEIGHTS).mkdir()
    idf = smooth_idf(np.diff(counts.indptr), len(counts.lengths))
    idf[stop_columns(terms, analysis.stop(stop_words.ENGLISH))] = 0
    norms = np.zeros(len(counts.lengths))
    for passages, values in _terms_weighted(counts, idf):
        np.add.at(norms, passages, values.astype(np.float64) ** 2)
    norms = np.sqrt(np.where(norms > 0, norms, 1))
    with new_array(folder / _TRANSPOSED, np.float32) as weights:
        for passages, values in _terms_weighted(counts, idf):
            weights(values / norms[passages])
    transposed = np.load(folder / _TRANSPOSED, mmap_mode="r", allow_pickle=False)
    lengths = [np.zeros(1, np.int64)]
    path_of_rows, path_of_ids, path_of_weights = (folder / name for name in _X)
    with new_array(path_of_ids, np.int32) as ids, new_array(path_of_weights, np.float32) as weights:
        for first, last, entries in _entries(counts):
            at = np.searchsorted(entries, counts.indptr)
            of_range = transposed[entries], counts.documents[entries] - first, at
            rows = csc_array(of_range, shape=(last - first, len(terms))).tocsr()
            rows.eliminate_zeros()
            lengths.append(np.diff(rows.indptr))
            ids(rows.indices)
            weights(rows.data)
    save_array(path_of_rows, np.cumsum(np.concatenate(lengths)))
