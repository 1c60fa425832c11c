"""The words and terms of a text, character by character: slow, and independent of pyfast."""

import unicodedata
from collections.abc import Iterable, Iterator

import Stemmer


def slow_tokens(text: str) -> list[str]:
    """The words of a text of Latin letters, in lower case and without accents."""
    divided = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).lower())
    return list(slow_words("".join(c for c in divided if not unicodedata.combining(c))))


def slow_terms(text: str, stop_words: Iterable[str] = ()) -> list[str]:
    """Snowball's stems of the words of a text, without those of stop words."""
    stem = Stemmer.Stemmer("english").stemWord
    stop = set(map(stem, stop_words))
    return [term for term in map(stem, slow_tokens(text)) if term not in stop]


def slow_words(text: str) -> Iterator[str]:
    """Runs of letters, digits and marks. One character counts unless it is a piece of a number or word."""
    kind = ["m" if unicodedata.category(c)[0] == "M" else "w" if c.isalnum() else "" for c in text]
    at = 0
    while at < len(text):
        stop = at + 1
        if kind[at] == "w":
            while stop < len(text) and kind[stop]:
                stop += 1
            before, after = text[max(at - 2, 0) : at], text[stop : stop + 2]
            cut = len(before) == 2 and before[1] in "'\u2019" and bool(kind[at - 2])
            if text[at] in "0123456789":
                longer = at > 2 and bool(kind[at - 3])
                cut |= longer and before[1] in ".," and before[0] in "0123456789"
                longer = stop + 2 < len(text) and bool(kind[stop + 2])
                cut |= longer and after[0] in ".," and after[1] in "0123456789"
            if stop - at > 1 or not cut:
                yield text[at:stop]
        at = stop
