"""`pyfast answer`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from pyfast.commands.terminal import console, pairs, tokens, values
from pyfast.errors import CallError, InputError, RunError

if TYPE_CHECKING:
    from pyfast.engine import Job, Summary


def answer(
    questions: Annotated[Path, typer.Argument(help="JSON lines with `id` and `question` (or `turns`).")],
    run: Annotated[Path, typer.Option(help="The folder of the run; one that was begun goes on.")],
    index: Annotated[Path | None, typer.Option(help="An index; `direct` and `cot` need none.")] = None,
    system: Annotated[
        str, typer.Option(help="n2n, subqrag, mtqa, hseq, graph_convqa, rag, decompose, cot or direct.")
    ] = "n2n",
    llm: Annotated[
        str,
        typer.Option(
            help="embedded, vllm:MODEL, llamacpp:PATH.gguf, transformers:FOLDER, openai:MODEL@URL, instant."
        ),
    ] = "embedded",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the system, such as graph=off; repeatable.")
    ] = None,
    llm_option: Annotated[
        list[str] | None, typer.Option(help="An option of the LLM, such as timeout_s=60; repeatable.")
    ] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="A limit, such as seconds=60 or tokens=20000; repeatable.")
    ] = None,
    reuse: Annotated[
        Path | None, typer.Option(help="A folder for plans that follow from the question alone; runs share it.")
    ] = None,
    shared_updates: Annotated[
        bool, typer.Option("--shared-updates", help="subqrag: what a question learns, others see at once.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, max=10**9, help="Answer only the first ones.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=65_536, help="Questions in work at once.")] = 64,
    max_failures: Annotated[
        str | None, typer.Option(help="Stop when more than so many failed: a number, or a share such as 5%.")
    ] = None,
    sync: Annotated[
        Literal["normal", "full"], typer.Option(help="full: not even a power cut costs an LLM call.")
    ] = "normal",
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew; the old folder is kept aside.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try those questions again that failed.")
    ] = False,
) -> None:
    """Answer questions, or go on with a run that was stopped."""
    from pyfast.engine import (
        Budget,
        Job,
        check_questions,
        check_run,
        configuration,
        read_questions,
        set_aside,
    )
    from pyfast.llm import Remembered, open_llm
    from pyfast.retrieval import Index
    from pyfast.systems import load_system

    # All that can be wrong is found before anything is made.
    chosen = load_system(system)
    settings = chosen.configure(
        {**pairs("--set", setting), **({"shared_updates": "on"} if shared_updates else {})}
    )
    limits = Budget.parse(pairs("--budget", budget))
    total, digest = check_questions(questions, limit)
    failures = _failures(max_failures, total)
    if index is None and chosen.needs_index:
        raise InputError(f"--system {system} retrieves: give --index (made by `pyfast index`)")
    opened = Index(index) if index is not None else None
    session = None
    if opened is not None and chosen.opens is not None:
        session = chosen.opens(opened, settings, None if restart else run)
    backend = open_llm(llm, **values(pairs("--llm-option", llm_option)))
    if reuse is not None:
        backend = Remembered(backend, reuse)
    describe = partial(
        configuration,
        system=system,
        settings=settings.model_dump(mode="json"),
        prompts=chosen.prompts,
        llm=backend,
        index=opened,
        budget=limits.shaping(),
        questions={"count": total, "digest": digest},
        places={"questions": str(questions), "index": str(index or ""), "llm": llm},
        knowledge=None if session is None else session.describe(),
    )
    if restart:
        if (aside := set_aside(run)) is not None:
            print(f"the old run is now {aside}", file=sys.stderr)
    else:
        check_run(run, describe(), unknown=["llm.context_window"])  # before a model is loaded
    resumed = None
    if session is not None:
        session = session.kept(run)
        resumed = chosen.resumes and partial(chosen.resumes, session, settings)
    job = Job(
        folder=run,
        questions=partial(read_questions, questions, limit),
        ask=chosen.ask(settings, session),
        index=opened,
        llm=backend,
        describe=describe,
        concurrency=concurrency,
        budget=limits,
        failures=failures,
        sync=sync,
        retry_failed=retry_failed,
        resumed=resumed,
        finished=None if session is None else session.merge,
    )
    carry_out(job, total)


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

    from pyfast.engine import RunFolder, work_on

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


def _failures(text: str | None, total: int) -> int | None:
    """How many of `total` questions may fail."""
    if text is None:
        return None
    share = text.removesuffix("%")
    if not share.isascii() or not share.isdigit() or (text != share and int(share) > 100):
        raise InputError(f"--max-failures {text}: expected a number, or a share of the questions such as 5%")
    return int(share) if text == share else total * int(share) // 100
