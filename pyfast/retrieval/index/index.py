"""`Index`: an opened index. The folder of an index has parts (which never change) and a manifest (a file that
lists the parts).

A new index is first built in a temporary folder. This folder gets its final name when the index is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import pyfast.ops as ops
from pyfast.corpus import Corpus, Document, Level
from pyfast.errors import ArrayError, InputError
from pyfast.ops.arrays import Int32, Int64, UInt8, ends
from pyfast.retrieval.forward_index import ForwardIndex
from pyfast.retrieval.index.commit import Commit, open_commit, parse_filter
from pyfast.retrieval.index.manifest import read_manifest
from pyfast.retrieval.index.parts import Part
from pyfast.retrieval.part_files import Mask, RenderedPassages, find_documents, lines_of
from pyfast.retrieval.pools import OFF, Pool, Reranker, Retriever, ScoreCache, open_rerankers, open_retriever
from pyfast.retrieval.terms import Analysis, Terms
from pyfast.retrieval.vectors.hardware import search_device
from pyfast.utils.options import HARDWARE_DEFAULTS, Hardware

Work = TypeVar("Work", bound=Callable[..., Any])

KNOWLEDGE = "knowledge"
"""The folder of the knowledge graph, inside the index. It is not in the index's manifest"""


def of_index(work: Work) -> Work:
    """Decorator for functions that take an index, so that they raise `IndexFormatError` for damaged files.

    If a native op refuses a value of the index, the decorator checks the whole index for damage. If there is
    no damage, it raises the error of the op.
    """

    @wraps(work)
    def reads(index: Index, *args: Any, **settings: Any) -> Any:
        try:
            return work(index, *args, **settings)
        except (ArrayError, IndexError, UnicodeDecodeError):
            index.check_all()
            raise

    return cast(Work, reads)


class Index:
    """An opened index. It shows one commit (one version of the index), so later changes to the folder do not
    affect it.

    Its large arrays are memory-mapped, and each block of an array is compared with its checksum when it is
    first read. If the index has several parts, BM25 searches each of them. All other data of the parts is
    merged when it is first used. Several threads can call all methods at the same time.
    """

    def __init__(
        self,
        folder: str | Path,
        retriever: str | Callable[[Index], Retriever] = "bm25",
        commit: int | None = None,
        rerank: str | Callable[[Index], Reranker] = OFF,
        filter: str | Sequence[str] = (),
        hardware: Hardware = HARDWARE_DEFAULTS,
    ) -> None:
        """Open an index.

        `retriever` is the retriever that `search` uses: its name, or a function that makes it from the index.
        `rerank` is the reranker, in the same form. `commit` is the number of an earlier commit to open. None:
        the current commit. `filter` is one or more conditions, as `parse_filter` reads them. Documents that do
        not meet all conditions are left out, as if they were deleted. `hardware` is where models encode texts and
        vectors are searched.

        Raises `IndexFormatError` if the folder has no index, or the index is damaged. Raises `InputError` if no
        document meets the conditions, and `DeviceError` if torch cannot use the GPU of `hardware`.
        """
        self.folder = folder = Path(folder)
        self._is_fixed = commit is not None
        self._retriever, self._rerank, self.hardware = retriever, rerank, hardware
        search_device(hardware)  # It raises its error here, because the first search would be too late.
        self.filter = parse_filter(filter)
        """The conditions that all documents of the index meet"""
        opened = open_commit(folder, commit)
        if self.filter:
            opened = opened.fitting(self.filter)
        self.manifest = opened.manifest
        self.is_restricted = bool(self.filter)
        """Whether documents of the folder are left out, by a filter or by `within`"""
        self._hold(opened)
        self.rerank_scores = ScoreCache()

    def _hold(self, commit: Commit) -> None:
        """Set all attributes that depend on the documents of the index, which are those of `commit`."""
        self._commit, self.parts = commit, commit.parts
        self.analysis = Analysis.of(commit.parameters)
        """How texts and queries are divided into terms"""
        kept = commit.kept_passages()
        self.searched = [
            (part, part.counts if keep.all() else replace(part.counts, deleted=(~keep).view(np.uint8)))
            for part, keep in zip(commit.parts, kept, strict=True)
        ]
        """(part, term counts) for each part that a search reads. The term counts mark the passages of deleted
        documents"""
        # for each part, the rows of its passages that are not deleted; None: all rows
        self._rows = [None if keep.all() else np.flatnonzero(keep) for keep in kept]
        self._starts = np.cumsum([0, *map(np.count_nonzero, kept)])
        self.place: Int32 | None = None
        """For each passage of the parts, including deleted passages: its number in this index, which counts only
        passages that are not deleted. A search of the parts counts all passages, and this array converts its
        numbers. None: no passage is deleted, so the numbers are equal
        """
        if not commit.is_one and any(rows is not None for rows in self._rows):
            self.place = (np.cumsum(np.concatenate(kept)) - 1).astype(np.int32)
        self._streams: dict[tuple[Level, ...], ops.Stream] = {}
        self._retrievers: dict[str, Retriever] = {}
        chosen, rerank = self._retriever, self._rerank
        self.retriever = self.retriever_named(chosen) if isinstance(chosen, str) else chosen(self)
        self.rerankers = open_rerankers(rerank, self) if isinstance(rerank, str) else (rerank(self),)
        """The rerankers, which score the best passages of a list again. If there are none, the list stays
        unchanged
        """

    @property
    def commit(self) -> int:
        """The number of the opened commit."""
        return int(self.manifest["commit"])

    @property
    def opened_with(self) -> tuple[str, str, list[str], Hardware]:
        """The arguments `retriever`, `rerank`, `filter` and `hardware`, to open the same index in another process.

        Raises `InputError` if one of them was given as a function.
        """
        if not isinstance(self._retriever, str) or not isinstance(self._rerank, str):
            raise InputError(
                f"{self.folder}: other processes cannot open a retriever or reranker that is an object; pass both"
                " as strings"
            )
        return self._retriever, self._rerank, [str(one) for one in self.filter], self.hardware

    def at(self, commit: int) -> Index:
        """Open the same index at another commit. Raises `IndexFormatError` if that commit was erased."""
        if commit == self.commit:
            return self
        return self._opened_at(commit)

    def _opened_at(self, commit: int | None) -> Index:
        conditions = [str(one) for one in self.filter]
        return Index(self.folder, self._retriever, commit, self._rerank, conditions, self.hardware)

    def newest(self) -> Index:
        """Open the same index at the current commit of its folder. Returns this object if it already shows
        this commit, or if it was opened at a given commit. Raises `IndexFormatError` and `InputError` as
        `open_index` does."""
        if self._is_fixed or read_manifest(self.folder, check=False) == self.manifest:
            return self
        return self._opened_at(None)

    def within(self, uris: Sequence[str]) -> Index:
        """Return an index of only the documents with these uris. Its results are those of an index built from
        these documents alone.

        Raises `InputError` if a document is not in the index, or if these documents have no passages.
        """
        return self._with(self._commit.of_documents(self.whole, uris))

    def fitting(self, filter: str | Sequence[str]) -> Index:
        """Return an index of the same commit with only the documents that also meet the conditions of
        `filter`, as `parse_filter` reads them.

        Raises `InputError` if a condition cannot be read, or if no document meets the conditions.
        """
        conditions = parse_filter(filter)
        other = self._with(self._commit.fitting(conditions))
        other.filter = (*self.filter, *conditions)
        return other

    def _with(self, chosen: Commit) -> Index:
        """Return an index of the documents of `chosen`, which are some of this index."""
        other = copy(self)
        for name in [name for name, of in vars(Index).items() if isinstance(of, cached_property)]:
            other.__dict__.pop(name, None)  # The cached value belongs to all documents.
        other.is_restricted = True
        other._hold(chosen)
        return other

    def retriever_named(self, name: str) -> Retriever:
        """Return the retriever with this name or `MODULE:NAME`, which only the first call opens.
        Raises `InputError` if there is no such retriever.
        """
        if name not in self._retrievers:
            self._retrievers[name] = open_retriever(name, self)
        return self._retrievers[name]

    def keeping_scores(self, path: Path) -> Index:
        """Return the same index, but with rerankers that store their scores in the file `path`.

        The first reranking opens the file. It raises `InputError` if the file is damaged.
        """
        if not self.rerankers:
            return self
        other = copy(self)
        other.rerank_scores = ScoreCache(path)
        return other

    @cached_property
    def whole(self) -> Part:
        """All documents that are not deleted, as one part. Several parts are merged into temporary files."""
        return self._commit.whole()

    @property
    def corpus(self) -> Corpus:
        """The corpus of the index: the sequence of its segments."""
        return self.whole.corpus

    @property
    def passages(self) -> Int64:
        """The segment of each passage: int64[passages]. Passage i is row i of the forward index `X`."""
        return self.whole.passages

    @property
    def terms(self) -> Terms:
        """The term of each column of the forward index `X`."""
        return self.whole.terms

    @property
    def cells(self) -> ops.Cells:
        """The cell values of each table row, as term ids. Other passages have no cell values."""
        return self.whole.cells

    @property
    def rendered(self) -> RenderedPassages:
        """Each passage as the line of text that the LLM reads."""
        return self.whole.rendered

    @cached_property
    def is_table(self) -> UInt8:
        """For each passage: 1 if it is a table row, otherwise 0."""
        in_table: Mask = np.asarray(self.corpus.level)[np.asarray(self.passages)] == Level.TABLE_ROW
        return in_table.view(np.uint8)

    def rows(self, passages: npt.NDArray[Any]) -> csr_array:
        """Check the rows of these passages in the forward index X. Return the whole X."""
        return self._weights.rows(passages)

    def columns(self, passages: npt.NDArray[Any]) -> tuple[csr_array, csr_array]:
        """Check the rows of these passages in the forward index X, and the rows of their terms in the
        transpose of X. Return the whole X and its whole transpose.
        """
        return self._weights.columns(passages)

    @property
    def X(self) -> csr_array:
        """The forward index, checked as a whole. To check only some rows, use `rows`."""
        self._weights.check_all()
        return self._weights.x

    @property
    def XT(self) -> csr_array:
        """The transpose of the forward index `X`. In the rows of stop words, it can have stored zeros."""
        self._weights.check_all()
        return self._weights.transposed

    @cached_property
    def _weights(self) -> ForwardIndex:
        """The forward index X and its transpose. They are computed at the first use if the parts have none."""
        whole = self.whole
        return whole.weights or ForwardIndex.of(whole.counts, whole.terms, whole.analysis)

    @of_index
    def search(self, queries: str | Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages for each query, best first. A string is one query."""
        return self.retriever.search([queries] if isinstance(queries, str) else queries, k)

    def question_terms(self, question: str) -> list[int]:
        """Return the ids of the distinct terms of a question, ascending. `bridge_rank` ignores these terms."""
        found = set(self.terms.numbers(self.analysis.tokens(question)))
        return sorted(found - {-1})

    def terms_of(self, questions: Sequence[str]) -> list[list[int]]:
        """Return the `question_terms` of each question."""
        return list(map(self.question_terms, questions))

    def names(self, terms: Int32) -> list[str]:
        """Return the terms with these ids."""
        return self.terms.names(terms)

    @property
    def has_graphs(self) -> bool:
        """Whether passages can be from knowledge graphs."""
        return self.corpus.has_graphs

    def frequency(self, term: int) -> int:
        """Return the number of passages with a term. For a stop word, return 0."""
        return int(self._weights.frequencies(np.array([term]))[0])

    def idf(self, term: int) -> float:
        """Return the idf of a term, as `idfs` does for several."""
        return float(self.idfs(np.array([term]))[0])

    def idfs(self, terms: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the idf of each term: ln(1 + N / n), where n of the N passages have the term. For a stop word,
        and for the number -1, it is 0.
        """
        found = np.zeros(len(terms))
        known = np.flatnonzero(terms >= 0)
        frequencies = self._weights.frequencies(terms[known])
        held = frequencies > 0
        found[known[held]] = np.log(1 + len(self.passages) / frequencies[held])
        return found

    def stream(self, priority: tuple[Level, ...]) -> ops.Stream:
        """Return the stream of the corpus: its segments of the levels (kinds) in `priority`, in the order of
        these levels.

        The stream for each `priority` is made only once.
        """
        if priority not in self._streams:
            tree = self.corpus.level, self.corpus.parent, self.corpus.subtree_end
            self._streams[priority] = ops.hseq_stream(*tree, priority=priority)
        return self._streams[priority]

    def uri(self, passage: int) -> str:
        """Return the uri of the document of a passage. The passage is a number, as in `Pool.passages`."""
        return self.corpus.uri(int(self.corpus.source[self.passages[passage]]))

    def title(self, uri: str) -> str:
        """Return the title of the document with this uri. The title is empty if the document has none or does
        not exist.
        """
        source = self.corpus.find(uri)
        return "" if source is None else self.corpus.title(source)

    def document(self, uri: str) -> Document:
        """Return the document with this uri, as it was read. Raises `KeyError` if there is no such document."""
        for part, live in zip(self._commit.parts, self._commit.live, strict=True):
            source = find_documents(part.corpus, part.files, [uri]).get(uri)
            if source is not None and live[source]:
                return part.corpus.document(source)
        raise KeyError(uri)

    @of_index
    def text(self, passage: int) -> str:
        """Return a passage as the LLM reads it."""
        return self._line(passage).decode()

    def lines(self, passages: Int32) -> tuple[RenderedPassages, Int32]:
        """Return (texts, places). `texts` has the texts of at least these passages, in the form that ops
        read. `places` has the position in `texts` of each passage's text.
        """
        if self._commit.is_one:
            return lines_of(self.rendered, passages), passages
        distinct, place = np.unique(passages, return_inverse=True)
        lines = [self._line(passage) for passage in distinct.tolist()]
        return (ends(lines), np.frombuffer(b"".join(lines), np.uint8)), place.astype(np.int32)

    def _line(self, passage: int) -> bytes:
        if not 0 <= passage < self._starts[-1]:
            raise IndexError(f"there is no passage {passage}; number of passages: {self._starts[-1]}")
        number = int(np.searchsorted(self._starts, passage, side="right")) - 1
        rows, row = self._rows[number], passage - int(self._starts[number])
        row = row if rows is None else int(rows[row])
        offsets, text = lines_of(self.parts[number].rendered, np.array([row]))
        return text[offsets[row] : offsets[row + 1]].tobytes()

    def check_all(self) -> None:
        """Check all parts of the index. Raises `IndexFormatError` if a part is damaged."""
        for part in self.parts:
            part.check_all()
