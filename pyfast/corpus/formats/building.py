"""Put together the text of a file, paragraph by paragraph, with its headings, pages and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyfast.corpus.documents import Document, Outline, TextDocument
from pyfast.corpus.grids import Span, table_of_grid
from pyfast.corpus.sections import Heading, section_at


class FoundTable(NamedTuple):
    """A table of a file, and where it stands."""

    place: int
    caption: str
    cells: Sequence[Sequence[str]]
    spans: tuple[Span, ...]
    header_rows: int | None


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
        cells: Sequence[Sequence[str]],
        spans: tuple[Span, ...] = (),
        header_rows: int | None = None,
        caption: str = "",
    ) -> None:
        """Add a table, which stands at the end of the text so far. An empty one is left out."""
        if any(map(any, cells)):
            self._tables.append(FoundTable(self._size, caption, cells, spans, header_rows))

    def documents(self, uri: str, title: str) -> Iterator[Document]:
        """Yield the text, and then each table, with a uri such as `uri#table-1`."""
        outline = Outline(headings=tuple(self.headings), pages=tuple(self._pages))
        yield TextDocument(uri, title, "".join(self._parts), outline=outline)
        for number, table in enumerate(self._tables, start=1):
            above = section_at(self.headings, table.place, title)
            section = " > ".join(filter(None, [above, table.caption]))
            yield table_of_grid(
                f"{uri}#table-{number}", title, section, table.cells, table.spans, table.header_rows
            )
