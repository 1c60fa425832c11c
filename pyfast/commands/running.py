"""What the commands that are runs share: their options, how a run begins, and how it is watched."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from pyfast.commands.terminal import console, tokens
from pyfast.errors import CallError, RunError

if TYPE_CHECKING:
    from pyfast.engine import Configuration, Job, RunFolder, Summary

Llm = Annotated[
    str,
    typer.Option(
        help="embedded, vllm:MODEL, llamacpp:PATH.gguf, transformers:FOLDER, openai:MODEL@URL or instant."
    ),
]
LlmOption = Annotated[
    list[str] | None, typer.Option(help="An option of the LLM, such as timeout_s=60; repeatable.")
]
Limits = Annotated[
    list[str] | None, typer.Option("--budget", help="A limit, such as seconds=60 or tokens=20000; repeatable.")
]
Concurrency = Annotated[int, typer.Option(min=1, max=65_536, help="How many are in work at once.")]
Sync = Annotated[Literal["normal", "full"], typer.Option(help="full: not even a power cut costs an LLM call.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew; the old folder is kept aside.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try again what failed.")]


def begin(run: Path, describe: Callable[[], Configuration], restart: bool = False) -> None:
    """Find out, before a model is loaded, whether `run` can be gone on with as described. Raises `InputError`.

    `restart`: what was there is renamed first.
    """
    from pyfast.engine import check_run

    if restart:
        drop(run)
    check_run(run, describe(), unknown=["llm.context_window"])


def drop(run: Path) -> None:
    """Rename what was there, and say so. Raises `InputError` if it is in use."""
    from pyfast.engine import set_aside

    if (aside := set_aside(run)) is not None:
        print(f"the old run is now {aside}", file=sys.stderr)


def carry_out(job: Job, total: int) -> None:
    """Work on a run until it is done, and say what that took."""
    from pyfast.engine import dedicate_process

    run = job.folder
    dedicate_process()
    try:
        summary = asyncio.run(watched(job, total))
    except RunError as error:
        if (run / "run.toml").exists():
            raise RunError(f"{error}; the same command goes on with {run}") from None
        raise
    ended = sum(summary.states.values())
    if not ended:
        print(f"nothing was left to do; {run / 'answers.jsonl'}")
        return
    states = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    replayed = f" ({summary.replayed} from the journal)" if summary.replayed else ""
    print(
        f"{ended} questions: {states}; {summary.llm_calls} LLM calls{replayed};"
        f" {tokens(summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens)};"
        f" {summary.seconds:.1f} s, {ended / max(summary.seconds, 1e-9):.1f} questions/s; {run / 'answers.jsonl'}"
    )
    if summary.states["failed"] == ended:
        raise CallError(f"every question failed, the first because: {summary.first_failure}")


async def watched(job: Job, total: int) -> Summary:
    """The run, with its progress shown. Ctrl-C lets it finish what is in work, a second one ends it at once."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from pyfast.engine import work_on

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=screen, disable=not screen.is_terminal)
    bar = bars.add_task("", total=total)
    stop = asyncio.Event()
    answering = asyncio.Event()
    started = screen.status(f"starting {job.llm.spec}")
    task = asyncio.current_task()
    assert task is not None

    def begun(folder: RunFolder, done: int) -> None:
        answering.set()
        started.stop()
        if folder.journal.salvaged is not None:
            aside = folder.journal.salvaged
            print(f"the journal was damaged; what can be read was taken over from {aside}", file=sys.stderr)
        if done:
            print(f"{done} of {total} questions are answered; going on", file=sys.stderr)
        bars.update(bar, completed=done)
        bars.start()

    def interrupted() -> None:
        if stop.is_set() or not answering.is_set():
            task.cancel()
        else:
            stop.set()
            print("pyfast: finishing what is in work; once more to stop at once", file=sys.stderr)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        with started, bars:
            summary = await work_on(job, stop, begun, lambda: bars.advance(bar))
    except asyncio.CancelledError:
        _stopped(job.folder)
    if stop.is_set() and not bars.finished:
        _stopped(job.folder)
    return summary


def _stopped(run: Path) -> NoReturn:
    """End the process: threads of a backend that is busy must not hold it."""
    print(f"pyfast: stopped; the same command goes on with {run}", file=sys.stderr, flush=True)
    os._exit(130)
