"""The progress of a training on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyfast.commands.terminal import console

if TYPE_CHECKING:
    from pyfast.api.training import OnStep, Training
    from pyfast.training.loop import Point


@contextmanager
def progress() -> Iterator[OnStep]:
    """Show a progress bar with the loss during a training. Yields a function. Call it after each step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as bars:
        bar = bars.add_task("", total=None, loss="")

        def on_step(point: Point, total: int) -> None:
            bars.update(bar, total=total, completed=point.step + 1, loss=f"{point.loss:.3f}")

        yield on_step


def tell(training: Training) -> None:
    """Print how the training ended and where its result is. If several processes train together, only the first
    prints."""
    if os.environ.get("RANK", "0") != "0":
        return
    print(f"{len(training.curve)} steps, loss {training.loss:.3f}; {training.path}")
