"""The text buffer: all strings of a corpus as UTF-8, one after another."""

from collections.abc import Callable, Iterable, Sized

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def lengths(things: Iterable[Sized]) -> Integers:
    """Return the length of each string, as int64."""
    return np.fromiter(map(len, things), dtype=np.int64)


def append_text(text: str, buffer: bytearray) -> Callable[[Integers], Integers]:
    """Append a text to the buffer. Returns a function that converts positions in the text (characters) to
    positions in the buffer (bytes).

    The function takes and returns int64 arrays. A position in the text is a number from 0 to `len(text)`.
    Raises UnicodeEncodeError if the text has a lone surrogate.
    """
    utf8 = text.encode()
    base = len(buffer)
    buffer += utf8
    if len(utf8) == len(text):
        return lambda positions: positions + base
    # For each continuation byte of UTF-8: the number of characters that start before it, with its own.
    continuing = np.flatnonzero(np.frombuffer(utf8, dtype=np.int8) < -64)
    continuing -= np.arange(continuing.size)
    return lambda positions: positions + base + np.searchsorted(continuing, positions, side="right")
