"""Divide texts into words, and find the term ids of words."""

from __future__ import annotations

from collections.abc import Mapping

from pyfast.text_forms import compared, words

TOKENS = "letters, digits and marks, NFKC, no accents"
"""What the terms of the default analysis are, for the manifest of an index"""


def tokenize(text: str) -> list[str]:
    """Divide a text into words, in the form in which words are compared: `text_forms.words` of
    `text_forms.compared`."""
    return words(compared(text))


def term_ids(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Find the term ids of a text's words, in order, with repetitions. Words without an id are left out."""
    return [i for i in map(vocabulary.get, tokenize(text)) if i is not None]
