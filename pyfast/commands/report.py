"""`pyfast report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.evaluate import Gold, Metrics


def report(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs.", metavar="RUN...")],
    out: Annotated[Path, typer.Option(help="The folder to write; a report that is there is replaced.")],
    gold: Gold = None,
    metric: Metrics = None,
) -> None:
    """Write runs as pages to look at, for any web server."""
    import pyfast

    pyfast.report(runs, out, gold, metrics=metric or None)
    print(f"{out}: copy it to any web server; on this machine: pyfast view {' '.join(map(str, runs))}")
