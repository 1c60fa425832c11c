"""The kinds of documents: texts, tables and knowledge graphs, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Heading(NamedTuple):
    """A heading: the character offsets of its lines, its depth (1 to 6), and its text without Markdown's marks."""

    start: int
    end: int
    depth: int
    text: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The headings, pages and metadata of a text.

    A range of characters is a pair: the offset of its first character, and the offset after its last
    character. Offsets count from 0.

    Example:
        >>> from pyfast.corpus import Heading, Outline, TextDocument
        >>> outline = Outline(headings=(Heading(0, 5, 1, "Titan"),), pages=(0, 7))
        >>> document = TextDocument("titan", "Titan", "Titan\\n\\nA moon of Saturn.", outline=outline)
    """

    headings: tuple[Heading, ...] | None = None
    """The headings, in order. None: pyfast finds the headings of a Markdown text, and a text that is not Markdown
    has no headings"""
    pages: tuple[int, ...] = ()
    """The offset of the character with which each page begins"""
    aside: tuple[tuple[int, int], ...] = ()
    """The starts and ends of the parts of the text that are in no passage: front matter, and tables that are
    separate documents
    """
    about: str = ""
    """The document's own metadata, as a JSON object"""


NO_OUTLINE = Outline()


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A text, stored character for character. Its headings divide it into sections.

    The headings are `outline.headings`. If this is None, pyfast finds the headings of a Markdown text
    (`markdown` is true). A text that is not Markdown then has no headings.

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

    A link is (row, column, uri of the document to which the cell links). Rows and columns count from 0, and the
    header does not count.

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
    """A knowledge graph, or a part of one, as triples. A triple may occur more than once."""

    uri: str
    title: str
    triples: tuple[Triple, ...]


Document = TextDocument | Table | KnowledgeGraph


@dataclass(frozen=True, slots=True)
class Unread:
    """A file, or a part of a file, that is missing in the index or that was not read as it stands.

    Example:
        >>> from pathlib import Path
        >>> print(Unread(Path("a.bin"), "no reader is for such a file"))
        a.bin: no reader is for such a file
    """

    path: Path
    reason: str
    """Which part it is, such as `line 4` or `pages 2-3`, and why it was not read"""
    missing: bool = True
    """Whether something is missing in the index. False: everything is there, and the reason says how it was read,
    for example that the file's first line was taken as the header"""

    def __str__(self) -> str:
        """Return the path and the reason on one line."""
        return f"{self.path}: {self.reason}"
