"""The passages of texts: their maximum length, the overlap of neighbouring passages, and the text of each passage
as the LLM reads it. These texts are written once, when the index is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pyfast.blocks import MappedFolder, check_lists, checked, raw
from pyfast.corpus import Corpus, Level
from pyfast.corpus.text_splitting import LENGTH
from pyfast.errors import InputError
from pyfast.ops.arrays import Int64
from pyfast.retrieval.part_files import TEXTS, fit_together

RenderedPassages = tuple[Int64, npt.NDArray[np.uint8]]
"""(offsets [passages + 1], the texts of passages in UTF-8)"""
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


def save_rendered(folder: Path, rendered: RenderedPassages) -> None:
    """Write the texts of passages and their offsets into the folder of a part."""
    offsets, text = rendered
    (folder / TEXTS).mkdir()
    text.tofile(folder / TEXTS / "text.bin")
    np.save(folder / TEXTS / "offsets.npy", offsets)


def open_rendered(files: MappedFolder, passages: int) -> RenderedPassages:
    """Memory-map the texts of passages. The files are checked when they are read."""
    offsets = files.file(f"{TEXTS}/offsets.npy").checked(np.int64)
    file = files.file(f"{TEXTS}/text.bin")
    fit_together(files, TEXTS, offsets, passages, file.data)
    return cast(RenderedPassages, (offsets, checked(file.data, file)))


def lines_of(rendered: RenderedPassages, passages: npt.NDArray[Any]) -> RenderedPassages:
    """Return the texts of all passages in the form that ops read. Only the texts of `passages` are checked."""
    check_lists(rendered[0], passages, rendered[1])
    return cast(RenderedPassages, (raw(rendered[0]), raw(rendered[1])))
