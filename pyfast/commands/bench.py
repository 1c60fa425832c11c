"""`pyfast bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyfast.commands.running import EMBEDDED, Limits, Llm, LlmOption, Setting, SystemName, models
from pyfast.commands.terminal import console, json_line, pairs, plain, values

if TYPE_CHECKING:
    from rich.table import Table

    from pyfast.experiments import Bench
    from pyfast.experiments.latency import Change


def bench(
    questions: Annotated[Path, typer.Argument(help="A file of questions.")],
    index: Annotated[
        Path | None, typer.Option(help="The folder of an index. The systems direct and cot need no index.")
    ] = None,
    system: SystemName = "n2n",
    llm: Llm = EMBEDDED,
    setting: Setting = None,
    llm_option: LlmOption = None,
    budget: Limits = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Open loop: the number of questions that arrive in a second, even if earlier questions"
            " have not ended; repeatable."
        ),
    ] = None,
    arrivals: Annotated[
        Literal["poisson", "gamma", "constant"],
        typer.Option(help="Open loop: the distribution of the gaps between two questions."),
    ] = "poisson",
    burstiness: Annotated[
        float,
        typer.Option(
            help="With --arrivals gamma: the shape of the distribution. Below 1, questions come in bursts."
        ),
    ] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Open loop: a file with the times at which questions arrive, a number of seconds on each line."
            " The first question arrives at once, so only the differences matter."
        ),
    ] = None,
    clients: Annotated[
        list[int] | None,
        typer.Option(
            help="Closed loop: the number of clients. A client asks its next question when its last"
            " question has ended; repeatable."
        ),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep", help="Find the highest number of questions a second that this process can answer."
        ),
    ] = False,
    count: Annotated[int, typer.Option(min=1, help="Number of questions in each repetition.")] = 200,
    warm_up: Annotated[
        int, typer.Option(min=0, help="Number of questions that are asked first and not measured.")
    ] = 20,
    repeats: Annotated[int, typer.Option(min=1, help="How often each load is measured.")] = 3,
    objective: Annotated[
        float | None,
        typer.Option(
            help="A number of seconds. The goodput (useful throughput) counts only questions that take at"
            " most this long."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many questions the engine works on at once.")] = 256,
    journal: Annotated[bool, typer.Option("--journal", help="Write a journal, as a run does.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the arrival times.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A folder for bench.json and bench.png.")] = None,
    compare: Annotated[Path | None, typer.Option(help="An earlier bench.json to compare with.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure latency and throughput under load, in this process."""
    import pyfast

    result = pyfast.bench(
        questions,
        index=index,
        llm=models(llm),
        llm_options=values(pairs("--llm-option", llm_option)),
        system=system,
        settings=pairs("--set", setting),
        budget=pairs("--budget", budget),
        rates=rate or (),
        arrivals=arrivals,
        burstiness=burstiness,
        trace=trace,
        clients=clients or (),
        sweep=sweep,
        count=count,
        warm_up=warm_up,
        repeats=repeats,
        objective=objective,
        concurrency=concurrency,
        journal=journal,
        seed=seed,
        out=out,
    )
    if json:
        print(json_line(result.as_json()))
    else:
        _show(result)
    if compare is not None:
        _show_changes(result.compare(compare))


def _show(result: Bench) -> None:
    from pyfast.experiments.load import PERCENTILES, STAGES

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
