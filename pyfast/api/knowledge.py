"""Build, prune, open, export and merge the knowledge graph of an index."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.api.answering import MINUTES, allowed_failures, at_least_one, at_once, begin, carry_out, not_negative
from pyfast.api.indexing import index_of
from pyfast.api.models import GivenLLM, opened
from pyfast.engine import Budget, Job, OnEvent
from pyfast.engine.configuration import CONFIGURATION
from pyfast.engine.events import ignore
from pyfast.engine.run_folder import ANSWERS, is_running
from pyfast.errors import InputError, RunError
from pyfast.knowledge import Knowledge, export_graph, merge_learned
from pyfast.knowledge import build_knowledge as build
from pyfast.knowledge import merge_knowledge as merge
from pyfast.knowledge import open_knowledge as open_store
from pyfast.knowledge import prune_knowledge as prune
from pyfast.knowledge import reset_knowledge as reset
from pyfast.knowledge.extraction_prompts import EXTRACT_GRAPH
from pyfast.llm.roles import check_roles
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import DEFAULT, Embedder

MIN_CHUNK_TOKENS = 50
_LOG = logging.getLogger("pyfast")


def build_knowledge(
    index: Index | str | Path,
    llm: GivenLLM | None = None,
    *,
    llm_options: Mapping[str, Any] | None = None,
    embedder: str = DEFAULT,
    chunk_tokens: int | None = None,
    packed: bool = False,
    passes: int = 1,
    limit: int | None = None,
    budget: Mapping[str, Any] | None = None,
    max_failures: int | str | None = None,
    concurrency: int | None = None,
    outage: float = MINUTES,
    restart: bool = False,
    retry_failed: bool = False,
    on_event: OnEvent = ignore,
    stop: threading.Event | None = None,
) -> Knowledge:
    """Extract the knowledge graph of an index from its documents, or resume. No document is paid for twice.

    Args:
        index: An index, or its folder.
        llm: The model that reads the texts, in the role `read`, or the text that names one. None: rules read them,
            by the form of their sentences. Rules always read triples and tables.
        llm_options: Options of a model that is given as text.
        embedder: A model of sentence-transformers, by name or folder. Its vectors find facts, entities and
            relations.
        chunk_tokens: How many tokens of a text the LLM reads at once. None: as in an earlier extraction, or else
            1200.
        packed: Let the LLM read several short documents in one call, up to `chunk_tokens`. A larger model then
            needs fewer calls. Deleting a document still removes only its own triples.
        passes: How often the LLM reads each chunk. From the second time on, it looks for missing triples. More
            passes give more triples, and cost more calls.
        limit: The maximum number of new chunks to read in this call.
        budget: Limits of each chunk (with `packed`, of each call), as for a question in `pyfast.answer`.
        max_failures: Stop if more chunks than this fail: a number, or a share such as "5%".
        concurrency: How many chunks the LLM reads at once. None: as in `pyfast.answer`.
        outage: How many minutes to wait for a model that does not answer.
        restart: Keep a stopped extraction under another name, and start again. The existing graph stays.
        retry_failed: Try again the chunks that failed.
        on_event: Called with each `pyfast.engine.Event` of the extraction, from another thread.
        stop: Once it is set, no new chunk starts, and `RunError` is raised. Call the function again with the same
            arguments to resume the extraction.

    Returns:
        The graph. `len` of it is the number of triples.

    Raises:
        CallError: Every chunk failed.
        InputError: `chunk_tokens` differs from an earlier extraction, or another process works on it.
        ModelNotFoundError: The LLM or the embedding model is not on this machine.
        RunError: The extraction cannot continue, or was stopped. Finished work is kept.

    Example:
        >>> import pyfast
        >>> graph = pyfast.build_knowledge("IDX", "openai:qwen3-8b@http://127.0.0.1:8000")
        >>> print(len(graph), "triples of", len(graph.entities), "entities")
    """
    used = None if llm is None else opened(llm, llm_options)
    if used is not None:
        check_roles("the extraction", (EXTRACT_GRAPH.role,), used.by_role)
    if chunk_tokens is not None and chunk_tokens < MIN_CHUNK_TOKENS:
        raise InputError(f"chunk_tokens: expected at least {MIN_CHUNK_TOKENS}, got {chunk_tokens}")

    if used is not None and any(model.spec == "embedded" for model in used.full().values()):
        raise InputError(
            "the embedded model is too small to extract a graph: give another --llm, or none: rules read the texts"
        )
    limits = Budget.parse(budget or {})

    def run_job(job: Job) -> None:
        assert used is not None and job.folder is not None
        job = replace(job, outage_seconds=60 * not_negative("outage", outage))
        begin(job)
        run = carry_out(job, used, on_event=on_event, stop=stop)
        status, session = run.status, run.session
        if status.ended < status.questions:
            raise RunError(f"{job.folder}: stopped with {status.questions - status.ended} chunks left")
        assert session is not None
        _LOG.info(
            "%d chunks extracted: %d LLM calls, %d tokens in, %d out",
            status.questions,
            session.llm_calls,
            session.prompt_tokens,
            session.completion_tokens,
        )

    models = None if used is None else used.full()
    return build(
        index_of(index),
        models,
        embedder=Embedder(embedder),
        run_job=run_job,
        chunk_tokens=chunk_tokens,
        packed=packed,
        passes=at_least_one("passes", passes),
        limit=limit if limit is None else at_least_one("limit", limit),
        budget=limits,
        failures=partial(allowed_failures, max_failures),
        concurrency=at_once(concurrency, models or {}),
        restart=restart,
        retry_failed=retry_failed,
    )


def prune_knowledge(index: Index | str | Path, *, embedder: str = DEFAULT) -> Knowledge:
    """Remove the triples of deleted documents from the knowledge graph.

    Triples that another document also states stay.

    Args:
        index: An index, or its folder.
        embedder: A model of sentence-transformers, its name or folder, as in `pyfast.build_knowledge`.

    Returns:
        The graph after the change.

    Raises:
        IndexFormatError: There is no graph, or a damaged one.
        ModelNotFoundError: The embedding model is not on this machine.

    Example:
        >>> from pyfast.api.knowledge import prune_knowledge
        >>> graph = prune_knowledge("IDX")
    """
    here = index_of(index)
    open_store(here)
    return prune(here, Embedder(embedder))


def open_knowledge(index: Index | str | Path) -> Knowledge:
    """Open the knowledge graph of an index.

    Args:
        index: An index, or its folder.

    Returns:
        The graph. `len` of it is the number of triples. `.failed_chunks()` lists the chunks that the LLM could not
        extract. `.extractions` describe each extraction by an LLM: the model, date, prompts, cost, and the dropped
        triples with their reasons.

    Raises:
        IndexFormatError: There is no graph, one of another version, or a damaged one.

    Example:
        >>> from pyfast.api.knowledge import open_knowledge
        >>> graph = open_knowledge("IDX")
        >>> print(len(graph), "triples of", len(graph.entities), "entities")
    """
    return open_store(index_of(index))


def export_knowledge(index: Index | str | Path, out: str | Path) -> Path:
    """Write the knowledge graph of an index for other programs.

    Args:
        index: An index, or its folder.
        out: The file to write, with the suffix `.graphml` or `.nt` (N-Triples).

    Returns:
        `out`.

    Raises:
        IndexFormatError: The index has no graph, or a damaged one.
        InputError: `out` has another suffix, or cannot be written.

    Example:
        >>> from pyfast.api.knowledge import export_knowledge
        >>> export_knowledge("IDX", "graph.graphml")
        PosixPath('graph.graphml')
    """
    export_graph(open_store(index_of(index)), Path(out))
    return Path(out)


def merge_knowledge(
    index: Index | str | Path, source: Index | str | Path, *, embedder: str = DEFAULT
) -> Knowledge:
    """Add triples to the knowledge graph of an index: from another index, or from a run that has learned some.

    A run of `subqrag` learns triples from the documents that it reads. The run itself does not change an index.

    Args:
        index: An index, or its folder.
        source: Another index, which has a graph; or the folder of a run.
        embedder: A model of sentence-transformers, its name or folder, as in `pyfast.build_knowledge`.

    Returns:
        The graph of `index` after the merge. Merging the same source twice adds nothing.

    Raises:
        IndexFormatError: `source` has no graph, or a graph is damaged.
        InputError: A process is working on the run.
        ModelNotFoundError: The embedding model is not on this machine.

    Example:
        >>> from pyfast.api.knowledge import merge_knowledge
        >>> graph = merge_knowledge("IDX", "RUN")
    """
    here = index_of(index)
    if isinstance(source, Index) or not (Path(source) / CONFIGURATION).is_file():
        return merge(here, Embedder(embedder), open_store(index_of(source)))
    if is_running(Path(source)):
        raise InputError(f"{source}: another process is working on it")
    return merge_learned(here, Embedder(embedder), Path(source) / ANSWERS)


def reset_knowledge(index: Index | str | Path, *, embedder: str = DEFAULT) -> Knowledge:
    """Remove from the knowledge graph of an index what `merge_knowledge` added.

    Args:
        index: An index, or its folder.
        embedder: A model of sentence-transformers, its name or folder, as in `pyfast.build_knowledge`.

    Returns:
        The graph as it was extracted from the index's own documents.

    Raises:
        IndexFormatError: There is no graph, or a damaged one.
        ModelNotFoundError: The embedding model is not on this machine.

    Example:
        >>> from pyfast.api.knowledge import reset_knowledge
        >>> graph = reset_knowledge("IDX")
    """
    here = index_of(index)
    open_store(here)  # Raises an error if there is no store.
    return reset(here, Embedder(embedder))
