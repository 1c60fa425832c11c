"""HSEQ's metric for selected evidence (A.2). It compares the ids of selected segments with the ids of gold
segments.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Counts = tuple[int, int, int]
"""The counts of one question: (gold segments that were picked, picked segments, gold segments)"""


@dataclass(frozen=True, slots=True)
class Selection:
    """Precision, recall and F1 over all questions together (micro averages), each in [0, 1]."""

    precision: float
    recall: float
    f1: float


def counts(picked: Collection[Hashable], wanted: Collection[Hashable]) -> Counts:
    """Count the picked and the gold segments of one question. A repeated id counts once."""
    return len(set(picked) & set(wanted)), len(set(picked)), len(set(wanted))


def selection(questions: Sequence[Counts]) -> Selection:
    """Compute precision, recall and F1 over all questions together. A figure is 0 if its denominator is 0."""
    return Selection(*_averages(_table(questions).sum(axis=0)).tolist())


def f1_interval(
    questions: Sequence[Counts], before: Sequence[Counts] | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Compute the percentile bootstrap interval of F1, by 2,000 draws of questions.

    If `before` has the counts of the same questions in another run, the result is the interval of the
    difference: F1 of `questions` minus F1 of `before`. Both runs use the same draws, which depend only on the
    number of questions. Raises `ValueError` if there is no question, or if the two runs have different
    numbers of questions.
    """
    table = _table(questions)
    if not len(table) or (before is not None and len(before) != len(table)):
        raise ValueError("an interval needs questions, and the same ones for both")
    drawn = np.random.default_rng(0).integers(0, len(table), (2_000, len(table)))
    f1 = _averages(table[drawn].sum(axis=1).T)[2]
    if before is not None:
        f1 = f1 - _averages(_table(before)[drawn].sum(axis=1).T)[2]
    low, high = np.quantile(f1, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _table(questions: Sequence[Counts]) -> Float64:
    return np.array(questions, np.float64).reshape(-1, 3)


def _averages(sums: Float64) -> Float64:
    """Return (precision, recall, F1). `sums` has the sum of each number in `Counts` over all questions: an
    array [3], or [3, draws] with one column for each draw.
    """
    both, picked, wanted = sums
    return np.stack([both, both, 2 * both]) / np.maximum([picked, wanted, picked + wanted], 1)
