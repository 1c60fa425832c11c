"""`pyfast evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import console, plain


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    gold: Annotated[
        Path,
        typer.Option(help="JSON lines with `id` and `answers`, or conversations: `id` and `turns` of those."),
    ],
) -> None:
    """Score the answers of a run: EM and F1, of conversations H@1 and H@5."""
    from rich.table import Table
    from rich.text import Text

    import pyfast
    from pyfast.evaluation import ConversationReport

    report = pyfast.evaluate(run, gold)
    if isinstance(report, ConversationReport):
        table = Table("by", "", "turns", "H@1", "95 %", "H@5", "95 %")
        for one in report.rows:
            first, five = ("{:.3f} to {:.3f}".format(*i) for i in (one.first_interval, one.among_five_interval))
            figures = (str(one.turns), f"{one.first:.3f}", first, f"{one.among_five:.3f}", five)
            table.add_row(one.by, Text(plain(one.value)), *figures)
        console(stderr=False).print(table)
        return
    table = Table("type", "questions", "EM", "F1", "evidence recall")
    for row in report.rows:
        recall = "" if row.recall is None else f"{row.recall:.3f}"
        table.add_row(Text(plain(row.type)), str(row.questions), f"{row.em:.3f}", f"{row.f1:.3f}", recall)
    console(stderr=False).print(table)
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.states.items()))
    print(f"{states}; {report.missing} gold questions without an answer")
