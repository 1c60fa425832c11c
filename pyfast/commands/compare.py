"""`pyfast compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.evaluate import Gold, Json, Metrics, Prices, some
from pyfast.commands.terminal import console, json_line, plain, table

if TYPE_CHECKING:
    from pyfast.evaluation.compare import Comparison


def compare(
    runs: Annotated[list[Path], typer.Argument(help="The folders of two runs or more.", metavar="RUN_A RUN_B...")],
    gold: Gold = None,
    metric: Metrics = None,
    prices: Prices = None,
    json: Json = False,
) -> None:
    """Compare runs over the same questions: show which differences are significant, and what each run cost."""
    import pyfast.api.comparing

    comparison = pyfast.api.comparing.compare(runs, gold, metrics=metric or None, prices=prices)
    if json:
        print(json_line(comparison.as_json()))
    else:
        _show(comparison)


def _show(comparison: Comparison) -> None:
    from rich.text import Text

    screen = console(stderr=False)
    letters = {cost.run: f"{number}" for number, cost in enumerate(comparison.costs, start=1)}
    currency = next((cost.currency for cost in comparison.costs if cost.currency), None)
    heads = ["right", "LLM calls", "tokens in", "tokens out", "seconds", *([plain(currency)] if currency else [])]
    costs = table("", "run", *heads)
    for cost in comparison.costs:
        used = (cost.llm_calls, cost.prompt_tokens, cost.completion_tokens)
        right = "" if cost.right is None else f"{cost.right:.3f}"
        spent = [_number(cost.seconds), *([_number(cost.money, 6)] if currency else [])]
        costs.add_row(letters[cost.run], Text(plain(cost.run)), right, *(f"{value:.1f}" for value in used), *spent)
        if cost.right:
            each = (_number(cost.per_right[name]) for name in ("llm_calls", "prompt_tokens", "completion_tokens"))
            money = [_number(cost.per_right["money"], 6)] if currency else []
            spent = [_number(cost.per_right["seconds"]), *money]
            costs.add_row("", "per right", "", *each, *spent)
    print(f"{comparison.questions} questions that all runs have answered; means of a question:")
    screen.print(costs)
    # Two shortened names may look the same.
    heads = ["runs", "figure", "first", "second", "change", "95 %", "p", "p (Holm)"]
    differences = table(*heads, whole=("figure",))
    for one in comparison.differences:
        differences.add_row(
            f"{letters[one.a]}, {letters[one.b]}",
            Text(plain(one.figure)),
            *(f"{one.of_a:.3f}", f"{one.of_b:.3f}", f"{one.difference:+.3f}"),
            *(f"{one.low:+.3f} to {one.high:+.3f}", f"{one.p:.4f}", f"{one.p_holm:.4f}"),
        )
    screen.print(differences)
    if comparison.differences and comparison.independent < comparison.least:
        print(
            f"{comparison.independent} independent questions cannot show a difference, whatever p is: with"
            f" {len(comparison.differences)} differences it takes at least {comparison.least} questions that all"
            " change in the same direction"
        )
    for flips in comparison.flips:
        for which, ids in ((flips.b, flips.gained), (flips.a, flips.lost)):
            if ids:
                print(f"{plain(flips.figure)} right in {plain(which)} alone: {len(ids)}: {some(ids)}")
    if comparison.left_out:
        print(f"{len(comparison.left_out)} questions that not all have answered: {some(comparison.left_out)}")


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
