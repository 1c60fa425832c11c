"""`pyfast status`: the progress of a run."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pyfast.commands.arguments import RunFolder, with_options
from pyfast.commands.terminal import (
    clock,
    counts,
    in_money,
    json_line,
    plain,
    say,
    show_table,
    tell_unusable,
    tokens,
)
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
        prices: A price list. If given, the cost is shown in money too.
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
