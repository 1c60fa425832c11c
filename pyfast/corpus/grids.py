"""Tables as people make them: with cells that span rows and columns, captions, and several header rows.

Wide tables are cut, and long texts are taken out of cells, because a model cannot read a row of that size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise, zip_longest
from typing import NamedTuple

from pyfast.corpus.documents import Table, TextDocument
from pyfast.corpus.packed import pack
from pyfast.corpus.text_splitting import LENGTH
from pyfast.errors import InputError

COLUMNS = 64
"""The maximum number of columns in a table"""
MOST_ABOVE = 20
"""How many rows of a table are looked at to find its caption and its header"""
_MOST_COVERED = 2_000_000
_LONGEST_CAPTION = 300
_SHOWN = 300
"""How many characters of a long cell stay in its row, and how many of other cells are in the title of its text"""
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_NUMBER = re.compile(r"[\W\d]{0,30}\d[\W\d]{0,30}[%\w]{0,3}")


class Span(NamedTuple):
    """A cell that covers several rows or columns of a grid."""

    row: int
    column: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a table. A cell that spans several places stands in each of them."""

    cells: Sequence[Sequence[str]]
    spans: tuple[Span, ...] = ()
    """The cells that cover more than one place"""
    header_rows: int | None = None
    """How many of the first rows are header rows, those of a caption included. None: the grid does not say"""


class TableParts(NamedTuple):
    """What a table consists of."""

    caption: str
    """The text of the rows above the header, empty if there are none"""
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def grid_of(
    cells: Iterable[Iterable[tuple[str, int, int]]], most: int
) -> tuple[list[list[str]], tuple[Span, ...]]:
    """Lay out cells with spans, row by row, as browsers do. Columns in which no cell begins are left out.

    Args:
        cells: For each row, the cells that begin in it: (text, rows, columns). With 0 rows, a cell reaches down to
            the last row.
        most: The maximum number of columns that a cell spans.

    Returns:
        The rows, all of the same length, and the spans. A text stands in each place that its cell covers.

    Raises:
        InputError: The spans cover millions of places.

    Example:
        >>> grid_of([[("lake", 2, 1), ("depth", 1, 2)], [("mean", 1, 1), ("max", 1, 1)]], 1000)[0]
        [['lake', 'depth', 'depth'], ['lake', 'mean', 'max']]
    """
    given = [list(row) for row in cells]
    placed: list[dict[int, str]] = [{} for _ in given]
    found: list[Span] = []
    begun: set[int] = set()
    covered = 0
    for number, row in enumerate(given):
        column = 0
        for text, down, across in row:
            while column in placed[number]:
                column += 1
            down = min(down if down > 0 else len(given), len(given) - number)
            across = min(max(across, 1), most)
            # A cell ends before the first place in its row that a cell from above covers.
            across = next((k for k in range(1, across) if column + k in placed[number]), across)
            covered += down * across - 1
            if covered > _MOST_COVERED:
                raise InputError(f"its cells span more than {_MOST_COVERED:,} places")
            for below in placed[number : number + down]:
                for at in range(column, column + across):
                    below.setdefault(at, text)
            begun.add(column)
            if down > 1 or across > 1:
                found.append(Span(number, column, down, across))
            column += across
    kept = sorted(begun)
    place = {column: at for at, column in enumerate(kept)}
    spans = [
        span._replace(
            column=place[span.column],
            columns=sum(column in place for column in range(span.column, span.column + span.columns)),
        )
        for span in found
    ]
    laid = [[row.get(at, "") for at in kept] for row in placed]
    return laid, tuple(span for span in spans if span.rows > 1 or span.columns > 1)


def table_of_grid(
    uri: str,
    title: str,
    section: str,
    cells: Iterable[Sequence[str]],
    spans: tuple[Span, ...] = (),
    header_rows: int | None = None,
) -> Table:
    """Make a table from the rows of a grid, of which only the first are kept as lists.

    Args:
        uri: The table's uri.
        title: The table's title.
        section: The headings above the table. The table's caption comes after them.
        cells: The rows, with their spans filled in.
        spans: See `Grid`.
        header_rows: See `Grid`.

    Returns:
        The table. If there is nothing below its first row, this row is no header: it would be in no passage.
    """
    rows = iter(cells)
    above = list(islice(rows, max(MOST_ABOVE, (header_rows or 0) + 1)))
    width = max(map(len, above), default=0)
    # A cell that fills a row is a title, or the name of a group of rows, and is no value of each column.
    full = {span.row for span in spans if span.rows == 1 and 1 < span.columns == width}
    above = [row[:1] if number in full else row for number, row in enumerate(above)]
    rows = (row[:1] if number in full else row for number, row in enumerate(rows, len(above)))
    above = [[*row, *[""] * (width - len(row))] for row in above]
    caption, header, below = table_parts(Grid(above, spans, header_rows))
    header = _without_gaps(header)
    packed = pack(_without_gaps(row) for row in chain(below, rows) if any(row))
    if not packed and any(header):
        header, packed = (), (header,)
    return Table(uri, title, " > ".join(filter(None, [section, caption])), header, packed)


def _without_gaps(row: Sequence[str]) -> tuple[str, ...]:
    """The cells of a row up to the last that is not empty."""
    end = len(row)
    while end and not row[end - 1]:
        end -= 1
    return tuple(row[:end])


def table_parts(grid: Grid) -> TableParts:
    """Find the caption, the header and the rows of a table.

    Rows above the header that have a single text are the caption. A header has several rows if the grid says so,
    or if one of its cells spans rows or some of the columns. The name of a column is then what stands above its
    cells, from top to bottom, each text once: `Crew Officers`. Empty rows are left out.

    Args:
        grid: The table.

    Returns:
        The parts.

    Example:
        >>> table_parts(Grid([["Our suppliers", ""], ["", ""], ["Name", "City"], ["Holm", "Odda"]]))
        TableParts(caption='Our suppliers', header=('Name', 'City'), rows=[('Holm', 'Odda')])
    """
    cells = grid.cells
    captions, first = _captions(grid)
    end = _end(grid, first) if grid.header_rows is None else max(first, min(grid.header_rows, len(cells)))
    header = tuple(map(_name, zip_longest(*_heads(grid, first, end), fillvalue="")))
    return TableParts(" ".join(captions), header, [tuple(row) for row in cells[end:] if any(row)])


def _captions(grid: Grid) -> tuple[list[str], int]:
    """The texts of the rows that are the caption, and the number of the row below them, or of the first row that
    is not empty."""
    cells, last = grid.cells, grid.header_rows
    start = next((k for k, row in enumerate(cells) if any(row)), len(cells))
    filled = [k for k in range(start, min(start + MOST_ABOVE, len(cells))) if any(cells[k])]
    head = next((k for k in filled if not _alone(grid, k)), None)
    if head is None or not any(map(any, cells[head + 1 : head + 1 + MOST_ABOVE])):
        return [], start
    names = list(filter(None, cells[head]))
    if len(names) < 2:
        return [], start
    named = len(names) == len(cells[head]) and not any(map(is_number, names))
    captions: list[str] = []
    for row, below in pairwise(filled):
        if row == head or (last is not None and row >= last):
            return captions, row
        text = next(filter(None, cells[row]))
        spanned = any(span.row == row and span.columns > 1 for span in grid.spans)
        # Without an empty row or a span between them, "Name,," above "Bob,12,3" is a header without some names.
        if not (spanned or below > row + 1 or (named and " " in text)):
            return captions, row
        captions.append(text)
    return captions, head


def _alone(grid: Grid, row: int) -> bool:
    """Whether a row has a single text, such as that of a caption."""
    texts = [text for text in grid.cells[row] if text]
    if len(grid.cells[row]) < 2 or len(texts[0]) > _LONGEST_CAPTION:
        return False
    if any(span.row == row and span.column > 0 and span.columns > 1 for span in grid.spans) and _continues(
        grid, row
    ):
        return False  # a head of some columns
    return len(texts) == 1 or any(
        span.row == row and span.columns == len(texts) and len(set(texts)) == 1 for span in grid.spans
    )


def _end(grid: Grid, first: int) -> int:
    """The end of a header that begins with the row `first`, if the grid does not say it."""
    cells, end, row = grid.cells, first + 1, first
    while row < min(end, first + MOST_ABOVE):
        for span in grid.spans:
            if span.row == row:
                end = max(end, row + span.rows)
        if row + 1 == end and _continues(grid, row):
            end += 1
        row += 1
    return end if end < len(cells) else min(first + 1, len(cells))


def _continues(grid: Grid, row: int) -> bool:
    """Whether the row below a header row belongs to the header: it names columns below a common head."""
    if row + 2 >= len(grid.cells):
        return False
    above, below = list(grid.cells[row]), list(grid.cells[row + 1])
    grouped = {
        column
        for span in grid.spans
        if span.row == row and span.columns > 1 and span.rows == 1
        for column in range(span.column, span.column + span.columns)
    }
    # Years below a common head name its columns.
    figures = [it for it in below if it and is_number(it) and not (grouped and _YEAR.fullmatch(it))]
    if not any(below) or figures:
        return False
    pairs = list(zip_longest(above, below, fillvalue=""))
    outside = [pair for column, pair in enumerate(pairs) if column not in grouped]
    if not grouped:
        # Heads without spans: names stand where the row above has gaps, and gaps where it has names.
        under = [column for column, (name, _) in enumerate(pairs) if not name]
        return (
            bool(under)
            and all(pairs[column][1] for column in under)
            and any(name and not it for name, it in pairs)
            and all(column == 0 or pairs[column - 1][1] for column in under)
            and 0 not in under
            and not any(map(is_number, filter(None, above)))
            and sum(map(bool, grid.cells[row + 2])) > len(under)
        )
    return all(pairs[column][1] for column in grouped) and not any(name and it for name, it in outside)


def _heads(grid: Grid, first: int, end: int) -> list[list[str]]:
    """The header rows. A head without a span stands above the columns next to it that only have a name below."""
    heads = [list(row) for row in grid.cells[first:end]]
    for row, below in pairwise(heads):
        for column in range(1, min(len(row), len(below))):
            beside = row[column - 1] if below[column - 1] not in ("", row[column - 1]) else ""
            if not row[column] and below[column] and grid.header_rows is None:
                row[column] = beside
    return heads


def is_number(text: str) -> bool:
    """Whether a cell is a number, a date or an amount, and not a name."""
    return bool(_NUMBER.fullmatch(text))


def _name(column: Sequence[str]) -> str:
    """The name of a column: the texts of its header cells, each once."""
    return " ".join(dict.fromkeys(filter(None, column)))


def narrow(table: Table, columns: int) -> Iterator[Table]:
    """Cut a wide table into several tables, with uris such as `uri#columns-65-127`. A narrow table stays
    unchanged.

    Each new table begins with the first column of the old table, which identifies the rows. Its header has the
    names of its own columns. Links stay with their cells.
    """
    widest = max(len(table.header), max(map(len, table.rows), default=0))
    if widest <= columns:
        yield table
        return
    step = max(columns - 1, 1)
    for start in range(1, widest, step):
        stop = min(start + step, widest)
        links = [
            (row, column - start + 1 if column else 0, to)
            for row, column, to in table.links
            if start <= column < stop or (column == 0 and start == 1)
        ]
        header = table.header[:1] + table.header[start:stop]
        rows = pack(row[:1] + row[start:stop] for row in table.rows)
        uri = f"{table.uri}#columns-{start + 1}-{stop}"
        yield replace(table, uri=uri, header=header, rows=rows, links=tuple(links))


def without_long_cells(table: Table) -> tuple[Table, list[TextDocument]]:
    """Make a text of each cell of more than 4,000 characters. A text is cut into passages, and a row is not.

    The cell keeps the first characters of its text, and links to it. The title of the text has the table's title
    and the short cells of the row. Its uri is such as `uri#row-3-column-2`. Rows and columns count from 1.

    Returns:
        The table, and the texts.
    """
    long = [(number, row) for number, row in enumerate(table.rows) if max(map(len, row), default=0) > LENGTH]
    if not long:
        return table, []
    texts, links = [], list(table.links)
    changed: dict[int, tuple[str, ...]] = {}
    for number, row in long:
        known = "; ".join(cell.strip() for cell in row if cell.strip() and len(cell) <= _SHOWN)[:_SHOWN]
        title = ": ".join(filter(None, (table.title, known)))
        cells = list(row)
        for column, cell in enumerate(row):
            if len(cell) > LENGTH:
                uri = f"{table.uri}#row-{number + 1}-column-{column + 1}"
                name = table.header[column] if column < len(table.header) else ""
                texts.append(TextDocument(uri, ", ".join(filter(None, (title, name))), cell))
                links.append((number, column, uri))
                cells[column] = f"{cell[:_SHOWN].rsplit(None, 1)[0]} …"
        changed[number] = tuple(cells)
    rows = pack(changed.get(number, row) for number, row in enumerate(table.rows))
    return replace(table, rows=rows, links=tuple(sorted(links))), texts
