"""Read PDF files: the text of each page, and the headings. Without bookmarks, headings are found by the fonts
of the lines."""

from __future__ import annotations

import ctypes
import logging
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from math import hypot, pi
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pyfast.corpus.documents import Document, Heading, Outline, TextDocument, Unread
from pyfast.corpus.formats import right_to_left
from pyfast.corpus.formats.pdf_columns import Block, Box, Line, blocks_of, is_prose
from pyfast.corpus.grids import title_of
from pyfast.corpus.rendering import without_controls
from pyfast.errors import InputError

_BETWEEN = "\n\n"
_LINE_END = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
# PDFium writes U+0002, or U+FFFE, for a hyphen at the end of a line, and leaves out the end of the line.
_LOST = r"[\x02\ufffe]"
_HYPHEN = re.compile(rf"(?<=\w)(?:{_LOST}|[-\u2010\u00ad][ ]?[\r\n]+)(?=\w)")
_BROKEN = re.compile(rf"([^\W_]+)(?:{_LOST}\s*|\u00ad\s*|[-\u2010][ ]?\n(?=[^\W_A-Z]))(?=([^\W_]+))")
# A number whose last digits may be raised, as in a power, or a word with the mark of a footnote.
_DIGITS = re.compile(r"[^\W_]\d*[.,;:!?%)\]}\"'\u2019\u201d\xbb]?[-+\u2212]?\d+")
_MARKED = re.compile(f"{_DIGITS.pattern}|{_HYPHEN.pattern}")
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
_LARGER, _CLEARLY_LARGER = 1.15, 1.2
_LONGEST = 120
_MOST_LINES = 3
_FAR = 3  # how many times the size of the font, from one line to the next
_NEAR, _LIFT = 2, 0.7  # times the size of the font, between the characters of a line
_UPRIGHT = 0.1
_LIGHT = 0x80
_NOT_SHOWN = 0x22  # the flags of annotations that are hidden, or not shown on a screen
_NEAR_FIELD = 150.0
_SAMPLED, _MOST_UNKNOWN = 16, 0.1
_NUMBERS = re.compile(r"\d+")
# Letters with single spaces between them
_SPACED = re.compile(r"(?<!\S)[^\W_](?: [^\W_]){3,}(?!\S)")
_LEAST_SPACED, _VOWEL = 4, re.compile("[AEIOUYÄÖÜÁÉÍÓÚÅØÆ]")
_MOST_SPACED, _WIDER = 1.1, 1.5  # times the size of the font, and times the usual gap
_BOLD = re.compile(r"bold|black|heavy", re.IGNORECASE)
_ALWAYS_HYPHENED = "self"
_LONGEST_BEFORE = 200
_SHORT, _CODE = 3, 4
_SHARED = frozenset(("and", "or", "to", "und", "oder", "bis", "et", "ou"))


def read_pdf(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text of a PDF file, with what is filled into its forms. In the document's outline, `pages` lists
    where each page begins, and `headings` the file's bookmarks. Without bookmarks, the headings are the short
    lines in a larger or bolder font than the body text. Words broken at the end of a line or page are joined.

    Yields an `Unread` for pages without text, and for a form that cannot be read. Raises InputError if no page
    contains text.
    """
    import pypdfium2
    import pypdfium2.raw

    pdf = pypdfium2.PdfDocument(path)
    try:
        is_xfa = pdf.get_formtype() == pypdfium2.raw.FORMTYPE_XFA_FULL
        if not is_xfa:
            logging.getLogger("pypdfium2").setLevel(logging.ERROR)  # It would warn about a form in two formats.
            pdf.init_forms()
        bookmarks = [(mark.level, mark.get_title(), mark.get_dest()) for mark in pdf.get_toc()]
        marks = [(level, title, dest.get_index()) for level, title, dest in bookmarks if dest is not None]
        raw: list[str] = []
        lines: list[list[_Line]] = []
        unknown: list[int] = []
        for number in range(len(pdf)):
            page = pdf[number]
            text = page.get_textpage()
            characters = _Characters(text, _filled_in(page))
            raw.append(_LINE_END.sub("\n", characters.text()))
            lines.append([] if marks else characters.lines())
            unknown += [number + 1] if characters.are_unknown() else []
            text.close()
            page.close()
        title = title_of(path, without_controls(pdf.get_metadata_value("Title")))
    finally:
        pdf.close()
    known = frozenset(word.lower().replace("\u2010", "-") for page in raw for word in _WORD.findall(page))
    pages = [_joined(page, known) for page in _joined_pages(raw)]
    if not any(pages):
        raise InputError(f"{path}: no text was found (pages: {len(pages)}); if the pages are scans, run OCR first")
    empty = [number for number, page in enumerate(pages, 1) if not page and number not in unknown]
    marks = marks or _headings_of(lines)
    starts, headings = _headings(pages, [(level, _joined(mark, known), page) for level, mark, page in marks])
    if is_xfa:
        yield Unread(path, "the form in this file (XFA) was not read; print it as a PDF")
    if empty:
        yield Unread(path, f"{_pages(empty)} no text (scanned?)")
    if unknown:
        yield Unread(path, f"{_pages(unknown)} text in fonts that do not name their letters; run OCR")
    yield TextDocument(uri, title, _BETWEEN.join(pages), outline=Outline(headings=headings, pages=starts))


class _Field(NamedTuple):
    """What is filled into a form, or written on a page."""

    text: str
    is_box: bool
    left: float
    bottom: float
    right: float
    top: float


def _filled_in(page: Any) -> list[_Field]:
    """The values of the fields of a form, and the texts that people wrote on the page, from left to right."""
    import pypdfium2.raw as pdfium

    found: list[_Field] = []
    place = pdfium.FS_RECTF()
    for number in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        is_shown = not pdfium.FPDFAnnot_GetFlags(annotation) & _NOT_SHOWN
        pdfium.FPDFAnnot_GetRect(annotation, place)
        said, is_box = "", False
        if kind == pdfium.FPDF_ANNOT_FREETEXT:
            said = _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
        elif kind == pdfium.FPDF_ANNOT_WIDGET and page.formenv:
            of = page.formenv, annotation
            field = pdfium.FPDFAnnot_GetFormFieldType(*of)
            is_box = field in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
            if is_box:
                said = "☒" if pdfium.FPDFAnnot_IsChecked(*of) else "☐"
            elif field not in (pdfium.FPDF_FORMFIELD_PUSHBUTTON, pdfium.FPDF_FORMFIELD_SIGNATURE):
                said = _string(pdfium.FPDFAnnot_GetFormFieldValue, *of)
        if is_shown and (said := " ".join(said.split())):
            found.append(_Field(said, is_box, place.left, place.bottom, place.right, place.top))
        pdfium.FPDFPage_CloseAnnot(annotation)
    return sorted(found, key=lambda it: it.left)


def _string(function: Any, *of: Any) -> str:
    """A string that PDFium writes into a buffer."""
    data = (ctypes.c_ushort * (function(*of, None, 0) // 2))()
    function(*of, data, ctypes.sizeof(data))
    return bytes(data).decode("utf-16-le", errors="replace").rstrip("\0")


def _joined_pages(pages: Sequence[str]) -> list[str]:
    """Rejoin words that are broken at the end of a page. Headers and footers, which repeat on several pages except
    for their numbers, do not count as the end or beginning of a page."""
    split = [page.split("\n") for page in pages]
    times = Counter(line for lines in split for line in {_without_numbers(it) for it in lines})

    def own(lines: list[str]) -> list[int]:
        return [at for at, line in enumerate(lines) if line.strip() and times[_without_numbers(line)] < 2]

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
    """Join words broken at the end of a line, and remove control characters. `known` contains the words of the
    whole file, in lower case.

    The hyphen stays if the hyphenated word occurs elsewhere in the file. It also stays in a number
    (``twenty-one``), next to a digit, between a lower-case and a capital letter (``Jean-Luc``), between short
    words in capitals (``AB-CD``), after ``self``, after a short word with a hyphen before it (``state-of-the``),
    and in an address. In ``pre-`` before ``and``, it stays, followed by a space.
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
    """Whether the word before a hyphen belongs to a compound or an address."""
    attached = re.split(r"\s", before)[-1]
    compound = len(left) <= _SHORT and attached.endswith(("-", "\u2010"))
    return compound or "://" in attached or "@" in attached or attached.startswith("www.")


def _pages(pages: list[int]) -> str:
    """Name pages by their numbers: ``pages 2-3, 7 have``."""
    # In a run of consecutive pages, the difference between a page and its place in the list is the same.
    groups = groupby(enumerate(pages), key=lambda it: it[1] - it[0])
    runs = [[page for _, page in group] for _, group in groups]
    named = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"pages {named} have" if len(pages) > 1 else f"page {named} has"


def _headings(
    pages: list[str], marks: Sequence[tuple[int, str, int | None]]
) -> tuple[tuple[int, ...], tuple[Heading, ...]]:
    """Make headings from bookmarks. `marks` lists (depth from 0, title, page number) for each bookmark.

    A heading is the line after the previous heading that contains the bookmark's title. If its page contains no
    such line, the title is inserted before the text to which it may belong.

    Returns (the offset at which each page begins, the headings).
    """
    found: list[tuple[int, Heading]] = []  # (page, the heading with its offsets in the page)
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
        found.append((page, Heading(start, end, min(level + 1, 6), " ".join(pages[page][start:end].split()))))
    starts = [*accumulate((len(text) + len(_BETWEEN) for text in pages[:-1]), initial=0)]
    placed = ((starts[page], it) for page, it in found)
    return tuple(starts), tuple(it._replace(start=at + it.start, end=at + it.end) for at, it in placed)


class _Line(NamedTuple):
    """A line of a page. `size` is its font size in half points, or 0 if the line mixes fonts, is a watermark, or
    is bold with wide gaps, like a table header."""

    text: str
    size: int
    bold: bool


class _Characters:
    """The characters of a page (a `PdfTextPage`), with their fonts and positions."""

    def __init__(self, page: Any, fields: Sequence[_Field] = ()) -> None:
        import pypdfium2.raw

        self._page, self._pdfium = page, pypdfium2.raw
        self._place = ctypes.c_double(), ctypes.c_double()
        self._box, self._loose = [ctypes.c_double() for _ in range(4)], self._pdfium.FS_RECTF()
        self._removed: list[int] = []
        self._order: list[int] = []
        text = self._in_reading_order(page.get_text_range())
        self._whole = self._without_breaks(self._with_fields(text, fields) if fields else text)

    def _in_reading_order(self, text: str) -> str:
        """Put lines of right-to-left text into their reading order."""
        if not right_to_left.LETTER.search(text):
            return self._in_columns(text)
        rows: list[tuple[set[int], list[right_to_left.Glyph]]] = []
        for found in re.finditer(r"[^\r\n]+|[\r\n]+", text):
            at = [self._index(place) for place in range(*found.span())]
            if not (right_to_left.LETTER.search(found[0]) and min(at) >= 0 and self._is_upright(at[0])):
                rows.append((set(), [right_to_left.Glyph(*it, 0, 0) for it in zip(found[0], at, strict=True)]))
                continue
            origins = [self._origin(it) for it in at]
            heights = {round(height) for _, height in origins}
            glyphs = [self._glyph(*it) for it in zip(found[0], at, (left for left, _ in origins), strict=True)]
            if len(rows) > 1 and rows[-2][0] & heights:  # PDFium ends a line where a mark is high above a letter.
                rows.pop()
                rows[-1][0].update(heights)
                rows[-1][1].extend(glyphs)
            else:
                rows.append((heights, glyphs))
        from_right = right_to_left.is_from_right(text)
        whole = [
            glyph
            for heights, glyphs in rows
            for glyph in (
                right_to_left.in_reading_order(glyphs, self._size(max(it.at for it in glyphs)) / 2, from_right)
                if heights
                else glyphs
            )
        ]
        self._order = [it.at for it in whole]
        return "".join(it.text for it in whole)

    def _in_columns(self, text: str) -> str:
        """Put the columns of a page whose text is drawn line by line across them one after another."""
        boxes = []
        for number in range(self._page.count_rects()):
            self._pdfium.FPDFText_GetRect(self._page, number, *self._box)
            left, top, right, bottom = (it.value for it in self._box)
            boxes.append(Box(left, bottom, right, top, number))
        blocks = [block for block in blocks_of(boxes) if is_prose(self._lines_of(block, text))]
        if not blocks:
            return text
        pieces = list(self._pieces(text, blocks))
        placed: list[tuple[Block | None, int, int, int]] = []
        for piece in pieces:
            if piece[0] is None:
                placed.append(piece)
            elif piece not in placed:
                placed += sorted((it for it in pieces if it[0] == piece[0]), key=itemgetter(1))
        self._order = [it for *_, first, end in placed for it in [*map(self._index, range(first, end)), -1, -1]]
        return "\r\n".join(text[first:end] for *_, first, end in placed)

    def _lines_of(self, block: Block, text: str) -> list[list[Line]]:
        """The lines of each column of a block."""
        lines: list[list[Line]] = [[] for _ in range(len(block.edges) + 1)]
        for of, column, first, end in self._pieces(text, [block]):
            if of:
                (left, y), (right, _) = self._origin(self._index(first)), self._origin(self._index(end - 1))
                lines[column].append(Line(left, right, y, text[first:end]))
        return lines

    def _pieces(self, text: str, blocks: Sequence[Block]) -> Iterator[tuple[Block | None, int, int, int]]:
        """Yield the pieces of lines: the block in which each is, its column there, its begin and its end."""

        def column_of(place: int) -> tuple[Block | None, int]:
            x, y = self._origin(max(self._index(place), 0))
            return next(((it, column) for it in blocks if (column := it.column(x, y)) >= 0), (None, 0))

        for found in re.finditer(r"[^\r\n]+", text):
            places = [place for place in range(*found.span()) if not text[place].isspace()]
            for (block, column), group in groupby(places, key=column_of):
                inside = list(group)
                yield block, column, inside[0], inside[-1] + 1

    def _with_fields(self, text: str, fields: Sequence[_Field]) -> str:
        """Write what is filled in behind the name at its left, or else behind the one above it, or else at the
        end. A box to be ticked stands before its name if this is nearer."""
        order = self._order or [self._index(place) for place in range(len(text))]
        points = [
            self._origin(at) if at >= 0 and not it.isspace() else None for at, it in zip(order, text, strict=True)
        ]
        for field in fields:
            beside, behind, above = [(_NEAR_FIELD, 0)], [(_NEAR_FIELD, 0)], [(_NEAR_FIELD, 0)]
            for place, (x, y) in ((place, point) for place, point in enumerate(points) if point):
                if field.bottom - 2 <= y <= field.top:
                    (beside if x < field.left else behind).append((abs(field.left - x), place))
                elif field.top < y and field.left - 5 <= x <= field.right:
                    above.append((y - field.top, -place))
            (left, before), (right, following), (up, last) = min(beside), min(behind), min(above)
            place, said = len(text), f"\r\n{field.text}"
            if field.is_box and right < left:
                place, said = following, f"{field.text} "
            elif min(left, up) < _NEAR_FIELD:
                is_beside = left <= max(up, _NEAR_FIELD / 2)
                place, said = 1 + (before if is_beside else -last), f" {field.text}"
            text = text[:place] + said + text[place:]
            order[place:place] = [-1] * len(said)
            points[place:place] = [None] * len(said)
        self._order = order
        return text

    def _glyph(self, text: str, at: int, left: float) -> right_to_left.Glyph:
        self._pdfium.FPDFText_GetLooseCharBox(self._page, at, self._loose)
        right = self._loose.right
        if right <= left or text == " ":  # PDFium also leaves out spaces, and adds some where gaps are.
            self._pdfium.FPDFText_GetCharBox(self._page, at, *self._box)
            right = max(left, self._box[1].value)
            if text == " " and self._box[0].value == self._box[1].value:
                at = -1
        return right_to_left.Glyph(text, at, left, right)

    def _without_breaks(self, text: str) -> str:
        """Remove the line ends that PDFium writes where a line merely continues higher or lower: `H2\\nO`, and the
        spaces in words that are spaced out: `W A R R A N T Y`. For each removed character, `_removed` holds the
        place in the new text of the character that follows it."""
        gone: set[int] = set()
        for found in _SPACED.finditer(text):
            gone.update(self._spaces_in_words(text, *found.span()))
        for found in re.finditer(r"(?<=[^\r\n])\r\n(?=[^\r\n])", text):
            if self._goes_on(self._index(found.start() - 1), self._index(found.end())):
                gone.update(range(*found.span()))
        self._removed = [place - number for number, place in enumerate(sorted(gone))]
        return "".join(it for place, it in enumerate(text) if place not in gone) if gone else text

    def _spaces_in_words(self, text: str, first: int, end: int) -> list[int]:
        """The places of the spaces in words that are spaced out. A wider gap is between two words. Letters far
        apart, in the order of the alphabet, or of the answers to a test (`A C B D`), are no word."""
        gaps, before = dict[int, float](), 0.0
        for place in range(first, end, 2):
            self._pdfium.FPDFText_GetCharBox(self._page, max(self._index(place), 0), *self._box)
            gaps[place - 1], before = self._box[0].value - before, self._box[1].value
        del gaps[first - 1]
        usual = median(gaps.values())
        wide = [place for place, gap in gaps.items() if gap > _WIDER * usual]
        words = (text[space + 1 : place : 2] for space, place in pairwise([first - 1, *wide, end]))
        longest = max(words, key=len).upper()
        # `_size` is in half points.
        is_near = 0 < 2 * usual < _MOST_SPACED * self._size(max(self._index(first), 0))
        is_word = len(longest) >= _LEAST_SPACED and len(set(longest)) > 2 and _VOWEL.search(longest)
        if not (is_near and is_word) or list(longest) == sorted(longest) or set(longest) <= set("ABCDE"):
            return []
        return [place for place in gaps if place not in wide]

    def _goes_on(self, at: int, to: int) -> bool:
        """Whether one character directly follows another, though somewhat higher or lower."""
        if min(at, to) < 0:
            return False
        (left, low), (right, high) = self._origin(at), self._origin(to)
        if right <= left:  # as at almost every line end
            return False
        # `_size` is in half points.
        size = max(self._size(at), self._size(to)) / 2
        return right - left < _NEAR * size and abs(high - low) < _LIFT * size

    def text(self) -> str:
        """Return the text of the page. A power, such as 10 with a raised 6, is written so that it does not become
        a different number, and a footnote mark so that it does not become part of a word. After a hyphen at the
        end of a line, an empty line precedes the text of another block, such as a footer, which differs in font
        size or stands far below."""

        def marked(found: re.Match[str]) -> str:
            if found[0][-1].isdigit():
                return self._with_power(found.start(), found[0])
            return "-\n\n" if self._are_apart(found.start() - 1, found.end()) else found[0]

        return _MARKED.sub(marked, self._whole)

    def lines(self) -> list[_Line]:
        """Return the lines of the page."""
        lines: list[_Line] = []
        for match in re.finditer(r"[^\r\n]+", self._whole):
            text = match[0].strip()
            if not text:
                continue
            start = match.start() + match[0].index(text)
            ends = [self._index(at) for at in (start, start + len(text) // 2, start + len(text) - 1)]
            fonts = {(self._size(at), self._is_bold(at)) for at in ends if at >= 0 and not self._is_space(at)}
            size, bold = fonts.pop() if len(fonts) == 1 else (0, False)
            is_mark = ends[0] >= 0 and (self._is_aslant(ends[0]) or self._is_across(text, ends[0], ends[-1]))
            if is_mark or (bold and len(text) <= _LONGEST and self._has_gaps(ends[0], ends[-1], size)):
                size = 0
            lines.append(_Line(self._with_powers(start, text), size, bold))
        return lines

    def are_unknown(self) -> bool:
        """Whether many of the characters are glyphs of which the file does not say what letters they are."""
        many = self._pdfium.FPDFText_CountChars(self._page)
        for step in (_SAMPLED, 1):
            wrong = [
                at for at in range(0, many, step) if self._pdfium.FPDFText_HasUnicodeMapError(self._page, at) == 1
            ]
            if len(wrong) * step <= _MOST_UNKNOWN * many:
                return False
        return True

    def _index(self, place: int) -> int:
        place += bisect_right(self._removed, place)
        if self._order:
            return self._order[place]
        return int(self._pdfium.FPDFText_GetCharIndexFromTextIndex(self._page, place))

    def _with_powers(self, start: int, text: str) -> str:
        return _DIGITS.sub(lambda found: self._with_power(start + found.start(), found[0]), text)

    def _with_power(self, start: int, digits: str) -> str:
        """Write a `^` before the last digits if they are smaller and higher than the first."""
        first, last = self._index(start), self._index(start + len(digits) - 1)
        if min(first, last) < 0 or not self._is_raised(last, first):
            return digits
        end = next(place for place in range(len(digits)) if self._is_raised(self._index(start + place), first))
        return f"{digits[:end]}^{digits[end:]}"

    def _is_raised(self, at: int, first: int) -> bool:
        return self._height(at) > self._height(first) and self._size(at) * _LARGER <= self._size(first)

    def _height(self, at: int) -> float:
        """The height of a character above the bottom of the page."""
        return self._origin(at)[1]

    def _origin(self, at: int) -> tuple[float, float]:
        self._pdfium.FPDFText_GetCharOrigin(self._page, at, *self._place)
        return self._place[0].value, self._place[1].value

    def _are_apart(self, before: int, after: int) -> bool:
        at, to = self._index(before), self._index(after)
        if min(at, to) < 0:
            return False
        sizes = sorted((self._size(at), self._size(to)))
        # `_size` is in half points. On a page that is turned, lines are not below each other.
        far = self._is_upright(at) and 2 * (self._height(at) - self._height(to)) > _FAR * sizes[1]
        return far or sizes[1] >= sizes[0] * _LARGER

    def _is_upright(self, at: int) -> bool:
        return bool(abs(self._pdfium.FPDFText_GetCharAngle(self._page, at)) < _UPRIGHT)

    def _is_aslant(self, at: int) -> bool:
        """Whether a character belongs to a slanted line, as in a watermark."""
        angle = self._pdfium.FPDFText_GetCharAngle(self._page, at) % (pi / 2)
        return bool(_UPRIGHT < angle < pi / 2 - _UPRIGHT)

    def _is_across(self, text: str, first: int, last: int) -> bool:
        """Whether a line in a light or transparent colour stands across other lines, as a watermark does."""
        colour = [ctypes.c_uint() for _ in range(4)]
        self._pdfium.FPDFText_GetFillColor(self._page, first, *colour)
        *shades, opacity = (it.value for it in colour)
        if last < 0 or (min(shades) < _LIGHT and opacity > _LIGHT):
            return False
        self._pdfium.FPDFText_GetLooseCharBox(self._page, first, self._loose)
        box = [self._loose.left, self._loose.bottom, 0, self._loose.top]
        self._pdfium.FPDFText_GetLooseCharBox(self._page, last, self._loose)
        box[2] = self._loose.right
        return bool(_WORD.search(self._page.get_text_bounded(*box).replace(text, "")))

    def _size(self, at: int) -> int:
        """The displayed size of a character, in half points."""
        matrix = self._pdfium.FS_MATRIX()
        scale = hypot(matrix.c, matrix.d) if self._pdfium.FPDFText_GetMatrix(self._page, at, matrix) else 1
        return int(2 * scale * self._pdfium.FPDFText_GetFontSize(self._page, at) + 0.5)

    def _is_bold(self, at: int) -> bool:
        name = ctypes.create_string_buffer(128)
        self._pdfium.FPDFText_GetFontInfo(self._page, at, name, len(name), ctypes.c_int())
        return bool(_BOLD.search(name.value.decode(errors="replace")))

    def _is_space(self, at: int) -> bool:
        return chr(self._pdfium.FPDFText_GetUnicode(self._page, at)).isspace()

    def _has_gaps(self, first: int, last: int, size: int) -> bool:
        """Whether a line contains a gap wider than twice the character height."""
        end: float | None = None
        for at in range(first, last + 1):
            if first < 0 or self._is_space(at):
                continue
            if not self._pdfium.FPDFText_GetCharBox(self._page, at, *self._box):
                continue
            left, right, *_ = self._box
            if end is not None and left.value - end > size:  # `size` is in half points.
                return True
            end = right.value
        return False


def _without_numbers(line: str) -> str:
    """What a header or footer has in common with its copies on other pages."""
    return _NUMBERS.sub("", line).strip()


def _headings_of(pages: Sequence[Sequence[_Line]]) -> list[tuple[int, str, int]]:
    """Return (depth from 0, text, page number from 0) for each heading.

    A heading is one to three short lines in a larger font than most of the text, or in bold of the same size, and
    does not end like a sentence. A line that repeats on several pages except for its numbers is not a heading. If
    more than a third of all lines would be headings, the file has none. In a short file, up to half of the lines
    may be headings if their fonts are clearly larger and they contain at most a quarter of the characters.
    """
    fonts: Counter[tuple[int, bool]] = Counter()
    places: Counter[str] = Counter()
    for lines in pages:
        places.update({_without_numbers(line.text) for line in lines})
        for line in lines:
            if line.size:
                fonts[line.size, line.bold] += len(line.text)
    if not fonts:
        return []
    (body, body_bold), _ = fonts.most_common(1)[0]

    def style(line: _Line) -> tuple[int, bool] | None:
        larger = line.size >= body * _LARGER
        bolder = line.bold and not body_bold and line.size >= body
        repeated = places[_without_numbers(line.text)] > 1
        return (line.size, line.bold) if (larger or bolder) and not repeated else None

    found: list[tuple[tuple[int, bool], str, int]] = []
    taken = 0
    for number, page in enumerate(pages):
        for font, group in groupby(page, key=style):
            members = list(group)
            text = " ".join(line.text for line in members)
            if font is None or len(members) > _MOST_LINES or not _is_heading(text):
                continue
            found.append((font, text, number))
            taken += len(members)
    whole = sum(map(len, pages))
    clear = all(size >= body * _CLEARLY_LARGER for (size, _), _, _ in found) and 2 * taken <= whole
    if 3 * taken > whole and not (clear and 4 * sum(len(text) for _, text, _ in found) <= fonts.total()):
        return []
    ranks = {font: rank for rank, font in enumerate(sorted({font for font, _, _ in found}, reverse=True))}
    return [(ranks[font], text, number) for font, text, number in found]


def _is_heading(text: str) -> bool:
    return (
        len(text) <= _LONGEST
        and sum(map(str.isalpha, text)) > 1
        and not text.endswith(tuple(".,;:!?-。、，；：！？\x02"))
    )
