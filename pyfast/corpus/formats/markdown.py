"""Read Markdown. Headings begin sections, tables become separate documents, and YAML front matter becomes
metadata."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import unescape
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

import pyfast.corpus.grids as grids
from pyfast.corpus.documents import (
    Document,
    Heading,
    Outline,
    TextDocument,
    Unread,
    depth_within,
    filterable,
    noted,
)
from pyfast.corpus.formats.files import read_text, with_line_ends
from pyfast.corpus.formats.html import tables_of_html
from pyfast.corpus.rendering import APART, SHIFTS, struck, with_marks
from pyfast.utils.extras import install

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MOST = 1 << 16  # the maximum number of characters of front matter
_KEY = re.compile(r"^([^\W\d][\w .-]{0,60}):(?=\s|\Z)", re.MULTILINE)
# Numbers and constants that are the same in YAML 1.2 and in JSON.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_NULLS = ("", "~", "null", "Null", "NULL")
_CONSTANTS: dict[str, bool | None] = dict.fromkeys(_NULLS)
_CONSTANTS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_LINE_END = re.compile(r"\r\n?|\n")
# A heading is a line that begins with #, or a line of = or - only, or HTML. Texts without one are not parsed.
_MAYBE_HEADING = re.compile(
    r"(?:^|(?<=\r))[ ]{0,3}(?:\#|(?:=++|-++)[ \t]*+(?:[\r\n]|\Z))|<(?:h[1-6]|summary)\b",
    re.MULTILINE | re.IGNORECASE,
)
_HTML_HEADING = re.compile(
    r"[ \t]*(?:(?:<details\b[^<>]*>\s*)?<(?:h([1-6])|summary)\b[^<>]*>(.{1,2000}?)</(?:h\1|summary)\s*>"
    r"|</details\s*>)[ \t]*\n?",
    re.DOTALL | re.IGNORECASE,
)
# Blocks of HTML whose headings are not headings of the text
_NO_HEADINGS = re.compile(r"<(?:!--|(?:t[dhr]|table|pre|style|script|textarea)\b)", re.IGNORECASE)
# The line of dashes and bars below a table's header.
_MAYBE_TABLE = re.compile(r"^[ ]{0,3}(?:\|[ ]*:?-|:?-+:?[ ]*\|)", re.MULTILINE)

# The data of an image: as a definition, in place of its link, and in HTML
_DEFINED = re.compile(r"^[ ]{0,3}\[([^\[\]\n]+)\]:[ ]*<?data:image/[^\s>]*>?[ \t]*$", re.MULTILINE)
_IMAGE = re.compile(
    r"!\[([^\[\]\n]*)\](?:\([ ]*<?(data:image/)[^\s)>]*>?[^)\n]{0,300}\)|\[([^\[\]\n]*)\])"
    r"|(?<=[\"'])data:image/[^\s\"']*"
)
_LONGEST_STYLE = 20_000
# Styles, scripts, and lines with nothing but the tags of blocks
_BLOCK = r"</?(?:br|center|details|div|figure|hr|p|picture|section|summary)\b"
_NOT_READ = re.compile(
    rf"<(style|script)\b[^>]*>.{{0,{_LONGEST_STYLE}}}?</\1\s*>[ \t]*|^[ \t]*(?:{_BLOCK}[^<>\n]*>[ \t]*)+$",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_MAYBE_NOT_READ = re.compile(rf"<(?:style|script)\b|^[ \t]*{_BLOCK}", re.IGNORECASE | re.MULTILINE)
_MAYBE_RULE = re.compile(r"^[ ]{0,3}([-*_])(?:[ \t]*\1){2}", re.MULTILINE)
_HTML_TABLE = re.compile(r"^[ ]{0,3}<table\b", re.IGNORECASE | re.MULTILINE)

# A comment, written as the definition of a link that leads nowhere
_NO_LINK = re.compile(
    r"^[ ]{0,3}\[(?://|comment)\]:[ ]+(?:\#|<>)[ ]+(?:\(.*\)|\".*\"|'.*')[ ]*$", re.MULTILINE | re.IGNORECASE
)

_TABLE_TAGS = re.compile(r"<(/?)table\b[^>]*>", re.IGNORECASE)

_MAYBE_MARKS = re.compile(r"[*_`\[\]<&\\~]")
# Tags that people write into a cell
_TAG = re.compile(r"<(/?)(br|img|del|s|strike|sup|sub)\b", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)


_Place = tuple[int, int]
"""The character offsets of a part of a text"""
_Table = tuple[int, int, grids.TableParts]
"""A table: the character offsets of its lines, and its parts, without Markdown's marks"""


@cache
def _inlines() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("strikethrough")


# The stars of products and powers, such as 2*3*4 and 2**10
_TIMES = re.compile(r"(?<=[0-9A-Za-z)\]])\*(?=[0-9A-Za-z(])|(?<=[0-9)\]])\*\*(?=[0-9A-Za-z(])")


def plain(text: str) -> str:
    """Write a piece of Markdown, such as a cell, as it is shown: without stars, link targets and HTML tags."""
    if not _MAYBE_MARKS.search(text):
        return text
    times = "\udc2a"  # a lone surrogate, which no file has
    (block,) = _inlines().parseInline(_TIMES.sub(lambda found: times * len(found[0]), text))
    return _shown(block.children or []).replace(times, "*")


def _shown(tokens: list[Token]) -> str:
    parts, depth = list[str](), 0  # how many open marks or tags strike the text through
    for token in tokens:
        said = token.content
        if token.type == "image":
            said = grids.alternative(_shown(token.children or []))
        elif token.type in ("softbreak", "hardbreak"):
            said = "\n"
        elif token.type in ("s_open", "s_close"):
            depth += token.nesting
        elif token.type == "html_inline":
            tag, alt, said = _TAG.match(said), _ALT.search(said), ""
            name = tag[2].lower() if tag else ""
            if name == "br":
                said = "\n"
            elif tag and name in SHIFTS:
                said = APART + SHIFTS[name][bool(tag[1])]
            elif name == "img" and alt:
                said = f" {grids.alternative(unescape(alt[1] or alt[2] or ''))} "
            elif tag and name != "img":
                depth += -1 if tag[1] else 1
        parts.append(struck(said) if depth > 0 else said)
    return with_marks("".join(parts)).strip(" ")


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
    return _headings(_parser().parse(text), text, _lines(text), 0)


def _layout(text: str, start: int) -> tuple[list[Heading], list[_Table], list[_Place], list[_Place]]:
    """Find the headings, the tables, the places of tables that are written in HTML, and those of comments and
    rules, from `start` on. What is inside lists and quotes does not count."""
    text = text[start:]
    marks = (_MAYBE_HEADING, _MAYBE_TABLE, _HTML_TABLE, _NO_LINK, _MAYBE_NOT_READ, _MAYBE_RULE)
    if "<!--" not in text and not any(mark.search(text) for mark in marks):
        return [], [], [], []
    tokens, lines = _parser(tables=True).parse(text), _lines(text)
    found = tokens, text, lines, start
    return _headings(*found), _tables(*found), _tables_in_html(*found), _comments(*found)


def _lines(text: str) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]


def _tables(tokens: list[Token], text: str, lines: list[int], shift: int) -> list[_Table]:
    tables: list[_Table] = []
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
            parts = grids.parts_of_grid(rows, header_rows=_header_rows(rows))
            tables.append((lines[place[0]] + shift, lines[place[1]] + shift, parts))
    return tables


def _header_rows(rows: list[list[str]]) -> int | None:
    """How many of the rows are the header. A table whose first row is empty has none, or programs that convert
    other formats have left its names, or a title, in the next one: None. Names are no numbers, and stand above
    numbers."""
    if any(rows[0]):
        return 1
    filled = list(filter(any, rows))
    names = filled[0] if filled else []
    numbers = grids.has_numbers(filled[1:])
    alone = sum(map(bool, names)) == 1
    return None if alone or (numbers and not any(map(grids.is_number, names))) else 0


def _tables_in_html(tokens: list[Token], text: str, lines: list[int], shift: int) -> list[_Place]:
    """The character offsets of the tables that are written in HTML. An empty line ends a block of HTML, but not
    its table."""
    found: list[tuple[int, int]] = []
    end = 0
    for token in tokens:
        if token.type != "html_block" or token.level or not token.map:
            continue
        first = _HTML_TABLE.search(token.content)
        begin, depth = lines[token.map[0]] + (first.start() if first else 0), 0
        if first and begin >= end:
            end = lines[token.map[1]]
            for tag in _TABLE_TAGS.finditer(text, begin):
                depth += -1 if tag[1] else 1
                if depth < 1:
                    end = tag.end()
                    break
            found.append((begin + shift, end + shift))
    return found


def _comments(tokens: list[Token], text: str, lines: list[int], shift: int) -> list[_Place]:
    """The character offsets of rules such as `---`, and of comments that are blocks: in HTML, or as `[//]: # (not
    shown)`. Passages are shown without those within a line."""
    found, code, done = list[tuple[int, int]](), [(0, 0)], 0
    for token in tokens:
        if token.type == "hr" and token.map and not token.level:
            found.append((lines[token.map[0]], lines[token.map[1]]))
        if token.type in ("html_block", "fence", "code_block") and token.map:
            begin, end = (lines[line] for line in token.map)
            code.append((begin, end))
            at = begin  # A style can go on after an empty line, which ends its block.
            while token.type == "html_block" and not token.level and at < end:
                at = max(at, done)
                if not (opened := _MAYBE_NOT_READ.search(text, at, end)):
                    break
                if told := _NOT_READ.match(text, opened.start()):
                    found.append(told.span())
                # If a style does not end, skip the longest style: looking at each tag in it would take long.
                beyond = _LONGEST_STYLE if opened[0][1:].lower() in ("style", "script") else 0
                at = done = told.end() if told else opened.end() + beyond
            while token.type == "html_block" and (begin := text.find("<!--", begin, end)) >= 0:
                if (last := text.find("-->", begin, end) + 3) < 3:
                    break
                if token.level == 0 or "\n\n" in text[begin:last]:
                    found.append((begin, last))
                begin = last
    links = (it.span() for it in _NO_LINK.finditer(text))
    found += [it for it in links if code[bisect_right(code, it) - 1][1] <= it[0]]
    return [(begin + shift, end + shift) for begin, end in found]


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


def _headings(tokens: list[Token], text: str, lines: list[int], shift: int) -> list[Heading]:
    headings, opened = list[Heading](), list[int]()  # `opened`: the depths of the summaries of open `details`
    for token, inline in pairwise([*tokens, *tokens[-1:]]):
        if token.level or not token.map:
            continue
        first, end = (lines[line] for line in token.map)
        if token.type == "heading_open":
            headings.append(Heading(first + shift, end + shift, int(token.tag[1:]), plain(inline.content)))
        elif token.type == "html_block":
            is_data = _NO_HEADINGS.search(token.content)
            for found in _HTML_HEADING.finditer(text, first, end):
                said = " ".join(plain(found[2] or "").split())
                if said and not is_data:
                    depth = int(found[1] or depth_within(headings))
                    opened += [] if found[1] else [depth]
                elif found[2] is None and opened:
                    depth = opened.pop()
                else:
                    continue
                headings.append(Heading(found.start() + shift, found.end() + shift, depth, said))
    return headings


def read_markdown(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text and the tables of a file. Each table becomes a separate document. The title is that of the
    front matter, or else the first heading of depth 1, or else the name of the file."""
    text = _without_images(with_line_ends(read_text(path)))
    front = _front_matter(text)
    start = front.end
    headings, tables, in_html, comments = _layout(text, start)
    try:
        tables += [(*place, parts) for place in in_html for parts in tables_of_html(text[slice(*place)])]
    except ModuleNotFoundError as error:
        advice = f"{error.name} is not installed: {install('formats')}"
        yield Unread(path, f"HTML tables are read as text, because {advice}", missing=False)
    tables.sort(key=itemgetter(0))
    named = front.about.get("title")
    first = next((heading.text for heading in headings if heading.depth == 1 and heading.text), "")
    title = (named if isinstance(named, str) else "") or first or path.stem
    about, other = filterable(front.about)
    aside = [(0, start)] if start else []
    outline = Outline(
        headings=tuple(headings),
        aside=(*aside, *sorted([*comments, *((begin, end) for begin, end, _ in tables)])),
        about=orjson.dumps(about).decode() if about else "",
    )
    found = ((0, begin, "", parts) for begin, _, parts in tables)
    yield from grids.with_tables(TextDocument(uri, title, text, markdown=True, outline=outline), found)
    yield from noted(path, "the front matter is not YAML; values are read as written:", front.as_text)
    yield from noted(path, "objects and long values of the front matter are not read:", other)


def _without_images(text: str) -> str:
    """Write the words that stand for an image in the place of its data."""
    if "data:image/" not in text:
        return text
    names = {found[1].lower() for found in _DEFINED.finditer(text)}

    def said(found: re.Match[str]) -> str:
        is_data = found[2] or found[1] is None or (found[3] or found[1]).lower() in names
        return grids.alternative(found[1] or "") if is_data else found[0]

    return _IMAGE.sub(said, _DEFINED.sub("", text))


class _Front(NamedTuple):
    """The front matter of a text."""

    about: Mapping[str, Any] = {}
    end: int = 0
    """Where the text below it begins. 0: there is none"""
    as_text: Sequence[str] = ()
    """The keys whose values are not YAML"""


def _front_matter(text: str) -> _Front:
    """Read front matter. Where it is not YAML, as in `title: Varn: the lake`, what follows a key is its value."""
    match = _FRONT_MATTER.match(text[:_MOST])
    if match is None:
        return _Front()
    with suppress(_NotYaml):
        values = _yaml(match[1])
        return _Front(values, match.end()) if isinstance(values, dict) else _Front()
    above, *parts = _KEY.split(match[1])
    if not parts or any(line and not line.startswith("#") for line in map(str.strip, above.splitlines())):
        return _Front()
    about, as_text = dict[str, Any](), []
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        try:
            about |= _yaml(f"{key}:{value}")
        except _NotYaml:
            about[key] = " ".join(value.split())
            as_text.append(key)
    return _Front(about, match.end(), as_text)


class _NotYaml(Exception):
    """Front matter that is not YAML."""


def _yaml(written: str) -> Any:
    """Return what a piece of YAML contains. Numbers and constants are those that YAML 1.2 and JSON share. All
    else, such as 12:30, 01234 and NO, stays as it is written."""
    import yaml

    try:
        # Aliases can expand a few lines to gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(written, yaml.BaseLoader)):
            raise _NotYaml
        return _value(yaml.compose(written, yaml.BaseLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise _NotYaml from None


def _value(node: Any, is_text: bool = False) -> Any:
    if node is None:
        return None
    if node.id == "mapping":
        return {str(key.value): _value(value, key.value == "title") for key, value in node.value}
    if node.id == "sequence":
        return [_value(item) for item in node.value]
    if node.style is not None or (is_text and node.value not in _NULLS):
        return node.value
    if _NUMBER.fullmatch(node.value):
        return orjson.Fragment(node.value)
    return _CONSTANTS.get(node.value, node.value)
