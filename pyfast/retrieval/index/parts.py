"""The parts of an index. A part is written once and never changes. Several parts are merged into one, without
their deleted documents.

Merged parts are written piece by piece, so that even merging large parts needs only a few hundred megabytes of
memory.
"""

from __future__ import annotations

import contextlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pyfast.retrieval.part_files as part_files
import pyfast.retrieval.vectors.passage_vectors as passage_vectors
import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Corpus
from pyfast.corpus.storage import FOLDER as CORPUS
from pyfast.errors import ArrayError, IndexFormatError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64, as_numpy, thread_count
from pyfast.retrieval.forward_index import ForwardIndex, save_weights
from pyfast.retrieval.part_files import Mask, RenderedPassages, mapped_array, new_array, offset_type, pieces
from pyfast.retrieval.terms import WORDS, Analysis, Terms, check_columns, open_terms, save_terms, stop_columns
from pyfast.utils.blocks import MappedFolder, map_folder, write_array, write_checksums
from pyfast.utils.processes import scratch_folder

_BLOCK = 1 << 21
"""How many values are checked in one step"""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part: some documents of an index, with the data for searches. Only its TF-IDF weights depend on other
    parts."""

    corpus: Corpus
    passages: Int64
    """[passages] the segment of each passage, as its position in the corpus"""
    terms: Terms
    """The term of each column, sorted"""
    counts: TermCounts
    cells: Cells
    rendered: RenderedPassages
    """The text of each passage, as the LLM reads it"""
    weights: ForwardIndex | None = None
    """The forward index. None: this part is not the whole index, or it is not computed yet"""
    vectors: Mapping[str, passage_vectors.PassageVectors] = field(default_factory=dict)
    """The vectors of the passages, for each kind of vectors that the index has: `dense`, `sparse` or `late`
    """
    analysis: Analysis = WORDS
    """The analysis with which the terms of this part were made"""
    codes: Path | None = None
    """The file with faiss's codes (compressed vectors) of the part's dense vectors. None: the part has too
    few vectors for codes"""
    files: MappedFolder | None = None
    """The files of the part's arrays, if the arrays are memory-mapped. Data is checked before it is read.
    None: the arrays are in memory
    """

    def live_passages(self, live: Mask) -> Mask:
        """Return for each passage whether its document still exists (is not deleted)."""
        if live.all():
            return np.ones(len(self.passages), bool)
        passages, source = np.asarray(self.passages), np.asarray(self.corpus.source)
        if len(passages) and (passages.min() < 0 or passages.max() >= len(source)):
            raise self._damaged("a passage is not in its corpus")
        documents = source[passages]
        if len(documents) and (documents.min() < 0 or documents.max() >= len(live)):
            raise self._damaged("a passage belongs to no document")
        return live[documents]

    def _damaged(self, fault: str) -> IndexFormatError:
        where = self.files.folder if self.files else "a part"
        return IndexFormatError(f"{where} is damaged: {fault}; build the index again")

    def check_columns(self, columns: Int32) -> None:
        """Check the term counts of the terms with these numbers. Raises `IndexFormatError` if they are
        damaged."""
        if self.files is not None:
            check_columns(self.files, columns)

    def check_all(self) -> None:
        """Check the whole part: checksums, ranges, order, and whether the files belong together.

        Raises `IndexFormatError` if something is wrong.
        """
        if self.files is None:
            return
        self.files.check_all()
        try:
            self.corpus.check_all()
            fault = fault_of(self)
        # The values made a check itself fail.
        except (ArrayError, IndexError, OverflowError, ValueError) as error:
            fault = " ".join(str(error).split())
        if fault:
            raise self._damaged(fault)


def save_part(folder: Path, part: Part, alone: bool) -> None:
    """Write a part into a new folder. If it is the only part of an index (`alone`), also compute and write
    its forward index.
    """
    folder.mkdir(parents=True)
    part.corpus.save(folder / CORPUS)
    complete_part(folder, part, alone)


def complete_part(folder: Path, part: Part, alone: bool) -> None:
    """Write a part into its folder, which has the part's corpus already. `alone` is as in `save_part`."""
    part_files.save_documents(folder, part.passages, part.corpus.document_table)
    save_passages(folder, part)
    passage_vectors.save_vectors(folder, part.vectors)
    if alone:
        save_weights(folder, part.counts, part.terms, part.analysis)
    write_checksums(folder)


def save_passages(folder: Path, part: Part) -> None:
    """Write the terms of a part, and for each passage the counts of its terms, its cell values and its text."""
    folder.mkdir(parents=True, exist_ok=True)
    save_terms(folder, part.terms, part.counts, part.cells)
    part_files.save_rendered(folder, part.rendered)


def open_part(files: MappedFolder, analysis: Analysis = WORDS) -> Part:
    """Memory-map a part. Its files are read and checked later, when they are used.

    Raises `IndexFormatError` if a file is missing, cut off, of another kind, or belongs to another part.
    """
    passages = files.file(part_files.PASSAGES).checked(np.int64)
    terms, counts, cells = open_terms(files, len(passages))
    lines = part_files.open_rendered(files, len(passages))
    weights = ForwardIndex.map(files, counts) if part_files.below(files, part_files.WEIGHTS) else None
    vectors = passage_vectors.open_vectors(files, len(passages))
    codes = files.folder / passage_vectors.CODES if passage_vectors.CODES in files else None
    corpus = Corpus.mapped(files)
    return Part(corpus, passages, terms, counts, cells, lines, weights, vectors, analysis, codes, files)


def fault_of(part: Part) -> str:
    """Find the first inconsistency in a part whose checksums are correct. Returns "" if there is none."""
    passages, terms = np.asarray(part.passages), len(part.terms)
    if not np.array_equal(passages, part.corpus.passages()):
        return "its passages differ from those of its corpus"
    if any(a >= b for a, b in pairwise(part.terms)) or not part.terms.has_prefixes:
        return "its terms are not in order"
    counts, cells = part.counts, part.cells
    lines, text = part.rendered
    ragged: dict[str, tuple[Any, Any, int]] = {
        "bm25": (counts.indptr, counts.documents, len(passages)),
        "cells": (cells.term_offsets, cells.term_ids, terms),
        "cells, values": (cells.value_offsets, np.empty(0, np.int32), 0),
        "lines": (lines, np.empty(0, np.int32), 0),
    }
    weights = {"X": part.weights.x, "X transposed": part.weights.transposed} if part.weights else {}
    for name, matrix in weights.items():
        ragged[name] = (matrix.indptr, matrix.indices, matrix.shape[1])
        if not all(np.isfinite(some).all() for some in _blocks(matrix.data)):
            return f"{name}: a weight is not a number"
    for name, (offsets, ids, limit) in ragged.items():
        if fault := _fault_of_lists(np.asarray(offsets), np.asarray(ids), limit, not name.startswith("cells")):
            return f"{name}: {fault}"
    lengths = np.zeros(len(passages))
    for documents, times in zip(_blocks(counts.documents), _blocks(counts.counts), strict=True):
        if times.min() < 1:
            return "bm25: counts and lengths do not match"
        lengths += np.bincount(documents, times, len(passages))
    if (counts.lengths != lengths).any():
        return "bm25: counts and lengths do not match"
    decoder = getincrementaldecoder("utf-8")()
    try:
        for some in _blocks(np.asarray(text)):
            decoder.decode(some.tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "the lines are not text"
    return ""


def _fault_of_lists(offsets: npt.NDArray[Any], ids: npt.NDArray[Any], limit: int, ascend: bool) -> str:
    """Return the first inconsistency in many lists of ids, or "". Every id must be from 0 to below `limit`.
    If `ascend` is True, the ids of every list must ascend.
    """
    if not len(offsets) or offsets[0] or any((np.diff(some) < 0).any() for some in _blocks(offsets, 1)):
        return "offsets do not ascend"
    if any(some.min() < 0 or some.max() >= limit for some in _blocks(ids)):
        return "an id is out of range"
    if not ascend:
        return ""
    for first, some in zip(range(0, len(ids), _BLOCK), _blocks(ids, 1), strict=True):
        falls = np.flatnonzero(np.diff(some) <= 0) + first + 1  # allowed only where lists begin
        places = np.searchsorted(offsets, falls)
        if (offsets[np.minimum(places, len(offsets) - 1)] != falls).any():
            return "the ids of a list do not ascend"
    return ""


def _blocks(array: npt.NDArray[Any], beyond: int = 0) -> Iterator[npt.NDArray[Any]]:
    """Yield the array piece by piece, so that checks take little memory. Each piece ends with the first
    `beyond` items of the next piece, for checks that compare neighbours.
    """
    return (array[first : first + _BLOCK + beyond] for first in range(0, len(array), _BLOCK))


_AT_ONCE = 1 << 16
"""How many passages are copied in one step"""
_VALUES = 1 << 18
"""How many counts are copied in one step"""


def merge_parts(folder: Path, parts: Sequence[Part], live: Sequence[Mask], alone: bool) -> None:
    """Write the documents of several parts into a new part, in order. Deleted documents are left out.

    Args:
        folder: The folder of the new part. It does not exist yet.
        parts: The parts. All of them are checked first.
        live: For each part, which documents to keep (bool[documents]).
        alone: Whether the new part will be the only part of an index. If so, the forward index is computed too.

    Raises:
        IndexFormatError: A part is damaged.
    """
    for part in parts:
        (replace(part, corpus=Corpus.mapped(part.files)) if part.files else part).check_all()
    kept = [part.live_passages(alive) for part, alive in zip(parts, live, strict=True)]
    folder.mkdir(parents=True)
    with beside(lambda: _merge_corpora(folder, parts, live)):
        terms, counts = merge_passages(folder, parts, kept)
        if alone:
            save_weights(folder, counts, terms, parts[0].analysis)
    passage_vectors.save_vectors(folder, passage_vectors.join_vectors([part.vectors for part in parts], kept))
    write_checksums(folder)


@contextlib.contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Call `work` in another thread while the `with` block runs. If pyfast may use only one thread, call it
    before the block.

    NumPy releases Python's global lock, so two threads can copy at the same time. An executor would not do:
    after the end of the main thread it takes no more work.
    """
    if thread_count(None) == 1:
        work()
        yield
        return
    done = Future[None]()

    def run() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    thread = Thread(target=run, name="pyfast-merge")
    thread.start()
    try:
        yield
    finally:
        thread.join()
    done.result()


def _merge_corpora(folder: Path, parts: Sequence[Part], live: Sequence[Mask]) -> None:
    """Write the documents that are kept, the segments of their passages, and the hashes of their uris."""
    # One corpus at a time: an open corpus keeps the computed columns of its tables in memory.
    corpora = (Corpus.mapped(part.files) if part.files else part.corpus for part in parts)
    size = sum(part.corpus.text_size for part in parts)
    passages, documents = Corpus.join(corpora, live, folder / CORPUS, size)
    part_files.save_documents(folder, passages, documents)


def merge_passages(folder: Path, parts: Sequence[Part], kept: Sequence[Mask]) -> tuple[Terms, TermCounts]:
    """Write the terms, counts, cells and texts of passages of several parts, in the form of `save_passages`.

    `kept` says for each part which passages to keep (bool[passages]). Returns the terms and their counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with beside(lambda: _merge_rendered(folder / part_files.TEXTS, [part.rendered for part in parts], kept)):
        frequencies = [_frequencies(part.counts, keep) for part, keep in zip(parts, kept, strict=True)]
        stop = parts[0].analysis.stop(stop_words.LUCENE)
        terms, columns = _merge_terms([part.terms for part in parts], [some > 0 for some in frequencies], stop)
        terms.save(folder)
        counts = _merge_counts(folder / part_files.TERM_COUNTS, parts, kept, frequencies, columns, len(terms))
        _merge_cells(folder / part_files.CELLS, [part.cells for part in parts], kept, columns)
    return terms, counts


def merged(parts: Sequence[Part], live: Sequence[Mask]) -> Part:
    """Merge the documents of several parts into one temporary part. Deleted documents are left out.

    The files of the temporary part are in the folder for temporary files (`TMPDIR`). They are deleted after
    the last use of the part.
    """
    with scratch_folder() as scratch:
        folder = scratch / "part"
        merge_parts(folder, parts, live, alone=False)
        return replace(open_part(map_folder(folder), parts[0].analysis), codes=None)


def _frequencies(counts: TermCounts, keep: Mask) -> Int64:
    """Return for each term the number of kept passages that contain it."""
    frequencies: Int64 = np.diff(counts.indptr)
    if not keep.all():
        for first, last in pieces(counts.indptr, _VALUES):
            begin, end = counts.indptr[first], counts.indptr[last]
            there = np.concatenate([[0], np.cumsum(keep[counts.documents[begin:end]])])
            frequencies[first:last] = np.diff(there[counts.indptr[first : last + 1] - begin])
    return frequencies


def _merge_terms(terms: Sequence[Terms], used: Sequence[Mask], stop: Iterable[str]) -> tuple[Terms, list[Int32]]:
    """Join the terms of several parts. Keep the stop words, and the terms that are in a kept passage. `used`
    marks, for each part, the terms in kept passages.

    Also returns, for each part, the new column of each of its terms, or -1 if the term is not kept.
    """
    import pyarrow.compute as pc  # It takes 0.1 s.

    for some, mask in zip(terms, used, strict=True):
        mask |= stop_columns(some, stop)
    spelled = [some.as_arrow() for some in terms]
    chosen = [some.filter(pa.array(mask)) for some, mask in zip(spelled, used, strict=True)]
    distinct = pc.unique(pa.concat_arrays([pa.array([], pa.large_string()), *chosen]))
    merged = distinct.take(pc.sort_indices(distinct))
    columns = [as_numpy(pc.fill_null(pc.index_in(some, value_set=merged), -1)) for some in spelled]
    return Terms.from_arrow(merged), columns


def _merge_counts(
    folder: Path,
    parts: Sequence[Part],
    kept: Sequence[Mask],
    frequencies: Sequence[Int64],
    columns: Sequence[Int32],
    terms: int,
) -> TermCounts:
    """Write the term counts of the kept passages. The passages of each term are in ascending order, because
    the parts are written in order.
    """
    folder.mkdir()
    total = np.zeros(terms, np.int64)
    for some, column in zip(frequencies, columns, strict=True):
        total[column[some > 0]] += some[some > 0]
    indptr = np.concatenate([[0], np.cumsum(total)])
    documents = mapped_array(folder / "documents.npy", np.int32, int(indptr[-1]))
    kind = np.result_type(*(part.counts.counts.dtype for part in parts))
    counts = mapped_array(folder / "counts.npy", kind, int(indptr[-1]))
    lengths = np.concatenate([part.counts.lengths[keep] for part, keep in zip(parts, kept, strict=True)])
    part_files.save_arrays(folder, indptr=indptr, lengths=lengths)
    end = indptr[:-1].copy()  # for each term, the position of its next entry
    before = 0
    for part, keep, frequency, column in zip(parts, kept, frequencies, columns, strict=True):
        number = np.cumsum(keep) - 1 + before
        for first, last in pieces(part.counts.indptr, _VALUES):
            entries = slice(part.counts.indptr[first], part.counts.indptr[last])
            stays = keep[part.counts.documents[entries]]
            some = frequency[first:last]
            place = np.repeat(end[column[first:last]] - (np.cumsum(some) - some), some) + np.arange(some.sum())
            documents[place] = number[part.counts.documents[entries][stays]]
            counts[place] = part.counts.counts[entries][stays]
        end[column[frequency > 0]] += frequency[frequency > 0]
        before += int(np.count_nonzero(keep))
    return TermCounts(indptr, documents, counts, lengths)


def _merge_cells(folder: Path, cells: Sequence[Cells], kept: Sequence[Mask], columns: Sequence[Int32]) -> None:
    """Write the cell values of the kept passages, with the new columns of their terms."""
    folder.mkdir()
    values, terms = (sum(len(getattr(some, name)) for some in cells) for name in ("term_offsets", "term_ids"))
    with (
        new_array(folder / "value_offsets.npy", offset_type(values)) as of_passages,
        new_array(folder / "term_offsets.npy", offset_type(terms)) as of_values,
        new_array(folder / "term_ids.npy", np.int32) as of_terms,
    ):
        for offsets in (of_passages, of_values):
            offsets(np.zeros(1, np.int64))
        value = term = 0
        for per_passage, per_value, ids in _cells(cells, kept, columns):
            of_passages(value + np.cumsum(per_passage))
            of_values(term + np.cumsum(per_value))
            of_terms(ids)
            value, term = value + len(per_value), term + len(ids)


def _cells(
    cells: Sequence[Cells], kept: Sequence[Mask], columns: Sequence[Int32]
) -> Iterator[tuple[Int64, Int64, Int32]]:
    """Yield the cell values of the kept passages in pieces. A piece has three arrays: the number of cell
    values of each passage, the number of terms of each cell value, and the number of each term in the merged
    index.
    """
    for some, keep, column in zip(cells, kept, columns, strict=True):
        of_passages, of_values, ids = map(np.asarray, (some.value_offsets, some.term_offsets, some.term_ids))
        for sizes, where, has in _kept_lists(of_passages, keep):
            ends = of_values[where.start : where.stop + 1]
            per_value = np.diff(ends)
            yield sizes, per_value[has], column[ids[ends[0] : ends[-1]][np.repeat(has, per_value)]]


def _kept_lists(offsets: npt.NDArray[Any], keep: Mask) -> Iterator[tuple[Int64, slice, Mask]]:
    """Find the values of the lists to keep, for some lists at a time. Yields the size of each kept list, the place
    of the values of all these lists, and which of these values are of kept lists.
    """
    for first in range(0, len(keep), _AT_ONCE):
        stays = keep[first : first + _AT_ONCE]
        cuts = offsets[first : first + len(stays) + 1]
        sizes = np.diff(cuts)
        yield sizes[stays], slice(cuts[0], cuts[-1]), np.repeat(stays, sizes)


def _merge_rendered(folder: Path, rendered: Sequence[RenderedPassages], kept: Sequence[Mask]) -> None:
    """Write the texts of the kept passages."""
    folder.mkdir()
    end = 0
    with (folder / "text.bin").open("wb") as texts, new_array(folder / "offsets.npy", np.int64) as add:
        add(np.zeros(1, np.int64))
        for (offsets, text), keep in zip(rendered, kept, strict=True):
            letters = np.asarray(text)
            for sizes, where, stays in _kept_lists(np.asarray(offsets), keep):
                write_array(texts, letters[where][stays])
                add(end + np.cumsum(sizes))
                end += int(sizes.sum())
