"""Files into documents, by the readers of their names:

- ``.txt``: a text; its title is the file's name;
- ``.md``, ``.markdown``: a text with sections; its title is the first heading of depth 1, or the file's name;
- ``.csv``, ``.tsv``: a table whose first line is the header; empty lines are left out. But a ``.tsv`` whose
  name begins with ``triples`` or ends with ``.triples.tsv`` is a knowledge graph without a header: head, relation,
  tail and, in a fourth column, time (empty: unknown);
- ``.jsonl``: one record a line. With ``kind`` ("text", "table" or "kg"), or with ``text``, it is a document
  of its own, and ``id`` its uri; all others of a file are the rows of one table, all their keys its header.
"""

import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pyfast import plugins
from pyfast.corpus.documents import Document, KnowledgeGraph, Table, TextDocument, Triple
from pyfast.corpus.jsonl_documents import read_jsonl_documents
from pyfast.corpus.sections import headings
from pyfast.errors import InputError


@dataclass(frozen=True, slots=True)
class Reader:
    """How the files of some names become documents.

    Example:
        >>> from pyfast.corpus import Reader, TextDocument
        >>> NOTES = Reader(("*.note",), lambda uri, path: [TextDocument(uri, path.stem, path.read_text())])
    """

    patterns: tuple[str, ...]
    """Of file names in lower case, as `fnmatch` has them; the longest pattern that matches decides"""
    read: Callable[[str, Path], Iterable[Document]]
    """read(uri, path): the documents of a file. Raises `InputError` for what cannot be read"""


_BOM = b"\xef\xbb\xbf"


def read(
    sources: Iterable[Path], skipped: list[Path] | None = None, readers: Iterable[Reader | str] = ()
) -> Iterator[Document]:
    """The documents in files and folders; folders are walked to the bottom, files in order of their paths.

    Uris are paths relative to the folder given, with ``/``, or the name of a file given by itself; where
    these would clash, the name of the folder is put before them. Files in a folder that no reader is for are
    left out and added to `skipped`. `readers` come before the installed ones (entry points of the group
    `pyfast.readers`); each is a `Reader` or `MODULE:NAME`. Raises InputError, one line with file and line, for
    what cannot be read.
    """
    chosen = _Readers([it if isinstance(it, Reader) else _load(it) for it in readers])
    try:
        for uri, path in _named(sources, chosen, [] if skipped is None else skipped):
            reader = chosen.of(path)
            assert reader is not None
            yield from reader.read(uri, path)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _load(name: str) -> Reader:
    found = plugins.load("readers", name)
    if not isinstance(found, Reader):
        raise InputError(f"{name}: expected a pyfast.corpus.Reader, got {type(found).__name__}")
    return found


class _Readers:
    """Readers, the first of those whose patterns are alike."""

    def __init__(self, given: Sequence[Reader]) -> None:
        every = [*given, *(_load(name) for name in plugins.names("readers"))]
        pairs = [(pattern.lower(), reader) for reader in every for pattern in reader.patterns]
        self._given = len([pattern for reader in given for pattern in reader.patterns])
        self._pairs = pairs[: self._given] + sorted(pairs[self._given :], key=lambda it: -len(it[0]))
        self.patterns = sorted({pattern for pattern, _ in pairs})

    def of(self, path: Path) -> Reader | None:
        """The reader of a file; None where there is none."""
        name = path.name.lower()
        return next((reader for pattern, reader in self._pairs if fnmatchcase(name, pattern)), None)


def _named(sources: Iterable[Path], readers: _Readers, skipped: list[Path]) -> list[tuple[str, Path]]:
    """The files to read, each with its uri."""
    found = [(source, _files(source, readers, skipped)) for source in sources]
    times = Counter(uri for _, files in found for uri in files)
    named: dict[str, Path] = {}
    for source, files in found:
        folder = (source if source.is_dir() else source.parent).resolve().name
        prefix = f"{folder}/" if any(times[uri] > 1 for uri in files) else ""
        for uri, path in files.items():
            if other := named.get(prefix + uri):
                raise InputError(f"{path}: its uri would be that of {other}: {prefix + uri}")
            named[prefix + uri] = path
    return list(named.items())


def _files(source: Path, readers: _Readers, skipped: list[Path]) -> dict[str, Path]:
    """The files of one source by their uris, without a folder's name before them."""
    if source.is_file():
        if readers.of(source) is None:
            raise InputError(f"{source}: no reader is for such a file: pyfast reads {', '.join(readers.patterns)}")
        return {source.name: source}
    if not source.is_dir():
        raise InputError(f"{source}: there is no such file or folder")
    paths = [Path(folder, name) for folder, _, names in os.walk(source, onerror=_refuse) for name in names]
    files = {path.relative_to(source).as_posix(): path for path in paths if path.is_file()}
    skipped += sorted(path for path in files.values() if readers.of(path) is None)
    return {uri: path for uri, path in sorted(files.items()) if readers.of(path) is not None}


def _refuse(error: OSError) -> None:
    raise error


def _read_text(uri: str, path: Path) -> Iterator[Document]:
    yield TextDocument(uri, path.stem, _text(path))


def _read_markdown(uri: str, path: Path) -> Iterator[Document]:
    text = _text(path)
    found = (heading.text for heading in headings(text) if heading.depth == 1 and heading.text)
    yield TextDocument(uri, next(found, path.stem), text, markdown=True)


def _read_table(uri: str, path: Path) -> Iterator[Document]:
    dialect = csv.excel_tab if path.suffix.lower() == ".tsv" else csv.excel
    header, *data = [row for _, row in _rows(path, dialect)] or [()]
    yield Table(uri, _title(path), "", header, tuple(data))


def _read_triples(uri: str, path: Path) -> Iterator[Document]:
    yield KnowledgeGraph(uri, _title(path), tuple(_triples(path)))


def _read_json_lines(uri: str, path: Path) -> Iterator[Document]:
    return read_jsonl_documents(uri, path, _title(path))


def _title(path: Path) -> str:
    return path.stem.replace("-", " ").replace("_", " ")


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        offset = error.start + (len(_BOM) if data.startswith(_BOM) else 0)
        line = data.count(b"\n", 0, offset) + 1
        raise InputError(f"{path}, line {line}: not UTF-8: byte 0x{data[offset]:02x} at offset {offset}") from None


class _PlainTabs(csv.excel_tab):
    """Tabs and nothing else: quotes are part of the names in a knowledge graph."""

    quoting = csv.QUOTE_NONE


def _rows(path: Path, dialect: type[csv.Dialect]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line number and fields of every line of a file that is not empty."""
    csv.field_size_limit(sys.maxsize)
    lines = csv.reader(io.StringIO(_text(path), newline=""), dialect, strict=True)
    while True:
        try:
            row = next(lines, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {lines.line_num}: {error}") from error
        if row is None:
            return
        if row:
            yield lines.line_num, tuple(row)


def _triples(path: Path) -> Iterator[Triple]:
    columns = 0
    for line, row in _rows(path, _PlainTabs):
        columns = columns or len(row)
        if len(row) not in (3, 4):
            raise InputError(f"{path}, line {line}: a triple has 3 columns, or 4 with its time, not {len(row)}")
        if len(row) != columns:
            raise InputError(f"{path}, line {line}: {len(row)} columns where the lines before have {columns}")
        yield Triple(row[0], row[1], row[2], (row[3] or None) if len(row) == 4 else None)


TEXT = Reader(("*.txt",), _read_text)
MARKDOWN = Reader(("*.md", "*.markdown"), _read_markdown)
TABLE = Reader(("*.csv", "*.tsv"), _read_table)
TRIPLES = Reader(("triples*.tsv", "*.triples.tsv"), _read_triples)
JSON_LINES = Reader(("*.jsonl",), _read_json_lines)
