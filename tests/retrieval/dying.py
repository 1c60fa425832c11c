"""A process that kills itself while a folder takes the place of another one."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def die_at_rename(number: int) -> None:
    """Let this process kill itself, by a real SIGKILL, before its rename of a folder with that number, from 0."""
    rename, seen = Path.rename, []

    def dies(path: Path, target: Path) -> Path:
        seen.extend([path] if path.is_dir() else [])
        if len(seen) > number:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    Path.rename = dies  # type: ignore[method-assign,assignment]
