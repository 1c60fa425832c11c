"""How all commands that start a run show its progress and end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyfast.commands.terminal import clock, console, counts, plain, say, tell_unusable, tokens
from pyfast.errors import CallError, RunError
from pyfast.utils.text_forms import counted

if TYPE_CHECKING:
    from pyfast.api.run import Run
    from pyfast.engine import Event, OnEvent

T = TypeVar("T")


def watched(folder: Path, llms: Mapping[str, str], work: Callable[..., T]) -> T:
    """Call an API function that carries out a run, passing it the argument `watch`; show the progress, and return
    the result.

    After Ctrl-C or SIGTERM, the process ends when the questions in progress are finished. A second Ctrl-C,
    SIGQUIT, a closed terminal, or Ctrl-C while no question is in progress ends it at once.
    """
    from pyfast.engine import Watch

    stop = threading.Event()
    with _progress(llms) as (on_event, is_answering), _interrupts(stop, is_answering, folder):
        try:
            result = work(watch=Watch(on_event, stop=stop))
        except KeyboardInterrupt:
            _stopped(folder)
        except RunError as error:
            if stop.is_set():
                _stopped(folder)
            if any((folder / name).exists() for name in ("run.toml", "journal.sqlite")):
                raise type(error)(f"{error}; {error.resumed_by} resumes {folder}") from None
            raise
    return result


def tell(run: Run, say: Callable[[str], None] = say) -> None:
    """Print, with `say`, the result of this session (this process's work on a run).

    If the run was stopped, the process ends. Raises `CallError` if all questions of the run failed, in this
    session or an earlier one.
    """
    assert run.path is not None and run.session is not None
    session, answers = run.session, run.path / "answers.jsonl"
    if session.left:
        _stopped(run.path)
    ended = sum(session.states.values())
    failed = 0 if ended else sum(record.state == "failed" for record in run.records)
    also = f" ({failed} failed; --retry-failed tries them again)" if failed else ""
    states = ", ".join(f"{count} {state}" for state, count in sorted(session.states.items()))
    origins = {"from the journal": session.replayed, "reused": session.reused}
    shown = ", ".join(f"{calls} {origin}" for origin, calls in origins.items() if calls)
    replayed = f" ({shown})" if shown else ""
    say(
        f"{counted(ended, 'question')}: {states}; {counted(session.llm_calls, 'LLM call')}{replayed};"
        f" {tokens(session)};"
        f" {session.seconds:.1f} s, {ended / max(session.seconds, 1e-9):.1f} questions/s; {answers}"
        if ended
        else f"all questions were already finished{also}; {answers}"
    )
    tell_unusable(session, run.path)
    if session.left_out:
        left_out = counts(session.left_out)
        say(f"passages that did not fit into prompts: {left_out} (more fit into a larger context window)")
    if session.states["failed"] == ended and all(record.state == "failed" for record in run.records):
        raise CallError(f"every question failed; the first reason was: {run.records[0].reason}")


@contextlib.contextmanager
def _progress(llms: Mapping[str, str]) -> Iterator[tuple[OnEvent, threading.Event]]:
    """Yield (a function that shows a run's events, a `threading.Event` that is set while questions are in
    progress)."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    from pyfast.engine import dedicate_process

    screen = console()
    waits = TextColumn("{task.fields[waits]}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), waits)
    bars = Progress(*columns, console=screen, disable=not screen.is_terminal)
    bar = bars.add_task("", waits="")
    starting = screen.status(Text(plain(f"starting {', '.join(dict.fromkeys(llms.values()))}")))
    is_answering = threading.Event()

    def show(event: Event) -> None:
        if event.kind == "starting":
            starting.start()
            return
        if event.kind == "started":
            dedicate_process()
            starting.stop()
            is_answering.set()
        if event.done >= event.total:  # An experiment prepares its next run, with no question to finish.
            is_answering.clear()
        if event.kind in ("started", "progress"):
            bars.start()
        waiting = event.waiting
        waits = "" if waiting is None else f"waiting for {waiting.llm} since {clock(waiting.since)}"
        bars.update(bar, total=event.total, completed=event.done, waits=waits)

    try:
        yield show, is_answering
    finally:
        starting.stop()
        bars.stop()


@contextlib.contextmanager
def _interrupts(stop: threading.Event, is_answering: threading.Event, folder: Path) -> Iterator[None]:
    def interrupted(number: int, frame: FrameType | None) -> None:
        if stop.is_set() or not is_answering.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("pyfast: finishing the questions in progress; press Ctrl-C again to stop at once", file=sys.stderr)

    def ended(number: int, frame: FrameType | None) -> None:
        _say(f"pyfast: ended by {signal.Signals(number).name}; the same command resumes {folder}")
        os._exit(128 + number)  # Shells report a process ended by a signal in this way.

    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM), interrupted)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # Under nohup, for example, a signal is ignored.
            handlers[number] = ended
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(run: Path) -> NoReturn:
    """Print that the run was stopped and can be resumed, then end the process immediately, without waiting for
    threads in which the LLM computes."""
    _say(f"pyfast: stopped; the same command resumes {run}")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(130)


def _say(line: str) -> None:
    """Print on stderr, or do nothing if the terminal was closed."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
