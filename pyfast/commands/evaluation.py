"""`pyfast evaluate`, `pyfast compare` and `pyfast evaluate-retrieval`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyfast.commands.arguments import IndexFolder, RunFolders
from pyfast.commands.terminal import console, json_line, plain, table
from pyfast.errors import InputError

if TYPE_CHECKING:
    from pyfast.api.retrieval_evaluation import RetrievalReport
    from pyfast.evaluation import Report
    from pyfast.evaluation.compare import AnswerChange, Comparison

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
    runs: RunFolders,
    gold: Gold = None,
    metric: Metrics = None,
    json: Json = False,
    per_question: Annotated[
        Path | None, typer.Option(help="Write the figures of each question to this file, as JSON lines.")
    ] = None,
) -> None:
    """Score the answers of runs, with a 95 % interval on every figure."""
    import pyfast.api.evaluation

    reports = {str(run): pyfast.api.evaluation.evaluate(run, gold, metrics=metric or None) for run in runs}
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
    _show_without_gold(report)


def _show_without_gold(result: Report | Comparison) -> None:
    if result.without_gold:
        print(f"{len(result.without_gold)} questions have no gold and are not scored: {some(result.without_gold)}")


def some(ids: Iterable[str]) -> str:
    """Write the first ids of a list for a message, with the number of further ids."""
    shown = [plain(id) for id in ids]
    return ", ".join(shown[:NAMED]) + (f" and {len(shown) - NAMED} more (--json)" if len(shown) > NAMED else "")


def _write(path: Path, reports: dict[str, Any]) -> None:
    import orjson

    from pyfast.utils.files import write_atomically

    lines = (
        {"run": run, "id": one.id, "state": one.state, "answer": one.answer, **one.groups, "figures": one.figures}
        for run, report in reports.items()
        for one in report.questions
    )
    write_atomically(path, b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))


def compare(
    runs: Annotated[list[Path], typer.Argument(help="The folders of two runs or more.", metavar="RUN_A RUN_B...")],
    gold: Gold = None,
    metric: Metrics = None,
    prices: Prices = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Of two runs, show only the answers that differ. This needs no gold.")
    ] = False,
    json: Json = False,
) -> None:
    """Compare runs over the same questions: show which differences are significant, and what each run cost."""
    import pyfast.api.evaluation

    if answers:
        if len(runs) != 2 or gold or metric or prices:
            raise InputError("--answers: give two runs, and no --gold, --metric or --prices")
        changes = pyfast.api.evaluation.changed_answers(*runs)
        if json:
            print(json_line([change.as_json() for change in changes]))
        else:
            _show_changes(changes)
        return
    comparison = pyfast.api.evaluation.compare(runs, gold, metrics=metric or None, prices=prices)
    if json:
        print(json_line(comparison.as_json()))
    else:
        _show_comparison(comparison)


def _show_changes(changes: list[AnswerChange]) -> None:
    print(f"{len(changes)} answers differ")
    for change in changes:
        print(f"\n{plain(change.id)}: {', '.join(change.differs)}")
        for sign, record, evidence in zip("-+", (change.before, change.after), change.evidence, strict=True):
            print(f"{sign} {record.state}: {plain(record.answer or record.reason or '')}")
            for one in evidence:
                print(f"{sign}   {plain(one.uri)}: {plain(one.line)}")


def _show_comparison(comparison: Comparison) -> None:
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
    _show_without_gold(comparison)


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def evaluate_retrieval(
    index: IndexFolder,
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
    import pyfast.api.retrieval_evaluation

    options = {"at": at} if at else {}
    report = pyfast.api.retrieval_evaluation.evaluate_retrieval(
        index, questions, setting or [""], gold=gold, scores=scores, **options
    )
    if json:
        print(json_line(report.as_json()))
    else:
        _show_retrieval(report)


def _show_retrieval(report: RetrievalReport) -> None:
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
