"""narrate: write pools as the text that the LLM reads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.ops.arrays import Ragged, arguments, call, ragged


def narrate(lines: Ragged, pool_offsets: npt.ArrayLike, doc_ids: npt.ArrayLike, characters: int) -> list[str]:
    """Write each pool as numbered lines, up to the first line that does not fit.

    Args:
        lines: (offsets int64[documents + 1], uint8): the line of each document, in UTF-8.
        pool_offsets: int64[P + 1], where each pool begins.
        doc_ids: int32[N], documents.
        characters: The maximum number of characters in a pool's text. If the first line of a pool is longer,
            it is cut.

    Returns:
        The text of each pool.

    Raises:
        ArrayError: An array is malformed.

    Example:
        >>> from pyfast import ops
        >>> print(ops.narrate(([0, 5, 11], b"TitanSaturn"), [0, 2], [1, 0], characters=100)[0])
        [1] Saturn
        [2] Titan
    """
    line_offsets, text = ragged("lines", lines, np.uint8, "text")
    pools = arguments(pool_offsets=pool_offsets, doc_ids=doc_ids)
    return call(native.narrate, **pools, line_offsets=line_offsets, text=text, characters=characters)
