"""Tables as people make them: with cells that span rows and columns, captions, and several header rows.

Wide tables are cut, and long texts are taken out of cells, because a model cannot read a row of that size. `Text`
puts together the text of a file and its tables. `Packed` keeps many rows in little memory.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise, takewhile, zip_longest
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, overload

import orjson

from pyfast.corpus.documents import Document, Heading, Outline, Table, TextDocument, section_at
from pyfast.corpus.text_splitting import LENGTH, fitting_length
from pyfast.errors import InputError

COLUMNS = 64
"""The maximum number of columns in a table"""
_MOST_LEVELS = 4
MOST_ABOVE = 20
"""How many rows of a table are looked at to find its caption and its header"""
MOST_CUT = 20_000
"""The maximum number of rows of a sheet or a file in which pyfast looks for the beginnings of further tables"""
# What stands for a number that is missing, or nothing
_MISSING = re.compile(r"|n\.?/?[ad]\.?|nan|none|null|nil|unknown|tb[acd]|[-\u2013\u2014.\u2026?*]+", re.IGNORECASE)
_NO_NAME = re.compile(r"n\.?/?a\.?|nan|none|null|nil|unknown|tb[acd]|total|\W+", re.IGNORECASE)
# Signs that can name a column beside others. A dash or dots, however, stand for a missing value.
_SIGN = re.compile(r"[#№%‰°<>$£€¥]+")
_MOST_COVERED = 2_000_000
_LONGEST_CAPTION = 300
_SHOWN = 300
"""How many characters of a long cell stay in its row, and how many of other cells are in the title of its text"""
_LONGEST_NAME = 120
"""How many characters the name of a group of rows has at most"""
_NO_TITLE = re.compile(
    r"\W*(?:untitled|anonymous|unnamed|unspecified|PowerPoint Presentation)?(?: document)?\W*", re.I
)
_SENTENCE = re.compile(r"(?:\S+\s+){4,}\S*[.!?。]\W*")
_REMARK_NAME = re.compile(
    r"(?:notes?|n\.?b\.?|remarks?|sources?|hinweis|anmerkung|bemerkung|quelle|remarque|nota|fuente)\s*:\s*\S", re.I
)
_MANY_WORDS = re.compile(r"(?:\S+\s+){5,}\S+")
_TOTAL = re.compile(r"\W*(?:grand |overall |sub-?)?(?:totale?|sum|suma|summe|somme|gesamt|insgesamt)\b", re.I)
# The names above the two columns of a list of pairs, such as `Parameter, Value`
_HEAD_OF_PAIRS = re.compile(
    r"\W*(?:keys?|fields?|parameters?|propert(?:y|ies)|attributes?|settings?|options?|variables?|metrics?|figures?|"
    r"key figures?|indicators?|features?|specifications?|criteri(?:on|a)|questions?|feld(?:er)?|merkmale?|"
    r"eigenschaft(?:en)?|kennzahl(?:en)?|einstellung(?:en)?)\b.*"
    r"|.*\b(?:values?|defaults?|descriptions?|details?|contents?|answers?|amounts?|prices?|results?|notes?|"
    r"comments?|wert|werte|standard|beschreibung|angaben?|inhalt|betrag|valeurs?|valor(?:es)?|valore)\W*",
    re.I,
)
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_COUNTED = re.compile(r"(?:\d{1,2}|[A-Z]|[IVX]+)[.)]? ")
_TABLE = re.compile(r"(?:tab|table|tabelle|tableau|tabla|tabella)\b", re.I)
_DATE = re.compile(rf"{_YEAR.pattern}(?:[-/ ]\w{{1,4}}){{1,2}}|\d\d?([./-])\d\d?\1(?:\d\d){{1,2}}")
_NAME_OF_DATE = re.compile(r"(?:\w+ )?(?:date|datum|fecha)(?: \w+){0,2}", re.I)
_DAY = re.compile(rf"{_DATE.pattern}|\d\d?\.? \w{{3,}},? {_YEAR.pattern}|\w{{3,}} \d\d?, {_YEAR.pattern}")
_MAIL = re.compile(r"\S+@\S+\.\S+|(?:https?://|www\.)\S+")
_LONGEST_KEY = 60
"""How many characters the key of a pair has at most"""
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
    """How many of the first rows are header rows, including those of a caption. None: the grid does not say"""


class TableParts(NamedTuple):
    """What a table consists of."""

    caption: str
    """The text of the rows above the header, empty if there are none"""
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: Sequence[int] = ()
    """The number of each row in the grid, counted from 1"""
    filling: tuple[int, ...] = ()
    """The places in `rows` of the rows that a single cell fills"""
    above: str = ""
    """The text of the row above the header that a single cell fills (of the last one, if there are several)"""
    foot: int = 0
    """The number of the first row of the foot, which is in no group. 0: there is no foot"""
    beside: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """The remarks beside the header: the number of their row, and this row with nothing else in it"""
    has_sections: bool = False
    """Whether `above` is the name of a group like those in `filling`, if there is no header"""

    def document(self, uri: str, title: str, section: str, page: int = 0) -> Table:
        """Return the table as a document."""
        return Table(uri, title, section, self.header, self.rows, (), page, runs_of(self.numbers))


Cells = Iterable[Iterable[tuple[str, int, int]]]
"""For each row of a table, the cells that begin in it: (text, rows, columns)"""


def grid_of(cells: Cells, most: int) -> tuple[list[list[str]], tuple[Span, ...]]:
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
                raise InputError(f"merged cells cover more than {_MOST_COVERED:,} positions in the grid")
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


def parts_of_grid(
    cells: Iterable[Sequence[str]],
    spans: tuple[Span, ...] = (),
    header_rows: int | None = None,
    apart: Container[int] = (),
) -> TableParts:
    """Find the parts of a table as `table_parts` does, from the rows of a grid. Only the first rows are kept as
    lists.

    Args:
        cells: The rows, with their spans filled in.
        spans: See `Grid`.
        header_rows: See `Grid`.
        apart: The columns that have an empty column of their file before them.

    Returns:
        The parts. If there is nothing below the first row, it is not taken as a header, because it would then be
        in no passage.
    """
    rows = iter(cells)
    above = list(islice(rows, max(MOST_ABOVE, (header_rows or 0) + 1)))
    width = max(map(len, above), default=0)
    # A cell that fills a row is a title, or the name of a group of rows, but not a value of every column.
    full = {span.row for span in spans if span.rows == 1 and 1 < span.columns == width}
    above = [row[:1] if number in full else row for number, row in enumerate(above)]
    rows = (row[:1] if number in full else row for number, row in enumerate(rows, len(above)))
    above = [[*row, *[""] * (width - len(row))] for row in above]
    caption, header, below, first, *_ = table_parts(Grid(above, spans, header_rows))
    header = without_gaps(header)
    numbers, filling = array("q"), list[int]()

    def filled() -> Iterator[tuple[str, ...]]:
        for number, row in chain(zip(first, below, strict=True), enumerate(rows, len(above) + 1)):
            if any(row):
                if number - 1 in full:
                    filling.append(len(numbers))
                numbers.append(number)
                yield without_gaps(row)

    packed = pack(filled())
    header, beside = remarks_beside(above, header, packed, apart)
    if not packed and any(header):
        header, packed = (), (header,)
    titles = (above[at][0] for at in sorted(full, reverse=True) if at + 1 < (first or [0])[0])
    above_header = next(titles, "")
    return TableParts(caption, header, packed, numbers, tuple(filling), above_header, beside=beside)


def is_remark(text: str) -> bool:
    """Whether a text says that it is a remark, such as `Source: ECB`. Below a table, such a text is not the title
    of another."""
    return bool(_REMARK_NAME.match(text))


def remarks_beside(
    above: Sequence[Sequence[str]],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    apart: Container[int] = (),
) -> tuple[tuple[str, ...], tuple[tuple[int, tuple[str, ...]], ...]]:
    """Take remarks out of a header: `Note: without Norway` beside the names of the columns is above no value.
    Either an empty column separates a remark from the names, or the remark stands at the end and says that it is a
    note, has many words, or is a value such as `1000 EUR` with its key before it. Texts after a remark belong to
    it if there are no values below them.

    Args:
        above: The first rows of the grid, with those of the header.
        header: The names of the columns.
        rows: The rows below the header.
        apart: See `parts_of_grid`.

    Returns:
        The header without the remarks, and `TableParts.beside`.
    """
    last = len(header) - 1
    starts = {
        column
        for column, (before, name) in enumerate(pairwise(["", *header]))
        if name and (column in apart or (not column and 1 in apart) or (column and not before))
    }
    if last > 0 and (is_remark(header[last]) or _MANY_WORDS.fullmatch(header[last])):
        starts.add(last)
    is_pair = last > 1 and is_number(header[last]) and not (time_of(header[last]) or is_number(header[last - 1]))
    if not rows or not (starts or is_pair):
        return tuple(header), ()
    bare = {column for column, name in enumerate(header) if name}
    for row in rows:
        bare -= {column for column in bare if column < len(row) and row[column]}
        if not bare:
            break
    starts |= {last - 1} if is_pair and last in bare else set()
    runs = list[list[int]]()  # the columns of each remark
    for column in sorted(bare):
        if column in starts:
            runs.append([column])
        elif runs and runs[-1][-1] == column - 1:
            runs[-1].append(column)
    found = set(chain.from_iterable(runs))
    beside = dict[tuple[int, tuple[str, ...]], tuple[str, ...]]()
    for first, *others in reversed(runs):
        for number, row in enumerate(above, start=1):
            # A text that spans columns stands in each of them.
            if texts := tuple(dict.fromkeys(filter(None, row[first : first + len(others) + 1]))):
                beside[number, texts] = ("",) * first + texts
    rest = without_gaps(["" if column in found else name for column, name in enumerate(header)])
    return rest, tuple((number, row) for (number, _), row in sorted(beside.items()))


def by_group(parts: TableParts) -> Iterator[TableParts]:
    """Cut a table at the rows that name the group of the rows below them, such as `Hall A`. The caption of each
    part then has the name.

    A cell that fills a row can also be a note on the table or on the row above it. So a table is cut only if its
    first row names a group, or if its header stands again below each name. A row that is a sentence, or stands
    directly above another name or at the end, names no group. Such rows come first, as a table without a group. So
    do the rows of the foot, a total over all groups, and the notes below it or below an empty row at the end. The
    last name counts alone: the name before it can be that of an empty group.
    """
    parts = parts._replace(filling=parts.filling or _single_cells(parts))
    rows, header = parts.rows, parts.header
    filling = set(parts.filling)
    again = parts.above and 0 not in filling and all(rows[at + 1 : at + 2] == (header,) for at in filling)
    # The sections of a form are numbered: `1. General` above the first pair is no title of all of them.
    numbered = parts.has_sections or all(
        _COUNTED.match(it) for it in [parts.above, *(rows[at][0] for at in filling)]
    )
    numbered = numbered and not header
    again = again or (parts.above and 0 not in filling and numbered)
    is_cut = filling and (0 in filling or again)
    names, end = _names_of_groups(parts) if is_cut else ({}, 0)
    if parts.beside:
        beside_at, beside = zip(*parts.beside, strict=True)
        rows, numbers = pack(chain(rows, beside)), array("q", [*parts.numbers, *beside_at])
        parts = parts._replace(rows=rows, numbers=numbers, beside=())
    if not is_cut:
        yield parts
        return
    caption = parts.caption.removesuffix(parts.above).rstrip() if again else parts.caption
    found = [(parts.caption, Packed[tuple[str, ...]](), array("q"))]
    into = found[0]
    for at, (row, number) in enumerate(zip(rows, parts.numbers, strict=True)):
        if at in names:
            found.append((" > ".join(filter(None, [caption, names[at]])), Packed(), array("q")))
            into = found[-1]
            continue
        _, some, numbers = found[0] if at >= end or at in filling else into
        some.append(row)
        numbers.append(number)
    yield from (TableParts(name, header, pack(some), at) for name, some, at in found if some)


def _single_cells(parts: TableParts) -> tuple[int, ...]:
    """Find the rows that have a text in their first cell only, if they surely name groups although this cell does
    not fill its row: the first row is one, all others are full, and different groups have rows of the same name,
    such as `Material`. Where a row follows on the totals of a group, or only the last of equal groups has more
    rows, it is not known where groups end.

    Returns:
        The places of these rows in `rows`, notes at the end included. Nothing if it is not certain.
    """
    rows, single, groups, in_totals = parts.rows, list[int](), list[list[str]](), False
    if not parts.header:
        gaps = [False, *(number > above + 1 for above, number in pairwise(parts.numbers))]
        spread = [it for row, gap in zip(rows, gaps, strict=False) for it in ([(), row] if gap else [row])]
        return tuple(at for at, row in enumerate(rows) if len(row) == 1) if _has_titles(spread) else ()
    if len(parts.header) < 3 or parts.foot or not rows or any(rows[0][1:]):
        return ()
    for at, row in enumerate(rows):
        if row[0] and not any(row[1:]):
            single.append(at)
            groups.append([])
            in_totals = False
        elif _filled(row) < 2 or (in_totals and not _TOTAL.match(row[0])):
            return ()
        elif not (in_totals := bool(_TOTAL.match(row[0]))):
            groups[-1].append(row[0])
    last = max((at for at, row in enumerate(rows) if any(row[1:])), default=-1)
    names = [at for at in single if at < last]
    if len(names) < 2 or not all(groups[: len(names)]):
        return ()
    first, *others = groups = groups[: len(names)]
    is_longer = others[:-1] == [first] * (len(others) - 1) and others[-1][:-1][: len(first)] == first
    repeats = max(Counter(chain.from_iterable(map(set, groups))).values()) > 1
    fit = all(_is_group(rows[at][0]) and not _TOTAL.match(rows[at][0]) for at in names)
    return tuple(single) if repeats and fit and not is_longer else ()


def _names_of_groups(parts: TableParts) -> tuple[dict[int, str], int]:
    """Find the rows of a table that name groups, and the end of its last group.

    Returns:
        The name at each place in `rows`, and the place of the first row that is below all groups.
    """
    filling = set(parts.filling)
    texts, totals, alone = dict[int, str](), set[int](), set[int]()
    end = last = 0
    for at, row in enumerate(parts.rows):
        if 0 < parts.foot <= parts.numbers[at]:
            break
        end = at + 1
        if at in filling:
            texts[at] = " ".join(row[0].split())
            continue
        last = at
        text = next(filter(None, row))
        if _TOTAL.match(text):
            totals.add(at)
        elif not is_number(text) and set(row) <= {text, ""}:
            alone.add(at)
    names = {at: it for at, it in texts.items() if at < last and at + 1 not in filling and _is_group(it)}

    def totals_above(place: int) -> int:
        return sum(1 for _ in takewhile(totals.__contains__, range(place - 1, -1, -1)))

    # Below the last row with values there are only notes, unless another group follows.
    notes = next((at for at in range(end, 0, -1) if at - 1 not in alone and at - 1 not in texts), 0)
    groups = [at for at in names if at < notes]
    is_last = len(groups) == len(names)
    count = totals_above(notes)
    # Each group can have its own totals; a group that consists only of totals has at least one.
    own = max((totals_above(at) for at in texts if at < notes), default=0)
    own = max(own, int(notes - count - 1 in names))
    if count > own and (is_last or len(groups) > 1):
        end = notes - count + own
    elif is_last:
        after_gap = (at for at in range(notes, end) if parts.numbers[at] > parts.numbers[at - 1] + 1)
        end = notes if count else next(after_gap, end)
    return {at: it for at, it in names.items() if at < end}, end


def _is_group(text: str) -> bool:
    """Whether the text of a cell that fills a row can be the name of a group of rows."""
    return len(text) <= _LONGEST_NAME and not (_SENTENCE.fullmatch(text) or _NO_NAME.fullmatch(text))


def runs_of(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return pairs (place, number) of the numbers that do not follow the number before them: `Table.numbers`."""
    runs, due = [], -1
    for place, number in enumerate(numbers):
        if number != due:
            runs.append((place, number))
        due = number + 1
    return tuple(runs)


def width_of(row: Sequence[str]) -> int:
    """The number of cells up to the last that is not empty."""
    return next((end for end in range(len(row), 0, -1) if row[end - 1]), 0)


def without_gaps(row: Sequence[str]) -> tuple[str, ...]:
    """The cells of a row up to the last that is not empty."""
    return tuple(row[: width_of(row)])


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
        >>> table_parts(Grid([["Our suppliers", ""], ["", ""], ["Name", "City"], ["Holm", "Odda"]]))[:3]
        ('Our suppliers', ('Name', 'City'), [('Holm', 'Odda')])
    """
    cells = grid.cells
    captions, first = _captions(grid)
    above = cells[first : first + MOST_ABOVE]
    if grid.header_rows is None and (_is_form(above) or _has_values(above) or _has_titles(above)):
        grid = replace(grid, header_rows=first)
    index = 0 if grid.header_rows == first else _names_of_index(grid, first)
    if grid.header_rows is not None:
        end = max(first, min(grid.header_rows, len(cells)))
    else:
        end = index + 1 if index else _end(grid, first)
    heads = _heads(grid, first, end)
    if index and index + 1 == end:  # What stands above them in the corner names the levels of the other columns.
        heads = [["" if name else it for it, name in zip(row, heads[-1], strict=False)] for row in heads[:-1]]
        heads.append(list(cells[index]))
    header = tuple(map(_name, zip_longest(*heads, fillvalue="")))
    numbers = [number for number in range(end + 1, len(cells) + 1) if any(cells[number - 1])]
    return TableParts(" ".join(captions), header, [tuple(cells[number - 1]) for number in numbers], numbers)


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
    below_head = takewhile(any, cells[head + 1 : head + 1 + MOST_ABOVE])
    # If the row index has no name, the corner above it is empty.
    named = (last is None and _continues(grid, head)) or (
        all(cells[head][len(cells[head]) - len(names) :])
        and (
            (last is not None and head < last)
            or _names_columns(cells[head], below_head)
            or (last is None and _is_form(cells[head : head + MOST_ABOVE]))
        )
    )
    captions: list[str] = []
    for row, below in pairwise(filled):
        if row == head or (last is not None and row >= last):
            return captions, row
        text = next(filter(None, cells[row]))
        spanned = any(span.row == row and span.columns > 1 for span in grid.spans)
        # Without an empty row or a span between them, "Name,," above "Bob,12,3" is a header without some names.
        if not (spanned or below > row + 1 or (named and (cells[head][0] or cells[row][0]))):
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


def _names_of_index(grid: Grid, first: int) -> int:
    """The number of the last header row of a pivot table, if it names the first columns only: pandas writes the
    names of an index so, below the rows that name the other columns level by level. 0 if there is none."""
    cells = grid.cells
    for at in range(first + 2, min(first + _MOST_LEVELS + 1, len(cells) - 1)):
        count = _filled(cells[at])
        levels = [row[count:] for row in cells[first:at]]
        corners = [row[:count] for row in cells[first:at]]
        only = [_filled(row) == count and all(row[:count]) for row in cells[at : first + MOST_ABOVE]]
        if (
            only[0]
            and sum(only) == 1
            and count < len(cells[first])
            and not any(map(is_number, cells[at][:count]))
            and all(all(row) and len(row) == len(levels[0]) for row in levels)
            and len(set(zip(*levels, strict=True))) == len(levels[0])
            and any(one == other for row in levels for one, other in pairwise(row))
            and not any(is_number(name) and not _YEAR.fullmatch(name) for row in levels for name in row)
            and all(_filled(row) <= 1 for row in corners)
            # A name in the corner that spans rows, or has a gap below it, is the name of the first column. What
            # stands below it, or fills its row, is the name of a group.
            and sorted(map(_filled, corners)) == list(map(_filled, corners))
            and not any(
                span.column < count and (span.row == at or first <= span.row < first + span.rows - 1 < at)
                for span in grid.spans
            )
            and any(cells[at + 1][count:])
        ):
            return at
    return 0


def _filled(row: Sequence[str]) -> int:
    return sum(map(bool, row))


def _continues(grid: Grid, row: int) -> bool:
    """Whether the row below a header row belongs to the header: it names columns below a common head."""
    # A row that one cell fills can be the name of a group, and says nothing about the columns.
    full = {span.row for span in grid.spans if span.rows == 1 and span.columns == len(grid.cells[row])}
    values = next((it for at, it in enumerate(grid.cells[row + 2 :], row + 2) if at not in full), None)
    if values is None:
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
        names = list(filter(None, above))
        if any(is_number(it) and not time_of(it) for it in names):
            return False
        if not under and not below[0]:  # units, above numbers only
            rows = (zip(below, it, strict=False) for it in grid.cells[row + 2 :])
            return all(
                is_number(it) for name, it in chain.from_iterable(rows) if name and not _MISSING.fullmatch(it)
            )
        if under[:1] == [0]:  # Below an empty corner, a row that can only be a header may fill all columns.
            first = int(not below[0])
            others = [it[first:] for it in grid.cells[row + 2 :]]
            return (len(under) > 1 or len({*names}) < len(names)) and is_only_header(below[first:], others)
        return (
            bool(under)
            and all(pairs[column][1] for column in under)
            and any(name and not it for name, it in pairs)
            and all(column == 0 or pairs[column - 1][1] for column in under)
            and _filled(values) > len(under)
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


def has_numbers(rows: Iterable[Sequence[str]]) -> bool:
    """Whether one of the columns has only numbers, and marks such as `-` or `NaN` for missing ones."""
    columns = ([it for it in column if not _MISSING.fullmatch(it)] for column in zip_longest(*rows, fillvalue=""))
    return any(column and all(map(is_number, column)) for column in columns)


def is_only_header(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
    """Whether a row can only be a header: each column has a name, and one of them has only numbers below. Years
    and dates are names if there are several in order, and none below them. So are the numbers of the columns of a
    plate: `<>, 1, 2, 3`, or above the rows `A` and `B`. `Bob, 1, 2, 3` can be a row like those below it."""
    rows = [tuple(row) for row in rows]
    is_plate = _SIGN.fullmatch((*header, "")[0]) or [row[:1] for row in rows[:2]] == [("A",), ("B",)]
    if is_plate and len(header) > 3 and [*header[1:]] == [str(number) for number in range(1, len(header))]:
        return has_numbers(rows)
    if len(header) < 2 or _lacks_names(header):
        return False
    if figures := [column for column, name in enumerate(header) if is_number(name)]:
        times = [[int(it) for it in re.findall(r"\d+", header[column])] for column in figures]
        below = (row[column] for row in rows for column in figures if column < len(row))
        in_order = times in (sorted(times), sorted(times, reverse=True)) and times[0] != times[-1]
        if not in_order or not all(time_of(header[column]) for column in figures) or any(map(time_of, below)):
            return False
    return has_numbers(rows)


def _lacks_names(header: Sequence[str]) -> bool:
    """Whether not each cell of a row can be the name of a column. `Total` names a row in the first column, and a
    column in others. Signs such as `#` and `€` are names beside at least as many words."""
    signs = sum(map(bool, map(_SIGN.fullmatch, header)))
    no_names = [it for it in header if _NO_NAME.fullmatch(it) and not _SIGN.fullmatch(it)]
    totals = [it for it in header[1:] if it.lower() == "total"]
    return not all(header) or 2 * signs > len(header) or len(no_names) > len(totals)


def begins_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], before: Sequence[str]) -> bool:
    """Whether the row below a title is the header of another table, although there are no numbers below its names:
    a title can also name a group of rows of the table before it.

    Args:
        title: The title, which is below an empty row.
        header: The row below it.
        rows: The rows below that.
        before: The header of the table before it.
    """
    rows = [tuple(row) for row in rows]
    width = len(header)
    if width < 2 or _lacks_names(header) or any(map(is_number, header)):
        return False
    if not rows or any(_filled(row) < width for row in rows):
        return False
    columns = list(zip(*(row[:width] for row in rows), strict=True))
    with_digits = [all(re.search(r"\d", it) for it in column) for column in columns]
    is_above_codes = any(
        below and not re.search(r"\d", name) for name, below in zip(header, with_digits, strict=True)
    )
    shared = any(name.lower() == other.lower() for name, other in zip(header, before, strict=False))
    said = bool(_TABLE.match(title))
    return said or shared or (1 < len(before) < width) or (is_above_codes and len(rows) > 1)


def _names_columns(row: Sequence[str], below: Iterable[Sequence[str]]) -> bool:
    """Whether a row names the columns below it: its numbers, if it has any, are no values like those below. They
    are years or dates above amounts, have another unit, or count. In two columns, `Founded, 1999` above
    `Staff, 250` can be a name and its value."""
    figures = [(column, name) for column, name in enumerate(row) if is_number(name)]
    values = [(name, cells[at]) for cells in below for at, name in figures if at < len(cells) and cells[at]]
    like = [_form(name) == _form(value) for name, value in values if not _NO_NAME.fullmatch(value)]
    counts = [int(name) for _, name in figures if name.isdecimal()]
    steps = {other - one for one, other in pairwise(counts)}
    if len(counts) == len(figures) and len(steps) == 1 and steps != {0}:
        is_years = all(time_of(name) for _, name in figures)
        return not all(like) if is_years else len(counts) > 2 and len(counts) < len(row)
    return not figures or (_filled(row) > 2 and 2 * sum(like) < len(like))


def _is_form(rows: Iterable[Sequence[str]]) -> bool:
    """Whether the rows of a table are pairs of a key and its value, such as `Start, 2025-04-01`, without a header.

    Either the keys end with a colon, or the first pair is a date and no other key is one, or the values are as
    unlike as no column has them: there are words among numbers and dates. A row in which the key stands alone is
    the name of a group, or lacks its value. Pairs whose keys end with a colon can stand beside each other.
    """
    pairs = [tuple(row) for row in rows if any(row)]
    if max(map(width_of, pairs), default=0) > 2:
        return _has_keys_of_pairs(pairs)
    keys = [row[0].strip() for row in pairs if row]
    values = [row[1] for row in pairs if len(row) == 2 and row[1]]
    if max(map(len, pairs), default=0) != 2 or not all(keys) or len(set(keys)) < len(pairs) or not all(pairs[0]):
        return False
    if keys[0].endswith((":", "：")):
        return 2 * sum(key.endswith((":", "：")) for key in keys) > len(keys)
    # A column that is called `Date` has dates.
    if _NAME_OF_DATE.fullmatch(keys[0]) and _DAY.fullmatch(pairs[0][-1]) and len(keys) > 2:
        return not re.search(r"\d", "".join(keys))
    if len(values) < max(4, 0.75 * len(pairs)) or any(map(_TOTAL.match, keys)) or any(map(is_number, keys)):
        return False
    if (
        max(map(len, keys)) > _LONGEST_KEY
        or _HEAD_OF_PAIRS.fullmatch(keys[0])
        or _HEAD_OF_PAIRS.fullmatch(values[0])
    ):
        return False
    kinds = Counter(map(_kind, set(values[1:])))
    words, times, numbers = kinds["words"], kinds["date"] + kinds["year"], kinds["number"] + kinds["mail"]
    if len(kinds) > 2 and 2 * max(kinds.values()) <= len(kinds):  # more kinds than a column has
        return bool(words and times + numbers)
    # A column of numbers, or one of dates, can have some words: `on request`. One of words has no dates.
    are_unlike = (words > 2 and times + numbers > 1) or (words > 1 and words >= kinds["date"] > 0)
    is_form = (words > 1 and times and numbers) or (are_unlike and len(set(values)) == len(values))
    return bool(is_form) and 4 * min(words, times + numbers) >= len(values) - 1


def _has_keys_of_pairs(rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row has pairs beside each other, whose keys end with a colon: `Name:, Ann, Period:, May`."""
    is_key = [[text.rstrip().endswith((":", "：")) for text in row if text] for row in rows]
    starts_with_key = all(row[0] and given[0] for row, given in zip(rows, is_key, strict=True))
    return starts_with_key and not all(is_key[0]) and all(a or b for given in is_key for a, b in pairwise(given))


def _kind(text: str) -> str:
    """What the value of a pair is."""
    if _NO_NAME.fullmatch(text):
        return "none"
    if is_number(text) or _MAIL.fullmatch(text):
        return time_of(text) or ("mail" if _MAIL.fullmatch(text) else "number")
    return "mixed" if re.search(r"\d", text) else "words"


def _has_values(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of a table is no header, but a row like those below it: beside a name, it has numbers
    or dates, and so have all rows below, with the same units. Ascending numbers and years can name columns."""
    first, *below = [row for row in rows if any(row)] or [()]
    figures = {column: cell for column, cell in enumerate(first) if is_number(cell)}
    sizes = [int(found[0]) for it in figures.values() if (found := re.search(r"\d+", it))]
    if len(below) < 2 or "year" in map(time_of, first) or not 0 < len(figures) < _filled(first):
        return False
    if len(sizes) > 1 and sizes == sorted(sizes):
        return False
    like = [
        _form(row[at]) == _form(it) and is_number(row[at])
        for row in below
        for at, it in figures.items()
        if row[at : at + 1] and row[at]
    ]
    return all(like) and len(like) > 1


def _has_titles(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows are blocks of pairs, each with a title and an empty row above the next one."""
    width = [_filled(row) for row in rows]
    titles = [at for at, row in enumerate(rows) if width[at] == 1 and row[0]]
    apart = all(width[at - 1] == 0 < width[at - 2] for at in titles[1:])
    pairs = all(
        many == 2 == width_of(row)
        for at, (row, many) in enumerate(zip(rows, width, strict=True))
        if many and at not in titles
    )
    return titles[:1] == [0] and len(titles) > 1 and apart and pairs and titles[-1] + 1 < len(rows)


def _form(text: str) -> str:
    """What the values of a column have in common: that they are years or dates, or their unit."""
    return time_of(text) or re.sub(r"[\W\d_]+", "", text).lower()


def time_of(text: str) -> str:
    """`year` for a year, `date` for a part of one or a date, and nothing for other texts."""
    return "year" if _YEAR.fullmatch(text) else "date" if _DATE.fullmatch(text) else ""


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
    """Make a text of each cell of more than 4,000 characters, because texts are cut into passages, but rows are
    not.

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
                outline = Outline(about=table.about)
                texts.append(TextDocument(uri, ", ".join(filter(None, (title, name))), cell, outline=outline))
                links.append((number, column, uri))
                cells[column] = f"{cell[: fitting_length(cell, _SHOWN)]} …"
        changed[number] = tuple(cells)
    rows = pack(changed.get(number, row) for number, row in enumerate(table.rows))
    return replace(table, rows=rows, links=tuple(sorted(links))), texts


def alternative(said: str) -> str:
    """Return the text that stands for an image, on one line. The result is empty for file names, for words such as
    `logo`, and for texts that programs write by themselves, because these say nothing."""
    said = " ".join(said.split())
    return "" if _NO_ALTERNATIVE.fullmatch(said) else said


_NO_ALTERNATIVE = re.compile(
    r"\S*\.(?:png|jpe?g|gif|svg|webp|avif|bmp|tiff?|emf|wmf|ico)|(?:avatar|icon|image|img|logo|photo|picture|thumbnail)?"
    r"|.*(?:Description automatically generated|AI-generated content may be incorrect).*",
    re.IGNORECASE,
)

_MOST = 5000  # from this number on, letters and Roman numerals are not written out
_ROMAN = [
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
]  # fmt: skip


def written(number: int, form: str) -> str:
    """A number in one of Word's formats, or in the letters of web pages (`lowerAlpha`), where `ab` follows `aa`.
    Empty if the format is not known."""
    name = form.removeprefix("lower").removeprefix("upper")
    if form == "decimal" or ((number < 1 or number > _MOST) and name in ("Letter", "Alpha", "Roman")):
        return str(number)
    if form == "decimalZero":
        return f"{number:02d}"
    text = ""
    if name == "Letter":
        text = chr(ord("a") + (number - 1) % 26) * ((number + 25) // 26)
    while name == "Alpha" and number:
        number, last = divmod(number - 1, 26)
        text = chr(ord("a") + last) + text
    for value, sign in _ROMAN if name == "Roman" else ():
        text += sign * (number // value)
        number %= value
    return text.upper() if form.startswith("upper") else text


FoundTable = tuple[int, int, str, TableParts]
"""A table of a file: its page, where it stands, the caption beside it, and its parts"""


def title_of(path: Path, said: str | None = "") -> str:
    """Return the title that a file gives. If it gives none, or only what programs write in place of one, return
    the words of the file's name, without the suffix."""
    title = (said or "").strip()
    return path.stem.replace("-", " ").replace("_", " ") if _NO_TITLE.fullmatch(title) else title


def with_tables(text: TextDocument, tables: Iterable[FoundTable]) -> Iterator[Document]:
    """Yield the text, and then each of its tables, with a uri such as `uri#table-1`. The section of a table has
    the headings above it, and its caption. A text without a character is left out if there are tables: their
    rows have its title."""
    found = [(page, at, beside, part) for page, at, beside, parts in tables for part in by_group(parts)]
    if text.text or not found:
        yield text
    for number, (page, place, beside, parts) in enumerate(found, start=1):
        above = section_at(text.outline.headings or (), place, text.title)
        section = " > ".join(filter(None, [above, beside, parts.caption]))
        yield parts.document(f"{text.uri}#table-{number}", text.title, section, page)


class Text:
    """Collects the paragraphs, headings, pages and tables of a file."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self.headings: list[Heading] = []
        self._pages: list[int] = []
        self._tables: list[FoundTable] = []

    def add(self, paragraph: str) -> None:
        """Add a paragraph. An empty one is left out."""
        if paragraph := paragraph.replace("\v", "\n").strip():
            self._parts.append(paragraph + "\n\n")
            self._size += len(paragraph) + 2

    def heading(self, text: str, depth: int) -> None:
        """Add a heading."""
        start = self._size
        self.add(text)
        if self._size > start:
            self.headings.append(Heading(start, self._size, min(max(depth, 1), 6), " ".join(text.split())))

    def end_section(self, depth: int) -> None:
        """End the section of the last heading of this depth: what follows belongs to the section around it."""
        if self.headings:
            self._parts.append("\n")  # Tables that stand before it are in the section, tables behind it are not.
            self._size += 1
            self.headings.append(Heading(self._size - 1, self._size, depth, ""))

    def page(self) -> None:
        """Begin a page."""
        self._pages.append(self._size)

    def table(
        self,
        rows: Cells,
        most: int,
        heads: int | None = None,
        caption: str = "",
        foot: int = 0,
        has_sections: bool = False,
    ) -> None:
        """Add a table, which stands at the end of the text so far. An empty one is left out. `rows` and `most`
        are as in `grid_of`, which may raise `InputError`. `heads` is the number of header rows, if the file says
        it, `foot` that of the last rows that are below all groups. `has_sections` is as in `TableParts`."""
        cells, spans = grid_of(rows, most)
        if any(map(any, cells)):
            parts = parts_of_grid(cells, spans, heads)
            parts = parts._replace(foot=len(cells) - foot + 1 if foot else 0, has_sections=has_sections)
            self._tables.append((len(self._pages), self._size, caption, parts))

    def tables(self) -> list[TableParts]:
        """Return the parts of each table. The caption also has what stands beside the table."""
        named = ((" ".join(filter(None, [beside, parts.caption])), parts) for _, _, beside, parts in self._tables)
        return [parts._replace(caption=caption) for caption, parts in named]

    def documents(self, uri: str, title: str) -> Iterator[Document]:
        """Yield the text, and then each table."""
        outline = Outline(headings=tuple(self.headings), pages=tuple(self._pages))
        yield from with_tables(TextDocument(uri, title, "".join(self._parts), outline=outline), self._tables)


T = TypeVar("T")
_ROWS = 1024
"""How many rows are in a block"""


def pack(rows: Iterable[T]) -> Sequence[T]:
    """Return these rows as a sequence that takes little memory. If there are at most 1,024 rows, the sequence
    is a tuple.
    """
    packed = Packed(rows)
    return packed if len(packed) > _ROWS else tuple(packed)


class Packed(Sequence[T], Generic[T]):
    """A sequence of tuples or dicts of strings. It equals any sequence with the same items.

    A string of a few letters takes 50 bytes as a Python object, and a cell of a table has only a few letters. So
    the rows of a table from a file are stored as JSON, in blocks. Reading a row turns its block into Python
    objects.
    """

    __slots__ = ("_added", "_blocks")

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._blocks: list[bytes | list[T]] = []
        self._added: list[T] = []
        for row in rows:
            self.append(row)

    def append(self, row: T) -> None:
        """Add a row at the end."""
        self._added.append(row)
        if len(self._added) == _ROWS:
            try:
                # The bytes that orjson returns keep the memory of its buffer: up to three times their length.
                self._blocks.append(bytes(memoryview(orjson.dumps(self._added))))
            except TypeError:  # A lone surrogate is no JSON.
                self._blocks.append(self._added)
            self._added = []

    def json(self) -> Iterator[bytes]:
        """Yield each block as a JSON text without the outer brackets, such as
        `["Titan","Saturn"],["Io","Jupiter"]`. Raises `TypeError` for a lone surrogate.
        """
        for block in [*self._blocks, *([self._added] if self._added else [])]:
            yield (block if isinstance(block, bytes) else orjson.dumps(block))[1:-1]

    def __len__(self) -> int:
        return len(self._blocks) * _ROWS + len(self._added)

    def __iter__(self) -> Iterator[T]:
        return self._from(0)

    @overload
    def __getitem__(self, which: int) -> T: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[T]: ...
    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            first, stop, step = which.indices(len(self))
            if step != 1:
                return tuple(self)[which]
            return tuple(islice(self._from(first // _ROWS), first % _ROWS, first % _ROWS + max(stop - first, 0)))
        number = range(len(self))[which]
        return next(islice(self._from(number // _ROWS), number % _ROWS, None))

    def _from(self, block: int) -> Iterator[T]:
        """Yield all rows from the beginning of a block on."""
        for packed in islice(self._blocks, block, None):
            yield from _loaded(packed) if isinstance(packed, bytes) else packed
        yield from self._added

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _loaded(block: bytes) -> Any:
    """Return the rows of a block. Lists become tuples again, because JSON has no tuples."""
    return [tuple(row) if isinstance(row, list) else row for row in orjson.loads(block)]
