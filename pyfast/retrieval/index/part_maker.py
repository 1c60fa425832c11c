"""Make a part of an index from documents, in this process or in another one. The other process completes a part
while this process reads the next documents.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

import pyfast.retrieval.part_files as part_files
import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Corpus, Document, Level, encode
from pyfast.corpus.rendering import without_controls
from pyfast.corpus.storage import FOLDER as CORPUS
from pyfast.corpus.text_splitting import LENGTH
from pyfast.errors import InputError, PyfastError, RunError, error_of, told_of
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int64, utf8
from pyfast.retrieval.index.parts import Part, complete_part, merge_passages, save_passages
from pyfast.retrieval.terms import Analysis, Terms, cell_terms, count_terms, open_terms, without_terms
from pyfast.utils.blocks import map_folder, raw, write_checksums
from pyfast.utils.processes import end_with_parent, process_of, scratch_folder

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

    If the paragraph begins with the title, the title's words thus count twice, which is useful, because the
    paragraph is about them.
    """
    if corpus.level[i] == _PARAGRAPH:
        above, is_heading = corpus.headline(i)
        text = "" if is_heading else corpus.without_marks(i, repeated(corpus, i, overlap) + corpus.content(i))
        text = f"{above} {text}"
        # All other controls separate words anyway. Looking for a single character takes 20 ns.
        has_controls = "\0" in text or "\2" in text or "\x1b" in text or "\x7f" in text
        return without_controls(text) if has_controls else text
    return corpus.render(i)


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
    the text (`tests/corpus/test_hostile_shapes.py` has a limit for tables). The terms, counts, cell values and
    texts of a large part are in temporary files (`TMPDIR`), which are deleted when nothing uses the part any more.
    """
    size, analysis = PassageSize.of(parameters), Analysis.of(parameters)
    pieces = _pieces(corpus)
    if len(pieces) == 1:
        return _counted(corpus, pieces[0], size, analysis)
    mapped = partial(_mapped, corpus=corpus, analysis=analysis)
    with scratch_folder() as scratch:
        *folders, whole = (scratch / str(number) for number in range(len(pieces) + 1))
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
    counts, terms, cells = counted_terms(corpus, places, size, analysis)
    lines = utf8(passage_line(corpus, i, size.overlap) for i in places.tolist())
    return Part(corpus, places, Terms.of(terms), TermCounts.of(counts), cells, lines, analysis=analysis)


def counted_terms(
    corpus: Corpus, places: Int64, size: PassageSize, analysis: Analysis
) -> tuple[csr_array, list[str], Cells]:
    """Count the terms of some passages of a corpus. `places` are the segments of these passages.

    Returns (counts, terms, cells): how often each passage has each term, without stop words; the term of each
    column; and the cell values of the passages that are table rows.
    """
    passages = places.tolist()
    counts, terms = count_terms((indexed_text(corpus, i, size.overlap) for i in passages), analysis)
    vocabulary = {term: i for i, term in enumerate(terms)}
    in_table = (np.asarray(corpus.level)[places] == Level.TABLE_ROW).tolist()
    # The cells have the words of the passage's line, which has no control characters.
    rows = (
        list(map(without_controls, corpus.cells(i))) if is_row else []
        for i, is_row in zip(passages, in_table, strict=True)
    )
    content = without_terms(counts, terms, analysis.stop(stop_words.LUCENE))
    return content, terms, cell_terms(rows, vocabulary, analysis)


def _mapped(folder: Path, passages: Int64, corpus: Corpus, analysis: Analysis) -> Part:
    """Make a part with some passages of a corpus, from the files in `folder`.

    This process has just written these files. They have the terms, counts, cell values and texts of the
    passages.
    """
    write_checksums(folder)
    files = map_folder(folder)
    terms, counts, cells = open_terms(files, len(passages))
    lines, text = part_files.open_rendered(files, len(passages))
    cells = Cells(*map(raw, (cells.value_offsets, cells.term_offsets, cells.term_ids)))
    return Part(corpus, passages, terms, counts, cells, (raw(lines), raw(text)), analysis=analysis)


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
            memory = "; it may need more memory" if code < 0 else ""  # The kernel kills if memory runs out.
            raise RunError(f"a process that was building a part of the index died ({code}){memory}")
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
