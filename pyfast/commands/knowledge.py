"""`pyfast knowledge`: build, prune, show, export, merge, reset."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import IndexFolder, Limit, LlmOptions, read_models, with_options
from pyfast.commands.progress import watched
from pyfast.commands.terminal import plain
from pyfast.utils.options import OF_EXTRACTION, Cluster, Option, RunOptions

if TYPE_CHECKING:
    from pyfast.knowledge import Knowledge

app = typer.Typer(
    no_args_is_help=True,
    help="Build, show and export the knowledge graph of an index (triples from its documents).",
)

_OF_EMBEDDER = (
    "The sentence-transformers model, by name or folder, that makes the vectors for searching the graph."
)
_Embedder = Annotated[str, typer.Option(help=_OF_EMBEDDER)]
_MODEL = "all-MiniLM-L6-v2"


@app.command()
@with_options
def build(
    index: IndexFolder,
    given: LlmOptions,
    options: Annotated[RunOptions, *OF_EXTRACTION],
    cluster: Cluster | None,
    *,
    llm: list[str] | None = None,
    embedder: _Embedder = _MODEL,
    chunk_tokens: Annotated[int | None, Option(min=50)] = None,
    packed: bool = False,
    passes: Annotated[int, Option(min=1)] = 1,
    limit: Limit = None,
) -> None:
    """Extract a knowledge graph from the documents of an index. To resume a stopped extraction, repeat the
    command.

    --restart renames the folder of a stopped extraction and starts a new one, but keeps the triples that
    are already in the knowledge graph.

    Args:
        llm: The LLM that reads the texts, as in `pyfast answer`. Without it, rules extract the triples.
        chunk_tokens: The size of a chunk in tokens. Default: the size in an earlier extraction, or 1200 if there
            was none.
        packed: Read several short documents in one call, up to the size of a chunk.
        passes: How many times the LLM reads each chunk; later passes look for missing triples.
    """
    import pyfast.api.knowledge
    from pyfast.knowledge.extraction import extraction_folder

    llms = read_models(llm)
    work = partial(pyfast.api.knowledge.build_knowledge, index, llms or None, embedder=embedder, limit=limit)
    work = partial(work, chunk_tokens=chunk_tokens, packed=packed, passes=passes, **given.given)
    store = watched(extraction_folder(index), llms, partial(work, options=options, cluster=cluster))
    _tell(index, store)


@app.command()
def prune(index: IndexFolder, embedder: _Embedder = _MODEL) -> None:
    """Remove triples that come only from deleted documents."""
    from pyfast.api.knowledge import prune_knowledge

    _tell(index, prune_knowledge(index, embedder=embedder))


@app.command()
def show(index: IndexFolder) -> None:
    """Show the size of the knowledge graph; for each extraction, its model, cost and dropped triples; and the
    chunks that failed."""
    from pyfast.api.knowledge import open_knowledge
    from pyfast.knowledge.extraction import in_words

    store = open_knowledge(index)
    for extraction in store.extractions:
        for line in in_words(extraction):
            print(plain(line))
    _tell(index, store)


@app.command()
@with_options
def export(index: IndexFolder, *, out: Path) -> None:
    """Write the knowledge graph as GraphML or N-Triples. Only GraphML can store the times of triples.

    Args:
        out: The file to write (.graphml or .nt).
    """
    from pyfast.api.knowledge import export_knowledge

    print(export_knowledge(index, out))


@app.command()
@with_options
def merge(index: IndexFolder, source: Path, embedder: _Embedder = _MODEL) -> None:
    """Add the knowledge graph of another index, or the triples extracted in a run of subqrag.

    Args:
        source: Another index, or the folder of a run.
    """
    from pyfast.api.knowledge import merge_knowledge

    _tell(index, merge_knowledge(index, source, embedder=embedder))


@app.command()
def reset(index: IndexFolder, embedder: _Embedder = _MODEL) -> None:
    """Remove the triples that `pyfast knowledge merge` added, keeping those from the index's own documents."""
    from pyfast.api.knowledge import reset_knowledge

    _tell(index, reset_knowledge(index, embedder=embedder))


def _tell(index: Path, store: Knowledge) -> None:
    print(f"{index}: {len(store)} triples of {len(store.entities)} entities, {len(store.relations)} relations")
    failed = store.failed_chunks()
    for digest, reason in failed:
        print(f"chunk {digest} failed: {plain(reason)}")
    if failed:
        again = f"`pyfast knowledge build {index} --llm LLM --retry-failed`"
        print(f"failed chunks: {len(failed)}; {again} tries them again")
