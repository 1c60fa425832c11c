"""Find the headings and tables of a Markdown text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LINE_END = re.compile(r"\r\n?|\n")
# A heading is a line that begins with #, or a line of = or - only. Texts without such a line are not parsed.
_MAYBE_HEADING = re.compile(r"(?:^|(?<=\r))[ ]{0,3}(?:\#|(?:=++|-++)[ \t]*+(?:[\r\n]|\Z))", re.MULTILINE)
# The line of dashes and bars below a table's header.
_MAYBE_TABLE = re.compile(r"^[ ]{0,3}(?:\|[ ]*:?-|:?-+:?[ ]*\|)", re.MULTILINE)

_MAYBE_MARKS = re.compile(r"[*_`\[\]<&\\~]")
_BREAK = re.compile(r"<br\b", re.IGNORECASE)


class Heading(NamedTuple):
    """A heading: the character offsets of its lines, its depth (1 to 6), and its text without Markdown's marks."""

    start: int
    end: int
    depth: int
    text: str


class MarkdownTable(NamedTuple):
    """A table: the character offsets of its lines, and its cells without Markdown's marks."""

    start: int
    end: int
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@cache
def _inlines() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("strikethrough")


def plain(text: str) -> str:
    """Write a piece of Markdown, such as a cell, as it is shown: without stars, link targets and HTML tags."""
    if not _MAYBE_MARKS.search(text):
        return text
    (block,) = _inlines().parseInline(text)
    return _shown(block.children or [])


def _shown(tokens: list[Token]) -> str:
    parts = []
    for token in tokens:
        if token.type == "image":
            parts.append(_shown(token.children or []))
        elif token.type in ("softbreak", "hardbreak") or (
            token.type == "html_inline" and _BREAK.match(token.content)
        ):
            parts.append("\n")
        elif token.type != "html_inline":
            parts.append(token.content)
    return "".join(parts)


@cache
def _parser(tables: bool = False) -> MarkdownIt:
    # Only blocks are needed, and parsing inlines takes most of the time.
    from markdown_it import MarkdownIt

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
    return _headings(tokens, lines, start), _tables(tokens, text, lines, start)


def section_at(headings: Sequence[Heading], place: int, title: str) -> str:
    """Name the section at the character `place` of a text: the headings above it, the highest first, with ` > `
    between them. A heading that repeats the title is left out.
    """
    above: list[Heading] = []
    for heading in headings:
        if heading.start >= place:
            break
        above = [other for other in above if other.depth < heading.depth] + [heading]
    return " > ".join(it.text for it in above if it.text not in ("", title))


def _lines(text: str) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]


def _tables(tokens: list[Token], text: str, lines: list[int], shift: int) -> list[MarkdownTable]:
    tables = []
    rows: list[list[str]] = []
    surplus: list[str] = []
    for token, following in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
            if len(rows) > 1 and token.map:
                surplus = _surplus(text[lines[token.map[0]] : lines[token.map[0] + 1]], len(rows[0]))
        elif token.type in ("th_open", "td_open") and rows:
            rows[-1].append(plain(following.content))
        elif token.type == "tr_close" and surplus:
            rows[-1], surplus = [*map(plain, surplus)], []
        elif token.type == "table_open":
            place, rows = token.map if token.level == 0 else None, []
        elif following.type == "table_close" and following.level == 0 and place and rows:
            header, *data = map(tuple, rows)
            start, end = lines[place[0]] + shift, lines[place[1]] + shift
            tables.append(MarkdownTable(start, end, header, tuple(data)))
    return tables


def _surplus(line: str, width: int) -> list[str]:
    """The cells of a row that has more cells than its table has columns, which markdown-it leaves out. If bars in
    code make too many cells, they do not divide it. For any other row, an empty list."""
    from markdown_it.rules_block.table import escapedSplit

    cells = escapedSplit(line.strip())
    cells = cells[not cells[0].strip() : len(cells) - (not cells[-1].strip())]
    if len(cells) <= width:
        return []
    joined: list[str] = []
    for cell in cells:
        if joined and joined[-1].count("`") % 2:
            joined[-1] += "|" + cell
        else:
            joined.append(cell)
    return [cell.strip() for cell in (joined if len(joined) == width else cells)]


def _headings(tokens: list[Token], lines: list[int], shift: int) -> list[Heading]:
    headings = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            first, last = token.map
            depth = int(token.tag[1:])
            headings.append(Heading(lines[first] + shift, lines[last] + shift, depth, plain(inline.content)))
    return headings
