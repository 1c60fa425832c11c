"""`pyfast estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.answer import show_estimate
from pyfast.commands.arguments import Models, with_options
from pyfast.errors import InputError


@with_options
def estimate(
    questions: Annotated[str, typer.Option(help="The number of questions, such as 1e8, or a file of questions.")],
    based_on: Annotated[Path, typer.Option("--from", help="An earlier run of the system to estimate from.")],
    models: Annotated[Models, "llm"],
    system: Annotated[
        str | None, typer.Option("--system", help="The system; by default the system of the earlier run.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="How many workers of a cluster will answer the questions.")
    ] = 1,
    prices: Annotated[
        Path | None, typer.Option(help="The file of a price list. It must have a price for the LLM of --llm.")
    ] = None,
) -> None:
    """Estimate hours, LLM calls, tokens and price of a run from an earlier run."""
    import pyfast.api.estimate
    from pyfast.engine import recorded_value

    try:
        asked: int | Path = int(float(questions))
    except (ValueError, OverflowError):
        asked = Path(questions)
        if not asked.exists():
            raise InputError(f"--questions {questions}: neither a number nor a file") from None
    show_estimate(
        pyfast.api.estimate.estimate(
            asked,
            system=system or str(recorded_value(based_on, "system", "name")),
            llm=models.llm,
            based_on=based_on,
            prices=prices,
            workers=workers,
        )
    )
