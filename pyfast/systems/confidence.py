"""How certain an answer is, estimated from cheap signals: whether its words occur in the evidence, next to those
of the question, whether it agrees with other answers, and how far the best passage of the search scores above the
second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log, tanh
from operator import mul
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pyfast.engine import Record
from pyfast.errors import InputError
from pyfast.retrieval import Index, Pool
from pyfast.retrieval.evidence import ScoredSegments
from pyfast.utils.stop_words import ENGLISH
from pyfast.utils.text_forms import normalise

FEATURES = ("bias", "later", "support", "coverage", "agreement", "gap")
"""What a confidence depends on. `bias` is always 1. `later` is 1 for the answer of a later system; `coverage`
and `gap`, which show whether one search suffices, are then 0"""
Weights = tuple[float, float, float, float, float, float]
"""The weight of each feature, in the order of `FEATURES`"""


def gap_of(pool: Pool) -> float:
    """Return how far a search's best passage scores above the second, as a share of its score, from 0 to 1."""
    first, second = [*pool.scores[:2].tolist(), 0.0, 0.0][:2]
    return min(max((first - second) / first, 0.0), 1.0) if first > 0 else 0.0


def support_of(
    index: Index, items: Sequence[tuple[str, str, ScoredSegments | bytes | None]]
) -> list[tuple[float, float]]:
    """Measure how well evidence supports answers. Each item is (question, answer, evidence).

    Returns two shares for each item. Support: the share of the answer's words that occur in one piece of evidence.
    Coverage: the share of the question's words in the same piece, which is one of those with the highest support.
    """
    return [
        max(
            (
                (_share(answer, piece), _share(_without_stop_words(question), piece))
                for piece in _pieces(index, found)
            ),
            default=(0.0, 0.0),
        )
        for question, answer, found in items
    ]


def _pieces(index: Index, evidence: ScoredSegments | bytes | None) -> list[str]:
    if isinstance(evidence, ScoredSegments):
        return [index.corpus.render(segment) for segment in evidence.segments.tolist()]
    return [piece["snippet"] for piece in orjson.loads(evidence or b"[]")]


def _without_stop_words(question: str) -> str:
    return " ".join(word for word in normalise(question).split() if word not in ENGLISH)


def _share(text: str, piece: str) -> float:
    words = set(normalise(text).split())
    return len(words & set(normalise(piece).split())) / max(len(words), 1)


def agreement_of(one: str, other: str) -> float:
    """Return how far two answers agree, from 0 to 1: the Dice coefficient of their word sets."""
    first, second = set(normalise(one).split()), set(normalise(other).split())
    return 2 * len(first & second) / max(len(first) + len(second), 1)


def confidence_of(features: Sequence[float], weights: Sequence[float]) -> float:
    """Return the probability that an answer is correct: the logistic function of the weighted features."""
    return 0.5 + 0.5 * tanh(sum(map(mul, features, weights)) / 2)


def fitted(features: NDArray[np.float64], right: NDArray[np.float64]) -> Weights:
    """Fit the weights of the confidence by logistic regression on answers that are known to be correct or wrong.

    An L2 penalty of half the sum of the squared weights (without the bias) makes the fit work with few answers.

    Args:
        features: [n, 6] the `FEATURES` of n answers.
        right: [n] 1 for a correct answer, 0 for a wrong one.

    Returns:
        The weights, by Newton's method.
    """
    weights, penalty = np.zeros(len(FEATURES)), np.diag([1e-9, *[1.0] * (len(FEATURES) - 1)])
    for _ in range(50):
        expected = 0.5 + 0.5 * np.tanh(features @ weights / 2)
        slope = features.T @ (expected - right) + penalty @ weights
        curvature = (features.T * (expected * (1 - expected))) @ features + penalty
        weights -= np.linalg.solve(curvature, slope)
    bias, later, support, coverage, agreement, gap = weights.tolist()
    return bias, later, support, coverage, agreement, gap


def attempts_of(records: Iterable[Record]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return all answers in the traces of `cascade`, including those that were replaced, by system and by question
    id."""
    attempts: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        for one in record.trace.get("attempts", ()) if "answer_by" in record.trace else ():
            if one["answer"] is not None:
                attempts.setdefault(one["by"], {})[record.id] = one
    return attempts


def features_of(by: str, attempt: Mapping[str, Any]) -> Sequence[float]:
    """Return the `FEATURES` of an answer in a trace. `by` is the system that gave it."""
    return 1.0, float(by != "draft"), *(attempt[name] for name in FEATURES[2:])


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of `calibrate_cascade`."""

    weights: Weights
    """The setting `weights` of `cascade`"""
    answers: int
    """How many answers the weights were fitted to"""
    right: int
    """How many of these answers are correct"""
    loss: float
    """The mean log loss of the confidences, in nats"""
    constant_loss: float
    """The mean log loss of a constant confidence, the share of correct answers. Unless `loss` is much smaller, the
    confidences carry little information"""


def calibrated(features: Sequence[Sequence[float]], right: Sequence[float]) -> Calibration:
    """Fit the confidence to answers. `features` contains the `FEATURES` of each, and `right` is 1 for a correct
    answer and 0 for a wrong one. Raises `InputError` if all answers are correct, all are wrong, or there are
    none."""
    share = sum(right) / max(len(right), 1)
    if not 0 < share < 1:
        told = f"all {len(right)} answers from cascade are {'right' if share else 'wrong'}"
        raise InputError(f"{told if right else 'there are no answers from cascade'}, so there is nothing to fit")
    weights = fitted(np.array(features), np.array(right))
    expected = [confidence_of(one, weights) for one in features]
    losses = [log(p if is_right else 1 - p) for p, is_right in zip(expected, right, strict=True)]
    constant = share * log(share) + (1 - share) * log(1 - share)
    return Calibration(weights, len(right), int(sum(right)), -sum(losses) / len(losses), -constant)
