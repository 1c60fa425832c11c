"""`pyfast evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    gold: Annotated[Path, typer.Option(help="JSON lines with `id` and `answers`.")],
) -> None:
    """Score the answers of a run."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pyfast.evaluation import evaluate as evaluate_run

    report = evaluate_run(run, gold)
    table = Table("type", "questions", "EM", "F1", "evidence recall")
    for row in report.rows:
        recall = "" if row.recall is None else f"{row.recall:.3f}"
        table.add_row(Text(row.type), str(row.questions), f"{row.em:.3f}", f"{row.f1:.3f}", recall)
    Console().print(table)
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.states.items()))
    print(f"{states}; {report.missing} gold questions without an answer")
