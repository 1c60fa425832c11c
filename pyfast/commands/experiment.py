"""`pyfast experiment`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pyfast.commands.arguments import LlmOptions, read_models, with_options
from pyfast.commands.progress import watched
from pyfast.commands.terminal import plain, say, show_table
from pyfast.errors import CallError, InputError
from pyfast.utils.options import OF_EXPERIMENT, Cluster, Option, RunOptions

if TYPE_CHECKING:
    from pyfast.api.experiments.cells import Experiment


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
    """Run systems on data sets with models, and write tables. To resume a stopped experiment, repeat the
    command.

    Args:
        plan: A TOML file, or the name of a plan: see --list.
        data: The folder that contains a subfolder for each data set.
        out: The folder of the experiment. If the folder exists, the experiment resumes.
        llm: An LLM to use instead of those in the plan, written as in `pyfast answer`; repeatable.
        limit: Ask only the first N questions of each data set.
        latency: To measure the latency of each cell, let one client ask N questions one by one. 0: do not measure
            it.
        prices: A price list. If given, costs are shown in money too.
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
        raise InputError("pass a plan and --out")
    if baseline is not None:
        if not compare:
            raise InputError("--baseline: can only be used with --compare")
        rows = [row.name for row in read_plan(plan).rows if not row.not_run]
        if baseline not in rows:
            raise InputError(f"--baseline: no row {baseline!r} is run; the rows that are run: {', '.join(rows)}")
    llms = read_models(llm)
    work = partial(pyfast.api.experiments.cells.experiment, plan, data, out, llm=llms or None, limit=limit)
    work = partial(work, latency=latency, prices=prices, options=options, cluster=cluster, **given.given)
    result = watched(out, llms, work)
    show_table(*result.summary(), keys=3)
    say(f"intervals, published figures and differences from the paper: {out / 'tables.md'}")
    if compare:
        _show(result, baseline, out)
    if lost := next((cell for cell in result.cells if cell.unanswered.failed == cell.unanswered.questions), None):
        raise CallError(
            f"every question of {lost.row} failed ({lost.set}, {lost.model}), the first because:"
            f" {lost.unanswered.reason}"
        )


def _show(result: Experiment, baseline: str | None, out: Path) -> None:
    from pyfast.api.experiments.writing import COMPARISONS
    from pyfast.evaluation.tables import difference_cells

    files = [out / name for name in COMPARISONS]
    differences = result.compare(baseline, files)
    rows, row = list[tuple[str, ...]](), ""
    for one in differences:
        if one.b != row:
            row = one.b
            rows.append((row, *[""] * 6))
        figure, *numbers = difference_cells(one)
        rows.append((f"  {figure}", *numbers))
    say(f"compared with {plain(baseline or result.cells[0].row)}; also in {', '.join(map(str, files))}:")
    show_table(["figure", "before", "after", "change", "95 %", "p", "p (Holm)"], rows)
