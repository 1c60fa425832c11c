"""Turn files into documents. The name of a file decides which reader reads it. docs/formats.md describes each
format.

Other packages can add readers. A file without a reader, or a file that cannot be read, is left out, and pyfast
reports the reason.
"""

from __future__ import annotations

import gzip
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import pyfast.utils.plugins as plugins
from pyfast.corpus.documents import Document, Table, TextDocument, Unread, with_metadata
from pyfast.corpus.encode import digest_of
from pyfast.corpus.formats.delimited import is_written_by_r, read_table, read_triples
from pyfast.corpus.formats.files import check_growth, read_text, refuse_published, with_line_ends
from pyfast.corpus.formats.html import read_html
from pyfast.corpus.formats.markdown import read_markdown
from pyfast.corpus.formats.office import read_docx, read_pptx
from pyfast.corpus.formats.pdf import read_pdf
from pyfast.corpus.formats.rdf import read_rdf
from pyfast.corpus.formats.xlsx import read_xlsx
from pyfast.corpus.grids import COLUMNS, narrow, title_of, without_long_cells
from pyfast.corpus.jsonl_documents import read_columnar, read_json_documents, read_jsonl_documents
from pyfast.errors import InputError, MissingPackageError, PyfastError
from pyfast.utils.extras import explained
from pyfast.utils.processes import scratch_folder
from pyfast.utils.text_forms import counted

Root = tuple[str, Literal["folder", "files", "file"]]
"""(an absolute path, what it stands for). `folder`: all files below it. `files`: the files directly in it. `file`:
only this file
"""
Roots = dict[Root, str]
"""For each root, the beginning of the uris of its files. For a `file`, its uri"""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader: it turns files with certain names into documents.

    Example:
        >>> from pyfast.corpus import Reader, TextDocument
        >>> NOTES = Reader(("*.note",), lambda uri, path: [TextDocument(uri, path.stem, path.read_text())])
    """

    patterns: tuple[str, ...]
    """Patterns for file names, such as `*.csv`, in the form of `fnmatch` and in lower case. If several installed
    readers have a pattern that matches a name, the reader with the longest pattern is used
    """
    read: Callable[[str, Path], Iterable[Document | Unread]]
    """A function `read(uri, path)` that returns the documents of a file. If it cannot read a part of the file (a
    line, a page), it returns an `Unread` in place of this part, and continues. If it cannot read the file at all,
    it raises `InputError`"""


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """A file, or a document that the caller gave as a value. A file is read only when you call `documents`."""

    documents: Callable[[], Iterable[Document]]
    """A function that reads the file and returns its documents, or returns the given document"""
    identity: Callable[[], str]
    """A function that returns a string, such as a checksum. If the string is the same as before, pyfast treats
    the documents as unchanged
    """
    size: int = 0
    """The file size in bytes. 0 for a document that the caller gave as a value"""
    path: Path | None = None
    """The file. None for a document that the caller gave as a value"""
    uri: str = ""
    """The uri of the file, with which the uris of its parts begin"""

    @classmethod
    def of(cls, document: Document, columns: int | None = None) -> DocumentSource:
        """Make a source from a document. A table with more than `columns` columns is cut into several tables. If
        `columns` is None, nothing is cut."""
        if columns is None or not isinstance(document, Table):
            return cls(lambda: (document,), lambda: digest_of(document).hex())
        return cls(lambda: narrow(document, columns), lambda: digest_of(document).hex())


_SLOTS = 1 << 10
_NUMBER = 40
_MOST_TOLD = 10
"""How many unreadable parts of a file are named one by one"""
_COMPRESSED = (".gz", ".zst")
_BLOCK = 1 << 20
NO_READER = "there is no reader for this kind of file; convert the file, or name a reader with --reader"


def read(
    sources: Iterable[Path],
    unread: list[Unread] | None = None,
    readers: Iterable[Reader | str] = (),
    *,
    columns: int = COLUMNS,
) -> Iterator[Document]:
    """Read the documents in files and folders.

    Folders are read with all subfolders. Files are read in the order of their paths.

    The uri of a document is the path of its file relative to the given folder, with ``/`` between the names. For
    a single file, the uri is its name. If a file of one source and a file of another source would have the same
    uri, all uris of both sources begin with the name of the source's folder. Files and folders whose names begin
    with a dot are left out.

    Args:
        sources: Files and folders.
        unread: A list to which the function adds each file that cannot be read. None: the first such file raises
            `InputError`.
        readers: Additional readers: `Reader` objects, or texts `MODULE:NAME`. They come before the installed
            readers (entry points of the group `pyfast.readers`).
        columns: The maximum number of columns of a table. A wider table is cut into several tables.

    Yields:
        The documents, in the order of sources and paths.

    Raises:
        InputError: A source does not exist, two files would have the same uri, or there is no such reader.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.corpus import read
        >>> sorted(document.title for document in read([Path("corpus/passages")]))[:2]
        ['Apollo 11', 'Carl Sagan']
    """
    for source in sources_of(sources, unread, readers, columns=columns):
        yield from source.documents()


def sources_of(
    sources: Iterable[Path],
    unread: list[Unread] | None = None,
    readers: Iterable[Reader | str] = (),
    *,
    columns: int = COLUMNS,
    roots: Roots | None = None,
    ignore: Sequence[str] = (),
) -> Iterator[DocumentSource]:
    """List the files that `read` would read, without reading them. Arguments and errors are as in `read`. Files
    and folders whose name, or path below their source, matches a pattern of `ignore` are left out.

    `roots` contains the sources from which documents were read before. A file under a root gets its uri from the
    root. The function adds the sources that are under no root.
    """
    chosen = _by_pattern(readers)
    seen = _Seen()
    try:
        for uri, path in _named(sources, {} if roots is None else roots, unread, ignore):
            found = path.stat()
            yield DocumentSource(
                partial(_documents, uri, path, chosen, unread, columns, seen),
                partial("{} {} {} {}".format, uri, path, found.st_size, found.st_mtime_ns),
                found.st_size,
                path,
                uri,
            )
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _documents(
    uri: str, path: Path, readers: list[tuple[str, Reader]], unread: list[Unread] | None, columns: int, seen: _Seen
) -> Iterator[Document]:
    """Yield the documents of one file, and add faults to `unread`. If `unread` is None, the first fault that
    leaves something out is raised. `seen` contains the documents that were read so far.
    """
    name, place = _inner(path).name.lower(), str(path)
    reader = next((reader for pattern, reader in readers if fnmatchcase(name, pattern)), None)
    given, of_file, is_empty = 0, "", True
    told = _Told(unread)
    try:
        if reader is None:
            patterns = ", ".join(sorted({pattern for pattern, _ in readers}))
            raise InputError(f"{path}: {NO_READER}; pyfast reads {patterns}")
        with explained(), _unpacked(path) as file:
            place = str(file)
            refuse_published(file)
            for one in reader.read(uri, file):
                if isinstance(one, Unread):
                    told.add(replace(one, path=path, reason=one.reason.replace(place, str(path))))
                    continue
                one = with_metadata(one, of_file) if one.uri.startswith(f"{uri}#") else one
                if one.uri == uri and isinstance(one, TextDocument):
                    of_file = one.outline.about
                if isinstance(one, Table) and {"question", "answers"} <= {name.strip() for name in one.header}:
                    raise InputError("this file contains questions and answers, not a corpus; leave it out")
                given += 1
                one = _without_name(one, file)
                is_empty = is_empty and _is_empty(one)
                if before := seen.before(one, path, given):
                    told.add(replace(before, reason=f"document {given}: {before.reason}"))
                    continue
                if not isinstance(one, Table):
                    yield one
                    continue
                for table in narrow(one, columns):
                    fitting, texts = without_long_cells(table)
                    yield fitting
                    yield from texts
                    if texts:
                        told.add(
                            Unread(path, f"long cells that became separate texts: {len(texts)}", missing=False)
                        )
        if is_empty and not told.missing:
            why = "the file has no passages" if path.stat().st_size else "the file is empty"
            told.add(Unread(path, why, missing=False, whole=True))
        told.close(whole=is_empty)
    except Exception as error:  # A reader is a plug-in, and its library may raise any exception.
        reason = _reason(error).replace(place, str(path))
        if unread is None:
            raise InputError(reason if reason.startswith(str(path)) else f"{path}: {reason}") from error
        shown = NO_READER if reader is None else reason.removeprefix(f"{path}: ").removeprefix(f"{path}, ")
        told.close()
        kept = (
            f" ({counted(given, 'document')} before this fault {'is' if given == 1 else 'are'} in the index)"
            if given
            else ""
        )
        unread.append(Unread(path, shown + kept, whole=not given))


def _without_name(document: Document, path: Path) -> Document:
    """Remove the title of an empty text if it is only the file name, because it would otherwise be a passage."""
    is_empty = isinstance(document, TextDocument) and not document.text.strip()
    return replace(document, title="") if is_empty and document.title in (path.stem, title_of(path)) else document


def _is_empty(document: Document) -> bool:
    """Return whether a document has no passages."""
    if isinstance(document, TextDocument):
        return not (document.text.strip() or document.title.strip())
    return not (document.rows if isinstance(document, Table) else document.triples)


def _inner(path: Path) -> Path:
    """Return the path of a file without a compression suffix such as `.gz`."""
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Unpack a compressed file while a `with` block runs. Yields the path of the unpacked file, or the file's own
    path if it is not compressed.

    Raises InputError if the file is damaged, or if its unpacked content is far larger than the file.
    """
    if _inner(path) == path:
        yield path
        return
    with scratch_folder() as folder:
        target = Path(folder, _inner(path).name)
        packed, written = path.stat().st_size, 0
        try:
            with path.open("rb") as raw, target.open("wb") as out:
                source: Any = gzip.GzipFile(fileobj=raw)
                if path.suffix.lower() == ".zst":
                    import zstandard

                    source = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                while block := source.read(_BLOCK):
                    written += out.write(block)
                    check_growth(path, packed, written)
        except (EOFError, gzip.BadGzipFile, ValueError, OSError) as error:
            raise InputError(f"{path}: cannot be unpacked: {error}; copy or download it again") from error
        yield target


class _Seen:
    """The documents that were read so far and have a uri of their own, to find repeated uris.

    A corpus may have many millions of documents, so a hash table stores only some 35 bytes for each: the hash of
    its uri, its place, and the hash of its text.
    """

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._path: Path | None = None
        self._used = 0
        self._hashes, self._places, self._digests = (array("q", bytes(8 * _SLOTS)) for _ in range(3))

    def before(self, document: Document, path: Path, number: int) -> Unread | None:
        """Add the document with this number in its file. If an earlier document has the same uri, say which
        one."""
        if self._path is not path:  # Comparing paths is slow, and each file has one object.
            self._path = path
            self._files.append(path)
        hashed = hash(document.uri) or 1  # 0 is a free place
        # A hash is faster than a digest. Only texts are compared: for others, this takes longer than reading.
        digest = hash((document.title, document.text)) if isinstance(document, TextDocument) else 0
        at = self._find(hashed)
        if not self._hashes[at]:
            place = len(self._files) << _NUMBER | number
            self._hashes[at], self._places[at], self._digests[at] = hashed, place, digest
            self._used += 1
            if 3 * self._used > 2 * len(self._hashes):
                self._grow()
            return None
        file, first = divmod(self._places[at], 1 << _NUMBER)
        where = self._files[file - 1]
        if where == path and first == number:  # The file is read again.
            return None
        same = bool(digest) and self._digests[at] == digest
        what = "is the same as" if same else "is left out, because it has the id of"
        return Unread(path, f"{document.uri!r} {what} document {first} of {where}", not same, repeated=not same)

    def _find(self, hashed: int) -> int:
        """Return the slot of a hash, or the free slot in which it belongs."""
        hashes = self._hashes
        mask = len(hashes) - 1
        at = hashed & mask
        while hashes[at] not in (0, hashed):
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        before = self._hashes, self._places, self._digests
        self._hashes, self._places, self._digests = (array("q", bytes(16 * len(one))) for one in before)
        for hashed, place, digest in zip(*before, strict=True):
            if hashed:
                at = self._find(hashed)
                self._hashes[at], self._places[at], self._digests[at] = hashed, place, digest


class _Told:
    """Passes on what a reader reports about the parts of one file: the first `_MOST_TOLD` reports one by one, and
    the number of the others. If `unread` is None, the first missing part raises `InputError`."""

    def __init__(self, unread: list[Unread] | None) -> None:
        self._unread, self._first = unread, len(unread or ())
        self._times: Counter[tuple[bool, bool]] = Counter()
        self._last: dict[tuple[bool, bool], Unread] = {}

    def add(self, one: Unread) -> None:
        """Pass on one part, or count it."""
        if self._unread is None:
            if one.missing:
                in_line = one.reason.startswith(("line ", "row ", "record "))
                raise InputError(f"{one.path}, {one.reason}" if in_line else str(one))
            return
        kind = one.missing, one.repeated
        self._times[kind] += 1
        self._last[kind] = one
        if self._times[kind] <= _MOST_TOLD:
            self._unread.append(one)

    @property
    def missing(self) -> bool:
        """Whether a part is missing."""
        return any(missing for missing, _ in self._times)

    def close(self, whole: bool = False) -> None:
        """Pass on how many parts were only counted. `whole`: the missing parts are all of the file."""
        for kind, times in self._times.items():
            if (more := times - _MOST_TOLD) > 0 and self._unread is not None:
                last = self._last[kind]
                self._unread.append(replace(last, reason=f"and {more} more, up to: {last.reason}"))
        if whole and self._unread is not None:
            new = [replace(it, whole=it.whole or it.missing) for it in self._unread[self._first :]]
            self._unread[self._first :] = new


def _reason(error: Exception) -> str:
    """Write an error on one line. For an error raised by another library, the line also names its class."""
    if isinstance(error, OSError) and error.strerror and not isinstance(error, PyfastError):
        return error.strerror
    text = " ".join(str(error).split())[:300]
    if isinstance(error, InputError | MissingPackageError):
        return text
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"cannot be read: {named.removesuffix('.')}; if a program can open it, save it again or convert it"


def _by_pattern(given: Iterable[Reader | str]) -> list[tuple[str, Reader]]:
    """List readers by their patterns: first the given readers in their order, then the installed readers, those
    with longer patterns first.
    """

    def by_pattern(found: Iterable[Reader]) -> Iterator[tuple[str, Reader]]:
        return ((pattern.lower(), reader) for reader in found for pattern in reader.patterns)

    installed = by_pattern(_loaded(plugins.names("readers")))
    return [*by_pattern(_loaded(given)), *sorted(installed, key=lambda it: -len(it[0]))]


def _loaded(readers: Iterable[Reader | str]) -> Iterator[Reader]:
    for it in readers:
        reader = it if isinstance(it, Reader) else plugins.load("readers", it)
        if not isinstance(reader, Reader):
            raise InputError(f"{it}: expected a pyfast.corpus.Reader, got {type(reader).__name__}")
        yield reader


def uri_within(roots: Mapping[Root, str], path: Path) -> str | None:
    """Return the uri that a file gets from a root, or None if the file is under no root."""
    if not roots:
        return None
    # The path as it is written comes first: a link in a folder gets its uri from its own place, not its target's.
    for place in map(Path, dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))):
        if (uri := roots.get((str(place), "file"))) is not None:
            return uri
        above: list[Root] = [(str(folder), "folder") for folder in place.parents]
        for root in [(str(place.parent), "files"), *above]:
            if (beginning := roots.get(root)) is not None:
                return beginning + place.relative_to(root[0]).as_posix()
    return None


def add_root(roots: Roots, source: Path, prefix: str) -> None:
    """Remember a source, whose uris begin with `prefix`."""
    place = os.path.abspath(source)
    if source.is_dir():
        roots[place, "folder"] = prefix
    elif prefix:
        roots[place, "file"] = prefix + source.name
    else:
        roots[os.path.dirname(place), "files"] = ""


def beginnings_of(sources: Iterable[Path], roots: Roots) -> list[str]:
    """Return the beginnings of the uris of all documents that were read from these sources. `roots` contains the
    roots of the sources and of an index's other documents.

    Raises `InputError` if documents of another root can have such uris.
    """
    given = [Path(os.path.realpath(source)) for source in sources]
    folders = [source for source in given if source.is_dir()]
    found = {normalize("NFC", uri[:-1]) for folder in folders if (uri := uri_within(roots, folder / "-"))}
    others = {}
    for (place, kind), uri in roots.items():
        root = Path(os.path.realpath(place))
        if any(root.is_relative_to(source) for source in given):
            found.add(uri)
        elif root.exists() and not any(source.is_relative_to(root) for source in given):
            others[f"{place}/*" if kind == "files" else place] = uri
    for place, uri in others.items():
        if any(uri.startswith(one) or one.startswith(uri) for one in found):
            raise InputError(
                f"{place}: documents from this path have uris that begin like those of the given sources, so"
                " pyfast cannot tell which ones to delete; add this path to the sources"
            )
    return sorted(found)


def stored_roots(roots: Mapping[Root, str], index: Path, before: Sequence[Sequence[str]] = ()) -> list[list[str]]:
    """Return the roots for an index's manifest: path, path relative to the index, kind, beginning of the uris.
    `before` are the roots that are already in the manifest."""
    known = known_roots(before, index)
    new = [[path, os.path.relpath(path, index), kind, uri] for (path, kind), uri in roots.items()]
    return [*map(list, before), *(entry for entry in new if (entry[0], entry[2]) not in known)]


def known_roots(stored: Iterable[Sequence[Any]], index: Path) -> Roots:
    """Return the roots in an index's manifest. If a root and the index were moved together, the root is found at
    its new place."""
    roots: Roots = {}
    places = [((path, os.path.normpath(index.resolve() / near)), kind, uri) for path, near, kind, uri in stored]
    for moved in (False, True):
        for paths, kind, uri in places:
            for place in (paths[moved], os.path.realpath(paths[moved])):
                roots.setdefault((place, kind), uri)
    return roots


def _named(
    sources: Iterable[Path], roots: Roots, unread: list[Unread] | None, ignore: Sequence[str]
) -> list[tuple[str, Path]]:
    """List all files of the sources, each with its uri, and add sources with files that are under no root to the
    roots."""
    listed = [
        (source, [(uri, path, uri_within(roots, path)) for uri, path in _files(source, unread, ignore).items()])
        for source in sources
    ]
    times = Counter(known or uri for _, files in listed for uri, _, known in files)
    named: dict[str, Path] = {}
    for source, files in listed:
        folder = (source if source.is_dir() else source.parent).resolve().name
        new = [uri for uri, _, known in files if known is None]
        prefix = f"{folder}/" if any(times[uri] > 1 for uri in new) else ""
        if new:
            add_root(roots, source, prefix)
        for uri, path, known in files:
            # Some systems store the accents in file names as separate characters.
            uri = normalize("NFC", known or prefix + uri)
            other = named.setdefault(uri, path)
            if other is not path and not (known and path.samefile(other)):
                raise InputError(f"{path}: its uri would be the same as that of {other}: {uri}")
    return list(named.items())


def _files(source: Path, unread: list[Unread] | None, ignore: Sequence[str]) -> dict[str, Path]:
    """Return the files of one source by their uris. A file's uri is its path within the source folder, or its name
    if the source is a file.

    Linked folders are read too, each real folder once. If files of two sources have the same uri, `_named` puts
    the name of the folder before all uris of both sources.
    """

    patterns = [normalize("NFC", one).lower() for one in ignore]

    def is_ignored(path: Path) -> bool:
        names = {normalize("NFC", name).lower() for name in (path.name, path.relative_to(source).as_posix())}
        return any(fnmatchcase(name, one) for one in patterns for name in names)

    if source.is_file():
        return {} if is_ignored(source) else {source.name: source}
    if not source.is_dir():
        raise InputError(f"{source}: no such file or folder")
    found: list[Path] = []
    seen: set[str] = set()
    told = _Told(unread)

    def closed(error: OSError) -> None:
        told.add(Unread(Path(error.filename or source), error.strerror or str(error), whole=True))

    for folder, folders, names in os.walk(source, onerror=closed, followlinks=True):
        inside = []
        for path in (Path(folder, name) for name in sorted(folders) if not name.startswith(".")):
            if is_ignored(path):
                continue
            real = os.path.realpath(path)
            if real in seen or (path.is_symlink() and _leads_round(real, source)):
                told.add(
                    Unread(path, "this link leads to a folder that is also read under another path", missing=False)
                )
            else:
                seen.add(real)
                inside.append(path.name)
        folders[:] = inside
        # Office programs keep a file `~$NAME` beside each open document.
        for path in (Path(folder, name) for name in names if not name.startswith((".", "~$"))):
            if path.is_file():
                found += [] if is_ignored(path) else [path]
            elif not is_ignored(path):
                why = "this link is broken" if path.is_symlink() else "not a regular file"
                told.add(Unread(path, why, whole=True))
    told.close()
    return dict(sorted((path.relative_to(source).as_posix(), path) for path in found))


def _leads_round(real: str, source: Path) -> bool:
    """Whether a linked folder contains the source, or is a folder in the source that is read anyway."""
    place, top = Path(real), Path(os.path.realpath(source))
    if place.is_relative_to(top):
        return not any(name.startswith(".") for name in place.relative_to(top).parts)
    return top.is_relative_to(place)


def _read_text(uri: str, path: Path) -> Iterator[Document | Unread]:
    if is_written_by_r(text := read_text(path)):
        yield from read_table(uri, path)
    else:
        yield TextDocument(uri, path.stem, with_line_ends(text))


TEXT = Reader(("*.txt", "*.text"), _read_text)
MARKDOWN = Reader(("*.md", "*.markdown"), read_markdown)
TABLE = Reader(("*.csv", "*.tsv"), read_table)
TRIPLES = Reader(("triples*.tsv", "*.triples.tsv"), read_triples)
JSON_LINES = Reader(("*.jsonl", "*.ndjson"), read_jsonl_documents)
JSON = Reader(("*.json",), read_json_documents)
COLUMNAR = Reader(("*.parquet", "*.arrow", "*.feather"), read_columnar)
HTML = Reader(("*.html", "*.htm", "*.xhtml"), read_html)
PDF = Reader(("*.pdf",), read_pdf)
DOCX = Reader(("*.docx",), read_docx)
PPTX = Reader(("*.pptx",), read_pptx)
XLSX = Reader(("*.xlsx", "*.xlsm"), read_xlsx)
RDF = Reader(("*.nt", "*.ttl", "*.turtle"), read_rdf)
_OF_FILES = (TEXT, MARKDOWN, TABLE, TRIPLES, HTML, PDF, DOCX, PPTX, XLSX, RDF)


def has_records(path: Path, readers: Iterable[Reader | str] = ()) -> bool:
    """Whether documents of a file can have uris that do not begin with that of the file. `readers` are the user's,
    whose documents can have any uris."""
    return _is_read_by(_inner(path), *_loaded(readers)) or not _is_read_by(_inner(path), *_OF_FILES)


def _is_read_by(path: Path, *readers: Reader) -> bool:
    name = path.name.lower()
    return any(fnmatchcase(name, pattern.lower()) for reader in readers for pattern in reader.patterns)


# What pyfast writes behind the uri of a file, or of a record, for its tables, and for wide tables and long cells
_TABLE_OF = re.compile(r"(?:table-\d+|columns-\d+-\d+|row-\d+-column-\d+)(?:#|$)")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}")


def is_part(file: str, uri: str) -> bool:
    """Whether a document whose uri is that of a file, `#` and more was read from this file. The names of files and
    the ids of records can contain `#` too."""
    more, path = uri[len(file) + 1 :], _inner(Path(file))
    if _TABLE_OF.match(more):
        return True
    if not has_records(path):
        return _is_read_by(path, XLSX)  # `FILE#SHEET`
    if _is_read_by(path, JSON_LINES, JSON, COLUMNAR):
        return more.partition("#")[0].isdigit()  # the number of a line
    return bool(_ENDING.fullmatch(path.suffix))  # of a user's reader
