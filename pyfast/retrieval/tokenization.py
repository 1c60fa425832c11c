"""Divide texts into words, and find the term ids of words."""

from __future__ import annotations

import re
from collections.abc import Mapping

TOKENS = r"(?u)\b\w\w+\b"
# It finds the same tokens as \w\w+\b, and is faster: a match is as long as possible anyway.
_TOKEN = re.compile(r"\w\w+")


def tokenize(text: str) -> list[str]:
    """Divide a text into words of two characters or more, in lower case, like scikit-learn's default
    analyser."""
    return _TOKEN.findall(text.lower())


def term_ids(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Find the term ids of a text's words, in order, with repetitions. Words without an id are left out."""
    return [i for i in map(vocabulary.get, tokenize(text)) if i is not None]
