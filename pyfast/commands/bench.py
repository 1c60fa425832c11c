"""`pyfast bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import Asked, with_options
from pyfast.commands.terminal import console, json_line, plain
from pyfast.utils.options import Load

if TYPE_CHECKING:
    from rich.table import Table

    from pyfast.api.experiments import Bench
    from pyfast.api.experiments.latency import Change


@with_options
def bench(
    questions: Annotated[Path, typer.Argument(help="A file of questions.")],
    asked: Asked,
    load: Load,
    index: Annotated[
        Path | None, typer.Option(help="The folder of an index. The systems direct and cot need no index.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many questions the engine works on at once.")] = 256,
    journal: Annotated[bool, typer.Option("--journal", help="Write a journal, as a run does.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for bench.json and bench.png.")] = None,
    compare: Annotated[Path | None, typer.Option(help="An earlier bench.json to compare with.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure latency and throughput under load, in this process."""
    import pyfast.api.experiments.latency

    result = pyfast.api.experiments.latency.bench(
        questions, load, index=index, concurrency=concurrency, journal=journal, out=out, **asked.given
    )
    if json:
        print(json_line(result.as_json()))
    else:
        _show(result)
    if compare is not None:
        _show_changes(result.compare(compare))


def _show(result: Bench) -> None:
    from pyfast.api.experiments.load import PERCENTILES, STAGES

    has_goal = any("request_goodput" in load for load in result.loads)
    latencies = [f"p{p}_e2el_ms" for p in PERCENTILES]
    rates = ["request_throughput", *(["request_goodput"] if has_goal else [])]
    heads = ["per s", *(["good/s"] if has_goal else []), *(f"p{p} ms" for p in PERCENTILES)]
    table = _table("answered", "failed", *heads)
    for load in result.loads:
        numbers = (f"{load[name]:.1f}" if name in load else "" for name in (*rates, *latencies))
        table.add_row(plain(load["load"]), f"{load['completed']:.0f}", f"{load['failed']:.0f}", *numbers)
    screen = console(stderr=False)
    screen.print(table)
    print("means of a question: milliseconds by stage, LLM calls, tokens of prompts, of these cached, of replies")
    table = _table(*STAGES, "calls", "in", "cached", "out")
    for load in result.loads:
        asked = max(load["completed"] + load["failed"], 1)
        means = [load["stages"][stage]["mean_e2el_ms"] for stage in STAGES]
        used = ("llm_calls", "total_input_tokens", "total_cached_tokens", "total_output_tokens")
        table.add_row(plain(load["load"]), *(f"{n:.1f}" for n in (*means, *(load[name] / asked for name in used))))
    screen.print(table)
    if result.saturation is not None:
        print(f"saturation: {result.saturation:.2f} questions/s")


def _table(*heads: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    return Table(Column("load", no_wrap=True), *(Column(head, justify="right") for head in heads), box=SIMPLE_HEAD)


def _show_changes(changes: list[Change]) -> None:
    table = _table("figure", "before", "after", "ratio", "")
    for change in changes:
        verdict = ("better" if change.is_better else "worse") if change.is_real else "within the noise"
        numbers = (f"{change.before:.2f}", f"{change.after:.2f}", f"{change.ratio:.2f}")
        table.add_row(plain(change.load), change.figure, *numbers, verdict)
    console(stderr=False).print(table)
