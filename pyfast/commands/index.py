"""`pyfast index`, and `pyfast corpus`: add, update, delete, compact, info, list."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyfast.commands.arguments import (
    IndexFolder,
    LlmOptions,
    Output,
    Reading,
    ReadingAgain,
    read_models,
    with_options,
)
from pyfast.commands.progress import watched
from pyfast.commands.terminal import console, json_line, plain, say, show_table
from pyfast.errors import InputError
from pyfast.utils.options import OF_EXTRACTION, Cluster, Hardware, IndexOptions, Option, RunOptions
from pyfast.utils.text_forms import counted

if TYPE_CHECKING:
    from pyfast.corpus import Unread
    from pyfast.retrieval import BuildProgress
    from pyfast.retrieval.index.changes import Change


@with_options
def index(
    sources: list[Path],
    *,
    out: Path,
    options: IndexOptions,
    hardware: Hardware,
    cluster: Cluster | None,
    overwrite: bool = False,
    vectors: list[str] | None = None,
    reading: Reading,
) -> None:
    """Build an index from a corpus. At the end, list the files that could not be read, with the reasons.

    To resume a stopped build, repeat the command; finished parts are kept. The exit code is 2 if the index was
    built but a file, or part of one, could not be read.

    Args:
        sources: Files or folders; docs/formats.md lists the formats that pyfast reads.
        out: The folder to create.
        overwrite: Replace an existing index.
        vectors: Also encode the passages as vectors, for retrievers other than BM25. Values: dense, late,
            KIND:MODEL (such as sparse:MODEL) or, for a model on a server, dense:openai:MODEL@URL; repeatable.
    """
    from pyfast.api.index import build_index
    from pyfast.llm.protocol import ON_GPU, calls_counted

    began = time.monotonic()
    with unread_listed() as unread, _progress_shown() as on_progress, calls_counted() as calls:
        built = build_index(
            sources,
            out,
            overwrite=overwrite,
            vectors=vectors or (),
            on_unread=unread.append,
            on_progress=on_progress,
            options=options,
            hardware=hardware,
            cluster=cluster,
            **asdict(reading),
        )
    sizes = (built.corpus.documents, "document"), (len(built.passages), "passage"), (len(built.terms), "term")
    nothing = len({it.path for it in unread if it.whole})
    told = f"; no passages from {counted(nothing, 'file')}" if nothing else ""
    print(f"{out}: {', '.join(counted(*size) for size in sizes)}{told}")
    seconds = sum(call.seconds for call in calls if ON_GPU in call.name)
    if seconds:
        texts, share = sum(call.texts for call in calls), seconds / (time.monotonic() - began)
        print(f"{calls[0].name}: {texts:,} texts, {seconds:.2f} s, {share:.1%} of the time")
    exit_if_incomplete(unread)


_EVERY = 30.0
"""The number of seconds between progress lines if stderr is not a terminal"""


@contextlib.contextmanager
def _progress_shown() -> Iterator[Callable[[BuildProgress], None]]:
    """Yield a function that shows the progress of a build: continuously on a terminal; otherwise, a line on stderr
    from time to time."""
    screen = console()
    began = shown = time.monotonic()
    with screen.status("reading and indexing") as status:

        def show(progress: BuildProgress) -> None:
            nonlocal shown
            now = time.monotonic()
            left = progress.seconds_left
            what = (
                f"merging {counted(progress.parts, 'part')}"
                if progress.merging
                else f"{counted(progress.parts, 'part')} finished"
            )
            line = (
                f"{progress.documents:,} documents read, {progress.passages:,} passages indexed, {what},"
                f" {now - began:.0f} s"
                + ("" if left is None or progress.merging else f", about {left:.0f} s left")
            )
            if screen.is_terminal:
                status.update(line)
            elif now - shown >= _EVERY:
                shown = now
                print(f"pyfast: {line}", file=sys.stderr, flush=True)

        yield show


@contextlib.contextmanager
def unread_listed() -> Iterator[list[Unread]]:
    """Yield a list for what could not be read. When the `with` block ends, even with an error, the list is printed
    on stderr, unless it has a single entry and the block raises an `InputError` that contains it."""
    unread: list[Unread] = []
    try:
        yield unread
    except InputError:
        if len(unread) == 1:  # Then the error itself says everything.
            raise InputError(str(unread.pop())) from None
        raise
    finally:
        for it in unread:
            print(f"pyfast: {plain(it.told)}", file=sys.stderr)


def exit_if_incomplete(unread: Iterable[Unread]) -> None:
    """Exit with code 2 if something is missing from the index."""
    if any(one.missing for one in unread):
        raise typer.Exit(2)


app = typer.Typer(no_args_is_help=True, help="Change, summarize and list the documents of an index.")

_Sources = Annotated[list[Path], typer.Argument(help="Files or folders, as in `pyfast index`.")]


@app.command()
@with_options
def add(index: IndexFolder, sources: _Sources, reading: ReadingAgain) -> None:
    """Add documents. A run that has the index open does not see the change; `pyfast serve` does."""
    from pyfast.api.index import add_documents

    _change(add_documents, index, sources, reading)


@app.command()
@with_options
def update(index: IndexFolder, sources: _Sources, reading: ReadingAgain) -> None:
    """Add documents, replace those with the same uri, and delete tables and other parts that a file no longer
    contains."""
    from pyfast.api.index import update_documents

    _change(update_documents, index, sources, reading)


@app.command()
@with_options
def sync(index: IndexFolder, sources: _Sources, *, dry_run: bool = False, reading: ReadingAgain) -> None:
    """Add, replace and delete documents, so that the index matches the given files and folders.

    Args:
        dry_run: Only print what would change.
    """
    from pyfast.api.index import sync_documents

    _change(partial(sync_documents, dry_run=dry_run), index, sources, reading, in_full=True)


def _change(
    change_by: Callable[..., Change],
    index: Path,
    sources: list[Path],
    reading: ReadingAgain,
    in_full: bool = False,
) -> None:
    """Change an index to match files, and print what changed (with `in_full`, document by document).
    Documents that were kept are always named."""
    with unread_listed() as unread, console().status("reading and indexing"):
        change = change_by(index, sources, on_unread=unread.append, **asdict(reading))
    for name, uris in change.uris.items():
        for uri in uris if in_full or name == "kept" else ():
            print(plain(f"{name}: {uri}"))
    if in_full:
        for old, new in change.renamed:
            print(plain(f"renamed: {old} -> {new}"))
    _tell_change(index, change)
    exit_if_incomplete(unread)


@app.command()
@with_options
def summarize(
    index: IndexFolder,
    *,
    out: Path,
    llm: list[str],
    given: LlmOptions,
    options: Annotated[RunOptions, *OF_EXTRACTION],
    of: Literal["clusters", "communities"] = "clusters",
    overwrite: bool = False,
    embedder: str = "all-MiniLM-L6-v2",
    layers: Annotated[int, Option(min=1)] = 5,
) -> None:
    """Build a second index, which contains the documents of an index and summaries of them: a tree of summaries
    for `raptor`, or reports on communities in the knowledge graph for `graphrag`. To resume a stopped build,
    repeat the command.

    Args:
        out: The folder of the second index.
        llm: The LLM that writes the summaries, as in `pyfast answer`.
        of: What to summarize: clusters of passages, or communities in the knowledge graph.
        overwrite: Replace an existing index. The LLM reads only clusters and communities that have changed.
        embedder: The sentence-transformers model, by name or folder, whose vectors group passages into clusters.
            With communities: the model of the knowledge graph's vectors.
        layers: The maximum number of summary layers, or of community levels (the largest communities first).
    """
    from pyfast.api.summaries import summarize_index

    llms = read_models(llm)
    work = partial(summarize_index, index, llms, out=out, of=of, overwrite=overwrite, embedder=embedder)
    made = watched(out, llms, partial(work, layers=layers, options=options, **given.given))
    print(f"{out}: {made.corpus.documents} documents and summaries")


@app.command()
@with_options
def delete(index: IndexFolder, uris: list[str]) -> None:
    """Delete documents. The uri of a file also deletes its tables and other parts; the uri of a part deletes only
    that part.

    Args:
        uris: The uris of the documents, as they appear in evidence.
    """
    import pyfast.api.index

    _tell_change(index, pyfast.api.index.delete_documents(index, uris))


@app.command()
@with_options
def compact(index: IndexFolder, *, erase: bool = False) -> None:
    """Merge all parts of an index into one, leaving out the deleted documents.

    Args:
        erase: Also remove earlier versions, so that nothing in the index contains text of a deleted document.
    """
    import pyfast.api.index

    with console().status("merging the parts"):
        change = pyfast.api.index.compact_index(index, erase=erase)
    _tell_change(index, change)


@app.command()
def info(index: IndexFolder) -> None:
    """Show the parts, documents and size of an index. The size leaves out the manifests of its commits."""
    import pyfast.api.index

    described = pyfast.api.index.describe_index(index)
    deleted = sum(part.deleted for part in described.parts)
    print(plain(f"{index}: commit {described.commit}, {counted(len(described.commits) - 1, 'earlier commit')}"))
    print(f"{counted(described.documents, 'document')}, {counted(described.passages, 'passage')}")
    print(f"{counted(len(described.parts), 'part')}, with {counted(deleted, 'deleted document')}")
    print(f"{described.size:,} bytes, and {described.kept:,} more that only earlier commits need")


@app.command("list")
@with_options
def list_(index: IndexFolder, pattern: str = "*", *, output: Output) -> None:
    """List the documents of an index: uri, title, kind, and number of passages.

    Args:
        pattern: A pattern for uris, such as 'reports/*.pdf'.
    """
    import pyfast.api.index
    from pyfast.evaluation.tables import write_table

    output.check()
    records = [asdict(one) for one in pyfast.api.index.list_documents(index, pattern)]
    heads = ["uri", "title", "kind", "passages"]
    rows = [tuple(one.values()) for one in records]
    if output.out is not None:
        write_table(output.out, records, [(heads, rows)])
    if output.json:
        print(json_line(records))
    elif output.out is None:
        show_table(heads, rows)
    if not output.json:
        say(counted(len(records), "document"))


def _tell_change(index: Path, change: Change) -> None:
    names = ("added", "replaced", "deleted", "unchanged", "kept")
    counts = [f"{number} {name}" for name in names if (number := getattr(change, name))]
    counts += [f"{len(change.renamed)} renamed"] if change.renamed else []
    print(plain(f"{index}: {', '.join(counts) or 'no document changed'}; commit {change.commit}"))
