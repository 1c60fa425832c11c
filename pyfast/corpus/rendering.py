"""Write a passage as one line of text, for searches and for the LLM."""

import re
from collections.abc import Iterable, Sequence
from html import unescape
from itertools import zip_longest

from pyfast.utils.text_forms import shown_names

# Stars around words, as people write them: not 2*3*4, **kwargs, *.txt or a pointer in a program.
_EMPHASIS = re.compile(
    r"(?<![\w*\\/])(\*{1,3})(?=[\w\"'“‘«(\[`$€£])"
    r"([^*\n]*(?:\n[^*\n]+)*?)(?<=[^\s*\\(\[{<])\1(?![\w*/])"
)

# Code between fences, which can be in lists and quotes, and code in a line
_FENCED = (
    r"^[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})"
    r"(?:.*?^[ \t>]*(?P=fence)[`~]*[ \t\r]*$|.*)"
)
_FENCES = re.compile(_FENCED, re.DOTALL | re.MULTILINE)
# Code, and a comment in a line. At the beginning of a line, only code still has a comment.
_CODE_OR_COMMENT = re.compile(
    rf"(?P<code>{_FENCED}|(?<![`\\])(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))|(?<=\S)[ \t]*<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)
_IN_CODE = {"*": "\udc2a", "&": "\udc26"}  # halves of characters, which no stored text has
_HIDDEN = str.maketrans(_IN_CODE)
_ENTITY = re.compile(r"(?<!\\)&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,31});")

Fact = tuple[str, str, str, str | None]
"""The head, relation, tail and time of a triple."""

_LAST = "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
# NUL, U+0002 (PDF libraries write it for a hyphen), DEL and noncharacters stand within words. The others separate
# words. The first pattern matches every character of the second, and much faster.
_MAYBE_NO_TEXT = re.compile(r"[\x00-\x08\v\f\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe-\U0010ffff]")
_NO_TEXT = re.compile(f"([\\x00\\x02\\x7f\\ufdd0-\\ufdef{_LAST}])|[\\x01-\\x08\\v\\f\\x0e-\\x1f\\x80-\\x9f]")


def paragraph_line(title: str, text: str) -> str:
    """Write a paragraph as ``title. text``, without the title if it is empty or the text begins with it."""
    title, text = fold(title), fold(text)
    if not text:
        return title
    # A text that begins with `Agents` does not begin with the title `Age`.
    if text.startswith(title) and not (title[-1:].isalnum() and text[len(title) : len(title) + 1].isalnum()):
        return text
    return f"{title}. {text}"


def without_marks(text: str, fence: str = "") -> str:
    """Remove comments and the stars of emphasis from a Markdown text, such as those of `**bold**`, and decode
    entities such as `&amp;`. Code and other marks stay, because in programs and names they mean something else.
    `fence` is the fence of the code in which the text begins.
    """
    if fence:
        text = f"{fence}\n{text}"
    if any(mark in text for mark in ("`", "~~~", "<!--")):
        text = _CODE_OR_COMMENT.sub(lambda found: (found["code"] or "").translate(_HIDDEN), text)
    for _ in range(2):  # Bold text may have italic text inside.
        if "*" not in text:
            break
        text = _EMPHASIS.sub(r"\2", text)
    if "&" in text:
        text = _ENTITY.sub(lambda found: unescape(found[0]), text)
    for mark, hidden in _IN_CODE.items():
        text = text.replace(hidden, mark)
    return text[len(fence) + 1 if fence else 0 :]


def fenced(text: str) -> list[tuple[int, int, str]]:
    """Find the code between fences in a Markdown text: where it begins and ends, and its fence."""
    if "```" not in text and "~~~" not in text:
        return []
    return [(found.start("fence"), found.end(), found["fence"]) for found in _FENCES.finditer(text)]


def row_line(title: str, section: str, header: Sequence[str], cells: Sequence[str]) -> str:
    """Write a table row as ``title | section | header: cell | header: cell | ...``, without empty parts."""
    parts = [part for part in (title.strip(), section.strip()) if part]
    parts += [
        f"{name}: {cell}" if name else cell
        for name, cell in zip_longest(header, map(str.strip, cells), fillvalue="")
        if cell
    ]
    return fold(" | ".join(parts))


def table_line(title: str, section: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a whole table, with the header before the rows: ``title | section | name; name; ... | cell; cell;
    ...``."""
    lines = ["; ".join(map(fold, cells)) for cells in (header, *rows) if any(cells)]
    return fold(" | ".join([part for part in (title.strip(), section.strip()) if part] + lines))


def subgraph_line(facts: Sequence[Fact]) -> str:
    """Write triples with the same head: ``head relation tail; relation tail (time); ...``."""
    head, *tails = shown_names([facts[0][0], *(tail for _, _, tail, _ in facts)])
    parts = [
        f"{relation.replace('_', ' ')} {tail}" + (f" ({time})" if time else "")
        for (_, relation, _, time), tail in zip(facts, tails, strict=True)
    ]
    return fold(f"{head} {'; '.join(parts)}")


def linear_sentence(title: str, text: str) -> str:
    """Write a sentence as an evidence item of graph_convqa: ``title, text``."""
    return fold(", ".join([part for part in (title.strip(), text.strip()) if part]))


def linear_row(title: str, section: str, header: Sequence[str], cells: Sequence[str]) -> str:
    """Write a table row as an evidence item: ``title, header cell, header cell, ...``, without empty parts. For an
    infobox: ``title, key, value``."""
    names = () if section.strip().lower() == "infobox" else header
    pairs = zip_longest(names, map(str.strip, cells), fillvalue="")
    return fold(", ".join([title.strip(), *[f"{name} {cell}".strip() for name, cell in pairs if cell]]))


def linear_fact(fact: Fact) -> str:
    """Write a triple as an evidence item: ``head, relation, tail``, and the time if it is known."""
    head, relation, tail, time = fact
    head, tail = shown_names((head, tail))
    parts = [head, relation.replace("_", " "), tail]
    return fold(", ".join([*parts, *([time] if time else [])]))


def fold(text: str) -> str:
    """Put a text on one line. Each line end, with the whitespace around it, becomes one space, and control
    characters are left out. A text that consists only of control characters becomes U+FFFD, so that its line is
    not empty."""
    if "\n" in text or "\r" in text:
        text = " ".join([line for line in map(str.strip, text.splitlines()) if line])
    text = text.strip()
    if text.isprintable():  # Almost every line is printable, and this is the cheapest check.
        return text
    return without_controls(text).strip() or "\ufffd"


def without_controls(text: str) -> str:
    """Leave out control characters other than tab and line end, and noncharacters. A control character that
    separates words becomes a space."""
    return _NO_TEXT.sub(lambda found: "" if found[1] else " ", text) if _MAYBE_NO_TEXT.search(text) else text
