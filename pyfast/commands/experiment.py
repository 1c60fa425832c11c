"""`pyfast experiment`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import Concurrency, LlmOptions, read_models, with_options
from pyfast.commands.progress import watched
from pyfast.commands.terminal import plain, say, show_table
from pyfast.errors import InputError
from pyfast.utils.options import OF_EXPERIMENT, Cluster, RunOptions

if TYPE_CHECKING:
    from pyfast.api.experiments.cells import Experiment


@with_options
def experiment(
    given: Annotated[LlmOptions, "llm_options"],
    options: Annotated[RunOptions, *OF_EXPERIMENT],
    cluster: Cluster | None,
    plan: Annotated[str | None, typer.Argument(help="A TOML file, or the name of a plan: see --list.")] = None,
    data: Annotated[Path, typer.Option(help="The folder that has a subfolder for each data set.")] = Path("."),
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the experiment. If the folder exists, the experiment resumes."),
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option(help="An LLM that replaces the LLM of the plan, written as in `pyfast answer`; repeatable."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask only the first N questions of each data set.")
    ] = None,
    latency: Annotated[
        int | None,
        typer.Option(min=0, help="Let one client ask N questions of each cell, to measure the latency; 0: none."),
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="The file of a price list, for costs in money.")] = None,
    concurrency: Concurrency = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare each row of the table with the first row, or with the row that --baseline names.",
        ),
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(help="With --compare: the row with which the others are compared; by default the first."),
    ] = None,
    list_plans: Annotated[bool, typer.Option("--list", help="Show the plans that come with pyfast.")] = False,
) -> None:
    """Run systems on data sets with models, and write tables. To resume a stopped experiment, repeat the
    command."""
    import pyfast.api.experiments.cells
    from pyfast.api.experiments.plan import ready_plans

    if list_plans:
        for name, title in ready_plans().items():
            say(f"{name}: {title}")
        return
    if plan is None or out is None:
        raise InputError("experiment: give a plan and --out")
    llms = read_models(llm)
    result = watched(
        out,
        llms,
        lambda watch: pyfast.api.experiments.cells.experiment(
            plan,
            data,
            out,
            llm=llms or None,
            llm_options=given.llm_options,
            limit=limit,
            latency=latency,
            prices=prices,
            concurrency=concurrency,
            options=options,
            cluster=cluster,
            watch=watch,
        ),
    )
    show_table(*result.summary(), keys=3)
    say(f"intervals, published figures and differences from the paper: {out / 'tables.md'}")
    if compare:
        _show(result, baseline, out / "comparisons.csv")


def _show(result: Experiment, baseline: str | None, out: Path) -> None:
    from pyfast.evaluation.tables import difference_cells

    differences = result.compare(baseline, out)
    rows, row = list[tuple[str, ...]](), ""
    for one in differences:
        if one.b != row:
            row = one.b
            rows.append((row, *[""] * 6))
        figure, *numbers = difference_cells(one)
        rows.append((f"  {figure}", *numbers))
    say(f"compared with {plain(baseline or result.cells[0].row)}; also in {out}:")
    show_table(["figure", "before", "after", "change", "95 %", "p", "p (Holm)"], rows)
