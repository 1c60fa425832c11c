"""How far a mean may be off by the choice of what was asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def bootstrap_interval(values: Sequence[float], groups: Sequence[str], level: float = 0.95) -> tuple[float, float]:
    """A percentile bootstrap of the mean of `values`, by 2,000 draws of whole `groups`.

    What belongs together (turns of one conversation) is drawn together, for its values depend on each other. The
    same draws for the same input. Raises `ValueError` where there is no value.
    """
    _, place = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(place, weights=np.asarray(values, np.float64))
    counts = np.bincount(place)
    if not len(sums):
        raise ValueError("an interval of nothing")
    drawn = np.random.default_rng(0).integers(0, len(sums), (2_000, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
