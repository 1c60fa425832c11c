"""Options and progress of all commands that start a run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

import typer

from pyfast.commands.terminal import clock, console, left_out, pairs, plain, tell_unusable, tokens, values
from pyfast.errors import CallError, InputError, RunError

if TYPE_CHECKING:
    from pyfast.api.run import Run
    from pyfast.engine import Event, OnEvent

T = TypeVar("T")

EMBEDDED = ["embedded"]
Llm = Annotated[
    list[str],
    typer.Option(
        help="The LLM: embedded, vllm:MODEL, llamacpp:PATH.gguf, transformers:FOLDER,"
        " openai:MODEL@URL, batch:MODEL@URL, instant, or MODULE:NAME. ROLE=LLM chooses the LLM for"
        " the prompts of one role, such as pick=vllm:MODEL; repeatable."
    ),
]
SystemName = Annotated[
    str, typer.Option("--system", help="A system, as `pyfast systems` lists them, or MODULE:NAME.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the system, such as graph=off or preset=paper; repeatable."),
]
RetrieverName = Annotated[
    str,
    typer.Option(
        "--retriever",
        help="The retriever, which finds passages: bm25 (bm25:k1=0.9,b=0.4), dense, sparse, late,"
        " hybrid (hybrid:bm25+sparse), or MODULE:NAME.",
    ),
]
RerankName = Annotated[
    str,
    typer.Option(
        "--rerank",
        help="The reranker, which scores the best passages again: off, cross (cross:MODEL), late, both, or"
        " MODULE:NAME.",
    ),
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Search only documents that meet this condition, such as source=reports/*, level=table_row,"
        " time>=1990 (of triples) or meta.author=Sagan|Drake. Repeatable: documents must meet all"
        " conditions.",
    ),
]
LlmOption = Annotated[
    list[str] | None,
    typer.Option(
        help="An option of the LLM, such as timeout_s=60. ROLE.NAME=VALUE is an option for the LLM of"
        " one role; repeatable."
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        help="A limit of each question or chunk, such as seconds=60 or tokens=20000, or of the whole"
        " run, such as run_tokens=1000000; repeatable.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65_536,
        help="How many questions or chunks are in progress at once; by default 64, or 10,000 with a Batch API.",
    ),
]
Outage = Annotated[
    float, typer.Option(min=0.0, help="How many minutes to wait for an LLM that answers no call. 0: stop at once.")
]
MaxFailures = Annotated[
    str | None,
    typer.Option(help="Stop if more questions or chunks fail than this allows: a number, or a share such as 5%."),
]
Limit = Annotated[int | None, typer.Option(min=1, max=10**9, help="Take only the first N questions or chunks.")]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10**9,
        help="Take only N questions, drawn uniformly. The same N always draws the same questions.",
    ),
]
Temperature = Annotated[
    float,
    typer.Option(
        min=0.0, help="The LLM's temperature. A temperature that the system sets for a prompt takes precedence."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The seed of the LLM's sampling.")]
AcceptCode = Annotated[
    bool,
    typer.Option(
        "--accept-code",
        help="Resume a run that another version of the code started; the answers may then differ.",
    ),
]
Sync = Annotated[
    Literal["normal", "full"],
    typer.Option(
        help="normal: a power cut can lose the last replies of the LLM. full: a power cut loses no reply."
    ),
]
Restart = Annotated[bool, typer.Option("--restart", help="Start again; the old folder gets another name.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try the failed questions or chunks again.")]

Ray = Annotated[
    str | None,
    typer.Option(
        help="Let the workers of a Ray cluster do the work. local: processes on this machine. auto:"
        " the cluster to which this machine belongs. HOST:PORT: the address of a cluster."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --ray: the number of workers; by default as many as the cluster has resources for."
    ),
]
WorkerResources = Annotated[
    list[str] | None,
    typer.Option(help="With --ray: the resources of each worker, such as GPU=1; repeatable."),
]


def resources(given: list[str] | None) -> dict[str, Any] | None:
    """Read the `--worker-resources` options. Raises `InputError` if one is not NAME=VALUE."""
    return values(pairs("--worker-resources", given)) or None


def models(given: list[str] | None) -> dict[str, str]:
    """Read the `--llm` options: one model for each role (purpose of a prompt). Raises `InputError` if a role
    has two models."""
    from pyfast.llm import DEFAULT_ROLE, ROLES

    specs: dict[str, str] = {}
    for text in given or ():
        role, equals, spec = text.partition("=")
        if not equals or role not in ROLES:
            role, spec = DEFAULT_ROLE, text
        if role in specs:
            raise InputError(f"--llm: the role {role!r} is given twice")
        specs[role] = spec
    return specs


def watched(folder: Path, llms: Mapping[str, str], work: Callable[[OnEvent, threading.Event], T]) -> T:
    """Call a function of the API that carries out a run, show the progress, and return the result.

    After Ctrl-C or SIGTERM, the questions in progress finish, and then the process ends. After a second
    Ctrl-C, or before the first question has started, the process ends immediately. SIGQUIT and a closed
    terminal also end it immediately.
    """
    stop = threading.Event()
    with _progress(llms) as (on_event, is_answering), _interrupts(stop, is_answering, folder):
        try:
            result = work(on_event, stop)
        except KeyboardInterrupt:
            _stopped(folder)
        except RunError as error:
            if stop.is_set():
                _stopped(folder)
            if any((folder / name).exists() for name in ("run.toml", "journal.sqlite")):
                raise type(error)(f"{error}; the same command resumes {folder}") from None
            raise
    return result


def tell(run: Run) -> None:
    """Print the result of this session (this process's work on a run).

    If the run was stopped, the process ends. Raises `CallError` if all questions failed.
    """
    assert run.path is not None and run.session is not None
    session, answers = run.session, run.path / "answers.jsonl"
    if session.left:
        _stopped(run.path)
    ended = sum(session.states.values())
    if not ended:
        print(f"nothing was left to do; {answers}")
        return
    states = ", ".join(f"{count} {state}" for state, count in sorted(session.states.items()))
    replayed = f" ({session.replayed} from the journal)" if session.replayed else ""
    print(
        f"{ended} questions: {states}; {session.llm_calls} LLM calls{replayed};"
        f" {tokens(session)};"
        f" {session.seconds:.1f} s, {ended / max(session.seconds, 1e-9):.1f} questions/s; {answers}"
    )
    tell_unusable(session, run.path)
    if session.left_out:
        print(f"passages that prompts had no room for: {left_out(session)} (a larger context window shows them)")
    if session.states["failed"] == ended:
        raise CallError(f"every question failed, the first because: {session.first_failure}")


@contextlib.contextmanager
def _progress(llms: Mapping[str, str]) -> Iterator[tuple[OnEvent, threading.Event]]:
    """Yield (a function that shows the events of a run, a `threading.Event` that is set when the first
    question can start)."""
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
        elif event.kind == "started":
            dedicate_process()
            starting.stop()
            is_answering.set()
            bars.update(bar, total=event.total, completed=event.done)
            bars.start()
        else:
            waiting = event.waiting
            waits = "" if waiting is None else f"waiting for {waiting.llm} since {clock(waiting.since)}"
            bars.update(bar, completed=event.done, waits=waits)

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
        os._exit(128 + number)  # Shells report a process that a signal has ended in this way.

    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM), interrupted)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # A signal is ignored, for example, under nohup.
            handlers[number] = ended
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(run: Path) -> NoReturn:
    """Print that the run was stopped and can be resumed. Then end the process immediately, without waiting
    for threads in which the LLM computes."""
    _say(f"pyfast: stopped; the same command resumes {run}")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(130)


def _say(line: str) -> None:
    """Print on stderr. Do nothing if the terminal was closed."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
