"""The warning of iterative ops when pools did not converge."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast.errors import ConvergenceWarning


def warn_of(op: str, converged: npt.NDArray[Any], max_iterations: int) -> None:
    """Show a `ConvergenceWarning` to the caller of the op if a pool has not converged.

    The text is always the same and does not name the pools, so that Python shows it only once for each line of
    code that calls the op.
    """
    pools = np.flatnonzero(~converged.astype(bool))
    if len(pools):
        message = (
            f"{op}: not converged in some pools (the warning's `pools`) with max_iterations={max_iterations}; "
            "take more, or a larger tolerance"
        )
        warnings.warn(ConvergenceWarning(message, tuple(pools.tolist())), stacklevel=3)
