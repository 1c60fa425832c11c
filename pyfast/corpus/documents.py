"""The documents of a corpus as plain values."""

from dataclasses import dataclass

from pyfast.corpus.sections import Heading


@dataclass(frozen=True, slots=True)
class Outline:
    """Headings, pages and metadata of a text. Positions are character offsets, zero-based and half-open.

    Example:
        >>> from pyfast.corpus import Heading, Outline, TextDocument
        >>> outline = Outline(headings=(Heading(0, 5, 1, "Titan"),), pages=(0, 7))
        >>> document = TextDocument("titan", "Titan", "Titan\\n\\nA moon of Saturn.", outline=outline)
    """

    headings: tuple[Heading, ...] | None = None
    """In order; None: those of its Markdown, if the text is Markdown"""
    pages: tuple[int, ...] = ()
    """Where each page begins, from the first on"""
    aside: tuple[tuple[int, int], ...] = ()
    """Starts and ends of what is no passage of the text: tables that are documents of their own, front matter"""
    about: str = ""
    """A JSON object with what the document says of itself"""


NO_OUTLINE = Outline()


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A text, kept character for character. `markdown` says that headings divide it into sections.

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
    """A table of strings. Rows may be shorter or longer than the header; header names may repeat or be empty.

    `links` are (data row, column, uri of the document the cell links to); rows and columns count from 0.

    Example:
        >>> from pyfast.corpus import Table
        >>> Table("moons", "Moons", "", ("moon", "planet"), (("Titan", "Saturn"),)).rows[0]
        ('Titan', 'Saturn')
    """

    uri: str
    title: str
    section: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
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
    """A knowledge graph, or a part of one, as triples; a triple may occur more than once."""

    uri: str
    title: str
    triples: tuple[Triple, ...]


Document = TextDocument | Table | KnowledgeGraph
