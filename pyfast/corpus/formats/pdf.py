"""Read PDF files: the text of each page, and the bookmarks as headings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyfast.corpus.documents import Document, Outline, TextDocument
from pyfast.corpus.formats.names import title_of
from pyfast.corpus.sections import Heading
from pyfast.errors import InputError

_BETWEEN = "\n\n"


def read_pdf(uri: str, path: Path) -> Iterator[Document]:
    """Read the text of a PDF file. In the outline of the resulting document, `pages` has the beginning of
    each page, and `headings` has the bookmarks of the file.
    """
    import pypdfium2

    pdf = pypdfium2.PdfDocument(path)
    try:
        pages: list[str] = []
        for number in range(len(pdf)):
            page = pdf[number]
            text = page.get_textpage()
            pages.append(text.get_text_bounded().replace("\r\n", "\n").replace("\0", "").strip())
            text.close()
            page.close()
        bookmarks = [(mark.level, mark.get_title(), mark.get_dest()) for mark in pdf.get_toc()]
        marks = [(level, title, dest.get_index()) for level, title, dest in bookmarks if dest is not None]
        title = pdf.get_metadata_value("Title").strip() or title_of(path)
    finally:
        pdf.close()
    if not any(pages):
        raise InputError(f"{path}: {len(pages)} pages without text; perhaps scanned: recognise its text first")
    starts, at = [], 0
    for page_text in pages:
        starts.append(at)
        at += len(page_text) + len(_BETWEEN)
    headings = _headings(pages, starts, marks)
    yield TextDocument(uri, title, _BETWEEN.join(pages), outline=Outline(headings=headings, pages=tuple(starts)))


def _headings(
    pages: list[str], starts: list[int], marks: list[tuple[int, str, int | None]]
) -> tuple[Heading, ...]:
    """Make headings from bookmarks. `marks` has (depth from 0, title, number of the page) for each bookmark.

    A heading is at the place where its page contains the title of the bookmark. This place must be after the
    previous heading. If there is no such place, the bookmark is left out.
    """
    headings: list[Heading] = []
    for level, title, page in marks:
        if page is None or not 0 <= page < len(pages) or not title.strip():
            continue
        behind = max(headings[-1].end - starts[page], 0) if headings else 0
        at = pages[page].find(title.strip(), behind)
        if at >= 0:
            start = starts[page] + at
            headings.append(Heading(start, start + len(title.strip()), min(level + 1, 6), title.strip()))
    return tuple(headings)
