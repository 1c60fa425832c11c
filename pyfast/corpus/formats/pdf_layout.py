"""Find the headings of a PDF file without bookmarks by the fonts of its lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import hypot
from typing import Any, NamedTuple

_LARGER = 1.15
_LONGEST = 120
_MOST_LINES = 3
_FAR = 3  # how many times the size of the font, from one line to the next
_UPRIGHT = 0.1
# PDFium writes U+0002, or U+FFFE, for a hyphen at the end of a line, and leaves out the end of the line.
_HYPHEN = re.compile(r"(?<=\w)(?:[\x02\ufffe]|[-\u2010\u00ad][ ]?[\r\n]+)(?=\w)")
_NUMBERS = re.compile(r"\d+")
_BOLD = re.compile(r"bold|black|heavy", re.IGNORECASE)


class Line(NamedTuple):
    """A line of a page. `size` is the size of its font in half points. It is 0 if the line has several fonts, or
    is bold with wide gaps, as the header of a table is."""

    text: str
    size: int
    bold: bool


def text_of(page: Any) -> str:
    """Return the text of a page (a `PdfTextPage`). Behind a hyphen at the end of a line, an empty line stands
    before text of another block, such as a footer: it has another size of font, or is far below."""
    import ctypes

    import pypdfium2.raw as pdfium

    def apart(before: int, after: int) -> bool:
        at, to = (pdfium.FPDFText_GetCharIndexFromTextIndex(page, it) for it in (before, after))
        x, y, lower = (ctypes.c_double() for _ in range(3))
        if min(at, to) < 0 or not (
            pdfium.FPDFText_GetCharOrigin(page, at, x, y) and pdfium.FPDFText_GetCharOrigin(page, to, x, lower)
        ):
            return False
        sizes = sorted((_size(page, at), _size(page, to)))
        # `_size` is in half points. On a page that is turned, lines are not below each other.
        upright = abs(pdfium.FPDFText_GetCharAngle(page, at)) < _UPRIGHT
        far = upright and 2 * (y.value - lower.value) > _FAR * sizes[1]
        return far or sizes[1] >= sizes[0] * _LARGER

    def hyphen(found: re.Match[str]) -> str:
        return "-\n\n" if apart(found.start() - 1, found.end()) else found[0]

    return _HYPHEN.sub(hyphen, page.get_text_range())


def lines_of(page: Any) -> list[Line]:
    """Return the lines of a page (a `PdfTextPage`)."""
    import pypdfium2.raw as pdfium

    whole = page.get_text_range()
    lines: list[Line] = []
    for match in re.finditer(r"[^\r\n]+", whole):
        text = match[0].strip()
        if not text:
            continue
        start = match.start() + match[0].index(text)
        ends = [
            pdfium.FPDFText_GetCharIndexFromTextIndex(page, at)
            for at in (start, start + len(text) // 2, start + len(text) - 1)
        ]
        visible = [at for at in ends if at >= 0 and not chr(pdfium.FPDFText_GetUnicode(page, at)).isspace()]
        fonts = {(_size(page, at), _is_bold(page, at)) for at in visible}
        size, bold = fonts.pop() if len(fonts) == 1 else (0, False)
        if bold and len(text) <= _LONGEST and _has_gaps(page, ends[0], ends[-1], size):
            size = 0
        lines.append(Line(text, size, bold))
    return lines


def without_numbers(line: str) -> str:
    """What a line has in common with the same header or footer on another page."""
    return _NUMBERS.sub("", line).strip()


def headings_of(pages: Sequence[Sequence[Line]]) -> list[tuple[int, str, int]]:
    """Return (depth from 0, text, number of the page from 0) for each heading.

    A heading is one to three short lines in a font that is larger than that of most of the text, or as large and
    bold. It does not end like a sentence. A line that is on several pages, apart from its numbers, is no heading.
    A file in which more than a third of all lines would be headings has none.
    """
    fonts: Counter[tuple[int, bool]] = Counter()
    places: Counter[str] = Counter()
    for lines in pages:
        places.update({without_numbers(line.text) for line in lines})
        for line in lines:
            fonts[line.size, line.bold] += len(line.text)
    fonts = Counter({font: times for font, times in fonts.items() if font[0]})
    if not fonts:
        return []
    (body, body_bold), _ = fonts.most_common(1)[0]

    def style(line: Line) -> tuple[int, bool] | None:
        larger = line.size >= body * _LARGER
        bolder = line.bold and not body_bold and line.size >= body
        repeated = places[without_numbers(line.text)] > 1
        return (line.size, line.bold) if (larger or bolder) and not repeated else None

    found: list[tuple[tuple[int, bool], str, int]] = []
    taken = 0
    for number, lines in enumerate(pages):
        for font, group in groupby(lines, key=style):
            members = list(group)
            text = " ".join(line.text for line in members)
            if font is None or len(members) > _MOST_LINES or not _is_heading(text):
                continue
            found.append((font, text, number))
            taken += len(members)
    if 3 * taken > sum(map(len, pages)):
        return []
    ranks = {font: rank for rank, font in enumerate(sorted({font for font, _, _ in found}, reverse=True))}
    return [(ranks[font], text, number) for font, text, number in found]


def _is_heading(text: str) -> bool:
    return (
        len(text) <= _LONGEST
        and sum(map(str.isalpha, text)) > 1
        and not text.endswith(tuple(".,;:!?-。、，；：！？\x02"))
    )


def _size(page: Any, at: int) -> int:
    """The size of a character as it is shown, in half points."""
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    scale = hypot(matrix.c, matrix.d) if pdfium.FPDFText_GetMatrix(page, at, matrix) else 1
    return int(2 * scale * pdfium.FPDFText_GetFontSize(page, at) + 0.5)


def _is_bold(page: Any, at: int) -> bool:
    import ctypes

    import pypdfium2.raw as pdfium

    name = ctypes.create_string_buffer(128)
    pdfium.FPDFText_GetFontInfo(page, at, name, len(name), ctypes.c_int())
    return bool(_BOLD.search(name.value.decode(errors="replace")))


def _has_gaps(page: Any, first: int, last: int, size: int) -> bool:
    """Whether a line has a gap between two characters that is wider than two characters are high."""
    import ctypes

    import pypdfium2.raw as pdfium

    end: float | None = None
    for at in range(first, last + 1):
        if first < 0 or chr(pdfium.FPDFText_GetUnicode(page, at)).isspace():
            continue
        left, right, bottom, top = (ctypes.c_double() for _ in range(4))
        if not pdfium.FPDFText_GetCharBox(page, at, left, right, bottom, top):
            continue
        if end is not None and left.value - end > size:  # `size` is in half points.
            return True
        end = right.value
    return False
