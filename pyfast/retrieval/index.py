"""The index folder: corpus, forward index and lexical index, built aside and renamed, mapped when opened."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyfast import ops
from pyfast.corpus import Corpus, Document, EntityLinks, Level, encode, entity_links, stream
from pyfast.errors import InputError
from pyfast.files import built_aside, link_folder
from pyfast.ops.arrays import Int64
from pyfast.retrieval.bm25 import BM25_PARAMETERS, save_term_counts
from pyfast.retrieval.bm25 import FOLDER as BM25_FOLDER
from pyfast.retrieval.forward_index import FORWARD, cell_terms, count_terms, open_forward, save_forward, weigh
from pyfast.retrieval.manifest import is_index, read_manifest, write_manifest
from pyfast.retrieval.pools import Pool
from pyfast.retrieval.rendered_passages import FOLDER as RENDERED_FOLDER
from pyfast.retrieval.rendered_passages import RenderedPassages, open_rendered, save_rendered
from pyfast.retrieval.retriever import Retriever, open_retriever
from pyfast.retrieval.tokenization import TOKENS, term_ids

KNOWLEDGE = "knowledge"
"""The folder in an index for what `pyfast.knowledge` learns from it; the index's manifest does not cover it"""


def build_index(documents: Iterable[Document], out: Path, overwrite: bool = False) -> Index:
    """Build the index of `documents` in the folder `out` and open it.

    The folder appears whole or not at all. Raises `InputError` where `out` is in the way, or where no document
    has anything to retrieve.
    """
    out = out.resolve()  # `.` has no name to build beside; and a link is to stay one
    _check_free(out, overwrite)
    with built_aside(out) as aside:
        _check_free(out, overwrite)  # another process may just have built it
        write_index(documents, aside)
        if (out / KNOWLEDGE).exists():  # it was paid for, chunk by chunk, and most chunks stay
            link_folder(out / KNOWLEDGE, aside / KNOWLEDGE)  # so that a kill at any moment leaves it in one
    return Index(out)


def _check_free(out: Path, overwrite: bool) -> None:
    if out.exists() and not (out.is_dir() and (is_index(out) or not any(out.iterdir()))):
        raise InputError(f"{out}: exists and is not a pyfast index; choose another folder")
    if is_index(out) and not overwrite:
        raise InputError(f"{out}: holds an index already; give --overwrite to replace it")


def write_index(documents: Iterable[Document], folder: Path) -> None:
    """Fill an empty folder. Raises `InputError` where no document has anything to retrieve."""
    corpus = encode(documents)
    passages = corpus.passages()
    counts, terms = count_terms(indexed_text(corpus, i) for i in passages.tolist())
    if not terms:
        raise InputError("no usable document: nothing to retrieve in the sources given")
    corpus.save(folder / "corpus")
    (folder / "terms.json").write_text(json.dumps(terms, ensure_ascii=False), encoding="utf-8")
    vocabulary = {term: i for i, term in enumerate(terms)}
    x = weigh(counts, terms)
    rows = (corpus.cells(i) if corpus.is_table(i) else [] for i in passages.tolist())
    save_forward(folder / "forward", x, cell_terms(rows, vocabulary, x))
    save_term_counts(folder / BM25_FOLDER, counts, terms)
    save_rendered(folder / RENDERED_FOLDER, map(corpus.render, passages.tolist()))
    facts = {
        "documents": corpus.documents,
        "segments": len(corpus),
        "passages": len(passages),
        "terms": len(terms),
    }
    parameters = {"tokens": TOKENS, "forward": FORWARD, "bm25": BM25_PARAMETERS}
    write_manifest(folder, {**facts, "corpus": corpus.fingerprint(), "parameters": parameters})


def indexed_text(corpus: Corpus, i: int) -> str:
    """A passage as its words are counted: as the LLM reads it, but a passage always with its title.

    Where a passage begins with its title, the title's words count twice: it is about them.
    """
    if corpus.level[i] == Level.PARAGRAPH:
        return f"{corpus.title(corpus.source[i])} {corpus.content(i)}"
    return corpus.render(i)


class Index:
    """An opened index. Everything large is memory-mapped; all methods may be called from several threads."""

    def __init__(self, folder: Path, retriever: str | Callable[[Index], Retriever] = "bm25") -> None:
        """Open an index; `retriever` is what `search` asks.

        Raises `IndexFormatError` for a folder that is no index, or a damaged one.
        """
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.corpus = Corpus.open(folder / "corpus")
        self.passages: Int64 = self.corpus.passages()
        """[passages] the segment of each passage, that is, of each row of X"""
        self.terms: list[str] = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        """the term of each column of X"""
        self.vocabulary: dict[str, int] = {term: i for i, term in enumerate(self.terms)}
        self.X, self.XT, self.cells = open_forward(folder / "forward", len(self.terms))
        in_table = self.corpus.level[self.passages] == Level.TABLE_ROW
        self.is_table: npt.NDArray[np.uint8] = in_table.view(np.uint8)
        """[passages] 1 for table rows"""
        self.rendered: RenderedPassages = open_rendered(folder / RENDERED_FOLDER)
        """the line of each passage, as the LLM reads it"""
        self._streams: dict[tuple[Level, ...], ops.Stream] = {}
        self.retriever = open_retriever(retriever, self) if isinstance(retriever, str) else retriever(self)

    def search(self, queries: str | Sequence[str], k: int) -> list[Pool]:
        """The `k` best passages for each query (fewer where fewer are found), best first. A string is one."""
        return self.retriever.search([queries] if isinstance(queries, str) else queries, k)

    def question_terms(self, question: str) -> list[int]:
        """The distinct term ids of a question, ascending: what `bridge_rank` masks."""
        return sorted(set(term_ids(question, self.vocabulary)))

    def idf(self, term: int) -> float:
        """How much a term tells: the logarithm of one in how many passages has it; 0 for stop words."""
        passages = int(self.XT.indptr[term + 1] - self.XT.indptr[term])
        return math.log(1 + len(self.passages) / passages) if passages else 0.0

    def stream(self, priority: tuple[Level, ...]) -> ops.Stream:
        """The corpus as a stream of segments, best level first; made once."""
        if priority not in self._streams:
            self._streams[priority] = stream(self.corpus, priority)
        return self._streams[priority]

    @cached_property
    def entity_links(self) -> EntityLinks:
        """What names the same entity in the corpus; made when it is first asked for."""
        return entity_links(self.corpus)

    def title(self, uri: str) -> str:
        """The title of a document; empty where it has none, or there is no such document."""
        source = self.corpus.find(uri)
        return "" if source is None else self.corpus.title(source)

    def text(self, passage: int) -> str:
        """A passage as the LLM reads it."""
        offsets, text = self.rendered
        return text[offsets[passage] : offsets[passage + 1]].tobytes().decode()
