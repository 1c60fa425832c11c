"""Kill a process at a step of replacing a folder (`pyfast.files.built_aside`)."""

import os
import signal
from pathlib import Path

import pytest

from pyfast import files


def killed_at(step: int, exchanges: bool) -> None:
    """Let this process kill itself before this step: an exchange of two folders' names, or a rename of a folder.
    Without `exchanges`, the file system cannot exchange names."""
    rename, exchange, steps = Path.rename, files._exchange, iter(range(step))

    def begin() -> None:
        if next(steps, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def renames(path: Path, target: Path) -> Path:
        if path.is_dir():
            begin()
        return rename(path, target)

    def exchanged(one: Path, other: Path) -> bool:
        if exchanges:
            begin()
        return exchanges and exchange(one, other)

    Path.rename = renames  # type: ignore[method-assign,assignment]
    files._exchange = exchanged


def need_exchange(folder: Path) -> None:
    """Skip the test if the file system of this folder cannot exchange names."""
    one, other = folder / "one", folder / "other"
    one.mkdir()
    other.mkdir()
    can = files._exchange(one, other)
    one.rmdir()
    other.rmdir()
    if not can:
        pytest.skip("this file system cannot exchange two names in one step")
