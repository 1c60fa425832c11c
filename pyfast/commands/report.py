"""`pyfast report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.evaluate import Gold, Metrics, Prices


def report(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs.", metavar="RUN...")],
    out: Annotated[
        Path, typer.Option(help="The folder to write (with --single: the file). An existing report is replaced.")
    ],
    gold: Gold = None,
    metric: Metrics = None,
    prices: Prices = None,
    single: Annotated[
        str | None,
        typer.Option(
            help="The id of a question: write only this question, as one file that a browser opens from the disk."
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="How many processes may work at once. [default: one for each core]", min=1)
    ] = None,
) -> None:
    """Write runs as web pages, for any web server."""
    import pyfast.reports.writing
    from pyfast.engine import dedicate_process

    dedicate_process()
    pyfast.reports.writing.report(
        runs, out, gold, metrics=metric or None, prices=prices, single=single, processes=processes
    )
    if single is not None:
        print(f"{out}: open it in a browser")
        return
    print(f"{out}: copy it to any web server; on this machine: pyfast view {' '.join(map(str, runs))}")
