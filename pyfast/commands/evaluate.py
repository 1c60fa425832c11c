"""`pyfast evaluate`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyfast.commands.terminal import console, json_line, plain

if TYPE_CHECKING:
    from pyfast.evaluation import Report

Gold = Annotated[
    Path | None,
    typer.Option(
        help="JSON lines with `id` and `answers`. For conversations: `id` and `turns`, each with"
        " `answers`. Without it: the file gold.jsonl in the folder of the run's questions or, if"
        " there is no such file, the file of the questions itself."
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="A metric by name, or MODULE:NAME; repeatable. Without it: the metrics that the gold file"
        " names. If it names none: em_f1 and evidence, or hits for conversations.",
    ),
]
Prices = Annotated[Path | None, typer.Option(help="The file of a price list, for the costs in money.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
NAMED = 5  # the maximum number of ids shown of questions that were not run


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs.", metavar="RUN...")],
    gold: Gold = None,
    metric: Metrics = None,
    json: Json = False,
    per_question: Annotated[
        Path | None, typer.Option(help="Write the figures of each question to this file, as JSON lines.")
    ] = None,
) -> None:
    """Score the answers of runs, with a 95 % interval on every figure."""
    import pyfast.api.evaluating

    reports = {str(run): pyfast.api.evaluating.evaluate(run, gold, metrics=metric or None) for run in runs}
    if per_question is not None:
        _write(per_question, reports)
    if json:
        print(json_line([{"run": run, **report.as_json()} for run, report in reports.items()]))
        return
    for run, report in reports.items():
        if len(reports) > 1:
            print(f"\n{plain(run)}")
        _show(report)


def _show(report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    whole, *groups = report.rows
    table = Table("figure", "value", "95 %", "questions")
    for name, figure in whole.figures.items():
        figures = (f"{figure.value:.3f}", f"{figure.low:.3f} to {figure.high:.3f}", str(figure.questions))
        table.add_row(Text(plain(name)), *figures)
    console(stderr=False).print(table)
    if groups:
        table = Table("by", "", "questions", *(plain(name).replace("_", " ") for name in whole.figures))
        for row in groups:
            shown = (row.figures.get(name) for name in whole.figures)
            values = (f"{one.value:.3f}" if one else "" for one in shown)
            table.add_row(row.by, Text(plain(row.value)), str(row.questions), *values)
        console(stderr=False).print(table)
    print(", ".join(f"{count} {state}" for state, count in sorted(report.states.items())))
    if report.not_run:
        print(f"{len(report.not_run)} gold questions were not run and are not scored: {some(report.not_run)}")
    if report.whole_tables:
        print(
            f"{len(report.whole_tables)} questions have a gold table without a row that has the answer: any row of"
            f" it counts as evidence: {some(report.whole_tables)}"
        )
    if report.without_gold:
        print(f"{len(report.without_gold)} questions have no gold and are not scored: {some(report.without_gold)}")


def some(ids: Iterable[str]) -> str:
    """Write the first ids of a list for a message, with the number of further ids."""
    shown = [plain(id) for id in ids]
    return ", ".join(shown[:NAMED]) + (f" and {len(shown) - NAMED} more (--json)" if len(shown) > NAMED else "")


def _write(path: Path, reports: dict[str, Any]) -> None:
    import orjson

    from pyfast.files import write_atomically

    lines = (
        {"run": run, "id": one.id, "state": one.state, "answer": one.answer, **one.groups, "figures": one.figures}
        for run, report in reports.items()
        for one in report.questions
    )
    write_atomically(path, b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
