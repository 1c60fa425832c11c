"""Choose training steps from several data sets, and order them. Later steps of trajectories come later in the
training (HSEQ, A.3.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyfast.errors import InputError
from pyfast.training.trajectories import Target


def quotas(weights: Sequence[float], size: int) -> list[int]:
    """Divide `size` into whole numbers in proportion to the weights, by the method of largest remainders.

    Raises `InputError` if a weight is negative or no weight is positive.
    """
    if min(weights, default=0.0) < 0 or sum(weights) <= 0:
        raise InputError(f"weights must not be negative, nor all be 0: {list(weights)}")
    exact = [size * weight / sum(weights) for weight in weights]
    floors = [int(it) for it in exact]
    rest = sorted(range(len(exact)), key=lambda at: floors[at] - exact[at])[: size - sum(floors)]
    return [floor + (at in rest) for at, floor in enumerate(floors)]


def mixed(sources: Sequence[Sequence[Target]], weights: Sequence[float], size: int, seed: int) -> list[Target]:
    """Draw `size` steps from all sources together. Return these steps in the order of `curriculum`. A source
    is the list of steps from one data set.

    The number of steps from a source is in proportion to the source's weight. Without weights, all sources
    have the same weight. A step is drawn again only after all other steps of its source have been drawn.

    Raises `InputError` if a source from which steps are drawn has no step, if the numbers of weights and
    sources differ, or if `quotas` refuses the weights.
    """
    generator = np.random.default_rng(seed)
    chosen: list[Target] = []
    shares = weights or [1.0] * len(sources)
    if len(shares) != len(sources):
        raise InputError(f"{len(shares)} weights for {len(sources)} sources")
    for number, (source, quota) in enumerate(zip(sources, quotas(shares, size), strict=True), start=1):
        if quota and not source:
            raise InputError(f"source {number}: no question has evidence among what its search finds")
        order: list[int] = []
        while len(order) < quota:
            order += generator.permutation(len(source)).tolist()
        chosen += [source[at] for at in order[:quota]]
    return curriculum(chosen, generator)


def curriculum(chosen: Sequence[Target], generator: np.random.Generator) -> list[Target]:
    """Order the steps by a random time for each step.

    Let t be the number of a step in its trajectory (from 1), and T the largest t of all these steps. The step
    gets a random time after the first (t - 1) / T of the training. So later steps of trajectories tend to
    come later in the training, but first steps occur until the end.
    """
    longest = max((target.t for target in chosen), default=1)
    first = np.array([(target.t - 1) / longest for target in chosen])
    times = first + (1 - first) * generator.random(len(chosen))
    return [chosen[at] for at in np.argsort(times, kind="stable").tolist()]
