"""The levels (kinds) of segments, and which level contains which."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Level(IntEnum):
    """The level of a segment.

    In a text: document > section (if there are headings) > paragraph > sentence. In a table: table > table_row >
    table_cell. In a knowledge graph: document > subgraph > triplet.
    """

    DOCUMENT = 0
    SECTION = 1
    PARAGRAPH = 2
    SENTENCE = 3
    TABLE = 4
    TABLE_ROW = 5
    TABLE_CELL = 6
    SUBGRAPH = 7
    TRIPLET = 8


# For each level, the levels that may be directly below it. A level that stands below no other is a root.
CHILDREN = {
    Level.DOCUMENT: (Level.SECTION, Level.PARAGRAPH, Level.SUBGRAPH),
    Level.SECTION: (Level.PARAGRAPH,),
    Level.PARAGRAPH: (Level.SENTENCE,),
    Level.TABLE: (Level.TABLE_ROW,),
    Level.TABLE_ROW: (Level.TABLE_CELL,),
    Level.SUBGRAPH: (Level.TRIPLET,),
}
ROOTS = (Level.DOCUMENT, Level.TABLE)
PASSAGE_LEVELS = (Level.PARAGRAPH, Level.TABLE_ROW, Level.SUBGRAPH)

_DEPTH = np.array([0, 1, 2, 3, 0, 1, 2, 1, 2], dtype=np.int8)


def parents(level: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Compute the parent of each segment from the levels of all segments. The segments are in depth-first order.

    The parent of a segment is the last earlier segment whose level is higher, that is, nearer to the
    document. The result has the positions of parents (int64), -1 for documents. Levels are uint8.
    """
    depth = _DEPTH[level]
    position = np.arange(level.size, dtype=np.int64)
    parent = np.full(level.size, -1, dtype=np.int64)
    for shallower in range(3):
        last = np.maximum.accumulate(np.where(depth == shallower, position, -1))
        np.maximum(parent, last, out=parent, where=depth > shallower)
    return parent
