"""Read CSV and TSV files. pyfast detects the delimiter and the quotes."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document, Table
from pyfast.corpus.formats.encodings import read_text
from pyfast.corpus.formats.names import title_of
from pyfast.corpus.packed import pack
from pyfast.errors import InputError

_DELIMITERS = [",", ";", "\t", "|"]
_SAMPLE = 1 << 13
_AT_ONCE = 1 << 20


def read_table(uri: str, path: Path) -> Iterator[Document]:
    """Read the table in a file. The first line of the file is the header."""
    yield table_of(uri, path, _rows(path, read_text(path)))


def _rows(path: Path, text: str) -> Iterator[tuple[str, ...]]:
    for _, row in rows(path, text, dialect_of(path, text)):
        yield row


def table_of(uri: str, path: Path, rows: Iterable[tuple[str, ...]]) -> Table:
    """Make a table from rows. The first row is the header of the table."""
    rows = iter(rows)
    return Table(uri, title_of(path), "", next(rows, ()), pack(rows))


class PlainTabs(csv.excel_tab):
    """The CSV dialect of knowledge graphs: tabs are delimiters, and a quote is an ordinary character of a name."""

    quoting = csv.QUOTE_NONE


def rows(path: Path, text: str, dialect: type[csv.Dialect]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line number and the fields of every line that is not empty."""
    csv.field_size_limit(sys.maxsize)
    lines = csv.reader(_lines(text), dialect, strict=True)
    while True:
        try:
            row = next(lines, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {lines.line_num}: {error}") from error
        if row is None:
            return
        if row:
            yield lines.line_num, tuple(row)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text. `io.StringIO` takes four bytes for each character, so it gets only a part of
    the text at a time.
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start + _AT_ONCE) + 1 or len(text)
        yield from io.StringIO(text[start:end], newline="")
        start = end


def dialect_of(path: Path, text: str) -> type[csv.Dialect]:
    """Find the dialect (delimiter and quotes) of a CSV or TSV file, from its name and its first lines.

    The suffix of the name suggests a delimiter: a tab or a comma. If the first lines contain no other
    delimiter, the function uses the suggested one. A delimiter fits if it divides each of the first lines
    into the same number of cells, at least two. If the suggested delimiter fits, the function compares all
    delimiters that fit, and uses the one that gives the most cells. If the suggested delimiter does not fit,
    clevercsv guesses the dialect.
    """
    named = csv.excel_tab if path.name.lower().endswith((".tsv", ".tab")) else csv.excel
    sample = text[:_SAMPLE]
    if len(sample) < len(text):
        sample = sample[: sample.rfind("\n") + 1] or sample
    widths = _widths(sample, named)
    others = [mark for mark in _DELIMITERS if mark != named.delimiter and mark in sample]
    if not others:
        return named
    if len(widths) == 1 and widths != {1}:
        # Decimal commas, one in each line, look like a delimiter. The real one divides the lines into more cells.
        given = [type("Given", (csv.excel,), {"delimiter": mark}) for mark in others]
        same = [(max(found), dialect) for dialect in given if len(found := _widths(sample, dialect)) == 1]
        most, dialect = max(same, key=lambda it: it[0], default=(0, named))
        return dialect if most > max(widths) else named
    return _sniffed(sample) or named


def _widths(sample: str, dialect: type[csv.Dialect]) -> set[int]:
    try:
        return {len(row) for row in csv.reader(io.StringIO(sample, newline=""), dialect) if row}
    except csv.Error:
        return set()


def _sniffed(sample: str) -> type[csv.Dialect] | None:
    """Return the dialect that clevercsv finds. None if it finds none."""
    from clevercsv.detect import Detector

    try:
        dialect: Any = Detector().detect(sample, delimiters=_DELIMITERS)
    except Exception:  # The dialect is only a guess from the first lines, so an error does not matter.
        return None
    if dialect is None or not dialect.delimiter:
        return None
    options = {
        "delimiter": dialect.delimiter,
        "quotechar": dialect.quotechar or None,
        "escapechar": dialect.escapechar or None,
        "quoting": csv.QUOTE_MINIMAL if dialect.quotechar else csv.QUOTE_NONE,
    }
    return type("Found", (csv.excel,), options)
