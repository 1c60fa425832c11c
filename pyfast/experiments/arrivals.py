"""Compute the times at which questions arrive in an open loop (a load with fixed arrival times)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from pyfast.errors import InputError

Float64 = npt.NDArray[np.float64]
Arrivals = Literal["poisson", "gamma", "constant"]


def arrival_times(arrivals: Arrivals, rate: float, count: int, seed: int, burstiness: float = 1.0) -> Float64:
    """Draw the times at which questions arrive.

    Args:
        arrivals: The distribution of the gaps between questions. `constant`: equal gaps. `poisson`: exponential
            gaps. `gamma`: a gamma distribution with the shape `burstiness`, the same parameter as in
            `vllm bench serve`.
        rate: Questions a second, on average.
        count: The number of questions.
        seed: The seed of the random gaps. The same seed always gives the same times.
        burstiness: The shape of `gamma`. Below 1, arrivals come in bursts. Above 1, the gaps are more even
            than with `poisson`.

    Returns:
        float64[count], seconds from the start, ascending. The first question arrives at 0.

    Raises:
        InputError: A number is out of range.

    Example:
        >>> from pyfast.experiments.arrivals import arrival_times
        >>> arrival_times("constant", 4.0, 3, seed=0).tolist()
        [0.0, 0.25, 0.5]
    """
    for name, value in (("rate", rate), ("burstiness", burstiness)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a number above 0, got {value}")
    draws = np.random.default_rng(seed)
    if arrivals == "constant":
        gaps = np.full(count, 1 / rate)
    elif arrivals == "poisson":
        gaps = draws.exponential(1 / rate, count)
    elif arrivals == "gamma":
        gaps = draws.gamma(burstiness, 1 / (rate * burstiness), count)
    else:
        raise InputError(f"arrivals: expected poisson, gamma or constant, got {arrivals!r}")
    times: Float64 = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
    return times


def read_trace(path: Path) -> Float64:
    """Read arrival times from a file, which has a number of seconds on each line. Returns the seconds from
    the first arrival to each arrival (float64).

    Raises:
        InputError: The file cannot be read or is empty, a line is not a number, or a number is smaller than the
            previous number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    times = []
    for number, line in enumerate(lines, start=1):
        try:
            times.append(float(line))
        except ValueError:
            raise InputError(f"{path}, line {number}: expected a number of seconds, got {line[:80]!r}") from None
        if not math.isfinite(times[-1]) or (len(times) > 1 and times[-1] < times[-2]):
            raise InputError(f"{path}, line {number}: expected ascending numbers, got {line[:80]!r}")
    if not times:
        raise InputError(f"{path}: has no arrival time")
    return np.array(times) - times[0]
