"""`pyfast compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.evaluate import Gold, Json, Metrics, some
from pyfast.commands.terminal import console, json_line, plain

if TYPE_CHECKING:
    from pyfast.evaluation.compare import Comparison


def compare(
    runs: Annotated[list[Path], typer.Argument(help="The folders of two runs or more.", metavar="RUN_A RUN_B...")],
    gold: Gold = None,
    metric: Metrics = None,
    json: Json = False,
) -> None:
    """Compare runs over the same questions: which differences are more than chance, and what each cost."""
    import pyfast

    comparison = pyfast.compare(runs, gold, metrics=metric or None)
    if json:
        print(json_line(comparison.as_json()))
    else:
        _show(comparison)


def _show(comparison: Comparison) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console(stderr=False)
    letters = {cost.run: f"{number}" for number, cost in enumerate(comparison.costs, start=1)}
    table = Table("", "run", "LLM calls", "tokens in", "tokens out", "seconds")
    for cost in comparison.costs:
        used = (cost.llm_calls, cost.prompt_tokens, cost.completion_tokens)
        seconds = "" if cost.seconds is None else f"{cost.seconds:.2f}"
        table.add_row(letters[cost.run], Text(plain(cost.run)), *(f"{value:.1f}" for value in used), seconds)
    print(f"{comparison.questions} questions that all runs have answered; means of a question:")
    screen.print(table)
    table = Table("runs", "figure", "first", "second", "difference", "95 %", "p", "p (Holm)")
    for one in comparison.differences:
        table.add_row(
            f"{letters[one.a]}, {letters[one.b]}",
            Text(plain(one.figure)),
            *(f"{one.of_a:.3f}", f"{one.of_b:.3f}", f"{one.difference:+.3f}"),
            *(f"{one.low:+.3f} to {one.high:+.3f}", f"{one.p:.4f}", f"{one.p_holm:.4f}"),
        )
    screen.print(table)
    for flips in comparison.flips:
        for which, ids in ((flips.b, flips.gained), (flips.a, flips.lost)):
            if ids:
                print(f"{plain(flips.figure)} right in {plain(which)} alone: {len(ids)}: {some(ids)}")
    if comparison.left_out:
        print(f"{len(comparison.left_out)} questions that not all have answered: {some(comparison.left_out)}")
