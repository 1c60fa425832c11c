"""The index folder: corpus, forward index and lexical index, built aside and renamed, mapped when opened."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyfast import ops
from pyfast.corpus import Corpus, Document, Level, Relations, encode, relations, stream
from pyfast.errors import InputError
from pyfast.ops.arrays import Int64
from pyfast.retrieval.forward import FORWARD, cell_terms, count_terms, open_forward, save_forward, weigh
from pyfast.retrieval.lexical import LEXICAL, Lexical, build_lexical
from pyfast.retrieval.lines import Lines, open_lines, save_lines
from pyfast.retrieval.manifest import is_index, read_manifest, write_manifest
from pyfast.retrieval.pools import Pool, split
from pyfast.retrieval.terms import TOKENS, term_ids

KNOWLEDGE = "knowledge"
"""The folder in an index for what `pyfast.knowledge` learns from it; the index's manifest does not cover it"""


def build_index(documents: Iterable[Document], out: Path, overwrite: bool = False) -> Index:
    """Build the index of `documents` in the folder `out` and open it.

    The folder appears whole or not at all. Raises `InputError` where `out` is in the way, or where no document
    has anything to retrieve.
    """
    out = out.resolve()  # `.` has no name to build beside; and a link is to stay one
    if out.exists() and not (out.is_dir() and (is_index(out) or not any(out.iterdir()))):
        raise InputError(f"{out}: exists and is not a pyfast index; choose another folder")
    if is_index(out) and not overwrite:
        raise InputError(f"{out}: holds an index already; give --overwrite to replace it")
    aside = out.with_name(f"{out.name}.building-{os.getpid()}")
    new_parents = [folder for folder in aside.parents if not folder.exists()]
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror}") from None
    try:
        _build(documents, aside)
        if out.exists():
            if (out / KNOWLEDGE).exists():  # it was paid for, chunk by chunk, and most chunks stay
                link_folder(out / KNOWLEDGE, aside / KNOWLEDGE)  # so that a kill at any moment leaves it in one
            old = out.with_name(f"{out.name}.old-{os.getpid()}")
            out.rename(old)
            aside.rename(out)
            shutil.rmtree(old)
        else:
            aside.rename(out)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        for folder in new_parents:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    return Index(out)


def link_folder(source: Path, target: Path) -> None:
    """The same files in a second, new folder: by hard links, and copied only where there can be none."""
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _build(documents: Iterable[Document], folder: Path) -> None:
    corpus = encode(documents)
    units = corpus.units()
    counts, terms = count_terms(indexed_text(corpus, i) for i in units.tolist())
    if not terms:
        raise InputError("no usable document: nothing to retrieve in the sources given")
    corpus.save(folder / "corpus")
    (folder / "terms.json").write_text(json.dumps(terms, ensure_ascii=False), encoding="utf-8")
    vocabulary = {term: i for i, term in enumerate(terms)}
    x = weigh(counts, terms)
    rows = (corpus.cells(i) if corpus.is_table(i) else [] for i in units.tolist())
    save_forward(folder / "forward", x, cell_terms(rows, vocabulary, x))
    build_lexical(folder / "lexical", counts, terms)
    save_lines(folder / "lines", map(corpus.render, units.tolist()))
    facts = {"documents": corpus.documents, "segments": len(corpus), "units": len(units), "terms": len(terms)}
    parameters = {"tokens": TOKENS, "forward": FORWARD, "lexical": LEXICAL}
    write_manifest(folder, {**facts, "corpus": corpus.fingerprint(), "parameters": parameters})


def indexed_text(corpus: Corpus, i: int) -> str:
    """A unit as its words are counted: as the LLM reads it, but a passage always with its title.

    Where a passage begins with its title, the title's words count twice: it is about them.
    """
    if corpus.level[i] == Level.PARAGRAPH:
        return f"{corpus.title(corpus.source[i])} {corpus.content(i)}"
    return corpus.render(i)


class Index:
    """An opened index. Everything large is memory-mapped; all methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises `IndexFormatError` for a folder that is no index, or a damaged one."""
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.corpus = Corpus.open(folder / "corpus")
        self.units: Int64 = self.corpus.units()
        """[units] the segment of each unit, that is, of each row of X"""
        terms = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        self.vocabulary: dict[str, int] = {term: i for i, term in enumerate(terms)}
        self.X, self.XT, self.cells = open_forward(folder / "forward", len(terms))
        in_table = self.corpus.level[self.units] == Level.TABLE_ROW
        self.is_table: npt.NDArray[np.uint8] = in_table.view(np.uint8)
        """[units] 1 for table rows"""
        self.lines: Lines = open_lines(folder / "lines")
        """the line of each unit, as the LLM reads it"""
        self._lexical = Lexical(folder / "lexical", len(terms))
        self._streams: dict[tuple[Level, ...], ops.Stream] = {}

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """The `k` best units for each query (fewer where fewer share a word with it), best first."""
        return split(*self._lexical.search([term_ids(query, self.vocabulary) for query in queries], k))

    def question_terms(self, question: str) -> list[int]:
        """The distinct term ids of a question, ascending: what `bridge_rank` masks."""
        return sorted(set(term_ids(question, self.vocabulary)))

    def idf(self, term: int) -> float:
        """How much a term tells: the logarithm of one in how many units has it; 0 for stop words."""
        units = int(self.XT.indptr[term + 1] - self.XT.indptr[term])
        return math.log(1 + len(self.units) / units) if units else 0.0

    def stream(self, priority: tuple[Level, ...]) -> ops.Stream:
        """The corpus as a stream of segments, best level first; made once."""
        if priority not in self._streams:
            self._streams[priority] = stream(self.corpus, priority)
        return self._streams[priority]

    @cached_property
    def relations(self) -> Relations:
        """What names the same entity in the corpus; made when it is first asked for."""
        return relations(self.corpus)

    def text(self, unit: int) -> str:
        """A unit as the LLM reads it."""
        offsets, text = self.lines
        return text[offsets[unit] : offsets[unit + 1]].tobytes().decode()
