"""`pyfast judge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.arguments import Concurrency, Models, with_options
from pyfast.commands.running import tell, watched
from pyfast.commands.terminal import console
from pyfast.options import OF_EVERY_RUN, RunOptions


@with_options
def judge(
    run_a: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    run_b: Annotated[Path, typer.Argument(help="The folder of another run over the same questions.")],
    run: Annotated[Path, typer.Option(help="The folder of the judge's run. If it exists, the run resumes.")],
    models: Models,
    options: Annotated[RunOptions, *OF_EVERY_RUN],
    questions: Annotated[
        Path | None, typer.Option(help="The file of questions, if it is no longer where RUN_A read it.")
    ] = None,
    ties: Annotated[
        bool,
        typer.Option("--ties/--no-ties", help="Whether the judge may say that two answers are equally good."),
    ] = True,
    concurrency: Concurrency = None,
) -> None:
    """Let an LLM compare the answers of two runs. The LLM sees each pair of answers in both orders."""
    from rich.table import Table
    from rich.text import Text

    from pyfast.api.judging import judge_runs

    judged = watched(
        run,
        models.llm,
        lambda watch: judge_runs(
            run_a,
            run_b,
            run=run,
            questions=questions,
            ties=ties,
            concurrency=concurrency,
            options=options,
            watch=watch,
            **models.given,
        ),
    )
    tell(judged.run)
    table = Table("dimension", "A wins", "ties", "swayed", "B wins", "rate", "95 %")
    for row in judged.rows:
        counts = (str(row.a), str(row.ties), str(row.swayed), str(row.b))
        table.add_row(row.dimension, *counts, f"{row.rate:.3f}", f"{row.low:.3f}–{row.high:.3f}")
    screen = console(stderr=False)
    screen.print(table)
    screen.print(
        Text(f"A: {run_a}, B: {run_b}; rate: of A, a tie half a win; swayed: ties where the order decided")
    )
    if judged.failed:
        print(f"{judged.failed} pairs could not be judged; --retry-failed tries them again")
