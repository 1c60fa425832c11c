"""`pyfast show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.evaluate import Gold
from pyfast.commands.terminal import lines
from pyfast.errors import InputError


def show(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    id: Annotated[str | None, typer.Argument(help="A question's id.")] = None,
    wrong: Annotated[
        bool,
        typer.Option(
            "--wrong", help="Show the wrong answers, the most wrong first; press Enter for the next one."
        ),
    ] = False,
    gold: Gold = None,
    prompts: Annotated[bool, typer.Option("--prompts", help="Show the full prompts and replies.")] = False,
    all: Annotated[
        bool, typer.Option("--all", help="Show all passages of each list, and complete texts.")
    ] = False,
) -> None:
    """Print the trace of a question: its path, its gold passages, its LLM calls."""
    import pyfast
    from pyfast.reports import wrong_questions

    if (id is None) != wrong:
        raise InputError("show: give the id of a question, or --wrong")
    ids = wrong_questions(run, gold) if id is None else [id]
    for number, each in enumerate(ids, start=1):
        print(lines(pyfast.show(run, each, gold, prompts=prompts, whole=all)))
        if number < len(ids):
            if sys.stdin.isatty() and sys.stdout.isatty():
                input(f"-- {number} of {len(ids)}; Enter for the next one, Ctrl-C to end --")
            print()
    if not ids:
        print("no answer is wrong")
