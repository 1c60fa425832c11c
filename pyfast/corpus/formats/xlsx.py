"""Read XLSX files, with numbers as a sheet shows them."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache, partial
from itertools import chain, count, islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyfast.corpus.grids as grids
from pyfast.corpus.documents import Document, Unread, noted
from pyfast.corpus.formats.drawings import (
    A,
    beside_values,
    charts,
    choose,
    diagram,
    not_read,
    objects,
    paragraphs,
    parsed,
)
from pyfast.corpus.formats.files import check_archive, check_cells
from pyfast.corpus.formats.symbol_fonts import NO_LETTER, shown_in
from pyfast.corpus.rendering import SHIFTS, struck, with_marks
from pyfast.utils.text_forms import counted, some

_ESCAPED, _KEPT = "x005F_", "x00x005F_5F_"  # removing the first from the second gives the first again
_ZEROS = re.compile(r"-?0\d")
_SHOWN_AS = {14: "m/d/yyyy", 22: "m/d/yyyy h:mm", 47: "mm:ss.0"}
"""Formats that spreadsheets display differently from their definition in the file"""


def read_sheets(path: Path, typed: bool = False) -> tuple[str, list[tuple[Any, Sheet]]]:
    """Read the sheets, with numbers as displayed. Returns the file's title, and (openpyxl's sheet, its rows) for
    each sheet. Formulas are read as their last computed values. With `typed`, the sheets also contain the
    `values`."""
    check_archive(path)
    import openpyxl
    from openpyxl.xml.functions import tostring

    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")  # openpyxl warns of what is lost when a file is written again.
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, rich_text=True)
        stack.callback(book.close)
        _keep_escapes(book)
        title = grids.title_of(path, book.properties.title)
        drawn = [(sheet, [parsed(tostring(it._write())) for it in sheet._charts]) for sheet in book.chartsheets]
        others = [
            (sheet, Sheet(texts=[*chain(*map(beside_values, some))], objects={"chart": 1}))
            for sheet, some in drawn
        ]
        return title, [(sheet, _sheet(book, sheet, path, typed)) for sheet in book.worksheets] + others


def _keep_escapes(book: Any) -> None:
    """Restore each `x005F_` in the texts of cells. openpyxl drops some of them, which makes an escaped
    `_x005F_x0020_` look like a space."""
    from openpyxl.reader.strings import read_rich_text

    for name in [name for name in book._archive.namelist() if name.lower().endswith("/sharedstrings.xml")]:
        data = book._archive.read(name)
        if _ESCAPED.encode() in data and book.worksheets:
            source = io.BytesIO(data.replace(_ESCAPED.encode(), _KEPT.encode()))
            book.worksheets[0]._shared_strings[:] = read_rich_text(source)  # All sheets have the same list.


def read_xlsx(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read each non-empty sheet as a table (see `read_sheets`)."""
    title, every = read_sheets(path)
    sheets = [one for one in every if one[1].rows]
    if empty := [sheet.title for sheet, found in every if not (found.rows or found.texts or found.objects)]:
        what = f"{counted(len(empty), 'sheet is', 'sheets are')} empty: {some(empty)}"
        yield Unread(path, what, missing=False)
    taken = {sheet.title for sheet, _ in sheets[1:] and sheets}
    for sheet, found in sheets:
        name = "" if len(sheets) == 1 else sheet.title
        endings = (ending for k in count(2) if (ending := f"{name}-table-{k}"[not name :]) not in taken)
        parts = [
            part for block in _side_by_side(found) for cut in _tables(block, path) for part in _parts(cut, path)
        ]
        for ending, part in zip(chain([name], endings), parts, strict=False):
            taken.add(ending)  # Another sheet can be called `Data-table-2`.
            section = " > ".join(filter(None, [name, part.caption]))
            yield part.document(f"{uri}#{ending}" if ending else uri, title, section)
    boxes = grids.Text()
    for sheet, found in every:
        if found.texts:
            boxes.heading(sheet.title if len(every) > 1 else "", 1)
            boxes.add("\n\n".join(found.texts))
    if any(found.texts for _, found in every):
        yield from boxes.documents(f"{uri}#text-boxes" if sheets else uri, title)
    for sheet, found in every:
        for what in not_read(found.objects):
            # The values of a chart are cells, which are read.
            yield Unread(path, f"sheet {sheet.title}: {what}", missing="chart" not in what)
        if lacking := found.lacking:
            which = some([*lacking.values()])
            many = counted(len(lacking), "cell is a formula", "cells are formulas")
            what = f"{many} without a stored value: {which}; save the file in a spreadsheet program"
            yield Unread(path, f"sheet {sheet.title}: {what}")
        yield from noted(path, f"symbols from fonts were read as {NO_LETTER}:", found.signs)
        if found.unseen:
            what = f"hidden {' and '.join(found.unseen)} were read"
            yield Unread(path, f"sheet {sheet.title}: {what}", missing=False)
        if sheet.sheet_state != "visible" and (found.rows or found.texts):
            yield Unread(path, f"sheet {sheet.title} was read, although it is hidden", missing=False)


class Sheet(NamedTuple):
    """The non-empty rows of a sheet."""

    rows: grids.Packed[tuple[str, ...]] = grids.Packed()
    numbers: array[int] = array("q")
    """The number of each row"""
    merged: Sequence[tuple[int, int, int, int]] = ()
    """The first column, first row, last column and last row of each merged range"""
    lacking: Mapping[tuple[int, int], str] = MappingProxyType({})
    """The formulas without a stored value"""
    values: Mapping[tuple[int, int], Any] = MappingProxyType({})
    """The numbers, dates and booleans, by row and column number"""
    dates: Mapping[tuple[int, int], str] = MappingProxyType({})
    """The dates as a corpus stores them, where the sheet displays them differently"""
    unseen: Sequence[str] = ()
    """The hidden rows and columns that contain cells: `rows 3, 4`, `column B`"""
    signs: Mapping[str, None] = MappingProxyType({})
    """The symbols without a known character"""
    texts: Sequence[str] = ()
    """The paragraphs of text boxes, diagrams and charts"""
    objects: Mapping[str, int] = MappingProxyType({})
    """How many objects of each kind were not read"""


def _sheet(book: Any, sheet: Any, path: Path, typed: bool) -> Sheet:
    # openpyxl's worksheets are either rows without merged cells or all of the sheet in memory, at fifty times its
    # size. Its parser has both.
    from openpyxl.styles.numbers import BUILTIN_FORMATS
    from openpyxl.utils import get_column_letter, range_boundaries
    from openpyxl.utils.datetime import CALENDAR_MAC_1904
    from openpyxl.utils.escape import unescape
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser
    from openpyxl.xml.constants import SHEET_MAIN_NS

    lacking, dates = dict[tuple[int, int], str](), dict[tuple[int, int], str]()
    values, signs = dict[tuple[int, int], Any](), dict[str, None]()
    since_1904 = book.epoch == CALENDAR_MAC_1904

    @lru_cache(None)
    def form_of(style: int) -> str:
        number = book._cell_styles[style].numFmtId
        if number < 164:
            return _SHOWN_AS.get(number) or str(BUILTIN_FORMATS.get(number, "General"))
        return str(book._number_formats[number - 164])

    @lru_cache(None)
    def font_of(style: int) -> str:
        return book._fonts[book._cell_styles[style].fontId].name or ""

    class Parser(WorkSheetParser):  # type: ignore[misc]
        def parse_cell(self, element: Any) -> Any:
            if element.get("t") == "inlineStr":
                for text in element.iter(f"{{{SHEET_MAIN_NS}}}t"):
                    text.text = (text.text or "").replace(_ESCAPED, _KEPT)
            cell = super().parse_cell(element)
            value, place, is_time = cell["value"], (cell["row"], cell["column"]), False
            if isinstance(value, list):
                value = _of_runs(value, font_of(cell["style_id"]), signs)
            elif isinstance(value, str):
                value = shown_in(font_of(cell["style_id"]), value, signs)
            kind = type(value)
            if kind is str:
                cell["value"] = (unescape(value).replace("\r\n", "\n") if "_x" in value else value).strip()
            elif value is None:
                # A formula whose value is an empty text has the type `str`.
                if cell["data_type"] != "str" and element.find(FORMULA_TAG) is not None:
                    lacking[place] = element.get("r") or f"row {cell['row']}"
            elif kind is int or kind is float:
                form = form_of(cell["style_id"]) if cell["style_id"] else "General"
                said = in_form(value, form, since_1904)
                cell["value"] = said or plain(value) if typed else said
                if typed and _parts_of_time(form) is not None:
                    said = as_shown(value, form, since_1904)
                    if said and said != cell["value"]:
                        dates[place], cell["value"] = cell["value"], said
                    value, is_time = _moment(value, form, since_1904), True
            else:
                cell["value"] = _cell(value)
            # A number with leading zeros, such as 00042, is a name.
            if typed and kind is not str and value is not None and (is_time or not _ZEROS.match(cell["value"])):
                is_date = isinstance(value, datetime) and value.time() == time()
                values[place] = value.date() if is_date else value
            return cell

    rows: grids.Packed[tuple[str, ...]] = grids.Packed()
    numbers = array("q")
    cells, used, out = 0, set[int](), list[int]()
    with book._archive.open(sheet._worksheet_path) as source:
        parser = Parser(
            source,
            sheet._shared_strings,
            data_only=True,
            rich_text=True,  # no date formats, because openpyxl turns times from 24 hours on into dates
        )
        for number, found in parser.parse():
            given = [(cell["column"], cell["value"]) for cell in found if cell["value"]]
            width = max(given)[0] if given else 0
            cells += 1 + width
            check_cells(path, cells)
            if given:
                row = [""] * width
                for column, value in given:
                    row[column - 1] = value
                rows.append(tuple(row))
                numbers.append(number)
                used.update(column for column, _ in given)
                if parser.row_dimensions.pop(str(number), {}).get("hidden") in ("1", "true"):
                    out.append(number)
    merged = [range_boundaries(it.ref) for it in (parser.merged_cells.mergeCell if parser.merged_cells else ())]
    spans = [it for it in parser.column_dimensions.values() if it.get("hidden") in ("1", "true")]
    letters = [
        get_column_letter(k) for k in sorted(used) if any(int(it["min"]) <= k <= int(it["max"]) for it in spans)
    ]
    hidden = {"rows": list(map(str, out)), "columns": letters}
    unseen = [f"{what} {some(which)}" for what, which in hidden.items() if which]
    merged.sort(key=lambda it: it[1])
    return Sheet(rows, numbers, merged, lacking, values, dates, unseen, signs, *_drawn(book, sheet))


def _drawn(book: Any, sheet: Any) -> tuple[list[str], Counter[str]]:
    """The texts of a sheet's text boxes, diagrams and charts, and how many objects of each kind were not read."""
    parts = _related(book, sheet._worksheet_path)
    texts, left = list[str](), Counter[str]()
    for kind, place in parts.values():
        if kind in ("oleObject", "package"):
            left["embedded object"] += 1
        if kind != "drawing":
            continue
        try:
            tree = parsed(book._archive.read(place))
        except (KeyError, SyntaxError):
            left["damaged drawing"] += 1
            continue
        choose(tree)
        for hidden in tree.xpath(".//*[local-name()='cNvPr'][@hidden='1' or @hidden='true']/../.."):
            left.update(["hidden text box"] if next(paragraphs(hidden), None) else [])
            hidden.getparent().remove(hidden)
        texts += paragraphs(tree)
        related = _related(book, place)
        for frame in tree.iter(f"{A}graphicData"):
            if lines := diagram(frame, partial(_data_of, book, related)):
                texts += lines
                frame.set("uri", "")
            texts += charts(frame, partial(_data_of, book, related))
        left += objects(tree)
    return texts, left


def _data_of(book: Any, related: Mapping[str, tuple[str, str]], key: str) -> bytes:
    return bytes(book._archive.read(related[key][1]))


def _related(book: Any, place: str) -> dict[str, tuple[str, str]]:
    """The kinds and the places of the parts that belong to a part of a file, by their ids."""
    from openpyxl.packaging.relationship import get_dependents, get_rels_path

    if (names := get_rels_path(place)) not in book._archive.namelist():
        return {}
    return {it.Id: (it.Type.rpartition("/")[2], it.target) for it in get_dependents(book._archive, names)}


def _of_runs(runs: list[Any], font: str, signs: dict[str, None]) -> str:
    """Join the differently formatted texts of a cell."""
    text = ""
    for run in runs:
        said = shown_in(font if isinstance(run, str) else run.font.rFont or "", str(run), signs)
        if not isinstance(run, str):
            said = said.join(SHIFTS.get((run.font.vertAlign or "")[:3], ("", "")))
            said = struck(said) if run.font.strike else said
        text += said
    return with_marks(text)


def _side_by_side(sheet: Sheet) -> list[Sheet]:
    """Split a sheet into tables that stand side by side, separated by an empty column. Each must have a title
    above its first column, a name for each column, and names in its first column; otherwise a single table with
    an empty column would be split too."""
    rows = sheet.rows
    used = sorted({column for row in rows for column, value in enumerate(row, 1) if value})
    edges = [0, *(k for k in range(1, len(used)) if used[k] > used[k - 1] + 1), len(used)]
    if len(edges) < 3 or len(rows) < 3:
        return [sheet]
    blocks = []
    for start, end in pairwise(edges):
        first, last = used[start], used[end - 1]
        titles, header, *below = ([*row[first - 1 : last], *[""] * (last - len(row))] for row in rows)
        keys = [row[0] for row in below if row[0]]
        is_titled = first < last and titles[0] and not any(titles[1:])
        if not (is_titled and all(header) and keys) or any(map(grids.is_number, [*header, *keys])):
            return [sheet]
        within = [k for k, row in enumerate(rows) if any(row[first - 1 : last])]
        cut = grids.Packed(("",) * (first - 1) + rows[k][first - 1 : last] for k in within)
        # An empty row below it makes the title certain.
        numbers = array("q", (sheet.numbers[k] - (k == 0) for k in within))
        merged = [it for it in sheet.merged if first <= it[0] <= last]
        blocks.append(Sheet(cut, numbers, merged))
    return blocks


def _tables(sheet: Sheet, path: Path) -> list[Sheet]:
    """Split a sheet into its tables. After an empty row, a new table begins if the next row can only be a header:
    it names every column, and one of the names has only numbers below it, or a title stands above the row."""
    numbers = sheet.numbers
    starts = [k for k in range(1, len(numbers)) if numbers[k] > numbers[k - 1] + 1]
    if not starts or len(numbers) > grids.MOST_CUT:
        return [sheet]

    def part(first: int, end: int) -> Sheet:
        rows = grids.Packed(sheet.rows[first:end])
        merged = [it for it in sheet.merged if numbers[first] <= it[1] <= numbers[end - 1]]
        return Sheet(rows, numbers[first:end], merged)

    begun = [0]
    title: int | None = 0  # the first of the rows with a single text, which can be a caption
    for first, end in pairwise([0, *starts, len(numbers)]):
        begin = first if title is None else title
        if begin not in begun and _has_header(part(begin, end), part(begun[-1], begin), path):
            begun.append(begin)
        block = sheet.rows[first:end]
        alone = all(sum(map(bool, row)) == 1 for row in block)
        is_below = title is None and all(grids.is_remark(next(filter(None, row))) for row in block)
        title = begin if alone and not is_below else None
    return [part(first, end) for first, end in pairwise([*begun, len(numbers)])]


def _has_header(sheet: Sheet, before: Sheet, path: Path) -> bool:
    caption, header, rows, *_ = grids.parts_of_grid(*_grid(sheet, path))
    if grids.is_only_header(header, rows):
        return True
    above = grids.parts_of_grid(*_grid(before, path)).header
    # Far below, under a title, rows with fewer cells than that header cannot belong to it.
    is_far = sheet.numbers[0] > before.numbers[-1] + 2 and sum(map(bool, sheet.rows[0])) == 1
    widths = [sum(map(bool, row)) for row in sheet.rows][1:]
    if is_far and len(widths) > 1 and min(widths) > 1 and max(map(len, sheet.rows)) < len(above):
        return True
    return bool(caption) and grids.begins_table(caption, header, rows, above)


def _parts(sheet: Sheet, path: Path) -> Iterator[grids.TableParts]:
    known = array("q")
    for before, number in pairwise(chain([sheet.numbers[0] - 1], sheet.numbers)):
        known.extend((0, number) if number > before + 1 else (number,))  # A gap is one row of the grid.
    for part in grids.by_group(grids.parts_of_grid(*_grid(sheet, path))):
        yield part._replace(numbers=array("q", (known[place - 1] for place in part.numbers)))


def _grid(sheet: Sheet, path: Path) -> tuple[Iterator[list[str]], tuple[grids.Span, ...], None, set[int]]:
    """The arguments of `parts_of_grid`: the rows of a sheet with merged cells filled in and an empty row for each
    gap, the spans of the first rows and of cells that fill a row, and the columns that follow an empty one. Only
    columns and rows with cells of their own are filled.
    """
    used = sorted({column for row in sheet.rows for column, value in enumerate(row, 1) if value})
    place = {column: at for at, column in enumerate(used)}
    filling = {
        first
        for left, first, right, last in sheet.merged
        if first == last and left == used[0] and right >= used[-1]
    }
    top: dict[int, int] = {}
    spans, at = list[grids.Span](), 0
    for row, (before, number) in enumerate(pairwise(chain([sheet.numbers[0] - 1], sheet.numbers))):
        at += number > before + 1
        if row < grids.MOST_ABOVE:
            top[number] = at
        if number in filling:
            spans.append(grids.Span(at, 0, 1, len(used)))
        at += 1
    for left, first, right, last in sheet.merged:
        if first not in top or first in filling:
            continue
        down = [at for number, at in top.items() if first <= number <= last]
        if across := [place[column] for column in used if left <= column <= right]:
            spans.append(grids.Span(top[first], across[0], down[-1] - down[0] + 1, len(across)))
    wide = [(left, right) for left, first, right, _ in sheet.merged if first in top and first not in filling]
    gaps = [(before, column) for before, column in pairwise(used) if column > before + 1]
    apart = {place[b] for a, b in gaps if not any(left < b and right > a for left, right in wide)}
    return _filled(sheet, place, filling, path), tuple(spans), None, apart


def _filled(sheet: Sheet, place: dict[int, int], filling: set[int], path: Path) -> Iterator[list[str]]:
    used = list(place)
    pending, filled, before = 0, 0, sheet.numbers[0] - 1
    active: list[tuple[int, int, int, str]] = []
    for number, values in zip(sheet.numbers, sheet.rows, strict=True):
        if number > before + 1:
            yield []
        before = number
        row = [values[column - 1] if column <= len(values) else "" for column in used]
        while pending < len(sheet.merged) and sheet.merged[pending][1] <= number:
            left, first, right, last = sheet.merged[pending]
            pending += 1
            if first == number and left in place and row[place[left]] and first not in filling:
                active.append((left, right, last, row[place[left]]))
        if active:
            active = [it for it in active if it[2] >= number]
            for left, right, _, text in active:
                covered = used[place[left] : place[left] + right - left + 1]
                filled += len(covered)
                for column in covered:
                    if column <= right:
                        row[place[column]] = row[place[column]] or text
            check_cells(path, filled)
        yield row


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    return str(value).strip()


_TOKEN = re.compile(
    r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]-]*)[^\]]*\]|'
    r"\[((?i:black|blue|cyan|green|magenta|red|white|yellow|color *\d+))\]|\[[^\]]*\]|"
    r"(E[+-]0+)|([0#?][0#?,.]*|\.[0#?]+)|(.)",
    re.DOTALL,
)
_DIGITS = Context(prec=1000)  # a number can have 308 digits before its point
_SIGNS = {"%": "percent", "@": "digits"}
_CONDITION = re.compile(r"\[[<>=]")


def shown(value: float, form: str) -> str:
    """Write a number in a number format.

    Args:
        value: The number.
        form: The format as it is in the file, such as `0.0%`. Fractions and conditions are not supported; such
            numbers are written in full.

    Returns:
        The formatted number. For a zero in a format that leaves out zeros (`0;;`), an empty string. Any other
        number that a format hides is written in full, and so is every number in the format `;;;`.

    Example:
        >>> shown(0.375, "0.0%"), shown(1234567, "#,##0.00"), shown(42, "00000")
        ('37.5%', '1,234,567.00', '00042')
    """
    if form in ("General", "@", "") or value != value or value in (float("inf"), -float("inf")):
        return plain(value)
    sections = _sections(form)
    which = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    parts = sections[which]
    if parts is None:
        return plain(value)
    number = abs(Decimal(repr(value)))
    text = _written(number, parts)
    if not text.strip():
        return "" if value == 0 and any(sections) else plain(value)
    # Some formats show by a colour alone that a number is negative.
    unsigned = which == 0 or (("colour", "") in parts and _marks(parts) <= _marks(sections[0] or ()))
    return f"-{text}" if value < 0 and unsigned and any(mark in text for mark in "123456789") else text


def _marks(parts: _Parts) -> set[str]:
    return set("".join(text for kind, text in parts if kind == "text")) - {" "}


def in_form(value: float, form: str, since_1904: bool = False) -> str:
    """Write a number as a corpus stores it: a time as the sheet displays it, and a date, which files store as the
    number of days since 1900 or 1904, as an ISO date.

    Example:
        >>> in_form(45658.0, "d mmm yyyy"), in_form(1.25, "[h]:mm"), in_form(0.88, "0%")
        ('2025-01-01', '30:00', '88%')
    """
    if (parts := _parts_of_time(form)) is None:
        return shown(value, form)
    when = _moment(value, form, since_1904)
    if isinstance(when, datetime):
        return _cell(when)
    if not parts or not _DATE.isdisjoint(kind for kind, _ in parts):
        # as spreadsheets count
        day, clock = "1904-01-01" if since_1904 else "1900-01-00", as_shown(value, "hh:mm:ss")
        return plain(value) if not 0 <= value < 1 else f"{day}T{clock}" if value else day
    return as_shown(value, form, since_1904) or plain(value)


def as_shown(value: float, form: str, since_1904: bool = False) -> str:
    """Write a number in a date or time format as a sheet displays it. Returns an empty string for other formats,
    for month names in languages other than English, and for numbers outside the range of dates.

    Example:
        >>> as_shown(45730, "d mmmm yyyy"), as_shown(1.25, "h:mm AM/PM")
        ('14 March 2025', '6:00 AM')
    """
    parts = _parts_of_time(form)
    kinds = {kind for kind, _ in parts or ()}
    elapsed = not kinds.isdisjoint(_ELAPSED)
    if not parts or (value < 0 and not elapsed):
        return ""
    year, month, day, week = 1900, 1, 0, 5  # day 0, as spreadsheets count
    if not kinds.isdisjoint(_DATE):
        when = _moment(value, form, since_1904)
        if isinstance(when, datetime):
            year, month, day, week = when.year, when.month, when.day, when.weekday()
        elif not 0 <= value < 1:
            return ""
    digits = max((len(text.partition(".")[2]) for kind, text in parts if kind == "s"), default=0)
    ticks = round(abs(value) * 86_400 * 10**digits)
    seconds, fraction = divmod(ticks, 10**digits)
    minutes, hours = seconds // 60, seconds // 3600
    hour = hours % 24
    if "ap" in kinds:
        hour = hour % 12 or 12
    numbers = {
        "Y": year, "M": month, "D": day, "h": hour, "m": minutes % 60, "s": seconds % 60,
        "[h]": hours, "[m]": minutes, "[s]": seconds,
    }  # fmt: skip
    written = "-" if value < 0 else ""
    for kind, text in parts:
        size = len(text.partition(".")[0])
        if kind == "ap":
            written += text.split("/")[hours % 24 >= 12]
        elif kind == "text":
            written += text
        elif kind == "Y":
            written += f"{year:04d}" if size > 2 else f"{year % 100:02d}"
        elif kind == "M" and size > 2:
            name = _MONTHS[month - 1]
            written += name[:3] if size == 3 else name[:1] if size == 5 else name
        elif kind == "D" and size > 2:
            written += _DAYS[week] if size > 3 else _DAYS[week][:3]
        else:
            written += f"{numbers[kind]:0{min(size, 2)}d}"
            written += f".{fraction:0{digits}d}" if kind == "s" and "." in text else ""
    return written.strip()


_DATE, _ELAPSED = frozenset("YMD"), frozenset(("[h]", "[m]", "[s]"))
_MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_OF_TIME = re.compile(
    r'"([^"]*)"|\\(.)|(?:_|\*).|\[(h+|m+|s+)\]|\[\$([^\]-]*)-?([^\]]*)\]|(\[[^\]]*\])'
    r"|(AM/PM|A/P)|(y+|m+|d+|h+|s+(?:\.0+)?)|(.)",
    re.DOTALL | re.IGNORECASE,
)
_ENGLISH = 9  # the lowest bits of a language's number


@lru_cache(1024)
def _parts_of_time(form: str) -> _Parts | None:
    """The parts of a date or time format. A part consists of a kind (`text`, `ap`, or the unit: `M` is a month,
    `m` a minute) and its text. Empty for an unsupported format, and None for other formats."""
    from openpyxl.styles.numbers import is_date_format

    if not is_date_format(form):
        return None
    parts: list[tuple[str, str]] = []
    other_language = False
    for literal, escaped, elapsed, sign, language, condition, half, unit, other in _OF_TIME.findall(form):
        if other == ";":
            break
        if elapsed:
            parts.append((f"[{elapsed[0].lower()}]", elapsed))
        elif half:
            parts.append(("ap", half))
        elif unit:
            parts.append(({"y": "Y", "d": "D"}.get(unit[0].lower(), unit[0].lower()), unit))
        elif (condition and condition[1] in "<>=") or other.lower() in ("e", "g", "b"):  # years of other calendars
            return ()
        elif language:
            number = int(language, 16) if re.fullmatch("[0-9A-Fa-f]{1,8}", language) else 0
            other_language = number not in (0xF400, 0xF800) and number & 0x3FF != _ENGLISH
        if text := literal or escaped or sign or other:
            parts.append(("text", text))
    units = [k for k, (kind, _) in enumerate(parts) if kind not in ("text", "ap")]
    for before, k, after in zip([None, *units], units, [*units[1:], None], strict=False):
        if parts[k][0] == "m":
            is_minute = before is not None and parts[before][0] in ("h", "[h]")
            is_minute = is_minute or (after is not None and parts[after][0] in ("s", "[s]"))
            parts[k] = ("m" if is_minute else "M", parts[k][1])
    named = any(kind in ("M", "D") and len(text) > 2 for kind, text in parts)
    return () if other_language and named else tuple(parts)


def _moment(value: float, form: str, since_1904: bool) -> datetime | time | None:
    """The date or time of day that a number stands for in a format. None for durations and other numbers."""
    from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel

    parts = _parts_of_time(form) or ()
    kinds = {kind for kind, _ in parts}
    if not kinds.isdisjoint(_ELAPSED):
        return None
    is_time = bool(parts) and kinds.isdisjoint(_DATE)
    try:
        when = from_excel(value % 1 if is_time else value, MAC_EPOCH if since_1904 else WINDOWS_EPOCH)
    except (ValueError, OverflowError):  # No date has this number.
        return None
    if isinstance(when, datetime):
        return None if is_time else when
    return when if is_time and value >= 0 else None


def plain(value: float) -> str:
    """Write a number with all its digits: at most 15 for a fraction, as in a sheet, and never with an exponent
    where a sheet shows digits."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    text = f"{value:.15g}"
    return f"{Decimal(text):f}" if 1e-9 < abs(value) < 1 else text


_Parts = tuple[tuple[str, str], ...]


@lru_cache(1024)
def _sections(form: str) -> tuple[_Parts | None, ...]:
    """The parts of each section of a format. A part consists of a kind (`text`, `digits`, `power`, `percent` or
    `colour`) and its text. None for an unsupported section."""
    sections: list[list[tuple[str, str]] | None] = [[]]
    if _CONDITION.search(form):
        return (None,)
    for literal, escaped, currency, colour, power, digits, other in _TOKEN.findall(form):
        parts = sections[-1]
        text = literal or escaped or currency or power or digits or other
        if other == ";":
            sections.append([])
        elif other == "/" or (other.isalpha() and other.isascii()):
            sections[-1] = None
        elif (text or colour) and parts is not None:
            kind = "colour" if colour else "power" if power else "digits" if digits else _SIGNS.get(other, "text")
            parts.append((kind, text))
    return tuple(None if parts is None else tuple(parts) for parts in sections)


def _written(number: Decimal, parts: _Parts) -> str:
    """Write a non-negative number in one section of a format."""
    fields = [text for kind, text in parts if kind == "digits"]
    number *= 100 ** sum(kind == "percent" for kind, _ in parts)
    whole, _, fraction = "".join(fields).partition(".")
    # Commas after the last digit show the number in thousands or millions.
    number /= 1000 ** sum(len(part) - len(part.rstrip(",")) for part in (whole, fraction))
    power = next((text for kind, text in parts if kind == "power"), "")
    if power:
        exponent, places = _exponent(number, whole), Decimal(1).scaleb(-len(fraction))
        # 9.996 rounded to two places is 10, which has another exponent.
        number = number.scaleb(-exponent).quantize(places, ROUND_HALF_UP, _DIGITS).scaleb(exponent)
        exponent = _exponent(number, whole)
        digits = _digits(number.scaleb(-exponent), whole, fraction)
        sign = "-" if exponent < 0 else "+" if power[1] == "+" else ""
        power = f"E{sign}{abs(exponent):0{len(power) - 2}d}"
    else:
        digits = _digits(number, whole.rstrip(","), fraction.replace(",", "")) if fields else ""
    if len(fields) > 1:
        return _spread(digits, parts)
    marks = {"digits": digits, "power": power}
    return "".join(marks.get(kind, text) for kind, text in parts)


def _exponent(number: Decimal, whole: str) -> int:
    """The exponent of a number in a scientific format. In `##0.0E+0`, it is a multiple of three."""
    if not number:
        return 0
    if "#" in whole:
        return number.adjusted() // len(whole) * len(whole)
    return number.adjusted() - (whole.count("0") or 1) + 1


def _digits(number: Decimal, whole: str, fraction: str) -> str:
    """Write the digits of a number, grouped, zero-padded and rounded according to a format."""
    if whole == "@":
        return plain(float(number))
    rounded = number.quantize(Decimal(1).scaleb(-len(fraction)), ROUND_HALF_UP, _DIGITS)
    left, _, right = f"{rounded:f}".partition(".")
    least = whole.replace(",", "").count("0")
    left = left.lstrip("0").zfill(least) if least else left.lstrip("0")
    if "," in whole:
        left = f"{int(left):,}" if left and not left.startswith("0") else left
    needed = len(fraction.rstrip("#?"))
    right = right[:needed] + right[needed:].rstrip("0")
    return f"{left}.{right}" if right else left


def _spread(digits: str, parts: _Parts) -> str:
    """Put digits into the placeholders of a format with text between them, such as `000-00-0000`."""
    sizes = [len(text.replace(",", "")) for kind, text in parts if kind == "digits"]
    if any("0" in text for kind, text in parts if kind == "digits"):
        digits = digits.zfill(sum(sizes))
    sizes[0] = max(sizes[0] + len(digits) - sum(sizes), 0)
    left, size = iter(digits), iter(sizes)
    return "".join("".join(islice(left, next(size))) if kind == "digits" else text for kind, text in parts)
