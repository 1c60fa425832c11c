"""Files into documents, by suffix:

- ``.txt``: a text; its title is the file's name;
- ``.md``, ``.markdown``: a text with sections; its title is the first heading of depth 1, or the file's name;
- ``.csv``, ``.tsv``: a table whose first line is the header; empty lines are left out. But a ``.tsv`` whose
  name begins with ``triples`` or ends with ``.triples.tsv``, and every ``.tsv`` if ``kind="kg"``, is a
  knowledge graph without a header: head, relation, tail and, in a fourth column, time (empty: unknown);
- ``.jsonl``: one record a line. With ``kind`` ("text", "table" or "kg"), or with ``text``, it is a document
  of its own, and ``id`` its uri; all others of a file are the rows of one table, all their keys its header.
"""

import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pyfast.corpus.documents import Document, KnowledgeGraph, Table, TextDocument, Triple
from pyfast.corpus.records import read_records
from pyfast.corpus.sections import headings
from pyfast.errors import InputError

SUFFIXES = (".txt", ".md", ".markdown", ".csv", ".tsv", ".jsonl")
"""The suffixes of the files that are read, in lower case; case does not matter in file names."""

_BOM = b"\xef\xbb\xbf"


def read(
    sources: Iterable[Path], kind: Literal["kg"] | None = None, skipped: list[Path] | None = None
) -> Iterator[Document]:
    """The documents in files and folders; folders are walked to the bottom, files in order of their paths.

    Uris are paths relative to the folder given, with ``/``, or the name of a file given by itself; where
    these would clash, the name of the folder is put before them. Files of other suffixes in a folder are
    left out and added to `skipped`. Raises InputError, one line with file and line, for what cannot be read.
    """
    try:
        for uri, path in _named(sources, [] if skipped is None else skipped):
            yield from _read_file(uri, path, kind)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _named(sources: Iterable[Path], skipped: list[Path]) -> list[tuple[str, Path]]:
    """The files to read, each with its uri."""
    found = [(source, _files(source, skipped)) for source in sources]
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


def _files(source: Path, skipped: list[Path]) -> dict[str, Path]:
    """The files of one source by their uris, without a folder's name before them."""
    if source.is_file():
        if source.suffix.lower() not in SUFFIXES:
            raise InputError(f"{source}: cannot be read by its suffix: pyfast reads {', '.join(SUFFIXES)}")
        return {source.name: source}
    if not source.is_dir():
        raise InputError(f"{source}: there is no such file or folder")
    paths = [Path(folder, name) for folder, _, names in os.walk(source, onerror=_refuse) for name in names]
    files = {path.relative_to(source).as_posix(): path for path in paths if path.is_file()}
    skipped += sorted(path for path in files.values() if path.suffix.lower() not in SUFFIXES)
    return {uri: path for uri, path in sorted(files.items()) if path.suffix.lower() in SUFFIXES}


def _refuse(error: OSError) -> None:
    raise error


def _read_file(uri: str, path: Path, kind: Literal["kg"] | None) -> Iterator[Document]:
    suffix, name = path.suffix.lower(), path.name.lower()
    if suffix == ".txt":
        yield TextDocument(uri, path.stem, _text(path))
    elif suffix in (".md", ".markdown"):
        text = _text(path)
        title = next(
            (heading.text for heading in headings(text) if heading.depth == 1 and heading.text), path.stem
        )
        yield TextDocument(uri, title, text, markdown=True)
    elif suffix == ".jsonl":
        yield from read_records(uri, path, _title(path))
    elif suffix == ".tsv" and (kind == "kg" or name.startswith("triples") or name.endswith(".triples.tsv")):
        yield KnowledgeGraph(uri, _title(path), tuple(_triples(path)))
    else:
        rows = [row for _, row in _rows(path, csv.excel_tab if suffix == ".tsv" else csv.excel)]
        header, *data = rows or [()]
        yield Table(uri, _title(path), "", header, tuple(data))


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
