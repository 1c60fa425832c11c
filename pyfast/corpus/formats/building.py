"""Put together the documents of a file: its text, with headings and pages, and its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyfast.corpus.documents import Document, Heading, Outline, TextDocument
from pyfast.corpus.grids import Span, grid_of, table_of_grid
from pyfast.corpus.outlines import section_at

POWER = re.compile(r"[-+\u2212]?[0-9]+")
"""What is written as a power if it is raised behind a digit, so that it is no other number"""


class FoundTable(NamedTuple):
    """A table of a file, and where it stands."""

    place: int
    caption: str
    cells: Sequence[Sequence[str]]
    spans: tuple[Span, ...] = ()
    header_rows: int | None = None


def title_of(path: Path) -> str:
    """Make a title from a file name: its words, without the suffix."""
    return path.stem.replace("-", " ").replace("_", " ")


def with_tables(text: TextDocument, tables: Iterable[FoundTable]) -> Iterator[Document]:
    """Yield the text, and then each of its tables, with a uri such as `uri#table-1`. The section of a table has
    the headings above it, and its caption."""
    yield text
    for number, it in enumerate(tables, start=1):
        above = section_at(text.outline.headings or (), it.place, text.title)
        section = " > ".join(filter(None, [above, it.caption]))
        yield table_of_grid(f"{text.uri}#table-{number}", text.title, section, it.cells, it.spans, it.header_rows)


class Text:
    """Collects the paragraphs, headings, pages and tables of a file."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self.headings: list[Heading] = []
        self._pages: list[int] = []
        self._tables: list[FoundTable] = []

    def add(self, paragraph: str) -> None:
        """Add a paragraph. An empty one is left out."""
        if paragraph := paragraph.replace("\v", "\n").strip():
            self._parts.append(paragraph + "\n\n")
            self._size += len(paragraph) + 2

    def heading(self, text: str, depth: int) -> None:
        """Add a heading."""
        start = self._size
        self.add(text)
        if self._size > start:
            self.headings.append(Heading(start, self._size, min(max(depth, 1), 6), " ".join(text.split())))

    def page(self) -> None:
        """Begin a page."""
        self._pages.append(self._size)

    def table(
        self,
        rows: Iterable[Iterable[tuple[str, int, int]]],
        most: int,
        heads: int | None = None,
        caption: str = "",
    ) -> None:
        """Add a table, which stands at the end of the text so far. An empty one is left out. `rows` and `most`
        are as in `grid_of`, which may raise `InputError`. `heads` is the number of header rows, if the file says
        it."""
        cells, spans = grid_of(rows, most)
        if any(map(any, cells)):
            self._tables.append(FoundTable(self._size, caption, cells, spans, heads))

    def documents(self, uri: str, title: str) -> Iterator[Document]:
        """Yield the text, and then each table."""
        outline = Outline(headings=tuple(self.headings), pages=tuple(self._pages))
        yield from with_tables(TextDocument(uri, title, "".join(self._parts), outline=outline), self._tables)
