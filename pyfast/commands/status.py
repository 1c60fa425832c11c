"""`pyfast status`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import clock, console, fall_backs, plain, tokens


def status(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show how far a run is."""
    from rich.table import Table
    from rich.text import Text

    import pyfast

    found = pyfast.Run(run).status
    screen = console(stderr=False)
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items())) or "none yet"
    left = "" if found.seconds_left is None else f", about {_duration(found.seconds_left)} left"
    running = "running" if found.running else "done" if found.ended == found.questions else "stopped"
    print(f"{found.ended} of {found.questions} questions ended: {states}; {running}{left}")
    if found.waiting is not None:
        waiting = found.waiting
        print(f"waiting for {plain(waiting.llm)} since {clock(waiting.since)}: {plain(waiting.reason)}")
    if found.altered:
        lines = "1 line" if found.altered == 1 else f"{found.altered} lines"
        print(f"{lines} of {run / 'answers.jsonl'}: not what was written there; the run, gone on with, mends it")
    print(f"{found.llm_calls} LLM calls; {tokens(found)}")
    if len(by_role := found.tokens_by_role) > 1:
        each = (f"{plain(role)} {into} in, {out} out" for role, (into, out) in sorted(by_role.items()))
        print(f"tokens by role: {'; '.join(each)}")
    if found.fall_backs:
        print(f"no usable answer to: {fall_backs(found)}")
    if found.stages:
        table = Table("stage", "role", "calls", "queued, ms/question", "running, ms/question", "calls/batch")
        for stage in found.stages:
            figures = (f"{stage.queued_ms:.2f}", f"{stage.running_ms:.2f}", f"{stage.batch:.1f}")
            table.add_row(plain(stage.name), plain(stage.role), str(stage.calls), *figures)
        screen.print(table)
    for reason, count in found.failures:
        screen.print(Text(f"{count} failed: {plain(reason)}"))


def _duration(seconds: float) -> str:
    try:
        return str(timedelta(seconds=round(seconds)))
    except OverflowError:
        return "for ever"
