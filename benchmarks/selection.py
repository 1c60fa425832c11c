"""HSEQ's metric of selected evidence (A.2): precision, recall and F1 over all questions, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyfast.evaluation.evaluate import Float64, ratio_draws
from pyfast.evaluation.evidence import Counts


@dataclass(frozen=True, slots=True)
class Selection:
    """Precision, recall and F1 over all questions together (micro averages), each in [0, 1]."""

    precision: float
    recall: float
    f1: float


def micro_averages(questions: Sequence[Counts]) -> Selection:
    """Compute HSEQ's metric for selected evidence (A.2): precision, recall and F1 over all questions together. A
    figure is 0 if its denominator is 0.
    """
    both, picked, wanted = np.array(questions, np.int64).reshape(-1, 3).sum(axis=0).tolist()
    return Selection(both / max(picked, 1), both / max(wanted, 1), 2 * both / max(picked + wanted, 1))


def f1_interval(
    questions: Sequence[Counts], before: Sequence[Counts] | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Compute the percentile bootstrap interval of F1, by 2,000 draws of questions.

    If `before` has the counts of the same questions in another run, the result is the interval of the
    difference: F1 of `questions` minus F1 of `before`. Both runs use the same draws, which depend only on the
    number of questions. Raises `ValueError` if there is no question, or if the two runs have different
    numbers of questions.
    """
    if not questions or (before is not None and len(before) != len(questions)):
        raise ValueError("an interval needs questions, and the same ones for both")
    f1 = _f1_draws(questions) - (0.0 if before is None else _f1_draws(before))
    low, high = np.quantile(f1, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _f1_draws(questions: Sequence[Counts]) -> Float64:
    both, picked, wanted = np.array(questions, np.float64).T[:, :, None]
    return np.nan_to_num(ratio_draws(2 * both, picked + wanted, range(len(questions))))  # 0 / 0 counts as 0.
