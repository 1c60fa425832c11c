"""Find the columns of a PDF page on which the texts are drawn line by line across all columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

_LEAST_LINES = 5
_MOST_TRIED = 6
"""How many places of a page are tried as the left edge of a column"""
_SAME = 3
_GAP = 0.9  # times the height of a line, from one column to the next
_NARROW = 10  # times the height of a line
_FULL = 0.75  # the share of a column that a full line takes
_MOST = 0.7  # the share of the lines of a column that are full
_FAR = 1.35  # times the distance of lines, from one part of the page to the next
_GOES_ON = 0.25  # the share of lines that begin with a small letter
_LEAST_WORDS = 3
_LEAST_COMMON = 2
_ENDS = tuple(".!?:;")


class Box(NamedTuple):
    """A piece of text. `at` is its place in the order in which the page is drawn."""

    left: float
    bottom: float
    right: float
    top: float
    at: int

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2


class Block(NamedTuple):
    """A part of a page with columns."""

    bottom: float
    top: float
    edges: tuple[float, ...]
    """The left edges of the second and each further column"""

    def column(self, x: float, y: float) -> int:
        """The number of the column at a place, from 0, or -1 outside of the block."""
        return bisect_right(self.edges, x + 1) if self.bottom <= y <= self.top else -1


def blocks_of(boxes: Sequence[Box]) -> list[Block]:
    """Find the parts of a page where a clear gutter separates columns of full lines, which are drawn line by line
    across these columns."""
    rows = [_joined(row) for row in _rows(boxes)]
    found: list[tuple[int, Block]] = []
    for edge in _starts(it for row in rows for it in row)[:_MOST_TRIED]:
        for run in _runs(rows, edge):
            starts = [it for it in _starts(run)[:_MOST_TRIED] if not any(_crosses(piece, it) for piece in run)]
            edges = sorted(starts)[1:]
            if edges and _are_columns(run, edges):
                block = Block(min(it.bottom for it in run), max(it.top for it in run), tuple(edges))
                found.append((len(run), block))
    kept: list[Block] = []
    for _, block in sorted(found, reverse=True):
        if all(block.top < it.bottom or block.bottom > it.top for it in kept):
            kept.append(block)
    return kept


class Line(NamedTuple):
    """A line of a column: the places of its first and last character, and its text."""

    left: float
    right: float
    y: float
    text: str

    def begins_sentence(self, before: Line, edge: float) -> bool:
        """Whether this line begins a paragraph or a cell, and the line before it ends one."""
        is_short = before.right - before.left < _FULL * (edge - before.left)
        return not self.text[:1].islower() and (is_short or before.text.endswith(_ENDS))

    def fits(self, before: Line, edge: float) -> bool:
        """Whether the first word of this line would have fitted into the line before it."""
        size = (before.right - before.left) / max(len(before.text) - 1, 1)
        return before.right + size * (2 + len(self.text.split()[0])) < edge


def is_prose(columns: Iterable[Sequence[Line]]) -> bool:
    """Whether the lines of columns are those of a running text, and not the cells of a table. In a text, many
    lines begin with a small letter, because their first word did not fit into the line before, and paragraphs do
    not begin side by side."""
    begun = list[list[float]]()
    for lines in columns:
        edge = max((it.right for it in lines), default=0)
        goes_on = [(before, it) for before, it in pairwise(lines) if it.text[:1].islower()]
        few_words = median(len(it.text.split()) for it in lines) < _LEAST_WORDS if lines else True
        if few_words or len(goes_on) < _GOES_ON * len(lines):
            return False
        if sum(it.fits(before, edge) for before, it in goes_on) > (1 - _MOST) * len(goes_on):
            return False
        begun.append([it.y for before, it in pairwise(lines) if it.begins_sentence(before, edge)])
    return not any(
        _LEAST_COMMON <= sum(any(abs(y - it) < 2 for it in right) for y in left) >= min(len(left), len(right)) / 2
        for left, right in pairwise(begun)
    )


def _rows(boxes: Iterable[Box]) -> Iterator[list[Box]]:
    """The boxes that stand side by side, from top to bottom, each row from left to right."""
    row: list[Box] = []
    for it in sorted(boxes, key=lambda it: -it.middle):
        if row and it.middle < row[0].bottom:
            yield sorted(row)
            row = []
        row.append(it)
    if row:
        yield sorted(row)


def _joined(row: Sequence[Box]) -> list[Box]:
    """The pieces of a row that a gap separates."""
    joined = [row[0]]
    for it in row[1:]:
        last = joined[-1]
        if it.left - last.right < _GAP * (it.top - it.bottom):
            bottom, top = min(it.bottom, last.bottom), max(it.top, last.top)
            joined[-1] = Box(last.left, bottom, max(it.right, last.right), top, min(it.at, last.at))
        else:
            joined.append(it)
    return joined


def _runs(rows: Sequence[Sequence[Box]], edge: float) -> Iterator[list[Box]]:
    """The pieces of the rows that follow each other closely, and in which no piece crosses an edge."""
    lefts = [it.middle for row in rows for it in row[:1] if it.right < edge]
    distance = median([before - it for before, it in pairwise(lefts)] or [0])
    run: list[Box] = []
    before = 0.0
    for row in rows:
        crosses = any(_crosses(it, edge) for it in row)
        # Below a gap, two columns begin another part of the page, and one column goes on.
        is_one = (row[0].left < edge - 1) == (row[-1].left < edge - 1)
        far = (2 if is_one else 1) * _FAR * distance
        if run and (crosses or before - row[0].middle > far):
            yield run
            run = []
        if not crosses:
            run.extend(row)
        before = row[0].middle
    if run:
        yield run


def _starts(pieces: Iterable[Box]) -> list[float]:
    """The places where several pieces begin, the most frequent first."""
    groups: list[list[float]] = [[]]
    for left in sorted(it.left for it in pieces):
        if groups[-1] and left > groups[-1][0] + _SAME:
            groups.append([])
        groups[-1].append(left)
    groups.sort(key=len, reverse=True)
    return [it[0] for it in groups if len(it) >= _LEAST_LINES]


def _crosses(piece: Box, edge: float) -> bool:
    return piece.left < edge - 1 < piece.right


def _are_columns(run: Sequence[Box], edges: Sequence[float]) -> bool:
    """Whether the pieces between these edges are columns that are drawn line by line across all of them."""
    columns = [[it for it in run if bisect_right(edges, it.left + 1) == k] for k in range(len(edges) + 1)]
    if not all(map(_is_column, columns)):
        return False
    drawn = [bisect_right(edges, it.left + 1) for it in sorted(run, key=lambda it: it.at)]
    turns = sum(1 for _ in groupby(drawn))
    return 2 * turns >= len(columns) * min(sum(1 for _ in _rows(column)) for column in columns)


def _is_column(side: Sequence[Box]) -> bool:
    """Whether most lines of a part of a page are full, and no lines are missing between them."""
    rows = _rows(side)
    lines = [(row[0].left, max(it.right for it in row), row[0].middle, row[0].top - row[0].bottom) for row in rows]
    if len(lines) < _LEAST_LINES:
        return False
    left, right = min(it[0] for it in lines), max(it[1] for it in lines)
    width, height = right - left, median(it[3] for it in lines)
    steps = [before[2] - it[2] for before, it in pairwise(lines)]
    full = sum(it[1] - it[0] >= _FULL * width for it in lines)
    is_even = max(steps) < 2 * _FAR * median(steps)
    return width > _NARROW * height and full >= _MOST * len(lines) and is_even
