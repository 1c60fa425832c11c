"""Views of a segment (HSEQ, A.3.5): as text, as a part of a table, or as triples."""

from __future__ import annotations

from dataclasses import dataclass

from pyfast.corpus.documents import Triple
from pyfast.corpus.levels import Level
from pyfast.corpus.sequence import Corpus


@dataclass(frozen=True, slots=True)
class TextView:
    """A part of a text: the offset of its first character, the offset after its last character, and the
    positions of its section and its paragraph in the corpus. A position is None if there is no section or
    paragraph around the part.
    """

    start: int
    end: int
    section: int | None
    paragraph: int | None


@dataclass(frozen=True, slots=True)
class TableView:
    """A part of a table: the header of the table, the number of the row (None for the whole table), the
    numbers of its columns, and its cells as (row, column). Numbers count from 0.
    """

    schema: tuple[str, ...]
    row: int | None
    columns: tuple[int, ...]
    cells: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GraphView:
    """The triples in a part of a knowledge graph. A triple has its time, if the time is known."""

    triples: tuple[Triple, ...]


View = TextView | TableView | GraphView


def view(corpus: Corpus, i: int) -> View:
    """Describe one segment as text, as a part of a table, or as triples.

    Args:
        corpus: The corpus.
        i: The position of a segment in the corpus.

    Returns:
        A `TextView`, `TableView` or `GraphView`.

    Example:
        >>> from pyfast.corpus import TextDocument, encode, view
        >>> type(view(encode([TextDocument("titan", "Titan", "Titan is a moon.")]), 0)).__name__
        'TextView'
    """
    if corpus.is_table(i):
        inside = range(i, int(corpus.subtree_end[i]))
        cells = [(int(corpus.start[k]), int(corpus.end[k])) for k in inside if corpus.level[k] == Level.TABLE_CELL]
        row = int(corpus.start[i]) if corpus.level[i] != Level.TABLE else None
        columns = tuple(sorted({column for _, column in cells}))
        return TableView(corpus.header(int(corpus.source[i])), row, columns, tuple(cells))
    if corpus.is_graph(i):
        return GraphView(tuple(corpus.triples(i)))
    around = {Level(int(corpus.level[k])): k for k in _chain(corpus, i)}
    return TextView(
        int(corpus.start[i]), int(corpus.end[i]), around.get(Level.SECTION), around.get(Level.PARAGRAPH)
    )


def _chain(corpus: Corpus, i: int) -> list[int]:
    """Return a segment and the segments above it, up to the document."""
    chain = [i]
    while (above := int(corpus.parent[chain[-1]])) >= 0:
        chain.append(above)
    return chain
