"""`pyfast evaluate`, `pyfast export`, `pyfast compare` and `pyfast evaluate-retrieval`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyfast.commands.arguments import (
    IndexFolder,
    LlmOptions,
    Output,
    RunFolders,
    Scoring,
    read_models,
    with_options,
)
from pyfast.commands.progress import tell, watched
from pyfast.commands.terminal import SNIPPET, cut, in_money, json_line, plain, say, show_table
from pyfast.errors import InputError
from pyfast.utils.options import OF_EVERY_RUN, Documents, RunOptions
from pyfast.utils.text_forms import counted, some

if TYPE_CHECKING:
    from pyfast.api.retrieval_evaluation import RetrievalReport
    from pyfast.api.run import GoldLike
    from pyfast.evaluation import Figure, Report
    from pyfast.evaluation.compare import AnswerChange, Comparison
    from pyfast.evaluation.cost import Cost
    from pyfast.evaluation.tables import WithRows

_FLIPS = 10  # the maximum number of ids to show of questions that only one of two runs answers correctly


@with_options
def evaluate(
    runs: RunFolders,
    scoring: Scoring,
    output: Output,
    given: LlmOptions,
    options: Annotated[RunOptions, *OF_EVERY_RUN],
    *,
    by: list[str] | None = None,
    costs: bool = False,
    per_question: Path | None = None,
    judge: list[str] | None = None,
) -> None:
    """Score the answers of runs, with a 95 % interval for every figure.

    Args:
        by: Also show the figures for each value of this field of the gold, such as level; repeatable.
        costs: Also show the mean LLM calls, tokens and seconds per question.
        per_question: Write the figures, calls and tokens of each question, with the question file's other
            columns, to this file (.jsonl, .csv, .parquet or .xlsx).
        judge: Let this LLM judge whether each answer is correct and supported by its evidence. The judge's run, in
            the folder RUN-judged, can be resumed.
    """
    import pyfast.api.evaluation
    from pyfast.api.run import warn_of_other_questions
    from pyfast.evaluation.results import KINDS
    from pyfast.evaluation.tables import check_new

    def judged(run: Path) -> Path:
        from pyfast.api.judgement import judge_answers

        folder, llm = _judged(run), read_models(judge)
        work = partial(judge_answers, run, scoring.gold, judged=folder, llm=llm, options=options, **given.given)
        tell(watched(folder, llm, work), partial(print, file=sys.stderr))
        return folder

    if per_question is not None:
        check_new(per_question, output.overwrite, KINDS)
    output.check()
    if not judge and (of_judge := [*(name for name, value in given.given.items() if value), *options.given]):
        raise InputError(f"{', '.join(of_judge)}: can only be used with --judge LLM")
    folders = {run: judged(run) if judge else None for run in runs}
    if scoring.gold is None:
        warn_of_other_questions(runs)
    reports = {
        str(run): pyfast.api.evaluation.evaluate(run, by=by or (), judged=folder, costs=costs, **scoring.given)
        for run, folder in folders.items()
    }
    if per_question is not None:
        _write_scores(per_question, reports, scoring.gold)

    def as_json() -> list[dict[str, Any]]:
        return [{"run": run, **report.as_json()} for run, report in reports.items()]

    _tell(output, reports, as_json, lambda: _show(reports))


def _tell(
    output: Output,
    figures: Mapping[str, WithRows] | Comparison | RetrievalReport | Sequence[AnswerChange],
    as_json: Callable[[], object],
    show: Callable[[], None],
) -> None:
    """Write the figures to a file, if the user named one, and show them, as JSON on request."""
    from pyfast.api.evaluation import write_figures

    if output.out is not None:
        write_figures(figures, output.out, overwrite=output.overwrite)
    if output.json:
        print(json_line(as_json()))
    else:
        show()


def _judged(run: Path) -> Path:
    """Return the folder of the judge's run for a run."""
    return run.with_name(f"{run.resolve().name}-judged")


def _show(reports: Mapping[str, Report]) -> None:
    from pyfast.evaluation.tables import notes_of, shown, spent_cells, spent_on, unanswered_columns

    wholes = [report.rows[0] for report in reports.values()]
    names = list(dict.fromkeys(name for whole in wholes for name in whole.figures))
    several = len(reports) > 1
    costs = [report.cost for report in reports.values()]
    spent = spent_on(costs)
    heads = [title for title, _ in spent.values()]
    if several:
        rows = [
            (number, run, *map(_with_interval, map(whole.figures.get, names)), *spent_cells(cost, spent))
            for number, (run, whole, cost) in enumerate(zip(reports, wholes, costs, strict=True), start=1)
        ]
        show_table(["", "run", *_spaced(names), *heads], rows, keys=2)
    else:
        figures = [
            (name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", one.questions)
            for name, one in wholes[0].figures.items()
        ]
        cells = zip(heads, spent_cells(costs[0], spent), strict=True)
        figures += [(head, cell, "", wholes[0].questions) for head, cell in cells]
        show_table(["figure", "value", "95 %", "questions"], figures)
    also = unanswered_columns(whole.unanswered for whole in wholes)
    groups: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for number, report in enumerate(reports.values(), start=1):
        for row in report.rows[1:]:
            values = [shown(row[name].value, 3) if name in row.figures else "" for name in names]
            values += [str(getattr(row.unanswered, name)) for name in also]
            of_run = (number,) if several else ()
            groups.setdefault((row.by, row.value), []).append((row.by, row.value, *of_run, row.questions, *values))
    if groups:
        keys = ["by", "", *(["run"] if several else [])]
        show_table(
            [*keys, "questions", *_spaced(names), *also], chain.from_iterable(groups.values()), keys=len(keys)
        )
    notes: dict[str, list[str]] = {}
    for number, report in enumerate(reports.values(), start=1):
        states = ", ".join(f"{count} {state}" for state, count in sorted(report.states.items()))
        say(f"run {number}: {states}" if several else states)
        for note in filter(None, [report.unanswered.note, *notes_of(report, plain, "--json")]):
            notes.setdefault(note, []).append(str(number))
    for note, numbers in notes.items():
        say(plain(note) if len(numbers) == len(reports) else f"run {', '.join(numbers)}: {plain(note)}")
    used = [(cost, whole.questions) for cost, whole in zip(costs, wholes, strict=True) if cost is not None]
    for number, (cost, questions) in enumerate(used, start=1):
        each = cost.llm_calls, cost.prompt_tokens, cost.completion_tokens
        calls, into, out = (round(mean * questions) for mean in each)
        money = "" if cost.money is None else f", {in_money(cost.money * questions, cost.currency)}"
        which = f"run {number}: " if several else ""
        totals = f"{counted(calls, 'LLM call')}, {into} tokens in, {out} out{money}"
        say(f"{which}{counted(questions, 'question')}: {totals}")
    _show_reused(used)


def _with_interval(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.value:.3f}\n{figure.low:.2f}–{figure.high:.2f}"


def _spaced(names: Iterable[str]) -> list[str]:
    """Return the names of figures as headings that can wrap."""
    return [name.replace("_", " ") for name in names]


def _show_reused(costs: Iterable[tuple[Cost, int]]) -> None:
    for cost, questions in costs:
        if cost.reused:
            tokens = cost.reused_prompt_tokens, cost.reused_completion_tokens
            calls, reused, into, out = (round(each * questions) for each in (cost.llm_calls, cost.reused, *tokens))
            say(
                f"{plain(cost.run)}: {reused} of {calls} LLM calls ({into} tokens in, {out} out) were reused."
                " They count towards the calls, tokens and money, but not towards the seconds"
            )


def _write_scores(path: Path, reports: Mapping[str, Report], gold: GoldLike | None) -> None:
    from pyfast.api.run import gold_of, own_of, run_of, texts_of
    from pyfast.evaluation.gold import read_gold
    from pyfast.evaluation.results import own_fields, own_values
    from pyfast.evaluation.tables import write_table

    nested = path.suffix.lower() == ".jsonl"
    lines = list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]()
    for run, report in reports.items():
        texts, own = texts_of(run_of(run)), own_of(run_of(run), read_gold(gold_of(run, gold)))
        for one in report.questions:
            columns = {name: value for name, value in own.get(one.id, {}).items() if name not in one.groups}
            rest = {"state": one.state, "answer": one.answer, **one.groups} | asdict(one.usage)
            rest |= {"figures": one.figures} if nested else one.figures
            lines.append(({"run": run, "id": one.id, "question": texts.get(one.id)}, columns, rest))
    known = {name for first, _, rest in lines for name in (*first, *rest)}
    fields = own_fields([own for _, own, _ in lines], known)
    write_table(path, [first | own_values(own, fields) | rest for first, own, rest in lines])


@with_options
def export(
    runs: RunFolders,
    scoring: Annotated[Scoring, "gold", "columns", "metrics", "prices"],
    *,
    out: Path,
    wide: bool = False,
    sources: bool = False,
    format: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the results of runs as a table for spreadsheets and other programs.

    Args:
        out: The file to write (.csv, .jsonl, .parquet or .xlsx; with --format, .json or, for musique, .jsonl).
        wide: Write one row for each question, with the runs side by side.
        sources: Write one row for each passage in the evidence of an answer, with its page or row.
        format: Write the predictions of one run for a data set's official script: hotpotqa, 2wiki, musique or
            hybridqa.
        overwrite: Replace an existing file.
    """
    import pyfast.api.evaluation

    shape: Any = {"wide": wide, "sources": sources, "format": format, "overwrite": overwrite}
    rows = pyfast.api.evaluation.export(runs, out, **shape, **scoring.given)
    say(f"{out}: {rows} {'rows' if format is None else 'predictions'}")


@with_options
def compare(
    runs: Annotated[list[Path], typer.Argument(help="The folders of two or more runs.", metavar="RUN_A RUN_B...")],
    scoring: Scoring,
    output: Output,
    *,
    judged: bool = False,
    answers: bool = False,
) -> None:
    """Compare runs on the same questions: show which differences are significant, and what each run cost.

    Args:
        judged: Compare the judge's figures too. First run `pyfast evaluate RUN --judge LLM` for each run.
        answers: Show only the answers that differ between two runs. No gold answers are needed.
    """
    import pyfast.api.evaluation

    if answers:
        if len(runs) != 2:
            raise InputError(f"--answers: expected two runs, got {len(runs)}")
        if scoring != Scoring() or judged:
            raise InputError("--answers: can only be combined with --json and --out (it uses no gold answers)")
        changes = pyfast.api.evaluation.changed_answers(*runs)
        _tell(output, changes, lambda: [one.as_json() for one in changes], lambda: _show_changes(changes))
        return
    folders = [_judged(run) for run in runs] if judged else ()
    output.check()
    comparison = pyfast.api.evaluation.compare(runs, judged=folders, **scoring.given)
    _tell(output, comparison, comparison.as_json, lambda: _show_comparison(comparison))


def _show_changes(changes: list[AnswerChange]) -> None:
    only = sum(change.differs == ("evidence",) for change in changes)
    say(f"{counted(len(changes) - only, 'answer')} changed, and {only} more only in their evidence")
    for change in changes:
        asked = f": {plain(change.question)}" if change.question else ""
        say(f"\n{plain(change.id)}: {', '.join(change.differs)}{asked}")
        for sign, record, evidence in zip("-+", (change.before, change.after), change.evidence, strict=True):
            same = change.differs == ("evidence",)
            if not same or sign == "-":
                say(f"{' ' if same else sign} {record.state}: {plain(record.answer or record.reason or '')}")
            for one in evidence:
                say(f"{sign}   {plain(one.uri)}: {cut(one.line, SNIPPET)}")


def _show_comparison(comparison: Comparison) -> None:
    from pyfast.evaluation.compare import few_note
    from pyfast.evaluation.tables import cost_grid, difference_grid, notes_of

    runs = [cost.run for cost in comparison.costs]
    say(f"{counted(comparison.questions, 'question')} answered by all runs; means per question:")
    show_table(*cost_grid(comparison), keys=2)
    _show_reused((cost, comparison.questions) for cost in comparison.costs)
    for number, one in enumerate(comparison.unanswered, start=1):
        if one.note:
            say(f"run {number}: {plain(one.note)}")
    show_table(*difference_grid(comparison.differences, runs), keys=2)
    if few := few_note(comparison.independent, len(comparison.differences)):
        say(few)
    for flips in comparison.flips:
        for right, wrong, ids in ((flips.b, flips.a, flips.gained), (flips.a, flips.b, flips.lost)):
            if ids:
                pair = f"right in {plain(right)} and wrong in {plain(wrong)}"
                say(f"{plain(flips.figure)}: {len(ids)} {pair}: {some([*map(plain, ids)], _FLIPS, '--out')}")
    if comparison.left_out:
        left = counted(len(comparison.left_out), "question")
        names = some([*map(plain, comparison.left_out)], where="--json")
        say(f"{left} left out, because not all runs have answered them: {names}")
    for note in notes_of(comparison, plain, "--json"):
        say(note)


@with_options
def evaluate_retrieval(
    index: IndexFolder,
    questions: Path,
    output: Output,
    *,
    setting: list[str] | None = None,
    gold: Path | None = None,
    at: list[int] | None = None,
    scores: Path | None = None,
    documents: Documents = "own",
) -> None:
    """Measure how much of the gold evidence one or more retrievers find, without calling an LLM.

    Args:
        questions: JSON lines with `id`, `question` and `supporting` (the uris of the gold documents).
        setting: Retrieval settings, such as "ranking=bridge_rank expand=on rerank=cross"; repeatable. Keys:
            retriever, ranking (list: by the retriever; graph_rank, bridge_rank: by an evidence graph), expand (on,
            off, or a retriever), rerank, pool (how many passages the retriever finds). Default: BM25.
        gold: JSON lines with `id` and `supporting`. Default: the `supporting` field of the questions or, if they
            have none, gold.jsonl in their folder.
        at: A value of k for recall@k and ndcg@k; repeatable.
        scores: A folder that caches reranker scores, so that later calls need not recompute them.
        documents: own: for a question with `documents`, only the listed documents are searched. all: the whole
            index is searched for every question."""
    import pyfast.api.retrieval_evaluation

    output.check()
    options: Any = {"at": at} if at else {}
    report = pyfast.api.retrieval_evaluation.evaluate_retrieval(
        index, questions, setting or [""], gold=gold, scores=scores, documents=documents, **options
    )
    _tell(output, report, report.as_json, lambda: _show_retrieval(report))


def _show_retrieval(report: RetrievalReport) -> None:
    from pyfast.evaluation.tables import difference_grid, notes_of

    wholes = {name: one.rows[0] for name, one in report.settings.items()}
    figures = list(next(iter(wholes.values())).figures)
    place = {name: number for number, name in enumerate(wholes, start=1)}
    say(counted(next(iter(wholes.values())).questions, "question"))
    rows = ((place[name], name, *(_with_interval(row[one]) for one in figures)) for name, row in wholes.items())
    show_table(["", "setting", *figures], rows, keys=2)
    if report.differences:
        show_table(*difference_grid(report.differences, list(place), "settings"), keys=2)
    for note in notes_of(replace(report, without_gold=()), plain, "--json"):
        say(note)
    if lacking := len(report.without_gold):
        forms = "question lists no gold evidence and is", "questions list no gold evidence and are"
        say(f"{counted(lacking, *forms)} not scored")
