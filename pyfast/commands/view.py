"""`pyfast view`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.evaluate import Gold, Metrics, Prices


def view(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs.", metavar="RUN...")],
    gold: Gold = None,
    metric: Metrics = None,
    prices: Prices = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port on this machine. 0: any free port.")] = 0,
) -> None:
    """Show runs in a browser on this machine, even while they are in progress."""
    import pyfast.reports.writing

    def started(address: str) -> None:
        print(f"{address} (Ctrl-C ends it)", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        pyfast.reports.writing.view(runs, gold, metrics=metric or None, prices=prices, port=port, on_start=started)
