"""`pyfast experiment` and `pyfast bench`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pyfast.commands.arguments import Asked, LlmOptions, read_models, with_options
from pyfast.commands.progress import watched
from pyfast.commands.terminal import json_line, plain, say, show_table
from pyfast.errors import CallError, InputError
from pyfast.utils.options import OF_EXPERIMENT, Cluster, Load, Option, RunOptions

if TYPE_CHECKING:
    from pyfast.api.experiments import Bench
    from pyfast.api.experiments.cells import Experiment
    from pyfast.api.experiments.latency import Change


@with_options
def experiment(
    given: Annotated[LlmOptions, "llm_options", "concurrency"],
    options: Annotated[RunOptions, *OF_EXPERIMENT],
    cluster: Cluster | None,
    plan: str | None = None,
    *,
    data: Path = Path("."),
    out: Path | None = None,
    llm: list[str] | None = None,
    limit: Annotated[int | None, Option(min=1)] = None,
    latency: Annotated[int | None, Option(min=0)] = None,
    prices: Path | None = None,
    compare: bool = False,
    baseline: str | None = None,
    list_plans: Annotated[bool, Option(flag="--list")] = False,
) -> None:
    """Run systems on data sets with models, and write tables of the results. To resume a stopped experiment,
    repeat the command.

    Args:
        plan: A TOML file, or the name of a plan: see --list.
        data: The folder that contains a subfolder for each data set.
        out: The folder of the experiment. If the folder exists, the experiment resumes.
        llm: An LLM to use instead of those in the plan, written as in `pyfast answer`; repeatable.
        limit: Ask only the first N questions of each data set.
        latency: Measure the latency of each system with N questions, asked one by one. 0: do not measure it.
        prices: A price list (TOML), to show costs in money too.
        compare: Compare each row of the table with the first row, or with the row that --baseline names.
        baseline: With --compare: the row to compare the others with; by default the first.
        list_plans: Show the plans that come with pyfast.
    """
    import pyfast.api.experiments.cells
    from pyfast.api.experiments.plan import read_plan, ready_plans

    if list_plans:
        for name, title in ready_plans().items():
            say(f"{name}: {title}")
        return
    if plan is None or out is None:
        raise InputError("pass a plan and the option --out")
    if baseline is not None:
        if not compare:
            raise InputError("--baseline: can only be used with --compare")
        rows = [row.name for row in read_plan(plan).rows if not row.not_run]
        if baseline not in rows:
            raise InputError(f"--baseline: this plan has no row {baseline!r}; its rows are: {', '.join(rows)}")
    llms = read_models(llm)
    work = partial(pyfast.api.experiments.cells.experiment, plan, data, out, llm=llms or None, limit=limit)
    work = partial(work, latency=latency, prices=prices, options=options, cluster=cluster, **given.given)
    result = watched(out, llms, work)
    show_table(*result.summary(), keys=3)
    say(f"intervals, published figures and differences from the paper: {out / 'tables.md'}")
    if compare:
        _show_comparison(result, baseline, out)
    if lost := next((cell for cell in result.cells if cell.unanswered.failed == cell.unanswered.questions), None):
        raise CallError(
            f"all questions of {lost.row} failed ({lost.set}, {lost.model}); the first reason was:"
            f" {lost.unanswered.reason}"
        )


def _show_comparison(result: Experiment, baseline: str | None, out: Path) -> None:
    from pyfast.api.experiments.writing import COMPARISONS
    from pyfast.evaluation.tables import difference_cells

    if len(ran := {cell.row for cell in result.cells}) < 2:
        say(
            f"nothing to compare: only the row {plain(*ran)} was run"
            if ran
            else "nothing to compare: no row was run"
        )
        return
    files = [out / name for name in COMPARISONS]
    differences = result.compare(baseline, files)
    rows, row = list[tuple[str, ...]](), ""
    for one in differences:
        if one.b != row:
            row = one.b
            rows.append((row, *[""] * 6))
        figure, *numbers = difference_cells(one)
        rows.append((f"  {figure}", *numbers))
    say(
        f"compared with {plain(baseline or result.cells[0].row)};"
        f" this table is also in {', '.join(map(str, files))}:"
    )
    show_table(["figure", "before", "after", "change", "95 %", "p", "p (Holm)"], rows)


@with_options
def bench(
    questions: Path,
    asked: Annotated[Asked, "settings", "llm", "llm_options", "budget"],
    load: Load,
    *,
    system: list[str] = ["n2n"],  # noqa: B006
    index: Path | None = None,
    concurrency: Annotated[int, Option(min=1)] = 256,
    journal: bool = False,
    out: Path | None = None,
    compare: Path | None = None,
    json: bool = False,
) -> None:
    """Measure latency and throughput under load, in this process.

    Args:
        questions: A question file.
        system: A system that `pyfast systems` lists, or MODULE:NAME; repeatable.
        index: The folder of an index. Optional for systems that need none (see `pyfast systems`), such as direct.
        concurrency: How many questions the engine works on at once.
        journal: Store all LLM replies in a journal, as a run does.
        out: A folder for bench.json and bench.png.
        compare: An earlier bench.json to compare with.
        json: Print the result as JSON.
    """
    import pyfast.api.experiments.latency

    # Read it before the measurement, which may replace this file.
    earlier = None if compare is None else pyfast.api.experiments.latency.read_bench(compare)
    given = asked.given | {"system": system, "concurrency": concurrency, "journal": journal}
    result = pyfast.api.experiments.latency.bench(questions, load, index=index, out=out, **given)
    if json:
        print(json_line(result.as_json()))
    else:
        _show_bench(result)
    if earlier is not None:
        _show_changes(result.compare(earlier))
    if not any(load["completed"] for load in result.loads):
        raise CallError("every question failed; `pyfast ask` shows why a question fails")


def _show_bench(result: Bench) -> None:
    from pyfast.api.experiments.load import PERCENTILES, STAGES

    has_goal = any("request_goodput" in load for load in result.loads)
    rates = ["request_throughput", *(["request_goodput"] if has_goal else [])]
    names = [*rates, *(f"p{p}_e2el_ms" for p in PERCENTILES)]
    heads = ["per s", *(["good/s"] if has_goal else []), *(f"p{p} ms" for p in PERCENTILES)]
    rows = (
        [
            *(load["load"], f"{load['completed']:.0f}", f"{load['failed']:.0f}"),
            *(f"{load[name]:.1f}" if name in load else "" for name in names),
        ]
        for load in result.loads
    )
    show_table(["load", "answered", "failed", *heads], rows)
    say(
        "means per question: milliseconds by stage, LLM calls, prompt tokens (all, and those not from a cache)"
        " and reply tokens"
    )
    used = ("llm_calls", "total_input_tokens", "total_computed_tokens", "total_output_tokens")
    means = (
        [
            load["load"],
            *(f"{load['stages'][stage]['mean_e2el_ms']:.1f}" for stage in STAGES),
            *(f"{load[name] / max(load['completed'] + load['failed'], 1):.1f}" for name in used),
        ]
        for load in result.loads
    )
    show_table(["load", *STAGES, "calls", "in", "computed", "out"], means)
    if result.saturation is not None:
        print(f"saturation: {result.saturation:.2f} questions/s")


def _show_changes(changes: list[Change]) -> None:
    rows = (
        (
            *(one.load, one.figure, f"{one.before:.2f}", f"{one.after:.2f}", f"{one.ratio:.2f}"),
            ("better" if one.is_better else "worse") if one.is_real else "within the noise",
        )
        for one in changes
    )
    show_table(["load", "figure", "before", "after", "ratio", ""], rows, keys=2)
