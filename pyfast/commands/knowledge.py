"""`pyfast knowledge`: build, show, export, unite."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.running import Concurrency, LlmOption, Restart, RetryFailed, begin, drop, watched
from pyfast.commands.terminal import pairs, plain, tokens, values
from pyfast.errors import CallError

if TYPE_CHECKING:
    from pyfast.engine import Job
    from pyfast.knowledge import Knowledge

app = typer.Typer(no_args_is_help=True, help="The knowledge in an index: triples, read from its documents.")

_Index = Annotated[Path, typer.Argument(help="An index, made by `pyfast index`.")]
_Embedder = Annotated[str, typer.Option(help="A model of sentence-transformers: its name or folder.")]
_MODEL = "all-MiniLM-L6-v2"


@app.command()
def build(
    index: _Index,
    llm: Annotated[
        str | None, typer.Option(help="Who reads the texts, as in `pyfast answer`; none: their shape is enough.")
    ] = None,
    llm_option: LlmOption = None,
    embedder: _Embedder = _MODEL,
    chunk_tokens: Annotated[
        int | None, typer.Option(min=50, help="The size of a chunk: 1200, or as it was before.")
    ] = None,
    concurrency: Concurrency = 64,
    restart: Restart = False,
    retry_failed: RetryFailed = False,
) -> None:
    """Read an index's documents into its knowledge, or go on; what was read before is not read again.

    --restart drops a reading that was stopped; what is in the knowledge already stays.
    """
    from pyfast.engine import Budget
    from pyfast.knowledge.extraction import (
        chunk_size,
        is_begun,
        job,
        prepare,
        reading_folder,
        take_over,
        unread,
        why_nothing_was_read,
    )
    from pyfast.knowledge.snapshots import mend
    from pyfast.llm import open_llm
    from pyfast.retrieval import Index
    from pyfast.retrieval.embeddings import Embedder

    opened, model = Index(index), Embedder(embedder)
    options = values(pairs("--llm-option", llm_option))

    nothing: list[tuple[str, int] | None] = []  # of each reading, why

    def read(retry_failed: bool = False) -> None:
        assert llm is not None
        if (reading := prepare(opened, chunk_tokens, retry_failed)) is not None:
            _carry_out(job(reading, open_llm(llm, **options), Budget(), concurrency), reading.chunks)
            nothing.append(why_nothing_was_read(reading))

    if llm is not None:
        open_llm(llm, **options)  # refused before anything is dropped
    mend(opened)
    if restart:
        drop(reading_folder(opened))
    chunk_size(opened, chunk_tokens)  # refused before anything is paid for
    if llm is not None:
        if is_begun(reading_folder(opened)):  # finished as it was begun; what is new is read after it
            read()
            take_over(opened, model, chunk_tokens)
        read(retry_failed)
    print("computing vectors", file=sys.stderr)
    store = take_over(opened, model, chunk_tokens, texts=llm is None)
    if nothing and nothing[-1] is not None:
        reason, times = nothing[-1]
        raise CallError(
            f"not one chunk could be read, {times} of them because: {reason};"
            " `pyfast knowledge build --retry-failed` reads them again"
        )
    _tell(index, store)
    if left := unread(opened):
        print(f"{left} chunks are not read yet: `pyfast knowledge build --llm` goes on with them", file=sys.stderr)


def _carry_out(run: Job, chunks: int) -> None:
    begin(run.folder, run.describe)
    summary = asyncio.run(watched(run, chunks))
    read = tokens(summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens)
    print(f"{chunks} chunks read: {summary.llm_calls} LLM calls, {read}", file=sys.stderr)


@app.command()
def show(index: _Index) -> None:
    """Say what an index knows, and which chunks could not be read."""
    from pyfast.knowledge import open_knowledge
    from pyfast.retrieval import Index

    _tell(index, open_knowledge(Index(index)))


@app.command()
def export(index: _Index, out: Annotated[Path, typer.Option(help="A file: .graphml or .nt")]) -> None:
    """Write what an index knows as GraphML or N-Triples."""
    from pyfast.knowledge import open_knowledge
    from pyfast.knowledge.exchange import export as write
    from pyfast.retrieval import Index

    write(open_knowledge(Index(index)), out)
    print(out)


@app.command()
def unite(
    index: _Index, other: Annotated[Path, typer.Argument(help="Another index.")], embedder: _Embedder = _MODEL
) -> None:
    """Add what another index knows to what this one knows."""
    from pyfast.knowledge import open_knowledge
    from pyfast.knowledge.exchange import unite as add
    from pyfast.retrieval import Index
    from pyfast.retrieval.embeddings import Embedder

    _tell(index, add(Index(index), Embedder(embedder), open_knowledge(Index(other))))


def _tell(index: Path, store: Knowledge) -> None:
    print(f"{index}: {len(store)} triples of {len(store.entities)} entities, {len(store.relations)} relations")
    for digest, reason in store.failed():
        print(f"chunk {digest} could not be read: {plain(reason)}")
    if store.failed():
        print(f"{len(store.failed())} chunks failed; `pyfast knowledge build --retry-failed` reads them again")
