"""Tables as people make them: cells that span places, captions above the header, and several header rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST_ABOVE = 20
"""How many rows of a table are looked at to find its caption and its header"""
_LONGEST_CAPTION = 300
_NUMBER = re.compile(r"[\W\d]*\d[\W\d]*[%\w]{0,3}")


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
    """How many of the first rows are header rows. None: the grid does not say"""


class TableParts(NamedTuple):
    """What a table consists of."""

    caption: str
    """The text of the rows above the header, empty if there are none"""
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def grid_of(
    cells: Iterable[Iterable[tuple[str, int, int]]], most: int
) -> tuple[list[list[str]], tuple[Span, ...]]:
    """Lay out cells with spans, row by row, as browsers do.

    Args:
        cells: For each row, the cells that begin in it: (text, rows, columns). With 0 rows, a cell reaches down to
            the last row.
        most: The maximum number of columns. What lies beyond is cut off.

    Returns:
        The rows, all of the same length, and the spans. A text stands in each place that its cell covers.
    """
    given = [list(row) for row in cells]
    placed: list[dict[int, str]] = [{} for _ in given]
    spans = []
    for number, row in enumerate(given):
        column = 0
        for text, down, across in row:
            while column in placed[number]:
                column += 1
            if column >= most:
                break
            down = min(down or len(given), len(given) - number)
            across = min(max(across, 1), most - column)
            # A cell ends before the first place in its row that a cell from above covers.
            across = next((k for k in range(1, across) if column + k in placed[number]), across)
            for below in placed[number : number + down]:
                for at in range(column, column + across):
                    below.setdefault(at, text)
            if down > 1 or across > 1:
                spans.append(Span(number, column, down, across))
            column += across
    width = max((at + 1 for row in placed for at in row), default=0)
    return [[row.get(at, "") for at in range(width)] for row in placed], tuple(spans)


def table_parts(grid: Grid) -> TableParts:
    """Find the caption, the header and the rows of a table.

    Rows above the header that have a single text are the caption. A header has several rows if the grid says so,
    or if one of its cells spans rows or some of the columns. The name of a column is then what stands above its
    cells, from top to bottom, each text once: `Crew Officers`. Empty rows are left out.
    """
    cells, first = grid.cells, 0
    captions: list[str] = []
    last = len(cells) if grid.header_rows is None else min(grid.header_rows, len(cells))
    while first < last and (not any(cells[first]) or _is_caption(grid, first)):
        if text := next(filter(None, cells[first]), ""):
            captions.append(text)
        first += 1
    if first == len(cells) or (captions and not any(map(any, cells[first:]))):
        first, captions = next((k for k, row in enumerate(cells) if any(row)), 0), []
    end = max(first + 1, grid.header_rows or 0)
    if grid.header_rows is None:
        # A head above several columns has its columns' names below it; a head of several rows ends where it ends.
        row = first
        while row < min(end, len(cells)):
            for span in grid.spans:
                if span.row == row:
                    end = max(end, span.row + span.rows, row + 2 if span.columns > 1 and span.rows == 1 else 0)
            row += 1
        end = end if end < len(cells) else first + 1
    header = tuple(map(_name, zip(*cells[first:end], strict=False))) if first < len(cells) else ()
    return TableParts(" ".join(captions), header, [tuple(row) for row in cells[end:] if any(row)])


def _is_caption(grid: Grid, row: int) -> bool:
    """Whether a row is a caption: a single text, above a row that can be a header."""
    texts = [text for text in grid.cells[row] if text]
    spanned = [span for span in grid.spans if span.row == row and span.columns > 1]
    alone = len(texts) == 1 or (len(set(texts)) == 1 and any(span.columns == len(texts) for span in spanned))
    if not alone or len(texts[0]) > _LONGEST_CAPTION or len(grid.cells[row]) < 2:
        return False
    following = next(((k, cells) for k, cells in enumerate(grid.cells[row + 1 :], row + 1) if any(cells)), None)
    if following is None:
        return False
    below, names = following[0], [text for text in following[1] if text]
    if len(names) < 2 and not _is_caption(grid, below):
        return False
    # Without an empty row or a span between them, "Name,," above "Bob,12,3" is a header without some names.
    return (
        bool(spanned)
        or below > row + 1
        or (" " in texts[0] and len(names) == len(following[1]) and not any(map(_NUMBER.fullmatch, names)))
    )


def _name(column: Sequence[str]) -> str:
    """The name of a column: the texts of its header cells, each once."""
    return " ".join(dict.fromkeys(filter(None, column)))
