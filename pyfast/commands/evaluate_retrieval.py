"""`pyfast evaluate-retrieval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.evaluate import Json
from pyfast.commands.terminal import console, json_line, plain

if TYPE_CHECKING:
    from pyfast.api.evaluating_retrieval import RetrievalReport


def evaluate_retrieval(
    index: Annotated[Path, typer.Argument(help="An index, made by `pyfast index`.")],
    questions: Annotated[
        Path,
        typer.Argument(help="JSON lines with `id`, `question` and `supporting` (the uris of the gold documents)."),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help='A way to retrieve, such as "ranking=bridge_rank expand=on rerank=cross"; repeatable.'
            " Keys: retriever, ranking (list, graph_rank, bridge_rank), expand, rerank, pool. Without"
            " it: BM25."
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines with `id` and `supporting`. Without it: the `supporting` of the questions. If"
            " no question has it: gold.jsonl in the folder of the questions."
        ),
    ] = None,
    at: Annotated[list[int] | None, typer.Option(help="A value of k for recall@k and ndcg@k; repeatable.")] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="A folder that stores the scores of rerankers, so that the next call does not compute them again."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure how much of the gold evidence a retriever finds. You can compare several retrievers.

    No LLM is called.
    """
    import pyfast.api.evaluating_retrieval

    options = {"at": at} if at else {}
    report = pyfast.api.evaluating_retrieval.evaluate_retrieval(
        index, questions, setting or [""], gold=gold, scores=scores, **options
    )
    if json:
        print(json_line(report.as_json()))
    else:
        _show(report)


def _show(report: RetrievalReport) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console(stderr=False)
    wholes = {name: one.rows[0] for name, one in report.settings.items()}
    figures = list(next(iter(wholes.values())).figures)
    table = Table("", "setting", *figures)
    for number, (name, row) in enumerate(wholes.items(), start=1):
        values = (
            f"{row[figure].value:.3f}\n{row[figure].low:.3f} to {row[figure].high:.3f}" for figure in figures
        )
        table.add_row(f"{number}", Text(plain(name)), *values)
    print(f"{next(iter(wholes.values())).questions} questions")
    screen.print(table)
    if report.differences:
        place = {name: number for number, name in enumerate(wholes, start=1)}
        table = Table("settings", "figure", "difference", "95 %", "p (Holm)")
        for one in report.differences:
            bounds = f"{one.low:+.3f} to {one.high:+.3f}"
            table.add_row(
                f"{place[one.a]}, {place[one.b]}",
                one.figure,
                f"{one.difference:+.3f}",
                bounds,
                f"{one.p_holm:.4f}",
            )
        screen.print(table)
    if report.without_gold:
        print(f"{len(report.without_gold)} questions name no gold evidence and are not scored")
