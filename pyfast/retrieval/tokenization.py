"""Turn words into term ids, with one vocabulary for the forward index, the lexical index and the questions."""

from __future__ import annotations

import re
from collections.abc import Mapping

TOKENS = r"(?u)\b\w\w+\b"
# It finds the same tokens as \w\w+\b, and is faster: a match is as long as possible anyway.
_TOKEN = re.compile(r"\w\w+")


def tokenize(text: str) -> list[str]:
    """Words of two characters or more, lower case: scikit-learn's default analyser, without importing it."""
    return _TOKEN.findall(text.lower())


def term_ids(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Ids of the known words of a text, in order, with repetitions."""
    return [i for i in map(vocabulary.get, tokenize(text)) if i is not None]
