"""`pyfast bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pyfast.commands.arguments import Asked, with_options
from pyfast.commands.terminal import json_line, say, show_table
from pyfast.utils.options import Load, Option

if TYPE_CHECKING:
    from pyfast.api.experiments import Bench
    from pyfast.api.experiments.latency import Change


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
        index: The folder of an index. Optional for the systems direct and cot.
        concurrency: How many questions the engine works on at once.
        journal: Write a journal, as a run does.
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
        _show(result)
    if earlier is not None:
        _show_changes(result.compare(earlier))


def _show(result: Bench) -> None:
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
    say("means per question: milliseconds by stage, LLM calls, tokens in prompts (all, computed) and in replies")
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
