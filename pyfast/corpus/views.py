"""Views of a segment (HSEQ, A.3.5): as text, as a part of a table, or as triples. The stream of a corpus shows
some segments at a time (a window), with `ops.hseq_stream`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from pyfast.corpus.documents import Triple
from pyfast.corpus.levels import Level
from pyfast.corpus.sequence import Corpus
from pyfast.ops.hseq_stream import Stream, hseq_stream


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
    around = {}
    above = i
    while above >= 0:  # up to the document
        around[int(corpus.level[above])] = above
        above = int(corpus.parent[above])
    place = int(corpus.start[i]), int(corpus.end[i])
    return TextView(*place, around.get(Level.SECTION), around.get(Level.PARAGRAPH))


PRIORITY = (Level.PARAGRAPH, Level.TABLE_ROW, Level.SENTENCE, Level.TRIPLET)
"""The order of HSEQ's paper: levels with more content come first"""


def stream(corpus: Corpus, priority: Sequence[Level] = PRIORITY, tombstones: ArrayLike | None = None) -> Stream:
    """Open the stream of a corpus, which shows its segments window by window.

    Args:
        corpus: The corpus.
        priority: The levels of segments in the stream, best first.
        tombstones: bool [segments], True for deleted segments. None: nothing is deleted.

    Returns:
        The stream; see `ops.hseq_stream`.

    Example:
        >>> from pyfast.corpus import TextDocument, encode, stream
        >>> segments = stream(encode([TextDocument("titan", "Titan", "Titan is a moon. It orbits Saturn.")]))
        >>> offsets, window = segments.window(segments.cursors(1), 8)
        >>> len(window)
        3
    """
    tree = corpus.level, corpus.parent, corpus.subtree_end
    return hseq_stream(*tree, priority=priority, tombstones=tombstones)
