"""Show a corpus window by window (some segments at a time), with `ops.hseq_stream`."""

from collections.abc import Sequence

from numpy.typing import ArrayLike

import pyfast.ops as ops
from pyfast.corpus.levels import Level
from pyfast.corpus.sequence import Corpus

PRIORITY = (Level.PARAGRAPH, Level.TABLE_ROW, Level.SENTENCE, Level.TRIPLET)
"""The order of HSEQ's paper: levels with more content come first"""


def stream(
    corpus: Corpus, priority: Sequence[Level] = PRIORITY, tombstones: ArrayLike | None = None
) -> ops.Stream:
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
    return ops.hseq_stream(
        corpus.level, corpus.parent, corpus.subtree_end, priority=priority, tombstones=tombstones
    )
