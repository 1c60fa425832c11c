"""`pyfast status`, `pyfast report`, `pyfast view` and `pyfast show`: the progress and the content of runs."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pyfast.commands.arguments import RunFolder, RunFolders, Scoring, with_options
from pyfast.commands.terminal import (
    clock,
    counts,
    in_money,
    json_line,
    lines,
    plain,
    say,
    show_table,
    tell_unusable,
    tokens,
)
from pyfast.errors import InputError
from pyfast.utils.options import Option
from pyfast.utils.text_forms import counted


@with_options
def status(
    run: RunFolder,
    *,
    json: bool = False,
    prefix_cache: Annotated[float | None, Option(min=1)] = None,
    prices: Path | None = None,
) -> None:
    """Show the progress of a run.

    Args:
        json: Print the status as JSON.
        prefix_cache: Estimate what a prefix cache of this many tokens would save.
        prices: A price list (TOML), to show the cost in money too.
    """
    from pyfast.api.run import Run
    from pyfast.evaluation.cost import listed

    opened, known = Run(run), listed(prices)
    status = opened.status
    money, cost = (None if known is None else opened.money(known, paid=paid) for paid in (False, True))
    cached = {} if prefix_cache is None else opened.prefix_cache(prefix_cache)
    if json:
        estimate: dict[str, Any] = {name: asdict(one) for name, one in cached.items()}
        more: dict[str, Any] = {"prefix_cache_estimate": estimate} if cached else {}
        more |= {} if known is None else {"money": money, "paid": cost, "currency": known.currency}
        print(json_line(status.as_json() | more))
        return
    states = ", ".join(f"{count} {state}" for state, count in sorted(status.states.items())) or "none yet"
    left = "" if status.seconds_left is None else f", about {_duration(status.seconds_left)} left"
    running = "running" if status.running else "done" if status.ended == status.questions else "stopped"
    say(f"{status.ended} of {status.questions} questions ended: {states}; {running}{left}")
    if status.waiting is not None:
        waiting = status.waiting
        say(f"waiting for {plain(waiting.llm)} since {clock(waiting.since)}: {plain(waiting.reason)}")
    if status.altered:
        lines = counted(status.altered, "line")
        say(f"{run / 'answers.jsonl'}: {lines} missing or changed; to repair the file, resume the run")
    of_reused = f"{status.reused_prompt_tokens} tokens in, {status.reused_completion_tokens} out"
    reused = f", {status.reused} of them reused ({of_reused})" if status.reused else ""
    paid = ""
    if known is not None and money is not None and cost is not None:
        of_new = f", {in_money(cost, known.currency)} without the reused calls" if status.reused else ""
        paid = f"; {in_money(money, known.currency)}{of_new}"
    say(f"{counted(status.llm_calls, 'LLM call')}{reused}; {tokens(status)}{paid}")
    if len(by_role := status.tokens_by_role) > 1:
        each = (f"{plain(role)} {into} in, {out} out" for role, (into, out) in sorted(by_role.items()))
        say(f"tokens by role: {'; '.join(each)}")
    tell_unusable(status, run)
    if status.left_out:
        say(f"passages that did not fit into prompts: {counts(status.left_out)}")
    if status.seconds:
        shown = ", ".join(f"p{percent} {seconds:.2f}" for percent, seconds in status.seconds.items())
        say(f"seconds per question: {shown}{' (without reused LLM calls)' if status.reused else ''}")
    if status.stages:
        heads = ("stage", "role", "calls", "queued, ms/question", "running, ms/question", "calls/batch")
        stages = (
            (one.name, one.role, one.calls, f"{one.queued_ms:.2f}", f"{one.running_ms:.2f}", f"{one.batch:.1f}")
            for one in status.stages
        )
        show_table(heads, stages, keys=2)
        for one in status.stages:
            if one.prompt_tokens and not one.role:
                say(f"{plain(one.name)}: {one.batch * one.calls:.0f} texts, {one.prompt_tokens} tokens")
        say("running: a batch's time counts in full for each question in it")
    if cached:
        say("prompt tokens, and an estimate of how many are computed with a prefix cache:")
        ended = max(status.ended, 1)
        rows = (
            (name, one.calls, f"{one.tokens / ended:.0f}", f"{(one.tokens - one.cached) / ended:.0f}")
            for name, one in cached.items()
        )
        show_table(("prompt", "calls", "tokens/question", "computed/question"), rows)
    for name, seconds in status.gpu_seconds.items():
        say(f"{plain(name)}: {seconds:.2f} s, {seconds / max(status.working, 1e-9):.1%} of the time")
    for reason, count in status.failures:
        say(f"{count} failed: {plain(reason)}")


def _duration(seconds: float) -> str:
    try:
        return str(timedelta(seconds=round(seconds)))
    except OverflowError:
        return "for ever"


@with_options
def report(
    runs: RunFolders,
    scoring: Annotated[Scoring, "gold", "columns", "metrics", "prices"],
    *,
    out: Path,
    single: str | None = None,
    processes: Annotated[int | None, Option(min=1)] = None,
) -> None:
    """Write runs as static web pages, which any web server can serve.

    Args:
        out: The folder to write (with --single: the file). An existing report is replaced.
        single: Write only the question with this id, as one file that a browser opens without a web server.
        processes: The maximum number of processes; by default one per core.
    """
    import pyfast.reports.pages
    from pyfast.engine import dedicate_process

    dedicate_process()
    pyfast.reports.pages.report(runs, out, single=single, processes=processes, **scoring.given)
    if single is not None:
        print(f"wrote {out}; open it in a browser")
        return
    print(f"wrote {out}; copy it to any web server, or run: pyfast view {' '.join(map(str, runs))}")


@with_options
def view(
    runs: RunFolders,
    scoring: Annotated[Scoring, "gold", "columns", "metrics", "prices"],
    *,
    port: Annotated[int, Option(min=0, max=65_535)] = 0,
) -> None:
    """Show runs in a browser on this machine, even while they are in progress.

    Args:
        port: The port on this machine. 0: any free port.
    """
    import pyfast.reports.pages

    def started(address: str) -> None:
        print(f"{address} (press Ctrl-C to stop)", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        pyfast.reports.pages.view(runs, port=port, on_start=started, **scoring.given)


@with_options
def show(
    run: RunFolder,
    id: str | None = None,
    *,
    scoring: Annotated[Scoring, "gold", "columns"],
    wrong: bool = False,
    prompts: bool = False,
    all: bool = False,
    limit: Annotated[int | None, Option(min=1, max=10**9)] = None,
) -> None:
    """Show how one question was answered: the steps of its trace, its gold passages, and its LLM calls.

    Args:
        id: The id of a question.
        wrong: Show the questions with wrong answers one at a time (press Enter for the next), lowest score first.
        prompts: Show the full prompts and replies.
        all: Show all passages in each list, and all texts in full.
        limit: With --wrong: show only the first N questions.
    """
    import pyfast.reports.text_report
    from pyfast.reports import wrong_questions

    if (id is None) != wrong:
        raise InputError("pass either a question's id or --wrong")
    if limit is not None and not wrong:
        raise InputError("--limit can only be used with --wrong")
    ids = wrong_questions(run, scoring.gold)[:limit] if id is None else [id]
    for number, each in enumerate(ids, start=1):
        print(lines(pyfast.reports.text_report.show(run, each, scoring.gold, prompts=prompts, whole=all)))
        if number < len(ids):
            if sys.stdin.isatty() and sys.stdout.isatty():
                input(f"-- {number} of {len(ids)}; Enter for the next one, Ctrl-C to end --")
            print()
    if not ids:
        print("no answer is wrong")
