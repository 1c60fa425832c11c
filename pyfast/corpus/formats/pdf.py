"""Read PDF files: the text of each page, and the bookmarks as headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyfast.corpus.documents import Document, Outline, TextDocument, Unread
from pyfast.corpus.formats.names import title_of
from pyfast.corpus.rendering import without_controls
from pyfast.corpus.sections import Heading
from pyfast.errors import InputError

_BETWEEN = "\n\n"


# How PDFium marks a hyphen at the end of a line, and the hyphens that it does not mark.
_BROKEN = re.compile(r"(\w+)(?:[\x02\ufffe\u00ad]\n?|[-\u2010]\n)(\w+)")
_HYPHENATED = re.compile(r"\w+-\w+")
# What may stand before the title of a bookmark in its line, such as `1.2` or `Chapter 3:`.
_NUMBER = r"^[ \t]*(?:(?:[^\W\d_]+[ \t]+)?(?:\d[\d.]*|[IVXLC]+\b|[A-Z]\b)[.:)]?[ \t]+)?"
_TENS = frozenset(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])


def read_pdf(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text of a PDF file. In the outline of the resulting document, `pages` has the beginning of
    each page, and `headings` has the bookmarks of the file. Pages without text are named, if others have text.
    """
    import pypdfium2

    pdf = pypdfium2.PdfDocument(path)
    try:
        pages: list[str] = []
        for number in range(len(pdf)):
            page = pdf[number]
            text = page.get_textpage()
            pages.append(text.get_text_bounded().replace("\r\n", "\n"))
            text.close()
            page.close()
        bookmarks = [(mark.level, mark.get_title(), mark.get_dest()) for mark in pdf.get_toc()]
        marks = [(level, title, dest.get_index()) for level, title, dest in bookmarks if dest is not None]
        title = pdf.get_metadata_value("Title").strip() or title_of(path)
    finally:
        pdf.close()
    pages = [without_controls(page).strip() for page in _joined(pages)]
    if not any(pages):
        raise InputError(f"{path}: {len(pages)} pages without text; perhaps scanned: recognise its text first")
    empty = [number for number, page in enumerate(pages, 1) if not page]
    starts, headings = _headings(pages, marks)
    yield TextDocument(uri, title, _BETWEEN.join(pages), outline=Outline(headings=headings, pages=starts))
    if empty:
        several, have = ("s", "have") if len(empty) > 1 else ("", "has")
        yield Unread(path, f"page{several} {_ranges(empty)} {have} no text (scanned?)")


def _joined(pages: Sequence[str]) -> Iterator[str]:
    """Join words that were divided at the end of a line.

    The hyphen stays if the file has the word with a hyphen at another place, before a capital letter or a digit,
    and in numbers such as twenty-one.
    """
    whole = frozenset(word.lower() for page in pages for word in _HYPHENATED.findall(page))

    def join(found: re.Match[str]) -> str:
        left, right = found.groups()
        own = (
            f"{left}-{right}".lower() in whole
            or not right[0].islower()
            or left[-1].isdigit()
            or left.lower() in _TENS
        )
        return f"{left}-{right}" if own else left + right

    return (_BROKEN.sub(join, page) for page in pages)


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers with their runs as ranges: `2-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _headings(
    pages: list[str], marks: Sequence[tuple[int, str, int | None]]
) -> tuple[tuple[int, ...], tuple[Heading, ...]]:
    """Make headings from bookmarks. `marks` has (depth from 0, title, number of the page) for each bookmark.

    A heading is the line of its page that says the title of the bookmark, after the previous heading. If there is
    no such line, the title is written into the page, before the text that it may be about.

    Returns (the place where each page begins, the headings).
    """
    found: list[tuple[int, int, int, int, str]] = []
    page_before, behind = 0, 0
    for level, title, page in marks:
        words = without_controls(title).split()
        if page is None or not 0 <= page < len(pages) or not words:
            continue
        page = max(page, page_before)
        behind = behind if page == page_before else 0
        page_before, said = page, r"\s+".join(map(re.escape, words))
        line = re.compile(_NUMBER + rf"{said}[ \t.:]*$", re.MULTILINE | re.IGNORECASE)
        if match := line.search(pages[page], behind):
            start, end = match.span()
        else:
            before, after = pages[page][:behind].rstrip(), pages[page][behind:].lstrip()
            start = len(before) + len(_BETWEEN) if before else 0
            pages[page] = _BETWEEN.join(filter(None, [before, " ".join(words), after]))
            end = start + len(" ".join(words))
        behind = end
        found.append((page, start, end, min(level + 1, 6), " ".join(pages[page][start:end].split())))
    starts = [0]
    for text in pages[:-1]:
        starts.append(starts[-1] + len(text) + len(_BETWEEN))
    return tuple(starts), tuple(
        Heading(starts[page] + start, starts[page] + end, depth, text) for page, start, end, depth, text in found
    )
