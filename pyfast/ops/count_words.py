"""count_words: count how often each word occurs in each text."""

from __future__ import annotations

import numpy as np

import pyfast._native as native
from pyfast.ops.arrays import Int32, Int64, Ragged, call, ragged


def count_words(texts: Ragged, separated: bool = False) -> tuple[Int64, Int32, Int32, list[str]]:
    """Count the words of texts.

    A word is a run of letters and digits (`str.isalnum`), and of the combining characters that follow them. A
    single character is a word only if it stands alone: the end of `it's` is not a word, and neither is a part of a
    number next to a longer part, such as the 1 of `1.50`. Words keep their case.

    Args:
        texts: (offsets int64[T + 1], uint8): texts in UTF-8.
        separated: True: the words of the texts are already separated by blanks, and a word is a run of any
            characters except blanks.

    Returns:
        (offsets int64[T + 1], words int32[N], counts int32[N], vocabulary). Text t has the words from
        `offsets[t]` to `offsets[t + 1]`, each word once and in ascending order. A word is represented by its
        position in `vocabulary`, a sorted list of strings.

    Raises:
        ArrayError: An array is malformed.

    Example:
        >>> from pyfast import ops
        >>> offsets, words, counts, vocabulary = ops.count_words(([0, 12, 17], b"moon of moonTitan"))
        >>> vocabulary, words.tolist(), counts.tolist()
        (['Titan', 'moon', 'of'], [1, 2, 0], [2, 1, 1])
    """
    offsets, bytes_ = ragged("texts", texts, np.uint8, "bytes")
    return call(native.count_words, text_offsets=offsets, bytes=bytes_, separated=separated)
