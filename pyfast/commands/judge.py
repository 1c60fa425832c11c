"""`pyfast judge`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.running import (
    Concurrency,
    Limits,
    Llm,
    LlmOption,
    Restart,
    RetryFailed,
    Sync,
    begin,
    carry_out,
)
from pyfast.commands.terminal import pairs, values


def judge(
    run_a: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    run_b: Annotated[Path, typer.Argument(help="That of another one over the same questions.")],
    run: Annotated[Path, typer.Option(help="The folder of the judging; one that was begun goes on.")],
    questions: Annotated[
        Path | None, typer.Option(help="Their questions, where they are no longer where the first run found them.")
    ] = None,
    llm: Llm = "embedded",
    llm_option: LlmOption = None,
    budget: Limits = None,
    concurrency: Concurrency = 64,
    sync: Sync = "normal",
    restart: Restart = False,
    retry_failed: RetryFailed = False,
) -> None:
    """Have an LLM compare the answers of two runs, each pair in both orders."""
    from pyfast.engine import Budget, Job, configuration
    from pyfast.evaluation.judge import JUDGE, open_pairs
    from pyfast.evaluation.judge import judge as compare
    from pyfast.llm import open_llm

    limits = Budget.parse(pairs("--budget", budget))
    compared = open_pairs(run_a, run_b, questions)
    backend = open_llm(llm, **values(pairs("--llm-option", llm_option)))
    describe = partial(
        configuration,
        system="judge",
        settings={},
        prompts=(JUDGE,),
        llm=backend,
        index=None,
        budget=limits.shaping(),
        questions={"count": compared.count, "digest": compared.digest()},
        places={"run_a": str(run_a), "run_b": str(run_b), "questions": str(compared.questions), "llm": llm},
    )
    begin(run, describe, restart)
    job = Job(
        folder=run,
        questions=lambda: iter(compared),
        ask=compare,
        index=None,
        llm=backend,
        describe=describe,
        concurrency=concurrency,
        budget=limits,
        sync=sync,
        retry_failed=retry_failed,
    )
    carry_out(job, compared.count)
    _show(run, run_a, run_b)


def _show(run: Path, run_a: Path, run_b: Path) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pyfast.evaluation.judge import win_rates

    rows, failed = win_rates(run)
    table = Table("dimension", "A wins", "ties", "swayed", "B wins", "rate", "95 %")
    for row in rows:
        counts = (str(row.a), str(row.ties), str(row.swayed), str(row.b))
        table.add_row(row.dimension, *counts, f"{row.rate:.3f}", f"{row.low:.3f}–{row.high:.3f}")
    console = Console()
    console.print(table)
    console.print(
        Text(f"A: {run_a}, B: {run_b}; rate: of A, a tie half a win; swayed: ties where the order decided")
    )
    if failed:
        print(f"{failed} pairs could not be judged; --retry-failed tries them again")
