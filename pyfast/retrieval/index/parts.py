"""The parts of an index. A part is written once and never changes."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pyfast.retrieval.part_files as part_files
from pyfast.corpus import Corpus
from pyfast.corpus.storage import FOLDER as CORPUS
from pyfast.errors import ArrayError, IndexFormatError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64
from pyfast.retrieval.forward_index import ForwardIndex, save_weights
from pyfast.retrieval.part_files import Mask, RenderedPassages
from pyfast.retrieval.terms import WORDS, Analysis, Terms, check_columns, open_terms, save_terms
from pyfast.retrieval.vectors.passage_vectors import CODES, PassageVectors, open_vectors, save_vectors
from pyfast.utils.blocks import MappedFolder, write_checksums

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
    vectors: Mapping[str, PassageVectors] = field(default_factory=dict)
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
    save_vectors(folder, part.vectors)
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
    return Part(
        Corpus.mapped(files),
        passages,
        terms,
        counts,
        cells,
        part_files.open_rendered(files, len(passages)),
        ForwardIndex.map(files, counts) if part_files.below(files, part_files.WEIGHTS) else None,
        open_vectors(files, len(passages)),
        analysis,
        files.folder / CODES if CODES in files else None,
        files,
    )


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
        falls = np.flatnonzero(np.diff(some) <= 0) + first + 1  # must be where lists begin
        places = np.searchsorted(offsets, falls)
        if (offsets[np.minimum(places, len(offsets) - 1)] != falls).any():
            return "the ids of a list do not ascend"
    return ""


def _blocks(array: npt.NDArray[Any], beyond: int = 0) -> Iterator[npt.NDArray[Any]]:
    """Yield the array piece by piece, so that checks take little memory. Each piece ends with the first
    `beyond` items of the next piece, for checks that compare neighbours.
    """
    return (array[first : first + _BLOCK + beyond] for first in range(0, len(array), _BLOCK))
