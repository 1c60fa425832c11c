"""Where the headings of a Markdown text are."""

import re
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt

_LINE_END = re.compile(r"\r\n?|\n")
# Every heading has a line that opens with # or holds only = or -: texts without one are not even parsed.
_MAYBE_HEADING = re.compile(r"(?:^|(?<=\r))[ ]{0,3}(?:\#|(?:=++|-++)[ \t]*+(?:[\r\n]|\Z))", re.MULTILINE)


class Heading(NamedTuple):
    """A heading: zero-based half-open character offsets of its lines, depth 1 to 6, its text as written."""

    start: int
    end: int
    depth: int
    text: str


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").disable("inline")  # blocks are all we need, and inlines most of the time


def headings(text: str) -> list[Heading]:
    """The headings of a Markdown text, in order; those inside lists and quotes do not count."""
    if not _MAYBE_HEADING.search(text):
        return []
    lines = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
    tokens = _parser().parse(text)
    found = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            first, last = token.map
            found.append(Heading(lines[first], lines[last], int(token.tag[1:]), inline.content))
    return found
