"""Bootstrap intervals. They show how much a figure depends on the random choice of questions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
DRAWS = 2_000


def bootstrap_interval(values: Sequence[float], groups: Sequence[str], level: float = 0.95) -> tuple[float, float]:
    """Compute a percentile bootstrap interval of the mean of `values`, by 2,000 draws.

    The values of a group depend on each other, such as those of the turns of a conversation. Each draw
    picks groups at random, with repetition, and uses all of their values. The same input always gives the
    same draws.

    Args:
        values: One number for each question.
        groups: The group of each question.
        level: The share of draws inside the interval.

    Returns:
        (low, high).

    Raises:
        ValueError: There is no value.

    Example:
        >>> from pyfast.evaluation import bootstrap_interval
        >>> bootstrap_interval([1.0, 1.0, 1.0], ["a", "b", "c"])
        (1.0, 1.0)
    """
    column = np.asarray(values, np.float64)[:, None]
    low, high = ratio_intervals(column, np.ones_like(column), groups, level)
    return float(low[0]), float(high[0])


def ratio_intervals(
    numerators: Float64, denominators: Float64, groups: Sequence[str], level: float = 0.95
) -> tuple[Float64, Float64]:
    """Compute a bootstrap interval (low, high) of sum(numerators) / sum(denominators) for each column.

    `numerators` and `denominators` are float64 [questions, columns]: a column for each figure.
    """
    ratios = ratio_draws(numerators, denominators, groups)
    low, high = np.nanquantile(ratios, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def ratio_draws(numerators: Float64, denominators: Float64, groups: Sequence[Hashable]) -> Float64:
    """Draw whole groups of questions, and compute sum(numerators) / sum(denominators) for each draw and
    column: float64 [draws, columns]. A division by 0 gives NaN.
    """
    if not len(numerators):
        raise ValueError("an interval needs at least one value")
    _, place = np.unique(np.asarray(groups), return_inverse=True)
    above, below = (
        np.column_stack([np.bincount(place, column) for column in values.T])
        for values in (numerators, denominators)
    )
    columns = np.arange(below.shape[1])
    if (below % 1 == 0).all():  # Sums of integers are exact, so equal columns have equal sums.
        below, columns = np.unique(below, axis=1, return_inverse=True)
    ratios = np.empty((DRAWS, numerators.shape[1]))
    random, count = np.random.default_rng(0), len(above)  # The same number of groups has the same draws.
    for number in range(DRAWS):
        times = np.bincount(random.integers(0, count, count), minlength=count).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios[number] = (times @ above) / (times @ below)[columns]
    return ratios
