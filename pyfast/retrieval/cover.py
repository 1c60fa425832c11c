"""How much of a question texts cover, by its words alone: what stands in for an LLM that picks evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyfast.retrieval.index import Index
from pyfast.retrieval.terms import term_ids

Weights = dict[int, float]
"""Idf by term id"""


@dataclass(frozen=True, slots=True)
class Cover:
    """Which of a window's texts are picked, best first, and how much of the question is covered with them."""

    picked: tuple[int, ...]
    """places in the window, from 0"""
    share: float
    """of the weight of the question's words: 0 to 1"""


def question_weights(index: Index, question: str) -> Weights:
    """The question's words by how much they tell; stop words do not."""
    return {term: idf for term in index.question_terms(question) if (idf := index.idf(term))}


def covered(index: Index, text: str, weights: Weights) -> Weights:
    """Those of the words that are in the text."""
    return {term: weights[term] for term in set(term_ids(text, index.vocabulary)) & weights.keys()}


def pick_cover(index: Index, items: Sequence[tuple[str, Sequence[str], Sequence[str]]], k: int) -> list[Cover]:
    """For each (question, texts picked before, texts of the window) at most `k` more, greedily.

    A text is worth the weight of the question's words in it, and those that are not covered yet once more. Ties:
    the first of the window. What shares no word with the question is not picked.
    """
    return [_pick(index, question, before, window, k) for question, before, window in items]


def _pick(index: Index, question: str, before: Sequence[str], window: Sequence[str], k: int) -> Cover:
    weights = question_weights(index, question)
    known = {term for text in before for term in covered(index, text, weights)}
    texts = {at: found for at, text in enumerate(window) if (found := covered(index, text, weights))}
    picked: list[int] = []
    while texts and len(picked) < k:
        best = max(texts, key=lambda at: sum(w * (1 + (t not in known)) for t, w in sorted(texts[at].items())))
        picked.append(best)
        known |= texts.pop(best).keys()
    whole = sum(weights.values())
    return Cover(tuple(picked), sum(weights[t] for t in sorted(known)) / whole if whole else 0.0)
