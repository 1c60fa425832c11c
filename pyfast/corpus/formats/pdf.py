"""Read PDF files: the text of each page, and the headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from pyfast.corpus.documents import Document, Heading, Outline, TextDocument, Unread
from pyfast.corpus.formats.building import title_of
from pyfast.corpus.formats.pdf_layout import Line, headings_of, lines_of, text_of, without_numbers
from pyfast.corpus.rendering import without_controls
from pyfast.errors import InputError

_BETWEEN = "\n\n"
_LINE_END = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
# PDFium writes U+0002, or U+FFFE, for a hyphen at the end of a line, and leaves out the end of the line.
_BROKEN = re.compile(r"([^\W_]+)(?:[\x02\ufffe]\s*|\u00ad\s*|[-\u2010][ ]?\n(?=[^\W\d_A-Z]))(?=([^\W_]+))")
# The beginning and the rest of a word that is broken at the end of a page.
_CUT = re.compile(r"(?<=[^\W\d_])[-\u2010\u00ad]\s*$")
_REST = re.compile(r"\s*([^\W\d_A-Z]\S*)[ \t]*")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_NUMBER = re.compile(
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty-"
    r"(?:one|two|three|four|five|six|seven|eight|nine|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)"
)
# What may stand before the title of a bookmark in its line, such as `1.2` or `Chapter 3:`.
_BEFORE_TITLE = r"^[ \t]*(?:(?:[^\W\d_]+[ \t]+)?(?:\d[\d.]*|[IVXLC]+\b|[A-Z]\b)[.:)]?[ \t]+)?"
_ALWAYS_HYPHENED = "self"
_LONGEST_BEFORE = 200
_SHORT, _CODE = 3, 4
_SHARED = frozenset(("and", "or", "to", "und", "oder", "bis", "et", "ou"))


def read_pdf(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text of a PDF file. In the outline of the resulting document, `pages` has the beginning of
    each page. `headings` has the bookmarks of the file. Without bookmarks, it has the short lines whose font
    is larger or bolder than that of the text. Words that are broken at the end of a line or of a page are joined.

    Yields an `Unread` for pages without text. Raises InputError if no page has text.
    """
    import pypdfium2

    pdf = pypdfium2.PdfDocument(path)
    try:
        bookmarks = [(mark.level, mark.get_title(), mark.get_dest()) for mark in pdf.get_toc()]
        marks = [(level, title, dest.get_index()) for level, title, dest in bookmarks if dest is not None]
        raw: list[str] = []
        lines: list[list[Line]] = []
        for number in range(len(pdf)):
            page = pdf[number]
            text = page.get_textpage()
            raw.append(_LINE_END.sub("\n", text_of(text)))
            lines.append([] if marks else lines_of(text))
            text.close()
            page.close()
        title = without_controls(pdf.get_metadata_value("Title")).strip() or title_of(path)
    finally:
        pdf.close()
    known = frozenset(word.lower().replace("\u2010", "-") for page in raw for word in _WORD.findall(page))
    pages = [_joined(page, known) for page in _joined_pages(raw)]
    if not any(pages):
        raise InputError(f"{path}: {len(pages)} pages without text; perhaps scanned: recognise its text first")
    empty = [number for number, page in enumerate(pages, 1) if not page]
    marks = marks or headings_of(lines)
    starts, headings = _headings(pages, [(level, _joined(mark, known), page) for level, mark, page in marks])
    if empty:
        yield Unread(path, _without_text(empty))
    yield TextDocument(uri, title, _BETWEEN.join(pages), outline=Outline(headings=headings, pages=starts))


def _joined_pages(pages: Sequence[str]) -> list[str]:
    """Put the rest of a word that is broken at the end of a page behind its beginning. Headers and footers, which
    are on several pages apart from their numbers, are no end and no beginning of a page."""
    split = [page.split("\n") for page in pages]
    times = Counter(line for lines in split for line in {without_numbers(it) for it in lines})

    def own(lines: list[str]) -> list[int]:
        return [at for at, line in enumerate(lines) if line.strip() and times[without_numbers(line)] < 2]

    for lines, following in pairwise(split):
        body, after = own(lines), own(following)
        if not body or not after:
            continue
        left = _CUT.search(lines[body[-1]])
        right = _REST.match(following[after[0]])
        if left and right:
            lines[body[-1]] = f"{lines[body[-1]][: left.start()]}\x02{right[1]}"
            following[after[0]] = following[after[0]][right.end() :]
    return ["\n".join(lines) for lines in split]


def _joined(text: str, known: frozenset[str]) -> str:
    """Join the words that are broken at the end of a line, and leave out control characters. `known` has the words
    of the whole file, in lower case.

    The hyphen stays if the file has the word with it elsewhere. It also stays in a number (``twenty-one``), beside
    a digit, before a capital letter after a small one (``Jean-Luc``), between short words in capitals
    (``AB-CD``), after ``self``, after a short word that has a hyphen before it (``state-of-the``), and in an
    address. In ``pre-`` before ``and``, it stays with a space.
    """

    def word(match: re.Match[str]) -> str:
        left, right = match[1], match[2]
        first, second = left.lower(), right.lower()
        if second in _SHARED and f"{first}{second}" not in known:
            return f"{left}- "
        if f"{first}-{second}" in known:
            return f"{left}-"
        if f"{first}{second}" in known:
            return left
        hyphened = (
            _NUMBER.fullmatch(f"{first}-{second}")
            or first == _ALWAYS_HYPHENED
            or left[-1].isdigit()
            or right[0].isdigit()
            or (left[-1].islower() and right[0].isupper())
            or (len(left) <= _CODE and left.isupper() and right[0].isupper())
            or _goes_on(text[max(0, match.start() - _LONGEST_BEFORE) : match.start()], left)
        )
        return f"{left}-" if hyphened and "\u00ad" not in match[0] else left

    return without_controls(_BROKEN.sub(word, text).replace("\u00ad", "")).strip()


def _goes_on(before: str, left: str) -> bool:
    """Whether a word before a hyphen ends a part of a compound or of an address."""
    attached = re.split(r"\s", before)[-1]
    compound = len(left) <= _SHORT and attached.endswith(("-", "\u2010"))
    return compound or "://" in attached or "@" in attached or attached.startswith("www.")


def _without_text(pages: list[int]) -> str:
    """Name pages by their numbers: ``pages 2-3, 7 have no text (scanned?)``."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and runs[-1][-1] == page - 1:
            runs[-1].append(page)
        else:
            runs.append([page])
    named = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"pages {named} have no text (scanned?)" if len(pages) > 1 else f"page {named} has no text (scanned?)"


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
        line = re.compile(_BEFORE_TITLE + rf"{said}[ \t.:]*$", re.MULTILINE | re.IGNORECASE)
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
