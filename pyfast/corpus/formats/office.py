"""Read DOCX, PPTX and XLSX files."""

from __future__ import annotations

import re
import zipfile
from array import array
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pyfast.corpus.documents import Document, Unread
from pyfast.corpus.formats.building import POWER, Text, title_of
from pyfast.corpus.formats.docx_numbers import write_numbers
from pyfast.corpus.formats.limits import check_cells, check_growth
from pyfast.corpus.formats.numbers import plain, shown
from pyfast.corpus.grids import MOST_ABOVE, Span, is_number, table_of_grid
from pyfast.corpus.packed import Packed
from pyfast.errors import InputError

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
# Elements around content, which python-docx does not look into.
_AROUND = [_W + name for name in ("sdt", "smartTag", "customXml", "ins", "moveTo", "fldSimple", "bdo", "dir")]
_MOST_COLUMNS = 1 << 14
_NO_NAME = re.compile(r"n\.?/?a\.?|nan|none|null|nil|unknown|tb[acd]|total|\W+", re.IGNORECASE)
_MOST_NAMED = 5
_MOST_STYLES = 20
_MOST_CUT = 20_000


def read_docx(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the paragraphs, headings and tables of a document. Headings become sections. What is inserted is read,
    what is deleted is not. The numbers that Word counts stand before their paragraphs. Text boxes and notes come
    after the paragraph in which they are.
    """
    _check_archive(path)
    import docx
    from docx.table import Table as DocxTable

    file = docx.Document(str(path))
    _unwrap(file.element.body, _notes(file.part))
    unknown = write_numbers(file)
    text = Text()
    title = caption = ""
    for block in file.iter_inner_content():
        if isinstance(block, DocxTable):
            rows = block._tbl.tr_lst
            heads = next((k for k, row in enumerate(rows) if row.find(f"{_W}trPr/{_W}tblHeader") is None), 0)
            text.table(_docx_cells(rows), _MOST_COLUMNS, heads or None, caption)
            caption = ""
            continue
        style = (block.style.name if block.style is not None else "") or ""
        said = block.text.strip()
        if said and (depth := _depth(block)):
            text.heading(said, depth)
        elif style == "Title" and said:
            title = title or said
            text.heading(said, 1)
        else:
            text.add(said)
        caption = (said if style == "Caption" else "") or ("" if said else caption)
    yield from text.documents(uri, (file.core_properties.title or "").strip() or title or title_of(path))
    if unknown:
        yield Unread(path, f"numbers of lists were left out: their format is {', '.join(unknown)}", missing=False)


def _depth(paragraph: Any) -> int:
    """The depth of a heading, by the paragraph itself, its style, or the styles on which this one is based. 0 for
    other paragraphs."""
    of, style = paragraph._p, paragraph.style
    for _ in range(_MOST_STYLES):
        if (found := of.find(f"{_W}pPr/{_W}outlineLvl")) is not None:
            level = found.get(f"{_W}val", "")
            return int(level) + 1 if level in set("012345678") else 0
        if style is None:
            break
        name = style.name or ""
        if name.startswith("Heading"):
            level = name.removeprefix("Heading").strip()
            return int(level) if level.isdecimal() else 1
        of, style = style.element, style.base_style
    return 0


def _docx_cells(rows: Iterable[Any]) -> list[list[tuple[str, int, int]]]:
    """The cells that begin in each row of a table. A cell that continues one above it makes that one longer."""
    cells: list[list[tuple[str, int, int]]] = []
    open_at: dict[int, tuple[int, int]] = {}
    for row in rows:
        begun: list[tuple[str, int, int]] = []
        cells.append(begun)
        still: dict[int, tuple[int, int]] = {}
        before = row.find(f"{_W}trPr/{_W}gridBefore")
        column = 0 if before is None else int(before.get(f"{_W}val", 0))
        if column:
            begun.append(("", 1, column))
        for cell in row.iterchildren(f"{_W}tc"):
            across = max(cell.grid_span, 1)
            if cell.vMerge == "continue" and column in open_at:
                number, at = still[column] = open_at[column]
                text, down, width = cells[number][at]
                cells[number][at] = (text, down + 1, width)
            else:
                begun.append((_docx_text(cell), 1, across))
                if cell.vMerge == "restart":
                    still[column] = (len(cells) - 1, len(begun) - 1)
            column += across
        open_at = still
    return cells


def _docx_text(cell: Any) -> str:
    """The text of a cell, with the tables in it."""
    lines = []
    for block in cell:
        if block.tag == f"{_W}p":
            lines.append(block.text)
        elif block.tag == f"{_W}tbl":
            rows = (row.iterchildren(f"{_W}tc") for row in block.iterchildren(f"{_W}tr"))
            lines += [" ".join(map(_docx_text, row)) for row in rows]
    return "\n".join(line for line in map(str.strip, lines) if line)


def _unwrap(body: Any, notes: dict[str, list[Any]]) -> None:
    """Change the tree of a document so that python-docx finds all of the text that people see."""
    from docx.oxml import OxmlElement

    for choice in list(body.iter(f"{_MC}AlternateContent")):
        for other in list(choice)[1:]:  # The others show the same in another way.
            choice.remove(other)
    for gone in list(body.iter(f"{_W}del", f"{_W}moveFrom")):
        if gone.getparent().tag == f"{_W}rPr" and gone.getparent().getparent().tag == f"{_W}pPr":
            _join_to_next(gone.getparent().getparent().getparent())
        row = gone.getparent().getparent() if gone.getparent().tag == f"{_W}trPr" else gone
        if row.getparent() is not None:
            _remove(row)
    for around in list(body.iter(*_AROUND)):
        content = around.find(f"{_W}sdtContent") if around.tag == f"{_W}sdt" else around
        parent, place = around.getparent(), around.getparent().index(around)
        parent[place : place + 1] = [] if content is None else list(content)
    for ruby in list(body.iter(f"{_W}ruby")):  # The reading above a word is left out, as in HTML.
        run, base = ruby.getparent(), ruby.find(f"{_W}rubyBase")
        if run.tag == f"{_W}r" and base is not None:
            for part in list(base):
                run.addprevious(part)
        _remove(ruby)
    for symbol in list(body.iter(f"{_W}sym")):
        said = OxmlElement("w:t")
        said.text = _symbol(symbol.get(f"{_W}font", ""), symbol.get(f"{_W}char", ""))
        symbol.getparent().replace(symbol, said)
    for run in list(body.iter(f"{_W}r")):
        _mark_power(run)
    for equation in list(body.iter(f"{_M}oMath")):
        run = OxmlElement("w:r")
        run.text = _equation(equation)
        place_of = equation.getparent() if equation.getparent().tag == f"{_M}oMathPara" else equation
        place_of.addprevious(run)
    for box in list(body.iter(f"{_W}txbxContent")):
        _put_after_paragraph(box, list(box))
    for reference in list(body.iter(f"{_W}footnoteReference", f"{_W}endnoteReference")):
        _put_after_paragraph(reference, notes.get(reference.tag + reference.get(f"{_W}id", ""), []))


def _mark_power(run: Any) -> None:
    """Write a power, such as that of 10 with a raised 6, so that it is no other number."""
    raised = run.find(f"{_W}rPr/{_W}vertAlign")
    before = run.getprevious()
    said = run.find(f"{_W}t")
    if raised is None or raised.get(f"{_W}val") != "superscript" or said is None or before is None:
        return
    if before.tag == f"{_W}r" and before.text[-1:].isdigit() and POWER.fullmatch((said.text or "").strip()):
        said.text = f"^{said.text}"


def _join_to_next(paragraph: Any) -> None:
    """Put the content of a paragraph whose end is deleted at the beginning of the next one."""
    after = paragraph.getnext()
    if after is None or after.tag != f"{_W}p":
        return
    place = 1 if len(after) and after[0].tag == f"{_W}pPr" else 0
    after[place:place] = [it for it in paragraph if it.tag != f"{_W}pPr"]
    _remove(paragraph)


# The characters of the font Symbol, by the first code of each group.
_SYMBOLS = {
    0x41: "\u0391\u0392\u03a7\u0394\u0395\u03a6\u0393\u0397\u0399\u03d1\u039a\u039b\u039c\u039d",
    0x4F: "\u039f\u03a0\u0398\u03a1\u03a3\u03a4\u03a5\u03c2\u03a9\u039e\u03a8\u0396",
    0x61: "\u03b1\u03b2\u03c7\u03b4\u03b5\u03d5\u03b3\u03b7\u03b9\u03c6\u03ba\u03bb\u03bc\u03bd",
    0x6F: "\u03bf\u03c0\u03b8\u03c1\u03c3\u03c4\u03c5\u03d6\u03c9\u03be\u03c8\u03b6",
    0xA3: "\u2264",
    0xA5: "\u221e",
    0xAB: "\u2194\u2190\u2191\u2192\u2193\u00b0\u00b1",
    0xB3: "\u2265\u00d7",
    0xB7: "\u2022\u00f7\u2260\u2261\u2248",
    0xCE: "\u2208\u2209",
    0xD6: "\u221a",
    0xE5: "\u2211",
    0xF2: "\u222b",
}
_SIGNS = {first + k: sign for first, signs in _SYMBOLS.items() for k, sign in enumerate(signs)}
_NO_LETTER = "\ufffd"


def _symbol(font: str, code: str) -> str:
    """The character of an inserted symbol. Fonts of symbols have their signs at the codes from F000 on."""
    number = int(code, 16) if re.fullmatch("[0-9A-Fa-f]{1,6}", code) else 0
    if 0xF000 <= number <= 0xF0FF:
        low = number - 0xF000
        return _SIGNS.get(low, chr(low) if low < 0x7F else _NO_LETTER) if font == "Symbol" else _NO_LETTER
    return chr(number) if 0x20 <= number < 0xD800 or 0xE000 <= number <= 0x10FFFF else _NO_LETTER


def _remove(element: Any) -> None:
    element.getparent().remove(element)


def _put_after_paragraph(element: Any, blocks: list[Any]) -> None:
    paragraph = next(element.iterancestors(f"{_W}p"), None)
    for block in reversed(blocks):
        if paragraph is not None and block.tag in (f"{_W}p", f"{_W}tbl"):
            paragraph.addnext(block)


def _notes(part: Any) -> dict[str, list[Any]]:
    """The paragraphs of footnotes and endnotes, by the tag and the id of the references to them."""
    from docx.oxml import parse_xml

    notes = {}
    for relation in part.rels.values():
        kind = relation.reltype.rpartition("/")[2].removesuffix("s")
        if kind in ("footnote", "endnote") and not relation.is_external:
            tree = parse_xml(relation.target_part.blob)
            _unwrap(tree, {})
            for note in tree.iterchildren(f"{_W}{kind}"):
                notes[f"{_W}{kind}Reference{note.get(f'{_W}id')}"] = list(note)
    return notes


_BETWEEN = {"f": "/", "sSup": "^", "sSub": "_"}


def _equation(element: Any) -> str:
    """The text of an equation on one line."""
    if element.tag == f"{_M}t":
        return element.text or ""
    parts = [_equation(child) for child in element.iterchildren(f"{_M}*")]
    between = _BETWEEN.get(element.tag.removeprefix(_M), "")
    return between.join(f"({part})" if len(part) > 1 and between == "/" else part for part in parts if part)


def read_pptx(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text of slides, with notes and tables. Each slide is a page, and its title is a heading. A slide
    without a title has its number as heading."""
    _check_archive(path)
    import pptx

    file = pptx.Presentation(str(path))
    text = Text()
    hidden = []
    unread: list[Unread] = []
    for number, slide in enumerate(file.slides, start=1):
        text.page()
        if slide._element.get("show") in ("0", "false"):
            hidden.append(str(number))
        heading = slide.shapes.title
        title = heading.text_frame.text if heading is not None else ""
        shapes = list(_shapes(slide.shapes))
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        said = "" if notes is None else notes.text
        # Below the title of the slide before it, a slide without a title would seem to be about that.
        if title.strip() or said.strip() or any(map(_says, shapes)):
            text.heading(title if title.strip() else f"Slide {number}", 2)
        for shape in shapes:
            if shape.has_text_frame and (heading is None or shape.shape_id != heading.shape_id):
                text.add(shape.text_frame.text)
            if getattr(shape, "has_table", False):
                text.table(map(_pptx_cells, shape.table.rows), _MOST_COLUMNS)
            elif getattr(shape, "has_chart", False):
                try:
                    _add_chart(shape.chart, text)
                except (InputError, ValueError, KeyError, AttributeError) as error:
                    why = " ".join(str(error).split())
                    unread.append(Unread(path, f"slide {number}: a chart cannot be read: {why}"))
            elif any("/diagram" in str(it) for it in shape._element.xpath(".//a:graphicData/@uri")):
                unread.append(Unread(path, f"slide {number}: the text of a diagram (SmartArt) is not read"))
        text.add(said)
    yield from text.documents(uri, (file.core_properties.title or "").strip() or title_of(path))
    yield from unread
    if hidden:
        yield Unread(path, f"hidden slides were read: {', '.join(hidden)}", missing=False)


def _add_chart(chart: Any, text: Text) -> None:
    """Add a chart as a table: a row for each category, a column for each series."""
    is_named = chart.has_title and chart.chart_title.has_text_frame
    title = chart.chart_title.text_frame.text.strip() if is_named else ""
    for plot in chart.plots:
        names = [" ".join(filter(None, map(str, label))) for label in plot.categories.flattened_labels]
        if not names:
            raise InputError("it has no categories")
        columns = [["", *names]]
        for one in plot.series:
            columns.append([one.name or "", *("" if value is None else plain(value) for value in one.values)])
        rows = islice(zip_longest(*columns, fillvalue=""), len(names) + 1)
        text.table(([(cell, 1, 1) for cell in row] for row in rows), _MOST_COLUMNS, 1, title)


def _pptx_cells(row: Any) -> list[tuple[str, int, int]]:
    cells = (cell for cell in row.cells if not cell.is_spanned)
    return [(cell.text.replace("\v", "\n").strip(), cell.span_height, cell.span_width) for cell in cells]


def _says(shape: Any) -> bool:
    """Whether a shape has text, a table or a chart."""
    written = shape.has_text_frame and shape.text_frame.text.strip()
    return bool(written or getattr(shape, "has_table", False) or getattr(shape, "has_chart", False))


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """All shapes, including those in groups."""
    for shape in shapes:
        yield from _shapes(shape.shapes) if hasattr(shape, "shapes") else [shape]


def read_xlsx(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read each sheet as a table, with numbers as the sheet shows them. For a formula, its last computed value is
    read.
    """
    _check_archive(path)
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        title = (book.properties.title or "").strip() or title_of(path)
        sheets = [(sheet, found) for sheet in book.worksheets if (found := _sheet(book, sheet, path)).rows]
    finally:
        book.close()
    for sheet, found in sheets:
        name = "" if len(sheets) == 1 else sheet.title
        for number, part in enumerate(_tables(found, path), start=1):
            ending = "-".join(filter(None, [name, f"table-{number}" if number > 1 else ""]))
            yield table_of_grid(f"{uri}#{ending}" if ending else uri, title, name, *_grid(part, path))
    for sheet, found in sheets:
        if lacking := found.lacking:
            which = ", ".join(lacking[:_MOST_NAMED]) + (", ..." if len(lacking) > _MOST_NAMED else "")
            many = "1 cell is a formula" if len(lacking) == 1 else f"{len(lacking)} cells are formulas"
            what = f"{many} without a value: {which}; save the file in a spreadsheet"
            yield Unread(path, f"sheet {sheet.title}: {what}")
        if sheet.sheet_state != "visible":
            yield Unread(path, f"sheet {sheet.title}: this sheet is hidden, and was read", missing=False)


class _Sheet(NamedTuple):
    """The rows of a sheet that are not empty."""

    rows: Packed[tuple[str, ...]]
    numbers: array[int]
    """The number of each row"""
    merged: list[tuple[int, int, int, int]]
    """The first column, first row, last column and last row of cells that are merged"""
    lacking: list[str]
    """The formulas without a value"""


def _sheet(book: Any, sheet: Any, path: Path) -> _Sheet:
    # openpyxl's worksheets are either rows without merged cells or all of the sheet in memory, at fifty times its
    # size. Its parser has both.
    from openpyxl.styles.numbers import BUILTIN_FORMATS
    from openpyxl.utils import range_boundaries
    from openpyxl.utils.escape import unescape
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    lacking: list[str] = []

    @lru_cache(None)
    def form_of(style: int) -> str:
        number = book._cell_styles[style].numFmtId
        return str(BUILTIN_FORMATS.get(number, "General") if number < 164 else book._number_formats[number - 164])

    class Parser(WorkSheetParser):  # type: ignore[misc]
        def parse_cell(self, element: Any) -> Any:
            cell = super().parse_cell(element)
            value = cell["value"]
            kind = type(value)
            if kind is str:
                cell["value"] = (unescape(value).replace("\r\n", "\n") if "_x" in value else value).strip()
            elif value is None:
                # A formula whose value is an empty text has the type `str`.
                if cell["data_type"] != "str" and element.find(FORMULA_TAG) is not None:
                    lacking.append(element.get("r") or f"row {cell['row']}")
            elif kind is int or kind is float:
                style = cell["style_id"]
                cell["value"] = shown(value, form_of(style)) if style else plain(value)
            else:
                cell["value"] = _cell(value)
            return cell

    rows: Packed[tuple[str, ...]] = Packed()
    numbers = array("q")
    cells = 0
    with book._archive.open(sheet._worksheet_path) as source:
        parser = Parser(
            source,
            sheet._shared_strings,
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
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
    merged = [range_boundaries(it.ref) for it in (parser.merged_cells.mergeCell if parser.merged_cells else ())]
    return _Sheet(rows, numbers, sorted(merged, key=lambda it: it[1]), lacking)


def _tables(sheet: _Sheet, path: Path) -> list[_Sheet]:
    """Cut a sheet into its tables. After an empty row, a new table begins if the row there can only be a header:
    it has a name for each column, and there are only numbers below one of them."""
    numbers = sheet.numbers
    starts = [k for k in range(1, len(numbers)) if numbers[k] > numbers[k - 1] + 1]
    if not starts or len(numbers) > _MOST_CUT:
        return [sheet]

    def part(first: int, end: int) -> _Sheet:
        rows = Packed(sheet.rows[first:end])
        merged = [it for it in sheet.merged if numbers[first] <= it[1] <= numbers[end - 1]]
        return _Sheet(rows, numbers[first:end], merged, [])

    begun = [0]
    title: int | None = 0  # the first of the rows with a single text, which can be a caption
    for first, end in pairwise([0, *starts, len(numbers)]):
        begin = first if title is None else title
        if begin not in begun and _has_header(part(begin, end), path):
            begun.append(begin)
        alone = all(sum(map(bool, row)) == 1 for row in sheet.rows[first:end])
        title = begin if alone else None
    return [part(first, end) for first, end in pairwise([*begun, len(numbers)])]


def _has_header(sheet: _Sheet, path: Path) -> bool:
    cells, spans = _grid(sheet, path)
    table = table_of_grid("", "", "", cells, spans)
    columns = list(zip_longest(*table.rows, fillvalue=""))
    return (
        len(table.header) > 1
        and all(table.header)
        and not any(is_number(name) or _NO_NAME.fullmatch(name) for name in table.header)
        and any(any(column) and all(map(is_number, filter(None, column))) for column in columns)
    )


def _grid(sheet: _Sheet, path: Path) -> tuple[Iterator[list[str]], tuple[Span, ...]]:
    """The rows of a sheet with its merged cells filled, an empty row for each gap, and the spans of the first
    rows. Only the columns and rows that have cells of their own are filled.
    """
    used = sorted({column for row in sheet.rows for column, value in enumerate(row, 1) if value})
    place = {column: at for at, column in enumerate(used)}
    top: dict[int, int] = {}
    at = 0
    for before, number in pairwise([sheet.numbers[0] - 1, *sheet.numbers[:MOST_ABOVE]]):
        at += number > before + 1
        top[number] = at
        at += 1
    spans = []
    for left, first, right, last in sheet.merged:
        if first not in top:
            continue
        down = [at for number, at in top.items() if first <= number <= last]
        if across := [place[column] for column in used if left <= column <= right]:
            spans.append(Span(top[first], across[0], down[-1] - down[0] + 1, len(across)))
    return _filled(sheet, place, path), tuple(spans)


def _filled(sheet: _Sheet, place: dict[int, int], path: Path) -> Iterator[list[str]]:
    used = list(place)
    pending, filled = 0, 0
    active: list[tuple[int, int, int, str]] = []
    before = sheet.numbers[0] - 1
    for number, values in zip(sheet.numbers, sheet.rows, strict=True):
        if number > before + 1:
            yield []
        before = number
        row = [values[column - 1] if column <= len(values) else "" for column in used]
        while pending < len(sheet.merged) and sheet.merged[pending][1] <= number:
            left, first, right, last = sheet.merged[pending]
            pending += 1
            fills = first == last and left == used[0] and right >= used[-1]  # as a name of a group of rows does
            if first == number and left in place and row[place[left]] and not fills:
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


def _check_archive(path: Path) -> None:
    """Raise `InputError` if a file in the archive unpacks to far more bytes than it takes in the archive.
    Raise `BadZipFile` if the file is not an archive.
    """
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            check_growth(path, part.compress_size, part.file_size)
