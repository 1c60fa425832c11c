"""Pick evidence by the words of the question, in place of an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyfast.retrieval.index import Index, of_index


@dataclass(frozen=True, slots=True)
class LexicalSelection:
    """The texts picked from a window, best first, and how much of the question is covered by the texts picked
    so far.
    """

    picked: tuple[int, ...]
    """The positions of the picked texts in the window, from 0"""
    share: float
    """The weight of the question's words in all texts picked so far, divided by the weight of all the
    question's words: from 0 to 1. The texts picked before this window count too
    """


class Words:
    """The words of a question, each with its idf as weight. Stop words, and words that are not in the index,
    are left out.
    """

    def __init__(self, index: Index, question: str) -> None:
        self._analysis = index.analysis
        asked = list(dict.fromkeys(index.analysis.tokens(question)))
        terms = index.terms.find(asked).tolist()
        known = {word: index.idf(term) for word, term in zip(asked, terms, strict=True) if term >= 0}
        self.idf = {word: idf for word, idf in known.items() if idf}

    def within(self, text: str) -> set[str]:
        """Return the words of the question that occur in the text."""
        return self.idf.keys() & set(self._analysis.tokens(text))

    def weight(self, words: set[str]) -> float:
        """Return the sum of the weights of these words."""
        return sum(self.idf[word] for word in sorted(words))


@of_index
def select_lexically(
    index: Index, items: Sequence[tuple[str, Sequence[str], Sequence[str]]], k: int
) -> list[LexicalSelection]:
    """Pick at most `k` more texts for each question, one after the other. The next text is always the one
    with the highest value.

    The value of a text is the weight of the question's words in it. A word that is in no picked text counts twice.
    Of several texts with the same value, the first is picked. A text without a word of the question is never
    picked.

    Args:
        index: The index, whose idf weighs the words.
        items: For each question: its text, the texts picked before, the texts of the window.
        k: The maximum number of texts to pick.

    Returns:
        For each question, the picked texts in the order in which they were picked.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, select_lexically
        >>> texts = ["Titan is a moon of Saturn.", "Mars has two moons."]
        >>> select_lexically(Index(Path("IDX")), [("Which moon circles Saturn?", [], texts)], 1)[0].picked
        (0,)
    """
    return [_pick(index, question, before, window, k) for question, before, window in items]


def _pick(index: Index, question: str, before: Sequence[str], window: Sequence[str], k: int) -> LexicalSelection:
    words = Words(index, question)
    known = {word for text in before for word in words.within(text)}
    texts = {at: shared for at, text in enumerate(window) if (shared := words.within(text))}
    picked: list[int] = []
    while texts and len(picked) < k:
        best = max(texts, key=lambda at: words.weight(texts[at]) + words.weight(texts[at] - known))
        picked.append(best)
        known |= texts.pop(best)
    whole = words.weight(set(words.idf))
    return LexicalSelection(tuple(picked), words.weight(known) / whole if whole else 0.0)
