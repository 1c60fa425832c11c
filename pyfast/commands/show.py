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
    import pyfast.reports.as_text
    from pyfast.reports import wrong_questions

    if (id is None) != wrong:
        raise InputError("show: give the id of a question, or --wrong")
    ids = wrong_questions(run, gold) if id is None else [id]
    for number, each in enumerate(ids, start=1):
        print(lines(pyfast.reports.as_text.show(run, each, gold, prompts=prompts, whole=all)))
        if number < len(ids):
            if sys.stdin.isatty() and sys.stdout.isatty():
                input(f"-- {number} of {len(ids)}; Enter for the next one, Ctrl-C to end --")
            print()
    if not ids:
        print("no answer is wrong")
