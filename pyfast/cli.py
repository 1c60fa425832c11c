"""The command line: `pyfast index`, `pyfast answer`, `pyfast status`, `pyfast evaluate`."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from pyfast import __version__
from pyfast.errors import CallError, InputError, PyfastError, RunError

if TYPE_CHECKING:
    from pyfast.engine import Job, Summary

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


# What typer raises for a command line that it cannot read: click's class, or that of typer's own copy of click.
_UsageError: Any = typer.BadParameter.__base__


def main() -> None:
    """Entry point: an expected error is one line on stderr and exit status 1, or 2 for a wrong command line."""
    # Asked to end, from the keyboard or by another process, it ends in the same way.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        sys.exit(app(standalone_mode=False))
    except (PyfastError, OSError) as error:
        print("pyfast:", _plain(error), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("pyfast: stopped", file=sys.stderr)
        sys.exit(130)
    except _UsageError as error:
        if message := error.format_message():  # none where the help was shown
            print(f"pyfast: {message} (see `pyfast --help`)", file=sys.stderr)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Multi-hop question answering over text, tables and knowledge graphs."""


@app.command()
def index(
    sources: Annotated[list[Path], typer.Argument(help="Files or folders: .txt .md .csv .tsv .jsonl")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
) -> None:
    """Build the index of a corpus."""
    from pyfast.corpus import read
    from pyfast.retrieval import build_index

    console = _console()
    skipped: list[Path] = []
    with console.status("reading and indexing"):
        made = build_index(read(sources, skipped=skipped), out, overwrite)
    with console.status("compiling the search (once per machine, some seconds)"):
        made.search([next(iter(made.vocabulary))], 1)
    for path in skipped:
        print(f"skipped {path}: not a kind of file that is read", file=sys.stderr)
    facts = made.manifest
    print(f"{out}: {facts['documents']} documents, {facts['units']} units to retrieve, {facts['terms']} terms")


@app.command()
def answer(
    questions: Annotated[Path, typer.Argument(help="JSON lines with `id` and `question`.")],
    run: Annotated[Path, typer.Option(help="The folder of the run; one that was begun goes on.")],
    index: Annotated[Path | None, typer.Option(help="An index; `direct` and `cot` need none.")] = None,
    system: Annotated[str, typer.Option(help="n2n, rag, decompose, cot or direct.")] = "n2n",
    llm: Annotated[
        str, typer.Option(help="embedded, vllm:MODEL, llamacpp:PATH.gguf, openai:MODEL@URL or instant.")
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
    from pyfast.engine import Budget, Job, check_questions, check_run, configuration, read_questions, set_aside
    from pyfast.llm import open_llm
    from pyfast.retrieval import Index
    from pyfast.systems import load_system

    # All that can be wrong is found before anything is made.
    chosen = load_system(system)
    settings = chosen.configure(_pairs("--set", setting))
    limits = Budget.parse(_pairs("--budget", budget))
    total, digest = check_questions(questions, limit)
    failures = _failures(max_failures, total)
    if index is None and chosen.needs_index:
        raise InputError(f"--system {system} retrieves: give --index (made by `pyfast index`)")
    opened = Index(index) if index is not None else None
    backend = open_llm(llm, **_values(_pairs("--llm-option", llm_option)))
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
    )
    if restart:
        if (aside := set_aside(run)) is not None:
            print(f"the old run is now {aside}", file=sys.stderr)
    else:
        check_run(run, describe(), unknown=["llm.context_window"])  # before a model is loaded
    job = Job(
        folder=run,
        questions=partial(read_questions, questions, limit),
        ask=chosen.ask(settings),
        index=opened,
        llm=backend,
        describe=describe,
        concurrency=concurrency,
        budget=limits,
        failures=failures,
        sync=sync,
        retry_failed=retry_failed,
    )
    gc.freeze()  # the index is loaded for good: the garbage collector need not go through it again and again
    try:
        summary = asyncio.run(_watched(job, total))
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
        f" {_tokens(summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens)};"
        f" {summary.seconds:.1f} s, {ended / max(summary.seconds, 1e-9):.1f} questions/s; {run / 'answers.jsonl'}"
    )
    if summary.states["failed"] == ended:
        raise CallError(f"every question failed, the first because: {summary.first_failure}")


async def _watched(job: Job, total: int) -> Summary:
    """The run, with its progress shown. Ctrl-C lets it finish what is in work, a second one ends it at once."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from pyfast.engine import RunFolder, work_on

    console = _console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=console, disable=not console.is_terminal)
    bar = bars.add_task("", total=total)
    stop = asyncio.Event()
    answering = asyncio.Event()
    started = console.status(f"starting {job.llm.spec}")
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


@app.command()
def status(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show how far a run is."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pyfast.engine import read_status

    found = read_status(run)
    console = Console()
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items())) or "none yet"
    left = "" if found.seconds_left is None else f", about {timedelta(seconds=round(found.seconds_left))} left"
    running = "running" if found.running else "done" if found.ended == found.questions else "stopped"
    print(f"{found.ended} of {found.questions} questions ended: {states}; {running}{left}")
    tokens = _tokens(found.prompt_tokens, found.cached_tokens, found.completion_tokens)
    print(f"{found.llm_calls} LLM calls; {tokens}")
    if found.stages:
        table = Table("stage", "calls", "queued, ms/question", "running, ms/question", "calls/batch")
        for stage in found.stages:
            figures = (f"{stage.queued_ms:.2f}", f"{stage.running_ms:.2f}", f"{stage.batch:.1f}")
            table.add_row(stage.name, str(stage.calls), *figures)
        console.print(table)
    for reason, count in found.failures:
        console.print(Text(f"{count} failed: {_plain(reason)}"))


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    gold: Annotated[Path, typer.Option(help="JSON lines with `id` and `answers`.")],
) -> None:
    """Score the answers of a run."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pyfast.evaluation import evaluate as evaluate_run

    report = evaluate_run(run, gold)
    table = Table("type", "questions", "EM", "F1", "evidence recall")
    for row in report.rows:
        recall = "" if row.recall is None else f"{row.recall:.3f}"
        table.add_row(Text(row.type), str(row.questions), f"{row.em:.3f}", f"{row.f1:.3f}", recall)
    Console().print(table)
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.states.items()))
    print(f"{states}; {report.missing} gold questions without an answer")


def _plain(said: object) -> str:
    """On one line, and nothing that a terminal would obey: a server may have said it."""
    return "".join(letter if letter.isprintable() else " " for letter in str(said))


def _tokens(prompt: int, cached: int, completion: int) -> str:
    share = f" ({cached / prompt:.1%} cached)" if cached else ""
    return f"{prompt} tokens in{share}, {completion} out"


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """NAME=VALUE texts as a mapping."""
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def _values(pairs: dict[str, str]) -> dict[str, Any]:
    """Values that are JSON (numbers, true, objects) as such, others as text."""
    import orjson

    values: dict[str, Any] = {}
    for name, text in pairs.items():
        try:
            values[name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            values[name] = text
    return values


def _failures(text: str | None, total: int) -> int | None:
    """How many of `total` questions may fail."""
    if text is None:
        return None
    share = text.removesuffix("%")
    if not share.isascii() or not share.isdigit() or (text != share and int(share) > 100):
        raise InputError(f"--max-failures {text}: expected a number, or a share of the questions such as 5%")
    return int(share) if text == share else total * int(share) // 100


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


if __name__ == "__main__":
    main()
