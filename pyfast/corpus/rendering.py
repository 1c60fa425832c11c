"""Write a passage as one line of text, for searches and for the LLM."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

_SEPARATORS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# Also the marks of direction and the code points that are no characters.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff]")

# Stars around words, as people write them: not 2*3*4, **kwargs, *.txt or a pointer in a program.
_EMPHASIS = re.compile(
    r"(?<![\w*\\/])(\*{1,3})(?=[\w\"'“‘«(\[`$€£])"
    r"([^*\n]*(?:\n[^*\n]+)*?)(?<=[^\s*\\(\[{<])\1(?![\w*/])"
)

Fact = tuple[str, str, str, str | None]
"""The head, relation, tail and time of a triple."""


def paragraph_line(title: str, text: str) -> str:
    """Write a paragraph: ``title. text``. The title is left out if it is empty or the text begins with it."""
    title, text = fold(title), fold(text)
    return text if text.startswith(title) else f"{title}. {text}"


def without_stars(text: str) -> str:
    """Remove the stars of emphasis from a Markdown text, such as those of `**bold**`. Other marks stay, because
    in programs and names they mean something else.
    """
    for _ in range(2):  # Bold text may have italic text inside.
        if "*" not in text:
            break
        text = _EMPHASIS.sub(r"\2", text)
    return text


def row_line(title: str, section: str, header: Sequence[str], cells: Sequence[str]) -> str:
    """Write a table row: ``title | section | header: cell | header: cell | ...``. Empty parts are left out."""
    parts = [part for part in (title.strip(), section.strip()) if part]
    parts += [
        f"{name}: {cell}" if name else cell
        for name, cell in zip_longest(header, map(str.strip, cells), fillvalue="")
        if cell
    ]
    return fold(" | ".join(parts))


def table_line(title: str, section: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a whole table: ``title | section | name; name; ... | cell; cell; ... | ...``. The header comes before
    the rows.
    """
    lines = ["; ".join(map(fold, cells)) for cells in (header, *rows) if any(cells)]
    return fold(" | ".join([part for part in (title.strip(), section.strip()) if part] + lines))


def subgraph_line(facts: Sequence[Fact]) -> str:
    """Write triples with the same head: ``head relation tail; relation tail (time); ...``."""
    parts = [
        f"{relation.replace('_', ' ')} {tail} ({time})" if time else f"{relation.replace('_', ' ')} {tail}"
        for _, relation, tail, time in facts
    ]
    return fold(f"{facts[0][0]} {'; '.join(parts)}")


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
    return fold(", ".join([head, relation.replace("_", " "), tail, *([time] if time else [])]))


def fold(text: str) -> str:
    """Put a text on one line. Each line end, with the whitespace around it, becomes one space."""
    if "\n" in text or "\r" in text:
        text = " ".join([line for line in map(str.strip, text.splitlines()) if line])
    text = text.strip()
    if text.isprintable():
        return text
    return without_controls(text).strip() or "\ufffd"  # A text of control characters alone shows that it is there.


def without_controls(text: str) -> str:
    """Remove control characters from a text, except for tabs and line ends. Those that separate, such as a form
    feed, become spaces."""
    return _CONTROLS.sub("", _SEPARATORS.sub(" ", text))
