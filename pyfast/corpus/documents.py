"""The kinds of documents: texts with their outlines (headings, pages, metadata), tables and knowledge graphs."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pyfast.corpus.rendering import fold


class Heading(NamedTuple):
    """A heading: the character offsets of its lines, its depth (1 to 6), and its text without Markdown's marks."""

    start: int
    end: int
    depth: int
    text: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The headings, pages and metadata of a text.

    A range of characters is a pair of zero-based offsets: that of its first character, and the one after its last
    character.

    Example:
        >>> from pyfast.corpus import Heading, Outline, TextDocument
        >>> outline = Outline(headings=(Heading(0, 5, 1, "Titan"),), pages=(0, 7))
        >>> document = TextDocument("titan", "Titan", "Titan\\n\\nA moon of Saturn.", outline=outline)
    """

    headings: tuple[Heading, ...] | None = None
    """The headings, in order. None: pyfast finds the headings of a Markdown text, and any other text has no
    headings"""
    pages: tuple[int, ...] = ()
    """The offset at which each page begins"""
    aside: tuple[tuple[int, int], ...] = ()
    """The ranges of the text that belong to no passage: front matter, and tables that are separate documents"""
    about: str = ""
    """The document's own metadata, as a JSON object"""


NO_OUTLINE = Outline()
_DIGITS = 18
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_LONGEST = 300


def filterable(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata that filters can read (short values, and lists of them), and the keys of all other
    values."""
    about = {key: value for key, value in given.items() if value not in _NOTHING}
    other = [
        key
        for key, value in about.items()
        if not all(map(_is_short, value if isinstance(value, list) else [value]))
    ]
    return {key: value for key, value in about.items() if key not in other} if other else about, other


def _is_short(value: object) -> bool:
    return not isinstance(value, dict | list | tuple) and (not isinstance(value, str) or len(value) <= _LONGEST)


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A text, stored character for character. Its headings divide it into sections.

    The headings are `outline.headings`. If this is None, pyfast finds the headings if the text is Markdown
    (`markdown` is true). Any other text then has no headings.

    Example:
        >>> from pyfast.corpus import TextDocument
        >>> TextDocument("titan", "Titan", "Titan is a moon of Saturn.").title
        'Titan'
    """

    uri: str
    title: str
    text: str
    markdown: bool = False
    outline: Outline = NO_OUTLINE


@dataclass(frozen=True, slots=True)
class Table:
    """A table of strings.

    Rows can be shorter or longer than the header. Names in the header can repeat or be empty.

    A link is (row, column, uri of the document to which the cell links). Rows and columns are counted from 0,
    without the header.

    Example:
        >>> from pyfast.corpus import Table
        >>> Table("moons", "Moons", "", ("moon", "planet"), (("Titan", "Saturn"),)).rows[0]
        ('Titan', 'Saturn')
    """

    uri: str
    title: str
    section: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    links: tuple[tuple[int, int, str], ...] = ()
    page: int = 0
    """The page or slide that contains the table, counted from 1. 0: the file has no pages"""
    numbers: tuple[tuple[int, int], ...] = ()
    """Pairs (row, its number in the file), in order. The rows up to the next pair are numbered consecutively.
    A file's numbers also count what is not in the table, such as captions and empty rows"""
    about: str = ""
    """The metadata, as a JSON object"""

    def number_of(self, row: int) -> int:
        """Return the number of a row in the table's file, counted from 1. Everything above the row in the file
        counts, including a header: the result is the row's number in the sheet, its line in a CSV or JSONL file,
        and otherwise its place in the table. In JSON, Parquet and Arrow, no row is a header, so the first record
        (or the first of a record's `rows`) has the number 1. `row` is counted from 0, without the header."""
        first, number = (
            self.numbers[place - 1] if (place := bisect_right(self.numbers, (row, row + (1 << 62)))) else (0, 1)
        )
        return number + row - first


@dataclass(frozen=True, slots=True)
class Triple:
    """One fact: head, relation, tail, and, if known, the time when it was true.

    Example:
        >>> from pyfast.corpus import Triple
        >>> Triple("Huygens", "discovered", "Titan", "1655").time
        '1655'
    """

    head: str
    relation: str
    tail: str
    time: str | None = None


@dataclass(frozen=True, slots=True)
class KnowledgeGraph:
    """A knowledge graph, or a part of one, as triples, which may repeat."""

    uri: str
    title: str
    triples: tuple[Triple, ...]
    about: str = ""
    """The metadata, as a JSON object"""


Document = TextDocument | Table | KnowledgeGraph


def with_metadata(document: Document, about: str) -> Document:
    """Give a document this metadata, unless it has its own."""
    if not isinstance(document, TextDocument):
        return document if document.about or not about else replace(document, about=about)
    outline = document.outline
    return document if outline.about or not about else replace(document, outline=replace(outline, about=about))


@dataclass(frozen=True, slots=True)
class Unread:
    """A file, or a part of a file, that is missing from the index or was changed when it was read.

    Example:
        >>> from pathlib import Path
        >>> print(Unread(Path("a.bin"), "there is no reader for this kind of file"))
        a.bin: there is no reader for this kind of file
    """

    path: Path
    reason: str
    """The part, such as `line 4` or `pages 2-3`, and why it was not read"""
    missing: bool = True
    """Whether something is missing from the index. False: nothing is missing, and the reason says how the part was
    read, for example that the file's first line became the header"""
    whole: bool = False
    """Whether the index contains nothing from the file. If `missing` is False, the file is then empty"""
    repeated: bool = False
    """Whether the part was read, but has the id of another document"""

    @property
    def told(self) -> str:
        """Return the line with which pyfast reports this, including whether something is missing."""
        what = "left out " if self.whole else "left out a part of "
        return f"{what if self.missing else ''}{self}"

    def __str__(self) -> str:
        """Return the path and the reason on one line."""
        return f"{self.path}: {self.reason}"


def noted(path: Path, what: str, names: Iterable[str]) -> list[Unread]:
    """Note that parts of a file were read differently: `what` was done, and the parts' names. Without names, there
    is no note."""
    listed = ", ".join(names)
    return [Unread(path, f"{what} {listed}", missing=False)] if listed else []


def outline_json(outline: Outline, headings: Sequence[Heading] = ()) -> str:
    """Write an outline as JSON. `headings` are those of the text, including headings that pyfast has found itself
    and that are not in the outline. If there is nothing to write, the result is an empty string."""
    if not headings and (outline is NO_OUTLINE or outline == NO_OUTLINE):
        return ""
    fields = {"headings": outline.headings, "pages": outline.pages, "aside": outline.aside, "about": outline.about}
    if outline.headings is None:
        fields["found"] = tuple(headings)
    return json.dumps({name: value for name, value in fields.items() if value not in ((), "")}, ensure_ascii=False)


class Headlines:
    """The headings of a text, each with those above it, as one line such as `Service manual > Warranty period`.

    `left_out` contains the numbers of the headings that are shortened or missing in some of these lines, because
    the lines would be too long. These headings are separate passages, so that searches find their words.
    """

    LONGEST = 500
    """The maximum number of characters of the title and the headings in the line of a passage"""

    def __init__(self, title: str, headings: Sequence[Heading]) -> None:
        self.headings = headings
        self.left_out: set[int] = set()
        self._title = title = fold(title)
        self._starts = [heading.start for heading in headings]
        self._ends = [heading.end for heading in headings]
        self._paths: list[str] = []
        self._above_long: dict[int, str] = {}
        above: list[tuple[int, int, str]] = [(0, -1, title)] if title else []
        for number, heading in enumerate(headings):
            above = [other for other in above if other[0] < heading.depth]
            text = fold(heading.text)
            if len(text) > self.LONGEST // 2:
                self.left_out.add(number)
                self._above_long[number] = self._path(above)
                text = f"{text[: self.LONGEST // 2]}…"
            if text and text != title:
                above.append((heading.depth, number, text))
            self._paths.append(self._path(above))

    def at(self, start: int, end: int) -> tuple[str, bool]:
        """Return the title and the headings above the characters `start` to `end` (exclusive), and whether these
        characters are just the last of these headings.

        A heading that is too long is treated like a paragraph: only the headings above it are returned.
        """
        number = bisect_right(self._starts, start) - 1
        if number < 0:
            return self._title, False
        is_heading = start < end <= self._ends[number]
        if is_heading and number in self._above_long:
            return self._above_long[number], False
        return self._paths[number], is_heading

    def _path(self, above: list[tuple[int, int, str]]) -> str:
        """Join a title and headings. If they are too long, headings in the middle are left out, because the title
        and the last heading say most."""
        texts = [text for _, _, text in above]
        while sum(map(len, texts)) > self.LONGEST and len(texts) > 2:
            self.left_out.add(above[len(above) - len(texts) + 1][1])
            texts = [texts[0], *texts[2:]]
        return " > ".join(texts)


class StoredOutline(NamedTuple):
    """The outline of a text and its headings, as stored in a corpus."""

    outline: Outline = NO_OUTLINE
    headlines: Headlines | None = None
    """The headings of the text. None: it has none"""

    @classmethod
    def parse(cls, stored: str, title: str) -> StoredOutline:
        """Read what `outline_json` wrote. `title` is the title of the text."""
        if not stored:
            return cls()
        fields = json.loads(stored)
        given, found = (
            None if some is None else tuple(Heading(*heading) for heading in some)
            for some in (fields.get("headings", ()), fields.get("found", ()))
        )
        outline = Outline(
            headings=given,
            pages=tuple(fields.get("pages", ())),
            aside=tuple((start, end) for start, end in fields.get("aside", ())),
            about=fields.get("about", ""),
        )
        headings = given or found
        return cls(outline, Headlines(title, headings) if headings else None)

    @property
    def headings(self) -> Sequence[Heading]:
        """The headings of the text, in order."""
        return self.headlines.headings if self.headlines else ()

    def metadata_at(self, place: int, as_written: bool = False) -> dict[str, Any]:
        """Return the metadata at the character `place` of a text: the metadata of the document, the character's
        `page` (from 1), and the `headings` above it. With `as_written`, numbers are strings with all of their
        digits, such as `1.10`.
        """
        fraction, whole = (str, str) if as_written else (float, _whole)
        metadata: dict[str, Any] = json.loads(self.outline.about or "{}", parse_float=fraction, parse_int=whole)
        if self.outline.pages:
            metadata["page"] = bisect_right(self.outline.pages, place)
        if above := headings_above(self.headings, place + 1):
            metadata["headings"] = [heading.text for heading in above if heading.text]
        return metadata


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits  # JSON takes no more than 64 bits from pyfast.


def section_at(headings: Sequence[Heading], place: int, title: str) -> str:
    """Name the section at the character `place` of a text: the headings above it, the highest first, with ` > `
    between them. A heading that repeats the title is left out.
    """
    return " > ".join(it.text for it in headings_above(headings, place) if it.text not in ("", title))


def depth_within(headings: Sequence[Heading]) -> int:
    """Return the depth of a new heading below the last one or, if that has no text and so only ends a section,
    beside it."""
    return min(headings[-1].depth + bool(headings[-1].text), 6) if headings else 2


def headings_above(headings: Sequence[Heading], place: int) -> list[Heading]:
    """Return the headings of the section that the character before `place` is in, the highest first."""
    above: list[Heading] = []
    for heading in headings:
        if heading.start >= place:
            break
        above = [other for other in above if other.depth < heading.depth] + [heading]
    return above
