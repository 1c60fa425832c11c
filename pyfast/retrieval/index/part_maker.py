"""Make a part of an index: from documents, in this process or in another one, or from other parts, without their
deleted documents. The other process completes a part while this process reads the next documents.

Merged parts are written piece by piece, so that even merging large parts needs only a few hundred megabytes of
memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import pyfast.retrieval.part_files as part_files
import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Corpus, Document, Level, encode
from pyfast.corpus.storage import FOLDER as CORPUS
from pyfast.corpus.text_splitting import LENGTH
from pyfast.errors import InputError, PyfastError, RunError, error_of, told_of
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64, as_numpy, thread_count, utf8
from pyfast.retrieval.forward_index import save_weights
from pyfast.retrieval.index.parts import Part, complete_part, open_part, save_passages
from pyfast.retrieval.part_files import Mask, RenderedPassages, new_array, pieces, save_arrays
from pyfast.retrieval.terms import (
    Analysis,
    Terms,
    cell_terms,
    count_terms,
    open_terms,
    stop_columns,
    without_columns,
)
from pyfast.retrieval.vectors.passage_vectors import join_vectors, save_vectors
from pyfast.utils.blocks import map_folder, raw, write_checksums
from pyfast.utils.processes import end_with_parent, process_of

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_SHORTEST = 100
_PARAGRAPH, _SENTENCE = int(Level.PARAGRAPH), int(Level.SENTENCE)  # looking up a member of an enum takes 1 µs


@dataclass(frozen=True, slots=True)
class PassageSize:
    """The maximum length and the overlap of passages of texts, in characters. Both are the same for all
    documents of an index, including documents that are added later.
    """

    length: int = LENGTH
    """The maximum length. A longer paragraph is cut into several passages, at sentence ends"""
    overlap: int = 0
    """How many characters two neighbouring passages of a cut paragraph may share: whole sentences if they
    fit, otherwise the last words of a sentence"""

    def __post_init__(self) -> None:
        """Raise `InputError` for impossible sizes."""
        if self.length < _SHORTEST:
            raise InputError(f"passage_length: expected at least {_SHORTEST} characters, got {self.length}")
        if not 0 <= self.overlap <= self.length // 2:
            raise InputError(
                f"passage_overlap: expected 0 to half of passage_length ({self.length // 2}), got {self.overlap}"
            )

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> PassageSize:
        """Read the size from the parameters of an index."""
        return cls(**parameters["passages"])


def repeated(corpus: Corpus, i: int, overlap: int) -> str:
    """Return the text that passage `i` shares with the previous passage. The text is empty if the two were
    not cut from one long paragraph.

    The text has at most `overlap` characters: as many of the last sentences of the previous passage as fit.
    If even the last sentence is too long, the text is the last words of this sentence.
    """
    if not overlap or i == 0 or corpus.level[i] != _PARAGRAPH or corpus.level[i - 1] != _SENTENCE:
        return ""
    before = int(corpus.parent[i - 1])
    if corpus.parent[before] != corpus.parent[i]:
        return ""
    gap = corpus.text_between(before, i)
    if gap.strip() or _BLANK_LINE.search(gap):  # A heading or a blank line between them: these are two paragraphs.
        return ""
    end = int(corpus.end[before])
    starts = [int(corpus.start[s]) for s in range(before + 1, i) if end - corpus.start[s] <= overlap]
    text = corpus.content(before)
    if starts:
        return text[starts[0] - int(corpus.start[before]) :] + gap
    words = text[-overlap:].split(None, 1)
    return words[1] + gap if len(words) > 1 else ""


def passage_line(corpus: Corpus, i: int, overlap: int) -> str:
    """Write a passage on one line, as the LLM reads it."""
    start = repeated(corpus, i, overlap)
    return corpus.text_line(i, start + corpus.content(i)) if start else corpus.render(i)


def indexed_text(corpus: Corpus, i: int, overlap: int) -> str:
    """Return the text of a passage for BM25. It is the text that the LLM reads, but a paragraph always gets
    its title and headings in front, even if the paragraph begins with the title.

    So if the paragraph begins with the title, the words of the title count twice. This is useful, because the
    paragraph is about them.
    """
    if corpus.level[i] == _PARAGRAPH:
        above, is_heading = corpus.headline(i)
        return above if is_heading else f"{above} {repeated(corpus, i, overlap)}{corpus.content(i)}"
    return corpus.render(i)


_LARGEST = np.iinfo(np.int32).max
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
    save_vectors(folder, join_vectors([part.vectors for part in parts], kept))
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
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, name="pyfast-merge")
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


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
    with tempfile.TemporaryDirectory(prefix="pyfast-") as name:
        folder = Path(name) / "part"
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
    largest = max(_largest(part.counts, keep) for part, keep in zip(parts, kept, strict=True))
    kind = np.uint8 if largest <= np.iinfo(np.uint8).max else np.int32
    documents, counts = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", of, (int(indptr[-1]),))
        for name, of in (("documents", np.int32), ("counts", kind))
    )
    lengths = np.concatenate([part.counts.lengths[keep] for part, keep in zip(parts, kept, strict=True)])
    save_arrays(folder, indptr=indptr, lengths=lengths)
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


def _largest(counts: TermCounts, keep: Mask) -> int:
    """Return the largest count of the kept passages. If the part stores each count in one byte, the result is
    0: the caller only needs to know that one byte is enough."""
    if counts.counts.dtype == np.uint8:
        return 0
    largest = 0
    for first, last in pieces(counts.indptr, _VALUES):
        entries = slice(counts.indptr[first], counts.indptr[last])
        largest = max(largest, int(counts.counts[entries][keep[counts.documents[entries]]].max(initial=0)))
    return largest


def _merge_cells(folder: Path, cells: Sequence[Cells], kept: Sequence[Mask], columns: Sequence[Int32]) -> None:
    """Write the cell values of the kept passages, with the new columns of their terms."""
    folder.mkdir()
    passages = sum(int(np.count_nonzero(keep)) for keep in kept)
    sizes = [(len(per_value), len(ids)) for _, per_value, ids in _cells(cells, kept, columns)]
    values, terms = sum(size for size, _ in sizes), sum(size for _, size in sizes)
    with contextlib.ExitStack() as opened:
        of_passages, of_values, of_terms = (
            opened.enter_context(new_array(folder / f"{name}.npy", kind, size))
            for name, kind, size in (
                ("value_offsets", np.int32 if values <= _LARGEST else np.int64, passages + 1),
                ("term_offsets", np.int32 if terms <= _LARGEST else np.int64, values + 1),
                ("term_ids", np.int32, terms),
            )
        )
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
    passages = sum(int(np.count_nonzero(keep)) for keep in kept)
    end = 0
    with (
        (folder / "text.bin").open("wb") as texts,
        new_array(folder / "offsets.npy", np.int64, passages + 1) as add,
    ):
        add(np.zeros(1, np.int64))
        for (offsets, text), keep in zip(rendered, kept, strict=True):
            letters = np.asarray(text)
            for sizes, where, stays in _kept_lists(np.asarray(offsets), keep):
                letters[where][stays].tofile(texts)
                add(end + np.cumsum(sizes))
                end += int(sizes.sum())


_GROUP = 1 << 23
"""The terms of passages are counted group by group. A group has about this many bytes of the corpus"""
_SEGMENT = 16
"""How many bytes a segment adds to the size of a group, in addition to its text"""


def make_part(documents: Iterable[Document], parameters: Mapping[str, Any]) -> Part:
    """Make a part of an index from documents. See `count_passages`."""
    return count_passages(encode(documents, PassageSize.of(parameters).length), parameters)


def count_passages(corpus: Corpus, parameters: Mapping[str, Any]) -> Part:
    """Make a part of an index from a corpus. `parameters` are those of the index, as in its manifest.

    The terms of only some passages are counted at a time, because counting takes several times the memory of
    the text. The terms, counts, cell values and texts of a large part are in temporary files (`TMPDIR`),
    which are deleted when nothing uses the part any more.
    """
    size, analysis = PassageSize.of(parameters), Analysis.of(parameters)
    pieces = _pieces(corpus)
    if len(pieces) == 1:
        return _counted(corpus, pieces[0], size, analysis)
    mapped = partial(_mapped, corpus=corpus, analysis=analysis)
    with tempfile.TemporaryDirectory(prefix="pyfast-") as name:
        *folders, whole = (Path(name) / str(number) for number in range(len(pieces) + 1))
        for folder, passages in zip(folders, pieces, strict=True):
            _give_back()
            save_passages(folder, _counted(corpus, passages, size, analysis))
        _give_back()
        parts = list(map(mapped, folders, pieces))
        merge_passages(whole, parts, [np.ones(len(passages), bool) for passages in pieces])
        _give_back()
        return mapped(whole, np.concatenate(pieces))


def _give_back() -> None:
    """Return free memory to the operating system. Otherwise glibc and Arrow keep memory that they no longer
    use. This can be as much as a large table takes.
    """
    with contextlib.suppress(AttributeError):  # Other C libraries have no such function.
        ctypes.CDLL(None).malloc_trim(0)
    pa.default_memory_pool().release_unused()


def _pieces(corpus: Corpus) -> list[Int64]:
    """Divide the passages of a corpus into groups of about `_GROUP` bytes. Returns, for each group, the segment
    numbers of its passages.
    """
    passages = corpus.passages()
    done = (corpus.byte_start[passages] + _SEGMENT * passages) // _GROUP
    return np.split(passages, np.flatnonzero(np.diff(done)) + 1)


def _counted(corpus: Corpus, places: Int64, size: PassageSize, analysis: Analysis) -> Part:
    """Make a part with some passages of a corpus, in memory. `places` are the segments of these passages."""
    passages = places.tolist()
    counts, terms = count_terms((indexed_text(corpus, i, size.overlap) for i in passages), analysis)
    stop = stop_columns(terms, analysis.stop(stop_words.LUCENE))
    vocabulary = {term: i for i, term in enumerate(terms)}
    in_table = (np.asarray(corpus.level)[places] == Level.TABLE_ROW).tolist()
    rows = (corpus.cells(i) if is_row else [] for i, is_row in zip(passages, in_table, strict=True))
    return Part(
        corpus,
        places,
        Terms.of(terms),
        TermCounts.of(without_columns(counts, stop)),
        cell_terms(rows, vocabulary, analysis),
        utf8(passage_line(corpus, i, size.overlap) for i in passages),
        analysis=analysis,
    )


def _mapped(folder: Path, passages: Int64, corpus: Corpus, analysis: Analysis) -> Part:
    """Make a part with some passages of a corpus, from the files in `folder`.

    This process has just written these files. They have the terms, counts, cell values and texts of the
    passages.
    """
    write_checksums(folder)
    files = map_folder(folder)
    terms, counts, cells = open_terms(files, len(passages))
    lines, text = part_files.open_rendered(files, len(passages))
    return Part(
        corpus,
        passages,
        terms,
        counts,
        Cells(*map(raw, (cells.value_offsets, cells.term_offsets, cells.term_ids))),
        (raw(lines), raw(text)),
        analysis=analysis,
    )


class PartMaker(contextlib.ExitStack):
    """A process that completes parts, one at a time. It starts with the first part, and ends with the `with`
    block."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """`parameters` are those of the index, as in the manifest."""
        super().__init__()
        self._parameters = parameters
        self._process: Popen[bytes] | None = None

    def start(self, folder: Path) -> None:
        """Begin to complete a part. Its folder has only its corpus. Call `wait` before the next `start`."""
        if self._process is None:
            process = process_of(__name__, json.dumps(self._parameters), stdin=PIPE, stdout=PIPE)
            self._process = self.enter_context(process)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `wait` finds that the process has ended.
            self._process.stdin.write(json.dumps(str(folder)).encode() + b"\n")

    def wait(self) -> None:
        """Wait until the part is complete. Raises the error that ended the work; for an `OSError`, `RunError`."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            memory = "; does it need more memory?" if code < 0 else ""  # The kernel kills if there is no more.
            raise RunError(f"a process that made a part of the index ended ({code}){memory}")
        if told := json.loads(line):
            raise error_of(*told)


def main() -> None:
    """Complete the parts in the folders that the standard input names. Answer each line with a line: `null`, or
    the class and the text of an error."""
    logging.disable()
    end_with_parent()
    parameters = json.loads(sys.argv[1])
    for line in sys.stdin.buffer:
        folder, told = Path(json.loads(line)), None
        tempfile.tempdir = str(folder)  # If this process is killed, the next build removes the folder.
        try:
            complete_part(folder, count_passages(Corpus.open(folder / CORPUS), parameters), alone=False)
        except PyfastError as error:
            told = told_of(error)
        except OSError as error:
            told = told_of(RunError(f"{error.filename or folder}: {error.strerror or error}"))
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
