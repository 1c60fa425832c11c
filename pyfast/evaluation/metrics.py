"""Exact match and token F1, as the official scripts of SQuAD, HotpotQA and HybridQA compute them.

The scripts agree but in two details, where one rule holds here for all sets: `yes` and `no` earn no partial F1
(HotpotQA, 2Wiki), and two answers of which nothing is left, such as "The" and "A", have F1 1 (SQuAD 2, HybridQA).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERDICTS = {"yes", "no", "noanswer"}


@dataclass(frozen=True, slots=True)
class Score:
    """Of one answer, each in [0, 1]."""

    em: float
    f1: float


def normalise(answer: str) -> str:
    """Lower case, no punctuation, no articles, single blanks."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """1 where the normalised answers are equal, else 0."""
    return float(normalise(prediction) == normalise(gold))


def f1(prediction: str, gold: str) -> float:
    """Harmonic mean of token precision and recall; `yes` and `no` must match exactly."""
    p, g = normalise(prediction), normalise(gold)
    if p != g and (p in _VERDICTS or g in _VERDICTS):
        return 0.0
    p_tokens, g_tokens = p.split(), g.split()
    if not p_tokens or not g_tokens:
        return float(p_tokens == g_tokens)
    common = sum((Counter(p_tokens) & Counter(g_tokens)).values())
    return 2.0 * common / (len(p_tokens) + len(g_tokens))


def score(prediction: str | None, answers: Sequence[str]) -> Score:
    """The best over the aliases of one answer; 0 where nothing was answered."""
    if prediction is None or not answers:
        return Score(0.0, 0.0)
    return Score(max(exact_match(prediction, a) for a in answers), max(f1(prediction, a) for a in answers))


def score_set(prediction: str | None, answers: Sequence[str]) -> Score:
    """For answers that are a set to be given in full, separated by commas or semicolons: EM and F1 of items."""
    if prediction is None or not answers:
        return Score(0.0, 0.0)
    given = {normalise(item) for item in re.split(r"[;,]", prediction)} - {""}
    # A title may hold a comma itself: then its parts stand for it.
    gold = {normalise(a) for a in answers}
    parts = {normalise(part) for a in answers for part in re.split(r"[;,]", a)} - {""}
    whole = gold if given & gold == given else parts
    common = len(given & whole)
    return Score(float(given == whole), 2.0 * common / (len(given) + len(whole)) if given else 0.0)
