"""Find the headings and tables of a Markdown text."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

_LINE_END = re.compile(r"\r\n?|\n")
# A heading is a line that begins with #, or a line of = or - only. Texts without such a line are not parsed.
_MAYBE_HEADING = re.compile(r"(?:^|(?<=\r))[ ]{0,3}(?:\#|(?:=++|-++)[ \t]*+(?:[\r\n]|\Z))", re.MULTILINE)
# The line of dashes and bars below a table's header.
_MAYBE_TABLE = re.compile(r"^[ ]{0,3}(?:\|[ ]*:?-|:?-+:?[ ]*\|)", re.MULTILINE)


class Heading(NamedTuple):
    """A heading: the character offsets of its lines, its depth (1 to 6), and its text as written."""

    start: int
    end: int
    depth: int
    text: str


class MarkdownTable(NamedTuple):
    """A table: the character offsets of its lines, and its cells as written."""

    start: int
    end: int
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@cache
def _parser(tables: bool = False) -> MarkdownIt:
    # Only blocks are needed, and parsing inlines takes most of the time.
    parser = MarkdownIt("commonmark").disable("inline")
    return parser.enable("table") if tables else parser


def headings(text: str) -> list[Heading]:
    """Find the headings of a Markdown text, in order. Headings inside lists and quotes do not count."""
    if not _MAYBE_HEADING.search(text):
        return []
    return _headings(_parser().parse(text), _lines(text), 0)


def layout(text: str, start: int = 0) -> tuple[list[Heading], list[MarkdownTable]]:
    """Find the headings and tables of a Markdown text from `start` on. Headings and tables inside lists and quotes
    do not count."""
    text = text[start:]
    if not _MAYBE_HEADING.search(text) and not _MAYBE_TABLE.search(text):
        return [], []
    tokens, lines = _parser(tables=True).parse(text), _lines(text)
    return _headings(tokens, lines, start), _tables(tokens, lines, start)


def section_at(headings: Sequence[Heading], place: int, title: str) -> str:
    """Name the section at the character `place` of a text: the headings above it, the highest first, with ` > `
    between them. The title is left out, and so is the only heading of depth 1, which repeats it.
    """
    above: list[Heading] = []
    for heading in headings:
        if heading.start >= place:
            break
        above = [other for other in above if other.depth < heading.depth] + [heading]
    alone = sum(heading.depth == 1 for heading in headings) == 1
    return " > ".join(it.text for it in above if it.text not in ("", title) and not (alone and it.depth == 1))


def _lines(text: str) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]


def _tables(tokens: list[Token], lines: list[int], shift: int) -> list[MarkdownTable]:
    tables = []
    rows: list[list[str]] = []
    for token, following in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open") and rows:
            rows[-1].append(following.content)
        elif token.type == "table_open":
            place, rows = token.map if token.level == 0 else None, []
        elif following.type == "table_close" and following.level == 0 and place and rows:
            header, *data = map(tuple, rows)
            start, end = lines[place[0]] + shift, lines[place[1]] + shift
            tables.append(MarkdownTable(start, end, header, tuple(data)))
    return tables


def _headings(tokens: list[Token], lines: list[int], shift: int) -> list[Heading]:
    headings = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            first, last = token.map
            depth = int(token.tag[1:])
            headings.append(Heading(lines[first] + shift, lines[last] + shift, depth, inline.content))
    return headings
