"""Find the reading order of a line with Arabic or Hebrew letters from the places of its characters on the page.

The order of the characters in a file says little, because programs write such lines in several orders. The page
looks the same in all of them, so this is the Unicode bidirectional algorithm (UAX #9) in reverse."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import compress, groupby, pairwise
from operator import not_
from typing import NamedTuple

LETTER = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_ANY_LETTER = re.compile(r"[^\W\d_]")
# The classes of UAX #9, one letter for each. Everything else is neutral.
_CLASSES = {"L": "L", "R": "R", "AL": "M", "EN": "N", "AN": "A", "CS": "C", "ES": "S", "ET": "T"}
_BRACKETS = "()[]{}«»‹›"
# European digits with the signs between and beside them, or Arabic digits with the points between them
_NUMBER = re.compile("T*N(?:[NT]|(?<=N)[CS](?=N))*|A(?:A|(?<=A)C(?=A))*")
# From the first Latin letter or digit to the last one: `Windows 11`, but not the stop behind it.
_LATIN = re.compile(r"(?:T*(?=N))?[LNA](?:.*[LNA])?(?:(?<=N)T*)?")
# Times the size of the font, between words without a space. The edges of a letter with a mark are less certain.
_GAP, _MARKED_GAP = 0.15, 0.25
_LAM, _ALEFS = "\u0644", "\u0622\u0623\u0625\u0627\u0671"
_LIGATURES = frozenset(unicodedata.normalize("NFKC", chr(code)) for code in range(0xFDF0, 0xFDFD))


class Glyph(NamedTuple):
    """A character, with its edges on the page. `at` is the caller's number of it, or -1 for a space that is not in
    the file."""

    text: str
    at: int
    left: float
    right: float


def is_from_right(text: str) -> bool:
    """Whether most letters of a text belong to scripts that run from right to left."""
    return 2 * len(LETTER.findall(text)) > len(_ANY_LETTER.findall(text))


def in_reading_order(line: Sequence[Glyph], size: float, page_from_right: bool) -> list[Glyph]:
    """Put the characters of a line into the order in which people read them.

    Args:
        line: The characters in any order, except that those of one glyph (of a ligature) follow each other.
        size: The size of the font.
        page_from_right: Whether most of the page runs from right to left.
    """
    clusters = _clusters(line, size)
    shown = "".join(cluster[0].text for cluster in clusters)
    classes = "".join(_CLASSES.get(unicodedata.bidirectional(letter), " ") for letter in shown)
    last = re.search("[LRM][^LRM]*$", classes)
    # A line that ends with a Latin word at the left, or begins with one at the right, can be of either direction.
    from_right = is_from_right(shown) or (page_from_right and last is not None and last[0][0] != "L")
    places = _from_right(shown, classes) if from_right else _from_left(shown, classes)
    read = [glyph for place in places for glyph in clusters[place]]
    text = _with_brackets("".join(glyph.text for glyph in read))
    return [Glyph(letter, *glyph[1:]) for glyph, letter in zip(read, text, strict=True)]


def _clusters(line: Sequence[Glyph], size: float) -> list[list[Glyph]]:
    """Return the characters from left to right. The marks of a letter follow it. The letters of a ligature stay
    together."""
    drawn = [glyph for glyph in line if glyph.at >= 0]
    is_mark = [unicodedata.category(glyph.text) == "Mn" for glyph in drawn]
    marks, bases = [*compress(drawn, is_mark)], compress(drawn, map(not_, is_mark))
    clusters: list[list[Glyph]] = []
    for _, same in groupby(bases, key=lambda it: (it.left, bool(LETTER.match(it.text)))):
        pieces = list(same)
        text = "".join(it.text for it in pieces)
        if not LETTER.match(text):
            clusters += ([it] for it in pieces)
        elif text in _LIGATURES or (text[0] == _LAM and text[1:2] in _ALEFS):
            clusters.append(pieces)
        else:  # PDFium turns the letters of a ligature round, unless the ligature is itself a character.
            clusters.append(pieces[::-1])
    clusters.sort(key=lambda it: it[0][2:])
    letters = [it for it in clusters if not it[0].text.isspace()]
    for mark in marks if letters else ():
        middle = (mark.left + mark.right) / 2
        nearest = min(letters, key=lambda it: max(it[0].left - middle, middle - it[0].right))
        nearest.append(mark)
    if len(drawn) == len(line):
        return clusters
    spaced = clusters[:1]
    for left, right in pairwise(clusters):
        end, start = max(it.right for it in left), right[0].left
        gap = _MARKED_GAP if len(left) > 1 or len(right) > 1 else _GAP
        if start - end > gap * size and not (left[0].text.isspace() or right[0].text.isspace()):
            spaced.append([Glyph(" ", -1, end, start)])
        spaced.append(right)
    return spaced


def _from_right(shown: str, classes: str) -> list[int]:
    """Return the places of a line that begins at the right, in reading order."""
    places: list[int] = []
    done = len(shown)
    for start, end in reversed([*_runs(shown, classes)]):
        places += [*range(done - 1, end - 1, -1), *range(start, end)]
        done = start
    return [*places, *range(done - 1, -1, -1)]


def _from_left(shown: str, classes: str) -> list[int]:
    """Return the places of a line that begins at the left, in reading order."""
    places: list[int] = []
    done = 0
    for found in re.finditer("[RM](?:[^L]*[RM])?", classes):
        start, end = found.span()
        inner = _from_right(shown[start:end], classes[start:end])
        places += [*range(done, start), *(start + place for place in inner)]
        done = end
    return [*places, *range(done, len(shown))]


def _runs(shown: str, classes: str) -> Iterator[tuple[int, int]]:
    """Yield where Latin words and numbers begin and end, which run from the left in a line from the right."""
    # European digits behind an Arabic letter are like Arabic digits: a hyphen between them is no part of a number.
    classes = re.sub("[^LRM]+(?=M)", lambda found: found[0].replace("N", "A"), classes)
    for between in re.finditer("[^RM]+", classes):
        if "L" not in between[0]:
            yield from (found.span() for found in _NUMBER.finditer(classes, *between.span()))
        elif latin := _LATIN.search(classes, *between.span()):
            start, end = latin.span()
            inside = [_BRACKETS.index(it) // 2 for it in shown[start:end] if it in _BRACKETS]
            behind = _BRACKETS.find(shown[end : end + 1] or " ") // 2
            yield start, end + (inside.count(behind) % 2)


def _with_brackets(text: str) -> str:
    """Turn the brackets the right way. It depends on the program that wrote a file, and on PDFium, whether a
    bracket is the one that is seen or the one that is meant."""
    read = list(text)
    opened: list[int] = []
    for place, letter in enumerate(text):
        kind = _BRACKETS.find(letter) // 2
        if kind < 0:
            continue
        before, after = text[place - 1 : place] or " ", text[place + 1 : place + 2] or " "
        begins = before.isspace() and not after.isspace()
        ends = after.isspace() and not before.isspace()
        if begins or (not ends and kind not in opened):
            opened.append(kind)
            read[place] = _BRACKETS[2 * kind]
        else:
            read[place] = _BRACKETS[2 * kind + 1]
            if kind in opened:
                opened.remove(kind)
    return "".join(read)
