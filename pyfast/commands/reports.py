"""`pyfast report`, `pyfast view` and `pyfast show`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

from pyfast.commands.arguments import Limit, RunFolder, RunFolders, Scoring, with_options
from pyfast.commands.terminal import lines
from pyfast.errors import InputError
from pyfast.utils.options import Option


@with_options
def report(
    runs: RunFolders,
    scoring: Annotated[Scoring, "gold", "metrics", "prices"],
    *,
    out: Path,
    single: str | None = None,
    processes: Annotated[int | None, Option(min=1)] = None,
) -> None:
    """Write runs as static web pages, which any web server can serve.

    Args:
        out: The folder to write (with --single: the file). An existing report is replaced.
        single: Write only the question with this id, as one file that a browser opens without a web server.
        processes: The maximum number of processes; by default one per core.
    """
    import pyfast.reports.pages
    from pyfast.engine import dedicate_process

    dedicate_process()
    pyfast.reports.pages.report(runs, out, single=single, processes=processes, **scoring.given)
    if single is not None:
        print(f"wrote {out}; open it in a browser")
        return
    print(f"wrote {out}; copy it to any web server, or run: pyfast view {' '.join(map(str, runs))}")


@with_options
def view(
    runs: RunFolders,
    scoring: Annotated[Scoring, "gold", "metrics", "prices"],
    *,
    port: Annotated[int, Option(min=0, max=65_535)] = 0,
) -> None:
    """Show runs in a browser on this machine, even while they are in progress.

    Args:
        port: The port on this machine. 0: any free port.
    """
    import pyfast.reports.pages

    def started(address: str) -> None:
        print(f"{address} (press Ctrl-C to stop)", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        pyfast.reports.pages.view(runs, port=port, on_start=started, **scoring.given)


@with_options
def show(
    run: RunFolder,
    id: str | None = None,
    *,
    scoring: Annotated[Scoring, "gold"],
    wrong: bool = False,
    prompts: bool = False,
    all: bool = False,
    limit: Limit = None,
) -> None:
    """Show how one question was answered: the steps of its trace, its gold passages, and its LLM calls.

    Args:
        id: The id of a question.
        wrong: Show the questions with wrong answers one at a time (press Enter for the next), lowest score first.
        prompts: Show the full prompts and replies.
        all: Show all passages in each list, and all texts in full.
    """
    import pyfast.reports.text_report
    from pyfast.reports import wrong_questions

    if (id is None) != wrong:
        raise InputError("pass either the id of a question or --wrong")
    if limit is not None and not wrong:
        raise InputError("--limit can only be used with --wrong")
    ids = wrong_questions(run, scoring.gold)[:limit] if id is None else [id]
    for number, each in enumerate(ids, start=1):
        print(lines(pyfast.reports.text_report.show(run, each, scoring.gold, prompts=prompts, whole=all)))
        if number < len(ids):
            if sys.stdin.isatty() and sys.stdout.isatty():
                input(f"-- {number} of {len(ids)}; Enter for the next one, Ctrl-C to end --")
            print()
    if not ids:
        print("no answer is wrong")
