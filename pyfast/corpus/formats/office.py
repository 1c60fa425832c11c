"""Read DOCX, PPTX and XLSX files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document, Outline, Table, TextDocument
from pyfast.corpus.formats.limits import check_cells, check_growth
from pyfast.corpus.formats.names import title_of
from pyfast.corpus.packed import pack
from pyfast.corpus.sections import Heading


def read_docx(uri: str, path: Path) -> Iterator[Document]:
    """Read the paragraphs, headings and tables of a document. Headings become sections."""
    _check_archive(path)
    import docx
    from docx.table import Table as DocxTable

    file = docx.Document(str(path))
    text = _Text()
    tables: list[tuple[str, Any]] = []
    section = title = ""
    for block in file.iter_inner_content():
        if isinstance(block, DocxTable):
            tables.append((section, block))
            continue
        style = (block.style.name if block.style is not None else "") or ""
        if style.startswith("Heading") and block.text.strip():
            section = block.text.strip()
            level = style.removeprefix("Heading").strip()
            text.heading(section, int(level) if level.isdecimal() else 1)
        elif style == "Title" and block.text.strip():
            title = title or block.text.strip()
            text.heading(block.text.strip(), 1)
        else:
            text.add(block.text)
    title = (file.core_properties.title or "").strip() or title or title_of(path)
    yield text.document(uri, title)
    for number, (heading, table) in enumerate(tables, start=1):
        rows = [tuple(cell.text.strip() for cell in row.cells) for row in table.rows]
        yield _table(f"{uri}#table-{number}", title, heading, rows)


def read_pptx(uri: str, path: Path) -> Iterator[Document]:
    """Read the text of slides, with notes and tables. Each slide is a page, and its title is a heading."""
    _check_archive(path)
    import pptx

    file = pptx.Presentation(str(path))
    text = _Text()
    tables: list[tuple[str, Any]] = []
    for slide in file.slides:
        text.page()
        heading = slide.shapes.title
        name = heading.text_frame.text.strip() if heading is not None else ""
        if name:
            text.heading(name, 2)
        for shape in _shapes(slide.shapes):
            if shape.has_text_frame and (heading is None or shape.shape_id != heading.shape_id):
                text.add(shape.text_frame.text)
            if getattr(shape, "has_table", False):
                tables.append((name, shape.table))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            text.add(slide.notes_slide.notes_text_frame.text)
    title = (file.core_properties.title or "").strip() or title_of(path)
    yield text.document(uri, title)
    for number, (name, table) in enumerate(tables, start=1):
        rows = [tuple(cell.text.strip() for cell in row.cells) for row in table.rows]
        yield _table(f"{uri}#table-{number}", title, name, rows)


def read_xlsx(uri: str, path: Path) -> Iterator[Document]:
    """Read each sheet as a table. The first row that is not empty is the header. For a formula, its last
    computed value is read.
    """
    _check_archive(path)
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        title = (book.properties.title or "").strip() or title_of(path)
        sheets = [(sheet.title, rows) for sheet in book.worksheets if (rows := pack(_rows(sheet, path)))]
    finally:
        book.close()
    for name, rows in sheets:
        alone = len(sheets) == 1
        yield _table(uri if alone else f"{uri}#{name}", title, "" if alone else name, rows)


def _rows(sheet: Any, path: Path) -> Iterator[tuple[str, ...]]:
    sheet.reset_dimensions()  # The size that the file claims can be far too large.
    cells = 0
    for values in sheet.iter_rows(values_only=True):
        cells += 1 + len(values)
        check_cells(path, cells)
        row = [_cell(value) for value in values]
        while row and not row[-1]:
            row.pop()
        if row:
            yield tuple(row)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).strip()


def _table(uri: str, title: str, section: str, rows: Iterable[tuple[str, ...]]) -> Table:
    rows = iter(rows)
    return Table(uri, title, section, next(rows, ()), pack(rows))


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """All shapes, including those in groups."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


class _Text:
    """Collects paragraphs, headings and pages of a text."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._headings: list[Heading] = []
        self._pages: list[int] = []

    def add(self, paragraph: str) -> None:
        if paragraph := paragraph.strip():
            self._parts.append(paragraph + "\n\n")
            self._size += len(paragraph) + 2

    def heading(self, text: str, depth: int) -> None:
        start = self._size
        self.add(text)
        self._headings.append(Heading(start, self._size, min(max(depth, 1), 6), " ".join(text.split())))

    def page(self) -> None:
        self._pages.append(self._size)

    def document(self, uri: str, title: str) -> TextDocument:
        outline = Outline(headings=tuple(self._headings), pages=tuple(self._pages))
        return TextDocument(uri, title, "".join(self._parts), outline=outline)


def _check_archive(path: Path) -> None:
    """Raise `InputError` if a file in the archive unpacks to far more bytes than it takes in the archive.
    Raise `BadZipFile` if the file is not an archive.
    """
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            check_growth(path, part.compress_size, part.file_size)
