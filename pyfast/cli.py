"""The command line: `pyfast index`, `pyfast answer`, `pyfast evaluate`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pyfast import __version__
from pyfast.errors import CallError, InputError, PyfastError

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
        print("pyfast:", *str(error).splitlines(), file=sys.stderr)
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
    run: Annotated[Path, typer.Option(help="The folder to write answers.jsonl to.")],
    index: Annotated[Path | None, typer.Option(help="An index; `direct` and `cot` need none.")] = None,
    system: Annotated[str, typer.Option(help="n2n, rag, decompose, cot or direct.")] = "n2n",
    llm: Annotated[
        str, typer.Option(help="embedded, llamacpp:PATH.gguf, openai:MODEL@URL or instant.")
    ] = "embedded",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the system, such as graph=off; repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=10**9, help="Answer only the first ones.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=65_536, help="Questions in work at once.")] = 64,
) -> None:
    """Answer questions."""
    from pyfast.engine import check_questions
    from pyfast.llm import open_llm
    from pyfast.retrieval import Index
    from pyfast.systems import load_system

    # All that can be wrong is found before anything is made.
    chosen = load_system(system)
    ask = chosen.ask(dict(_pair(text) for text in setting or []))
    total = check_questions(questions, limit)
    if (run / "answers.jsonl").exists():
        raise InputError(f"{run}: holds answers already; choose another folder")
    if run.exists() and not run.is_dir():
        raise InputError(f"{run}: exists and is not a folder; choose another one")
    if index is None and chosen.needs_index:
        raise InputError(f"--system {system} retrieves: give --index (made by `pyfast index`)")
    opened = Index(index) if index is not None else None
    backend = open_llm(llm)
    try:
        summary = asyncio.run(_answer(questions, limit, total, ask, opened, backend, run, concurrency))
    except KeyboardInterrupt:
        kept = run / "answers.jsonl"
        held = f"{kept} holds what was answered" if kept.exists() else "nothing was answered yet"
        print(f"pyfast: stopped; {held}", file=sys.stderr)
        sys.exit(130)
    states = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    rate = total / max(summary.seconds, 1e-9)
    print(
        f"{total} questions: {states}; {summary.llm_calls} LLM calls; "
        f"{summary.seconds:.1f} s, {rate:.1f} questions/s; {run / 'answers.jsonl'}"
    )
    if summary.states["failed"] == total:
        raise CallError(f"every question failed, the first because: {summary.first_failure}")


async def _answer(
    questions: Path, limit: int | None, total: int, ask: Any, index: Any, llm: Any, run: Path, concurrency: int
) -> Any:
    import orjson
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from pyfast.engine import Record, answer_all, read_questions

    console = _console()
    with console.status(f"starting {llm.spec}"):
        await llm.start()
    try:
        new = not run.exists()
        run.mkdir(parents=True, exist_ok=True)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        bars = Progress(*columns, console=console, disable=not console.is_terminal)
        with (run / "answers.jsonl").open("xb") as file, bars as progress:
            bar = progress.add_task("", total=total)

            def write(record: Record) -> None:
                file.write(orjson.dumps(record.as_json(), option=orjson.OPT_APPEND_NEWLINE))
                file.flush()  # a killed process loses no answer that was given
                progress.advance(bar)

            try:
                return await answer_all(read_questions(questions, limit), ask, index, llm, write, concurrency)
            except BaseException:
                if not file.tell():  # not one answer: the next try is to find the folder free
                    (run / "answers.jsonl").unlink()
                    if new:
                        run.rmdir()
                raise
    finally:
        await llm.close()


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


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--set {text}: expected NAME=VALUE")
    return name, value


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


if __name__ == "__main__":
    main()
