"""`pyfast estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pyfast.commands.answer import show_estimate
from pyfast.commands.arguments import Models, with_options
from pyfast.errors import InputError
from pyfast.utils.options import Option, RunOptions


@with_options
def estimate(
    *,
    questions: str,
    based_on: Annotated[Path, Option(flag="--from")],
    models: Annotated[Models, "llm"],
    options: Annotated[RunOptions, "columns"],
    system: str | None = None,
    workers: Annotated[int, Option(min=1)] = 1,
    prices: Path | None = None,
) -> None:
    """Estimate the hours, LLM calls, tokens and price of a run from an earlier run.

    Args:
        questions: The number of questions, such as 1e8, or a question file.
        based_on: An earlier run of the system to estimate from.
        system: The system; by default the system of the earlier run.
        workers: How many workers of a cluster will answer the questions.
        prices: A price list that includes the model of --llm.
    """
    import pyfast.api.estimate
    from pyfast.engine import recorded_value

    try:
        asked: int | Path = int(float(questions))
    except (ValueError, OverflowError):
        asked = Path(questions)
        if not asked.exists():
            raise InputError(f"--questions {questions}: expected a number or an existing file") from None
    show_estimate(
        pyfast.api.estimate.estimate(
            asked,
            system=system or str(recorded_value(based_on, "system", "name")),
            llm=models.llm,
            based_on=based_on,
            prices=prices,
            workers=workers,
            columns=options.columns,
        )
    )
