"""Change an index by commits. Each change happens completely or not at all.

A commit is one version of an index: a manifest that lists the parts and their deleted documents. Parts never
change. Only one process at a time can change an index. An opened index keeps the commit with which it was opened.
Earlier commits stay until they are erased.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice, takewhile
from operator import ge
from pathlib import Path
from typing import Any

import numpy as np

import pyfast.retrieval.index.manifest as manifests
from pyfast.corpus import Corpus, Document
from pyfast.corpus.encode import digest_of
from pyfast.corpus.grids import COLUMNS
from pyfast.corpus.readers import Root, Roots, is_part, known_roots, stored_roots
from pyfast.corpus.schema import Kind
from pyfast.corpus.storage import add_sums
from pyfast.errors import InputError, did_you_mean
from pyfast.retrieval.index.manifest import COMMITS, DELETED, PARTS, commit_numbers, read_manifest
from pyfast.retrieval.index.part_maker import make_part
from pyfast.retrieval.index.parts import Part, merge_parts, open_part, save_part
from pyfast.retrieval.part_files import Mask, find_documents
from pyfast.retrieval.terms import Analysis
from pyfast.retrieval.vectors.passage_vectors import unfinished, vectors_of
from pyfast.utils.blocks import MappedFolder, map_folder, write_array
from pyfast.utils.files import only_writer, sync_to_disk
from pyfast.utils.log import LOG

_TIER = 8
"""Parts with a similar number of documents form a tier. A part can contain up to this many times as many
documents as a part of the tier below. If more than this many of an index's last parts belong to one tier, pyfast
merges them, together with the parts of lower tiers between and after them
"""
_SMALLEST = 512
"""The maximum number of documents in a part of the lowest tier, without deleted documents"""
_MOST_COMPARED = 50_000
"""The maximum number of uris in which pyfast looks for a similar one"""


@dataclass(frozen=True, slots=True)
class Change:
    """The changes that one call made to an index."""

    commit: int
    """The number of the current commit after the call. It is a new commit, unless the call changed nothing"""
    added: int = 0
    """The number of new documents"""
    replaced: int = 0
    """The number of documents that were replaced by a new version"""
    deleted: int = 0
    """The number of deleted documents"""
    unchanged: int = 0
    """The number of given documents that the index already contains, and that therefore change nothing"""
    kept: int = 0
    """The number of documents that stayed in an earlier version because their files, or parts of these files,
    cannot be read. Searches still find them"""
    renamed: tuple[tuple[str, str], ...] = ()
    """The old and the new uri of each renamed file, if `sync_documents` made the change. The other numbers do not
    count their documents"""
    uris: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False, repr=False)
    """The uris of the documents that were `added`, `replaced`, `deleted` and `kept`"""


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part of an index."""

    name: str
    documents: int
    """The number of documents, including deleted ones"""
    deleted: int


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """The commit, documents, parts and sizes of an index."""

    commit: int
    documents: int
    passages: int
    parts: tuple[PartInfo, ...]
    size: int
    """The size of the files of the current commit, in bytes"""
    kept: int
    """The size of the files that only earlier commits need, in bytes"""
    commits: tuple[int, ...]
    """The numbers of the commits that can be opened"""


def describe_index(folder: Path) -> IndexInfo:
    """Describe an index from its manifest. Raises `IndexFormatError` if the folder has no index, or
    the manifest is damaged.
    """
    manifest = read_manifest(folder, check=False)
    parts = []
    for entry in manifest["parts"]:
        deleted = np.count_nonzero(~manifests.live_documents(folder, entry))
        parts.append(PartInfo(entry["name"], entry["documents"], int(deleted)))
    below = (path for top in (PARTS, DELETED) for path in (folder / top).rglob("*"))
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in below if path.is_file()}
    size = sum(file["bytes"] for file in manifest["files"].values())
    kept = sum(size for name, size in sizes.items() if name not in manifest["files"])
    counts = manifest["documents"], manifest["passages"]
    return IndexInfo(manifest["commit"], *counts, tuple(parts), size, kept, tuple(commit_numbers(folder)))


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document of an index."""

    uri: str
    title: str
    kind: str
    """`text`, `markdown`, `table` or `graph`"""
    passages: int


def list_documents(folder: Path, pattern: str) -> Iterator[DocumentInfo]:
    """Yield the documents of an index whose uris match a pattern, in their order in the index. Raises
    `IndexFormatError` as `describe_index` does, and if a part is damaged.
    """
    manifest = read_manifest(folder, check=False)
    for entry in manifest["parts"]:
        corpus = Corpus.mapped(manifests.map_part(folder, manifest, entry["name"]))
        counts = corpus.document_table.column("passages")
        kinds = corpus.document_table.column("kind")
        for number in np.flatnonzero(manifests.live_documents(folder, entry)).tolist():
            if fnmatchcase(uri := corpus.uri(number), pattern):
                kind = Kind(kinds[number].as_py()).name.lower()
                yield DocumentInfo(uri, corpus.title(number), kind, counts[number].as_py())


def columns_of(folder: Path) -> int:
    """Return the maximum number of columns of a table with which an index was built. Raises `IndexFormatError` as
    `describe_index` does."""
    return int(read_manifest(folder, check=False).get("columns", COLUMNS))


def roots_of(folder: Path) -> Roots:
    """Return the folders and files from which the documents of an index were read, according to its manifest.
    Raises `IndexFormatError` as `describe_index` does."""
    return known_roots(read_manifest(folder, check=False).get("roots", ()), folder)


def add_documents(
    folder: Path,
    documents: Iterable[Document],
    replace: bool = False,
    roots: Mapping[Root, str] | None = None,
    files: Set[str] = frozenset(),
    partial: Set[str] = frozenset(),
    within: Callable[[], Sequence[str]] = tuple,
    stays: Callable[[str], bool] = lambda uri: False,
    dry_run: bool = False,
) -> Change:
    """Add documents at the end of an index, in one commit.

    Args:
        folder: The index.
        documents: The documents.
        replace: Whether a document may replace an existing document with the same uri. The old document is then
            deleted, and the new document is added at the end. If both documents are equal, nothing changes.
        roots: The files and folders that the documents come from. The caller may complete it while `documents` is
            read.
        files: The uris of the files whose documents are all among `documents`. Documents of an earlier version of
            such a file that the file no longer contains are deleted. The caller may complete the set while
            `documents` is read.
        partial: The uris of files that were not read completely, likewise. Their earlier documents are kept.
        within: A function that is called after all documents are read. All other documents whose uris begin with
            one of the strings that it returns are deleted.
        stays: A function that is called after `within`, with the uri of a document that would be deleted, or of
            its file. If it returns True, the document stays.
        dry_run: Only find out what would change.

    Raises:
        InputError: The index has a document with the same uri, and `replace` is False; or the documents cannot be
            indexed, as in `build_index`.
        IndexFormatError: The folder is not an index, or is damaged.
    """
    parameters = read_manifest(folder, check=False)["parameters"]
    part = make_part(documents, parameters)
    with _writing(folder) as writer:
        uris = [part.corpus.uri(document) for document in range(part.corpus.documents)]
        existing = writer.find(uris)
        if existing and not replace:
            raise InputError(
                f"{folder} already contains the document {next(iter(existing))!r}; use update to replace it"
            )
        digests = dict(zip(uris, map(bytes, part.corpus.digests()), strict=True))
        same = {uri for uri, place in existing.items() if writer.digest(place) == digests[uri]}
        if same or writer.parameters != parameters:  # The index may just have been rebuilt differently.
            changed, parameters = [k for k, uri in enumerate(uris) if uri not in same], writer.parameters
            part = make_part(map(part.corpus.document, changed), parameters)
        lost = {uri: place for uri, place in writer.below(tuple(within())).items() if uri not in digests}
        earlier = [uri for uri in (writer.of_files(partial) if partial else ()) if uri not in digests]
        kept = list(dict.fromkeys([*earlier, *(uri for uri in lost if stays(uri) or stays(_file_of(uri)))]))
        for uri in kept:
            lost.pop(uri, None)
        gone = {uri: place for uri, place in writer.of_files(files).items() if uri not in digests} if files else {}
        new = [k for k in range(part.corpus.documents) if part.corpus.uri(k) not in existing]
        moved = _moved(map(writer.document, lost.values()), map(part.corpus.document, new if lost else ()))
        named = {
            "added": [uri for uri in digests if uri not in existing.keys() | set(moved.values())],
            "replaced": [uri for uri in existing if uri not in same],
            "deleted": [uri for uri in gone | lost if uri not in moved],
            "kept": kept,
        }
        counts: dict[str, Any] = {name: len(found) for name, found in named.items()}
        pairs = (tuple(map(_file_of, pair)) for pair in moved.items())
        counts |= {"unchanged": len(same), "renamed": tuple(dict.fromkeys(pairs)), "uris": named}
        if dry_run:
            return Change(writer.number, **counts)
        writer.delete([place for uri, place in existing.items() if uri not in same] + [*(gone | lost).values()])
        if part.corpus.documents:
            vectors = vectors_of(part.rendered, parameters, unfinished(folder.resolve()))
            writer.add(dataclasses.replace(part, vectors=vectors))
            writer.merge_full_tiers()
        writer.add_roots(roots or {})
        change = writer.commit(**counts)
        shutil.rmtree(unfinished(folder.resolve()), ignore_errors=True)
        return change


def _moved(gone: Iterable[Document], new: Iterable[Document]) -> dict[str, str]:
    """Return the old and the new uri of each document of which only the uri (and the title) changed."""
    places: dict[bytes, list[str]] = {}
    for document in gone:
        places.setdefault(_content(document), []).append(document.uri)
    moved = {}
    for document in new:
        olds = places.get(_content(document), [])
        if olds and _file_of(olds[0]) != _file_of(document.uri):  # otherwise, it is a part of a file that stays
            moved[olds.pop(0)] = document.uri
    return moved


def _content(document: Document) -> bytes:
    return digest_of(dataclasses.replace(document, uri="", title=""))


def _file_of(uri: str) -> str:
    return uri.partition("#")[0]


def delete_documents(folder: Path, uris: Sequence[str]) -> Change:
    """Delete the documents with these uris, and their parts (`URI#...`), from an index, in one commit. Searches no
    longer return them.

    Raises:
        InputError: The index contains neither a document nor a part of a document with one of these uris.
        IndexFormatError: The folder is not an index, or is damaged.
    """
    with _writing(folder) as writer:
        existing = writer.of_files(set(uris))
        known = {*existing, *(one[: mark.start()] for one in existing for mark in re.finditer("#", one))}
        for uri in uris:
            if uri not in known:
                every = chain.from_iterable((one, _file_of(one)) for one in writer.below(("",)))
                near = did_you_mean(uri, dict.fromkeys(islice(every, _MOST_COMPARED)))
                raise InputError(f"{folder} has no document {uri!r}{near}")
        writer.delete(list(existing.values()))
        return writer.commit(deleted=len(existing))


def compact_index(folder: Path, erase: bool = False) -> Change:
    """Merge all parts of an index into one part, without deleted documents.

    Args:
        folder: The index.
        erase: Whether to remove the earlier commits too, so that no text of a deleted document is left in the
            parts. A process that has an earlier commit open can still read it.

    Raises:
        IndexFormatError: The folder is not an index, or is damaged.
    """
    with _writing(folder) as writer:
        writer.compact()
        change = writer.commit()
        if erase:
            _erase(folder, change.commit)
        return change


def _erase(folder: Path, commit: int) -> None:
    names = read_manifest(folder, check=False)["files"]
    needed = {"/".join(name.split("/")[:2]) for name in names}
    for number in commit_numbers(folder):
        if number != commit:
            (folder / COMMITS / f"{number}.json").unlink()
    # After a power cut, a commit must not be listed without its parts.
    sync_to_disk(folder / COMMITS)
    for path in (path for top in (PARTS, DELETED) for path in (folder / top).glob("*")):
        if path.relative_to(folder).as_posix() not in needed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


_Place = tuple[int, int]
"""(the number of a part in the commit, the number of a document in the part)"""


@dataclass(slots=True)
class _Entry:
    """A part of the index, as the next commit will list it."""

    live: Mask
    corpus: Corpus
    files: MappedFolder | None
    """The files of the part. None: the part is only in memory"""
    name: str = ""
    """The part's name in the folder. Empty: the part is not written yet"""
    deleted: str | None = None
    """The name of the file that marks the deleted documents. None: there is no such file, because no document
    is deleted. `commit` writes the file if the commit before has none with this name
    """
    part: Part | None = None
    """The part, if it is already open"""
    is_new: bool = False
    """Whether the part is in no commit yet"""


class _Writer:
    """The next commit of an index, while its changes are collected. Before `commit` is called, only merged parts
    are written into the index folder, and no commit lists them yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = read_manifest(folder, check=False)
        self.number = int(self._before["commit"])
        """The number of the current commit"""
        self.parameters: dict[str, Any] = self._before["parameters"]
        self._next_part: int = self._before["next_part"]
        self._facts = {name: self._before[name] for name in ("documents", "passages", "corpus", "parameters")}
        self._facts |= {"roots": self._before.get("roots", []), "columns": self._before.get("columns", COLUMNS)}
        self._parts: list[_Entry] = []
        for part in self._before["parts"]:
            if part["deleted"] is not None:
                manifests.check_file(folder, self._before, part["deleted"])
            live = manifests.live_documents(folder, part)
            files = manifests.map_part(folder, self._before, part["name"])
            self._parts.append(_Entry(live, Corpus.mapped(files), files, part["name"], part["deleted"]))
        for path in (folder / PARTS).iterdir():  # left by a writer that was killed
            if int(path.name) >= self._next_part:
                shutil.rmtree(path)

    def compact(self) -> None:
        """Merge all parts into one, unless the index is one part without deleted documents already."""
        if len(self._parts) != 1 or not self._parts[0].live.all():
            self.merge()

    def find(self, uris: Sequence[str]) -> dict[str, _Place]:
        """Return a dict from each of these uris to the `_Place` of its document. Unknown uris are left out."""
        places: dict[str, _Place] = {}
        for number, entry in enumerate(self._parts):
            found = find_documents(entry.corpus, entry.files, uris)
            places |= {uri: (number, document) for uri, document in found.items() if entry.live[document]}
        return places

    def of_files(self, files: Set[str]) -> dict[str, _Place]:
        """Return a dict from the uri of each document of these files to its `_Place`. A table
        that is cut, or that has long cells, has parts too."""
        places = self.find(sorted(files))
        for number, entry in enumerate(self._parts):
            for document in entry.corpus.parts_of(files):
                uri = entry.corpus.uri(document)
                above = {uri[: mark.start()] for mark in re.finditer("#", uri)} & files
                if entry.live[document] and any(is_part(file, uri) for file in above):
                    places[uri] = number, document
        return places

    def below(self, beginnings: tuple[str, ...]) -> dict[str, _Place]:
        """Return a dict from each uri with one of these beginnings to the `_Place` of its document."""
        return {
            uri: (number, document)
            for number, entry in enumerate(self._parts if beginnings else ())
            for document in np.flatnonzero(entry.live).tolist()
            if (uri := entry.corpus.uri(document)).startswith(beginnings)
        }

    def document(self, place: _Place) -> Document:
        """Return the document at this place."""
        return self._parts[place[0]].corpus.document(place[1])

    def digest(self, place: _Place) -> bytes:
        """Return the digest of the document at this place."""
        return bytes(self._parts[place[0]].corpus.digests([place[1]])[0])

    def delete(self, places: Sequence[_Place]) -> None:
        """Mark documents as deleted."""
        for number in sorted({number for number, _ in places}):
            entry = self._parts[number]
            chosen = sorted({document for which, document in places if which == number})
            entry.live[chosen] = False
            entry.deleted = f"{DELETED}/{entry.name}-{self._before['commit'] + 1}.bits"
            passages, digests = entry.corpus.passages_in(chosen), entry.corpus.digest_sum(chosen)
            self._count(-1, len(chosen), passages, digests)

    def add(self, part: Part) -> None:
        """Add a new part at the end."""
        self._parts.append(_Entry(np.ones(part.corpus.documents, bool), part.corpus, part.files, part=part))
        self._count(1, part.corpus.documents, len(part.passages), part.corpus.digest_sum())

    def add_roots(self, roots: Mapping[Root, str]) -> None:
        """Remember what documents were read from."""
        self._facts["roots"] = stored_roots(roots, self._folder, self._facts["roots"])

    def _count(self, sign: int, documents: int, passages: int, digests: int) -> None:
        self._facts["documents"] += sign * documents
        self._facts["passages"] += sign * passages
        self._facts["corpus"] = f"{add_sums(int(self._facts['corpus'], 16), digests, sign):032x}"

    def merge(self, first: int = 0) -> None:
        """Merge part `first` and all parts after it into one, without deleted documents."""
        entries, name = self._parts[first:], self._new_name()
        folder = self._folder / PARTS / name
        merge_parts(folder, [self._open(e) for e in entries], [e.live for e in entries], alone=not first)
        part = open_part(map_folder(folder), Analysis.of(self.parameters))
        for entry in entries:
            if entry.is_new:  # This writer made it by a merge, and has now merged it again.
                shutil.rmtree(self._folder / PARTS / entry.name)
        live = np.ones(part.corpus.documents, bool)
        self._parts[first:] = [_Entry(live, part.corpus, part.files, name, part=part, is_new=True)]

    def _new_name(self) -> str:
        self._next_part += 1
        return str(self._next_part - 1)

    def _open(self, entry: _Entry) -> Part:
        if entry.part is None:
            assert entry.files is not None
            entry.part = open_part(entry.files, Analysis.of(self.parameters))
        return entry.part

    def merge_full_tiers(self) -> None:
        """For each tier, from the lowest, look at the last parts of the index that belong to this tier or to lower
        ones. If more than `_TIER` of them belong to the tier itself, merge these last parts. In this way, a large
        part is not written again for a few small ones after it.
        """
        tier = 0
        while tier <= max(map(_tier, self._parts)):
            last = list(takewhile(partial(ge, tier), map(_tier, reversed(self._parts))))
            if last.count(tier) > _TIER:
                self.merge(len(self._parts) - len(last))
            tier += 1

    def commit(self, **counts: Any) -> Change:
        """Write the changes as a new commit, and make it the current one. If nothing has changed, do nothing."""
        before, number = self._before, self._before["commit"] + 1
        added: list[Path] = []
        for entry in self._parts:
            if not entry.name and entry.part is not None:
                entry.name, entry.is_new = self._new_name(), True
                save_part(self._folder / PARTS / entry.name, entry.part, alone=len(self._parts) == 1)
            if entry.is_new:
                added.append(self._folder / PARTS / entry.name)
            if entry.deleted is not None and entry.deleted not in before["files"]:
                added.append(self._folder / entry.deleted)
                added[-1].parent.mkdir(exist_ok=True)
                write_array(added[-1], np.packbits(~entry.live))
        parts = [{"name": e.name, "documents": len(e.live), "deleted": e.deleted} for e in self._parts]
        if parts == before["parts"]:
            return Change(before["commit"], **counts)
        gone = [part for part in before["parts"] if part not in parts]
        names = {entry.name for entry in self._parts}
        removed = [f"{PARTS}/{part['name']}/" for part in gone if part["name"] not in names]
        removed += [part["deleted"] for part in gone if part["deleted"] is not None]
        facts = {"commit": number, "next_part": self._next_part, "parts": parts, **self._facts}
        manifests.write_commit(self._folder, before, facts, added, removed)
        return Change(number, **counts)


def _tier(entry: _Entry) -> int:
    documents = max(int(np.count_nonzero(entry.live)), 1)
    return max(0, math.ceil(math.log(documents / _SMALLEST, _TIER)))


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[_Writer]:
    """Start the next commit of an index. Waits while another process changes the index."""
    folder = folder.resolve()
    read_manifest(folder, check=False)  # It refuses a folder that is not an index.
    with only_writer(folder, lambda: LOG.warning("another process is changing %s; waiting for it", folder)):
        yield _Writer(folder)
