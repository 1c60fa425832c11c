"""What takes long to make is made once for all workers of pytest-xdist, in the folder that they share."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], object]) -> Path:
    """The folder of that name in this run's temporary one: filled by who comes first, others wait for it."""
    own = factory.getbasetemp()
    # A worker's folder stands in that of the whole run, which is new each time.
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(f"{folder}.done").exists():
            # What a maker that failed left behind is in the way of none: each tries in a folder of its own.
            made = factory.mktemp(f"{name}-in-work")
            fill(made)
            made.rename(folder)
            Path(f"{folder}.done").touch()
    return folder
