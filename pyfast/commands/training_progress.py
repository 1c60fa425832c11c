"""How far a training is, on the terminal; and when it is to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from pyfast.commands.terminal import console

Watch = tuple[Callable[[], bool], Callable[[Any, int], None]]
"""(whether to stop, what hears of each point of the curve and how many there will be)"""


@contextmanager
def progress(minutes: float | None) -> Iterator[Watch]:
    """A bar with the loss, for as long as the training lasts; it stops after so many minutes."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn())
    end = None if minutes is None else monotonic() + 60 * minutes
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as bars:
        bar = bars.add_task("", total=None, loss="")

        def on_step(point: Any, total: int) -> None:
            bars.update(bar, total=total, completed=point.step + 1, loss=f"{point.loss:.3f}")

        yield lambda: end is not None and monotonic() > end, on_step


def tell(curve: Sequence[Any], out: Path) -> None:
    """Say how it ended, and where what was learnt lies."""
    last = curve[-10:]
    print(f"{len(curve)} steps, loss {sum(point.loss for point in last) / max(len(last), 1):.3f}; {out}")
