"""The rules that cut a text into paragraphs and sentences.

A paragraph is a block of text between blank lines (or headings), without the whitespace around it. A paragraph of
more than `LENGTH` characters is cut at sentence ends. A sentence that is too long is cut at whitespace or, if it
has none, after a mark such as a comma, or anywhere.

A sentence ends after ``. ! ? …`` or ``。！？`` and up to three closing quotes or brackets. After ``. ! ? …``,
whitespace must follow, and the next sentence must begin with a digit or a letter that is not lower case. Up to two
opening quotes or brackets may stand before this digit or letter. A full stop after a single letter ("J. Smith",
"e.g. Paris") or after a common abbreviation does not end a sentence. Where the rules miss an end, two sentences
become one, but no text is lost.

The rules are NumPy operations over the characters of many documents at once. A Python loop or a regular expression
would take longer than all other steps of building a corpus.
"""

import re
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

LENGTH = 4000
"""The maximum number of characters in a paragraph"""

_ABBREVIATIONS = (
    "Mr Mrs Ms Dr St Jr Sr Lt Mt Ft Co Inc Ltd Corp Prof Gen Col Capt Cpl Sgt Rev Hon Gov Sen Rep Fr Bros "
    "No Nos Vol vol vs cf al ca Jan Feb Mar Apr Aug Sep Sept Oct Nov Dec Ph fig Fig eq Eq pp"
)
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_LAST_MARK = re.compile(r".*(?:[;|)\]}>&/、，；：。）】」』]|,(?!\d{3}(?!\d)))", re.DOTALL)
_VISIBLE = re.compile(r"\S")
_FULL_WIDTH = "。！？"
_ENDS = ".!?…" + _FULL_WIDTH
_CLOSERS = "\"')]}”’»」』）】"
_OPENERS = "\"'([{“‘„«¿¡「『（【"
_LONGEST = max(map(len, ABBREVIATIONS))
_LAST = 0xFFFF

Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]
Positions = NDArray[np.int64]
Bounds = tuple[Positions, Positions]
"""Starts and ends (int64, zero-based, half-open), sorted and without overlap."""


class _Characters:
    """The kinds of characters in the rules: each a bool[65536], indexed by code point.

    Code points above `_LAST` share the entry of `_LAST`. `_LAST` itself is not a character, so it belongs to
    no kind.
    """

    def __init__(self) -> None:
        alphabet = [chr(code) for code in range(_LAST + 1)]
        self.space = np.array([c.isspace() for c in alphabet])
        self.word = np.array([c.isalnum() for c in alphabet])
        self.opening = self.word & ~np.array([c.islower() for c in alphabet])
        self.closer, self.opener, self.full_width = (
            np.isin(np.arange(_LAST + 1), [ord(c) for c in chosen]) for chosen in (_CLOSERS, _OPENERS, _FULL_WIDTH)
        )


_characters = cache(_Characters)


def codes_of(text: str) -> Codes:
    """Return the characters of a text as code points, in uint8, uint16 or uint32: the smallest type that is
    large enough.
    """
    if text.isascii():
        return np.frombuffer(text.encode(), dtype=np.uint8)
    utf16 = text.encode("utf-16-le")
    if len(utf16) == 2 * len(text):
        return np.frombuffer(utf16, dtype=np.uint16)
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def paragraphs(text: str, codes: Codes, headings: Bounds) -> Bounds:
    """Find the paragraphs of a text: the blocks of text between blank lines and headings, without whitespace at
    their ends."""
    blank = np.array([match.span() for match in _BLANK_LINES.finditer(text)], dtype=np.int64).reshape(-1, 2)
    gap_start = np.concatenate([blank[:, 0], headings[0]])
    gap_end = np.concatenate([blank[:, 1], headings[1]])
    order = np.argsort(gap_start, kind="stable")
    # Gaps may overlap: the line end of a heading is part of the blank lines after it.
    start = np.concatenate([[0], np.maximum.accumulate(gap_end[order])])
    end = np.concatenate([gap_start[order], [codes.size]])
    start, end = start[start < end], end[start < end]

    space = _characters().space
    for k in np.flatnonzero(space[_narrow(codes[start])] | space[_narrow(codes[end - 1])]):
        block = text[start[k] : end[k]]
        start[k] += len(block) - len(block.lstrip())
        end[k] -= len(block) - len(block.rstrip())
    return start[start < end], end[start < end]


def sentence_breaks(text: str, codes: Codes) -> Bounds:
    """Find where sentences end and where the next sentences start: two sorted int64 arrays of the same length."""
    is_ = _characters()
    marks = [np.flatnonzero(codes == ord(mark)) for mark in _ENDS if mark in text]
    stop = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *marks]))
    # One more entry, so that a look beyond the end finds nothing.
    codes = np.concatenate([codes, np.zeros(1, codes.dtype)])

    def at(positions: Positions) -> Codes:
        return _narrow(codes[positions])

    bare = is_.full_width[at(stop)]
    likely = is_.space[at(stop + 1)] | is_.closer[at(stop + 1)] | bare
    stop, bare = stop[likely], bare[likely]
    if not len(stop):  # as in most single sentences
        return stop, stop

    end = stop + 1
    for _ in range(3):
        end += is_.closer[at(end)]
    start = end.copy()
    for _ in range(2):
        start += is_.space[at(start)]
    likely = bare | (start > end)
    stop, end, start = stop[likely], end[likely], start[likely]
    for k in np.flatnonzero(is_.space[at(start)]):
        visible = _VISIBLE.search(text, start[k])
        start[k] = visible.start() if visible else len(text)
    opening = start.copy()
    for _ in range(2):
        opening += is_.opener[at(opening)]
    likely = is_.opening[at(opening)]
    stop, end, start = stop[likely], end[likely], start[likely]

    word = stop.copy()
    for _ in range(_LONGEST + 1):
        word -= is_.word[at(word - 1)]  # At the start of the text, index -1 is the zero that was added at the end.
    short = np.flatnonzero((codes[stop] == ord(".")) & (word < stop) & (stop - word <= _LONGEST))
    abbreviated = [
        k
        for k, a, b in zip(short.tolist(), word[short].tolist(), stop[short].tolist(), strict=True)
        if text[a:b] in ABBREVIATIONS or (b - a == 1 and text[a].isalpha())
    ]
    return np.delete(end, abbreviated), np.delete(start, abbreviated)


def bounded(text: str, blocks: Bounds, breaks: Bounds, length: int) -> Bounds:
    """Cut each paragraph of more than `length` characters into several paragraphs."""
    start, end = blocks
    long = end - start > length
    if not long.any():
        return blocks
    pieces = [
        piece
        for a, b in zip(start[long].tolist(), end[long].tolist(), strict=True)
        for piece in _pieces(text, a, b, breaks, length)
    ]
    cut = np.array(pieces, dtype=np.int64).reshape(-1, 2)
    # Pieces do not overlap, so the sorted starts match the sorted ends.
    return np.sort(np.concatenate([start[~long], cut[:, 0]])), np.sort(np.concatenate([end[~long], cut[:, 1]]))


def _pieces(text: str, start: int, end: int, breaks: Bounds, length: int) -> Iterator[tuple[int, int]]:
    while end - start > length:
        k = int(np.searchsorted(breaks[0], start + length, side="right")) - 1
        if k >= 0 and breaks[1][k] > start:
            stop, following = int(breaks[0][k]), int(breaks[1][k])
        else:
            stop = start + fitting_length(text[start : start + length + 1], length)
            visible = _VISIBLE.search(text, stop, end)
            following = visible.start() if visible else end
        yield start, stop
        start = following
    yield start, end


def fitting_length(text: str, length: int) -> int:
    """Return how many of the first `length` characters of a longer text to keep: those up to the last whitespace,
    or else up to the last mark, so that words and numbers stay whole, or all of them if there is neither."""
    before = len((text[: length + 1].rsplit(None, 1) or [""])[0])
    if before <= length:
        return before
    mark = _LAST_MARK.match(text[:length])
    return mark.end() if mark else length


def sentences(blocks: Bounds, breaks: Bounds) -> Bounds:
    """Find the sentences of paragraphs. The sentences of a paragraph together have all its text, except the
    whitespace between sentences."""
    start, end = blocks
    if not start.size:
        return blocks
    k = np.searchsorted(start, breaks[1], side="right") - 1
    inside = (k >= 0) & (breaks[1] > start[k]) & (breaks[1] < end[k])
    return np.sort(np.concatenate([start, breaks[1][inside]])), np.sort(np.concatenate([end, breaks[0][inside]]))


def _narrow(codes: Codes) -> Codes:
    return np.minimum(codes, _LAST) if codes.itemsize > 2 else codes
