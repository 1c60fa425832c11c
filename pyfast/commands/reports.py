"""`pyfast report`, `pyfast view` and `pyfast show`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.arguments import RunFolder, RunFolders
from pyfast.commands.evaluation import Gold, Metrics, Prices
from pyfast.commands.terminal import lines
from pyfast.errors import InputError


def report(
    runs: RunFolders,
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
    import pyfast.reports.pages
    from pyfast.engine import dedicate_process

    dedicate_process()
    pyfast.reports.pages.report(
        runs, out, gold, metrics=metric or None, prices=prices, single=single, processes=processes
    )
    if single is not None:
        print(f"{out}: open it in a browser")
        return
    print(f"{out}: copy it to any web server; on this machine: pyfast view {' '.join(map(str, runs))}")


def view(
    runs: RunFolders,
    gold: Gold = None,
    metric: Metrics = None,
    prices: Prices = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port on this machine. 0: any free port.")] = 0,
) -> None:
    """Show runs in a browser on this machine, even while they are in progress."""
    import pyfast.reports.pages

    def started(address: str) -> None:
        print(f"{address} (Ctrl-C ends it)", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        pyfast.reports.pages.view(runs, gold, metrics=metric or None, prices=prices, port=port, on_start=started)


def show(
    run: RunFolder,
    id: Annotated[str | None, typer.Argument(help="The id of a question.")] = None,
    wrong: Annotated[
        bool,
        typer.Option(
            "--wrong",
            help="Show the questions with wrong answers, the lowest score first. Press Enter for the next"
            " question.",
        ),
    ] = False,
    gold: Gold = None,
    prompts: Annotated[bool, typer.Option("--prompts", help="Show the full prompts and replies.")] = False,
    all: Annotated[
        bool, typer.Option("--all", help="Show all passages of each list, and all texts in full.")
    ] = False,
) -> None:
    """Print how one question was answered: the steps of its trace, its gold passages, and its LLM calls."""
    import pyfast.reports.text_report
    from pyfast.reports import wrong_questions

    if (id is None) != wrong:
        raise InputError("show: give the id of a question, or --wrong")
    ids = wrong_questions(run, gold) if id is None else [id]
    for number, each in enumerate(ids, start=1):
        print(lines(pyfast.reports.text_report.show(run, each, gold, prompts=prompts, whole=all)))
        if number < len(ids):
            if sys.stdin.isatty() and sys.stdout.isatty():
                input(f"-- {number} of {len(ids)}; Enter for the next one, Ctrl-C to end --")
            print()
    if not ids:
        print("no answer is wrong")
