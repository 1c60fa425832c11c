"""Build an index in bounded memory: build it in several parts, then merge the parts.

The index is built in a temporary folder next to its final place. When the index is complete, the folder is
renamed. If the process is killed, the finished parts stay in the temporary folder. The next build with the
same parameters and sources uses these parts.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.corpus import Corpus, Document, KnowledgeGraph, Table, TextDocument, Unread, encode
from pyfast.corpus.formats.files import check_memory
from pyfast.corpus.grids import COLUMNS
from pyfast.corpus.readers import DocumentSource, Root, stored_roots
from pyfast.corpus.storage import FOLDER as CORPUS
from pyfast.corpus.storage import add_sums
from pyfast.errors import IndexFormatError, InputError
from pyfast.ops.arrays import thread_count
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.retrieval.forward_index import FORWARD
from pyfast.retrieval.index.index import KNOWLEDGE, Index
from pyfast.retrieval.index.manifest import PARTS, is_index, write_commit
from pyfast.retrieval.index.part_maker import PartMaker, PassageSize, count_passages
from pyfast.retrieval.index.parts import Part, merge_parts, open_part, save_part
from pyfast.retrieval.part_files import shared_document
from pyfast.retrieval.terms import TOKENS, WORDS, Analysis, clauses_among
from pyfast.retrieval.vectors.encoders import describe_vectors
from pyfast.retrieval.vectors.hardware import search_device
from pyfast.retrieval.vectors.passage_vectors import PassageVectors, Spread, unfinished, vectors_of
from pyfast.utils.blocks import map_folder
from pyfast.utils.files import (
    allow_open_files,
    built_aside,
    link_folder,
    only_writer,
    sync_to_disk,
    write_atomically,
)
from pyfast.utils.log import LOG
from pyfast.utils.options import HARDWARE_DEFAULTS, Hardware

MEMORY = 2000
"""The default of the argument `memory` of `build_index`, in MB"""
_LEAST = 600
_CLAUSES = 0.1  # the share of terms without spaces from which searches fail too often
_BESIDE = 350
"""How many MB of memory a process takes, without the part that it makes"""
_FOR_TWO = 1000
"""With at least this much `memory`, two processes build a large index"""
_SHARE = 0.5
"""If two processes build an index, each works on one part. A part gets this share of the remaining memory"""
_FILES = 32
"""An upper bound for the number of files in a part. A merge maps all files of all parts at once"""
_STATE = "building.json"
"""The file of an unfinished index that lists its finished parts"""
_EVERY = 0.5
"""The minimum number of seconds between two calls of `on_progress` while pyfast reads the documents of a part"""


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """The progress of building an index."""

    documents: int
    """The number of documents that were read so far"""
    passages: int
    """The number of passages in the finished parts"""
    parts: int
    """The number of finished parts"""
    merging: bool = False
    """Whether all parts are finished and are being merged"""
    seconds_left: float | None = None
    """An estimate of the seconds until all parts are finished. None: unknown"""


OnProgress = Callable[[BuildProgress], object]


def build_index(
    sources: Iterable[Document | DocumentSource],
    out: Path,
    overwrite: bool = False,
    size: PassageSize | None = None,
    vectors: Iterable[str] = (),
    analysis: Analysis = WORDS,
    memory: int = MEMORY,
    unread: list[Unread] | None = None,
    on_progress: OnProgress | None = None,
    spread: Spread = map,
    roots: Mapping[Root, str] | None = None,
    hardware: Hardware = HARDWARE_DEFAULTS,
    columns: int = COLUMNS,
) -> Index:
    """Build the index of `sources` in the folder `out` and open it.

    The folder appears only when the index is complete.

    Args:
        sources: The documents and files. Each document needs its own uri.
        out: The folder to make.
        overwrite: Whether to replace an existing index in `out`. Its knowledge graph stays.
        size: The maximum length and overlap of passages. None: the default.
        vectors: The kinds of vectors to compute for the passages, such as `dense` or `dense:MODEL`.
        analysis: The tokenizer, stemmer and stop words.
        memory: How many MB of memory may be used, not counting vectors and the page cache. With 1000 or more and
            at least two threads, a second process helps to build a large index, unless it has vectors.
        unread: A list to which the function adds each file that cannot be read. If the function continues a
            build that was stopped, it also adds the files that the stopped build could not read.
        on_progress: A function that is called with the progress from time to time.
        spread: A function like `map` that calls the encoders, for example in other processes.
        roots: The files and folders that the documents come from. The caller may complete it while `sources` is
            read.
        hardware: Where models encode the passages.
        columns: The maximum number of columns of a table in `sources`, for documents that are added later.

    Returns:
        The index.

    Raises:
        InputError: `out` is an index and `overwrite` is False; `out` exists and is neither an index nor an
            empty folder; two documents have the same uri; no document has a passage; or `memory` is too
            small.
    """
    if memory < _LEAST:
        raise InputError(f"memory: expected at least {_LEAST} MB, got {memory}")
    out = out.resolve()  # `.` has no name to build beside, and a link stays a link
    _check_free(out, overwrite)
    search_device(hardware)  # It raises its error before the documents are read.
    described = describe_vectors(vectors)
    parameters = {
        "tokens": TOKENS,
        "forward": FORWARD,
        "bm25": BM25_PARAMETERS,
        "passages": asdict(size or PassageSize()),
        **({"vectors": described} if described else {}),
        "analysis": asdict(analysis),
    }
    with contextlib.ExitStack() as held:
        if is_index(out):
            held.enter_context(
                only_writer(out, lambda: LOG.warning("another process is changing %s; waiting for it", out))
            )
        aside = held.enter_context(built_aside(out, unfinished=_STATE))
        _check_free(out, overwrite)  # another process may just have built it
        build = _Build(aside, sources, parameters, [] if unread is None else unread, on_progress)
        encode = partial(vectors_of, aside=unfinished(out), spread=spread, hardware=hardware)
        build.add_parts(memory, encode)
        build.merge()
        build.commit(roots or {}, columns)
        if (out / KNOWLEDGE).exists():  # It was paid for chunk by chunk, and most chunks stay.
            link_folder(out / KNOWLEDGE, aside / KNOWLEDGE)  # A kill at any moment leaves it in one of them.
    shutil.rmtree(unfinished(out), ignore_errors=True)
    index = Index(out, hardware=hardware)
    if analysis.tokenizer == "words" and clauses_among(index.terms) > _CLAUSES:
        LOG.warning(
            "many texts are in a script without spaces between words, such as Chinese, Japanese or Thai, so"
            " searches find only whole clauses; build the index with `--tokenizer characters`"
        )
    return index


def _check_free(out: Path, overwrite: bool) -> None:
    if out.exists() and not (out.is_dir() and (is_index(out) or not any(out.iterdir()))):
        raise InputError(f"{out} exists and is not a pyfast index; choose another folder")
    if is_index(out) and not overwrite:
        raise InputError(f"{out} already contains an index; use overwrite (--overwrite) to replace it")


class _Build:
    """An index under construction: its finished parts, and how far its sources were read."""

    def __init__(
        self,
        folder: Path,
        sources: Iterable[Document | DocumentSource],
        parameters: Mapping[str, Any],
        unread: list[Unread],
        on_progress: OnProgress | None,
    ) -> None:
        self._folder, self._parameters, self._unread = folder, json.loads(json.dumps(parameters)), unread
        self._reading, self._on_progress = _Reading(sources), on_progress
        self._began = self._told = time.monotonic()
        self._end: float | None = None
        self.finished: list[dict[str, Any]] = self._resumed()
        self._skipped = self._reading.read
        self._documents = sum(one["documents"] for one in self.finished)

    def _resumed(self) -> list[dict[str, Any]]:
        """Return the parts that a stopped build finished and whose sources have not changed. The result ends
        before the first part whose sources have changed.

        If the parameters of the build have changed, the result is empty. All parts that are not in the result
        are removed from the disk.
        """
        state: dict[str, Any] = {}
        if (self._folder / _STATE).exists():
            state = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
        kept: list[dict[str, Any]] = []
        for part in state.get("parts", []):
            if state["parameters"] != self._parameters or not self._reading.skip(part):
                LOG.warning(
                    "sources or parameters changed since the build stopped; building again from the first change"
                )
                break
            kept.append(part)
        names = {part["name"] for part in kept}
        (self._folder / PARTS).mkdir(exist_ok=True)
        for path in (self._folder / PARTS).iterdir():
            if path.name not in names:
                shutil.rmtree(path)
        if kept:
            self._unread += [Unread(Path(path), *rest) for path, *rest in kept[-1]["unread"]]
        return kept

    def add_parts(self, memory: int, encode: Callable[..., dict[str, PassageVectors]]) -> None:
        """Make parts from the documents that were not read yet. `memory` is how many MB all processes may use.
        `encode` is `vectors_of` with its last arguments.

        While this process encodes the documents of a part, another process completes the part before. Parts with
        vectors, however, are all made in this process, one after the other, because vectors take most of the time.

        Raises `InputError` if no document has a passage.
        """
        self._reading.memory = memory
        in_two = thread_count(None) > 1 and memory >= _FOR_TWO and "vectors" not in self._parameters
        room = (memory - 2 * _BESIDE) * _SHARE if in_two else memory - _BESIDE
        number = max((int(one["name"]) for one in self.finished), default=0)
        begun: dict[str, Any] | None = None  # the name and position of the part that the other process completes
        with PartMaker(self._parameters) as other:
            for corpus, position, is_last in self._encoded(int(room * 1_000_000)):
                number += 1
                position["name"] = str(number)
                folder = self._folder / PARTS / str(number)
                alone = is_last and number == 1
                if in_two and not alone:
                    corpus.save(folder / CORPUS)
                    del corpus
                    if begun:
                        self._take(other, begun)
                    other.start(folder)
                    begun = position
                    continue
                part = count_passages(corpus, self._parameters)
                del corpus
                if alone:
                    _check_usable(len(part.terms), part.counts.total_length)
                self._check_uris(part)
                vectors = encode(part.rendered, self._parameters)
                save_part(folder, replace(part, vectors=vectors), alone)
                self._add(part, position, durable=not alone)
            if begun:
                self._take(other, begun)
        _check_usable(*(sum(one[what] for one in self.finished) for what in ("terms", "length")))

    def _encoded(self, room: int) -> Iterator[tuple[Corpus, dict[str, Any], bool]]:
        """Encode the documents that were not read yet, part by part.

        `room` is about how many bytes of memory a part may take while it is made. Yields the corpus of a part,
        how far the sources were read, and whether it is the last part.
        """
        length = PassageSize.of(self._parameters).length
        ahead = list(islice(self._reading, 1))
        while ahead:
            taken = (ahead.pop() for _ in range(1))  # The document is freed when its part has its segments.
            # In a list, because a variable of this generator would keep the corpus in memory after the `yield`.
            corpora = [encode(self._watched(_up_to(room, chain(taken, self._reading))), length)]
            position = self._reading.position | {
                "unread": [(str(it.path), it.reason, it.missing, it.whole) for it in self._unread]
            }
            ahead = list(islice(self._reading, 1))
            yield corpora.pop(), position, not ahead

    def _take(self, other: PartMaker, position: dict[str, Any]) -> None:
        """Add the part that the other process completes."""
        other.wait()
        part = open_part(map_folder(self._folder / PARTS / position["name"]))
        self._check_uris(part)
        self._add(part, position, durable=True)

    def _add(self, part: Part, position: dict[str, Any], durable: bool) -> None:
        """Add a part that has been written. `position` contains its name, and how far the sources were read."""
        facts = {
            "documents": part.corpus.documents,
            "passages": len(part.passages),
            "corpus": part.corpus.fingerprint(),
            "terms": len(part.terms),
            "length": part.counts.total_length,
        }
        self._finish([*self.finished, facts | position], durable)
        # The remaining time follows from the speed of this process so far.
        done, now = self._reading.read - self._skipped, time.monotonic()
        if self._reading.total is not None and done > 0:
            left = max(self._reading.total - self._reading.read, 0)
            self._end = now + (now - self._began) * left / done
        self._tell()

    def _watched(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Yield the documents and count them. Call `on_progress` from time to time."""
        for document in documents:
            self._documents += 1
            if time.monotonic() - self._told > _EVERY:
                self._tell()
            yield document

    def _tell(self, merging: bool = False) -> None:
        """Call `on_progress` with the current progress."""
        self._told = time.monotonic()
        if self._on_progress is not None:
            left = None if self._end is None else max(self._end - self._told, 0.0)
            passages = sum(one["passages"] for one in self.finished)
            self._on_progress(BuildProgress(self._documents, passages, len(self.finished), merging, left))

    def _check_uris(self, part: Part) -> None:
        """Raise `InputError` if a document of `part` has the same uri as a document of a finished part."""
        for one in self.finished:
            if twice := shared_document(part.corpus, map_folder(self._folder / PARTS / one["name"])):
                raise InputError(f"two documents have the uri {twice!r}; give each of them its own")

    def merge(self) -> None:
        """Merge all finished parts into one. A single part stays as it is."""
        if len(self.finished) == 1:
            return
        self._tell(merging=True)
        before, folder = self.finished, self._folder / PARTS
        name = str(1 + max(int(one["name"]) for one in before))
        allow_open_files(_FILES * len(before))
        analysis = Analysis.of(self._parameters)
        parts = [open_part(map_folder(folder / one["name"]), analysis) for one in before]
        live = [np.ones(part.corpus.documents, bool) for part in parts]
        try:
            merge_parts(folder / name, parts, live, alone=True)
        except IndexFormatError:  # The disk is damaged: the next build must not use these parts.
            (self._folder / _STATE).unlink()
            raise
        sums = {what: sum(one[what] for one in before) for what in ("documents", "passages", "terms", "length")}
        corpus = reduce(add_sums, (int(one["corpus"], 16) for one in before))
        self._finish([{**before[-1], **sums, "name": name, "corpus": f"{corpus:032x}"}], durable=True)
        for one in before:
            shutil.rmtree(folder / one["name"])

    def commit(self, roots: Mapping[Root, str], columns: int) -> None:
        """Write the manifest of the index, whose only part is finished. The arguments are as in `build_index`."""
        (part,) = self.finished
        (self._folder / _STATE).unlink(missing_ok=True)
        manifest = {
            "commit": 1,
            "next_part": int(part["name"]) + 1,
            "parts": [{"name": part["name"], "documents": part["documents"], "deleted": None}],
            **{name: part[name] for name in ("documents", "passages", "corpus")},
            "roots": stored_roots(roots, self._folder),
            "columns": columns,
            "parameters": self._parameters,
        }
        write_commit(self._folder, {"files": {}}, manifest, [self._folder / PARTS / part["name"]])

    def _finish(self, parts: list[dict[str, Any]], durable: bool) -> None:
        """Record the finished parts. If `durable` is True, also write the record to the disk. The next build
        can then use the parts, even if this process is killed.
        """
        self.finished = parts
        if durable:
            for path in (self._folder / PARTS / parts[-1]["name"]).rglob("*"):
                sync_to_disk(path)
            state = {"parameters": self._parameters, "parts": parts}
            write_atomically(self._folder / _STATE, json.dumps(state), durable=True)


def _check_usable(terms: int, length: int) -> None:
    if not terms:
        raise InputError("there is nothing to index, because the sources contain no passages")
    if not length:
        raise InputError("there is nothing to index, because the sources contain only stop words")


def _up_to(room: int, documents: Iterator[Document]) -> Iterator[Document]:
    """Yield documents until making a part of them would take about `room` bytes of memory."""
    for document in documents:
        yield document
        room -= _footprint(document)
        if room <= 0:
            return


def _footprint(document: Document) -> int:
    """About how many bytes a document takes while its part is made and written.

    The factors in the function are a little larger than the values that were measured on hotpotqa, hybridqa,
    metaqa and tatqa.
    """
    match document:
        case TextDocument():
            return 900 + 14 * (len(document.text) + len(document.title))
        case Table():
            around = len(document.title) + len(document.section) + sum(map(len, document.header))
            cells = sum(500 + 14 * len(cell) for row in document.rows for cell in row)
            return 900 + cells + 14 * around * len(document.rows)
        case KnowledgeGraph():
            return 900 + sum(400 + 10 * len(t.head + t.relation + t.tail) for t in document.triples)


class _Reading(Iterator[Document]):
    """Iterates over the documents of all sources, one source after the other."""

    def __init__(self, sources: Iterable[Document | DocumentSource]) -> None:
        self.total: int | None = None
        self.memory: int | None = None  # MB: a file that certainly needs more is refused before it is read
        if isinstance(sources, Sequence) and all(isinstance(it, DocumentSource) for it in sources):
            self.total = sum(it.size for it in sources)
        self._sources = iter(sources)
        self._digest = blake2b(digest_size=16)
        self._started = self._taken = 0
        self._left: Iterator[Document] = iter(())
        self.done = self._current = self._taken_bytes = 0

    @property
    def position(self) -> dict[str, Any]:
        """How far the sources were read: the number of started sources, a digest of these sources, and the
        number of documents that were taken from the last of them.
        """
        return {"started": self._started, "digest": self._digest.hexdigest(), "taken": self._taken}

    @property
    def read(self) -> int:
        """About how many bytes of the sources have been read."""
        return self.done + min(self._taken_bytes, self._current)

    def __next__(self) -> Document:
        while True:
            for document in self._left:
                self._taken += 1
                if isinstance(document, TextDocument):
                    self._taken_bytes += len(document.text) + len(document.title) + 40
                return document
            source = self._begin(next(self._sources))
            if source.path and self.memory:
                check_memory(source.path, source.size, self.memory)
            self._left = iter(source.documents())

    def _begin(self, given: Document | DocumentSource) -> DocumentSource:
        source = given if isinstance(given, DocumentSource) else DocumentSource.of(given)
        self.done += self._current
        self._started, self._taken, self._current, self._taken_bytes = self._started + 1, 0, source.size, 0
        self._digest.update(source.identity().encode() + b"\0")
        return source

    def skip(self, part: Mapping[str, Any]) -> bool:
        """Move to the position after a finished part, and return True. If the sources before this position
        have changed, stay at the old position, and return False.
        """
        before = copy(self)
        before._digest = self._digest.copy()
        started = [self._begin(it) for it in islice(self._sources, part["started"] - self._started)]
        if started:
            self._left = islice(started[-1].documents(), part["taken"], None)
        else:
            self._left = islice(self._left, part["taken"] - self._taken, None)
        self._taken = part["taken"]
        if self.position == {name: part[name] for name in self.position}:
            return True
        before._sources = chain(started, self._sources)
        self.__dict__ = before.__dict__
        return False
