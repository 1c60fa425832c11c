"""A corpus as a stream of windows: `ops.hseq_stream` over its columns."""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from pyfast import ops
from pyfast.corpus.levels import Level
from pyfast.corpus.sequence import Corpus

PRIORITY = (Level.PARAGRAPH, Level.TABLE_ROW, Level.SENTENCE, Level.TRIPLET)
"""The HSEQ paper's order: what holds most comes first."""


def stream(
    corpus: Corpus, priority: Sequence[Level] = PRIORITY, tombstones: ArrayLike | None = None
) -> ops.Stream:
    """The segments of these levels, best level first; see `ops.hseq_stream`."""
    return ops.hseq_stream(
        corpus.level, corpus.parent, corpus.subtree_end, priority=priority, tombstones=tombstones
    )
