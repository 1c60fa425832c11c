"""Build, prune, open, export and merge the knowledge graph of an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyfast.api.index import index_of
from pyfast.api.jobs import allowed_failures, at_once, begin, carry_out
from pyfast.api.models import GivenLLM, opened
from pyfast.api.ray_workers import extract_by_workers
from pyfast.engine import Budget, Job, Watch
from pyfast.engine.configuration import CONFIGURATION
from pyfast.engine.events import UNWATCHED
from pyfast.engine.run_folder import ANSWERS, is_running
from pyfast.errors import InputError, RunError
from pyfast.knowledge import Knowledge, export_graph, merge_learned
from pyfast.knowledge import build_knowledge as build
from pyfast.knowledge import merge_knowledge as merge
from pyfast.knowledge import open_knowledge as open_store
from pyfast.knowledge import prune_knowledge as prune
from pyfast.knowledge import reset_knowledge as reset
from pyfast.knowledge.extraction_prompts import EXTRACT_GRAPH
from pyfast.llm.protocol import check_roles
from pyfast.retrieval import Index
from pyfast.retrieval.vectors.embeddings import DEFAULT, Embedder
from pyfast.utils.log import LOG
from pyfast.utils.options import OF_EXTRACTION, RUN_DEFAULTS, Cluster, RunOptions, at_least_one

MIN_CHUNK_TOKENS = 50


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
    concurrency: int | None = None,
    options: RunOptions = RUN_DEFAULTS,
    cluster: Cluster | None = None,
    watch: Watch = UNWATCHED,
) -> Knowledge:
    """Extract a knowledge graph from the documents of an index, or resume a stopped extraction.

    Args:
        index: An index, or its folder.
        llm: The model that reads the texts, with the role `read`, or a string that names it. None: texts are read
            by rules about the form of sentences, without an LLM. Triples and tables are always read by rules.
        llm_options: Options of a model given by name.
        embedder: A sentence-transformers model, by name or folder, whose vectors are used to search for facts,
            entities and relations.
        chunk_tokens: How many tokens of a text the LLM reads at once. None: as many as in an earlier extraction,
            or 1200 in the first.
        packed: Let the LLM read several short documents in one call, up to `chunk_tokens`. This saves calls,
            but needs a larger model. Each triple still belongs to one document: if you later delete a
            document, only its own triples are removed.
        passes: How many times the LLM reads each chunk; later passes look for missing triples. More passes find
            more triples, but need more calls.
        limit: The maximum number of new chunks that the LLM reads in this call.
        budget: Limits per question of the extraction, named as in `pyfast.answer`. A question reads one chunk or,
            with `packed`, several short ones.
        concurrency: How many questions of the extraction to process at once. None: as in `pyfast.answer`.
        options: How the extraction is carried out. Supported here are `outage`, `max_failures`, `restart` and
            `retry_failed`; others are rejected. `restart` renames the folder of a stopped extraction, and keeps
            the triples that are already in the knowledge graph. `retry_failed` tries failed chunks again.
        cluster: Let the workers of a Ray cluster read the chunks. All machines must share the index's folder, and
            the model must be given by name.
        watch: As in `pyfast.answer`. If `watch.stop` is set, no new chunk starts, and the function raises
            `RunError`. Call it again with the same arguments to resume the extraction.

    Returns:
        The graph. `len(graph)` is the number of triples.

    Raises:
        CallError: Every chunk failed in the last extraction of this call.
        InputError: An earlier extraction used different `chunk_tokens`, another process is working on the
            extraction, or `cluster` is given without `llm`.
        ModelNotFoundError: The LLM or the embedding model is not on this machine.
        RunError: The extraction cannot continue, or was stopped. No finished work is lost.

    Example:
        >>> import pyfast
        >>> graph = pyfast.build_knowledge("IDX", "openai:qwen3-8b@http://127.0.0.1:8000")
        >>> print(len(graph), "triples of", len(graph.entities), "entities")
    """
    options.only("build_knowledge", *OF_EXTRACTION)
    if cluster is not None and llm is None:
        raise InputError(
            "ray: can only be used with an LLM; without one, rules extract the triples in this process"
        )
    if chunk_tokens is not None and chunk_tokens < MIN_CHUNK_TOKENS:
        raise InputError(f"chunk_tokens: expected at least {MIN_CHUNK_TOKENS}, got {chunk_tokens}")
    used = None if llm is None else opened(llm, llm_options)
    models = None if used is None else used.full()
    if used is not None:
        check_roles("the extraction", (EXTRACT_GRAPH.role,), used.by_role)
    if any(model.spec.startswith("embedded") for model in (models or {}).values()):
        raise InputError(
            "the embedded model is too small to extract a graph: use another --llm, or none (to use rules)"
        )
    limits, at_most = Budget.parse(budget or {}), at_once(concurrency, models or {})

    def run_job(job: Job) -> None:
        assert used is not None and job.folder is not None
        failures = allowed_failures(options.max_failures, job.questions.count)
        kept = RunOptions(outage=options.outage, keep_prompts=False)
        job = replace(job, options=kept, budget=limits, concurrency=at_most, failures=failures)
        begin(job, by_workers=cluster is not None)
        if cluster is None:
            run = carry_out(job, used, watch)
        else:
            assert llm is not None
            run = extract_by_workers(job, llm, llm_options, cluster, watch)
        status, session = run.status, run.session
        if status.ended < status.questions:
            raise RunError(
                f"{job.folder}: the extraction stopped; chunks left to read: {status.questions - status.ended}"
            )
        assert session is not None
        LOG.info(
            "extraction finished; chunks: %d, LLM calls: %d, prompt tokens: %d, reply tokens: %d",
            status.questions,
            session.llm_calls,
            session.prompt_tokens,
            session.completion_tokens,
        )

    return build(
        index_of(index),
        models,
        embedder=Embedder(embedder),
        run_job=run_job,
        chunk_tokens=chunk_tokens,
        packed=packed,
        passes=at_least_one("passes", passes),
        limit=limit if limit is None else at_least_one("limit", limit),
        restart=options.restart,
        retry_failed=options.retry_failed,
        watch=watch if used is None else Watch(stop=watch.stop),
    )


def prune_knowledge(index: Index | str | Path, *, embedder: str = DEFAULT) -> Knowledge:
    """Remove the triples of deleted documents from the knowledge graph.

    If another document states the same triple, the triple stays.

    Args:
        index: An index, or its folder.
        embedder: A sentence-transformers model, by name or folder, as in `pyfast.build_knowledge`.

    Returns:
        The graph after the change.

    Raises:
        IndexFormatError: The index contains no graph, or the graph is damaged.
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
        The graph. `len(graph)` is the number of triples. `graph.failed_chunks()` lists the chunks for which the
        LLM returned no usable reply. `graph.extractions` describes each extraction by an LLM: the model, the
        date, the prompts, the cost, and the dropped triples with the reason for each.

    Raises:
        IndexFormatError: The index contains no graph, or the graph is damaged.
        OtherBuildError: The graph has a different format.

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
        out: The file to write, with the suffix `.graphml` or `.nt` (N-Triples). N-Triples cannot store the times
            of triples; they are left out, and pyfast logs a warning with their number.

    Returns:
        `out`.

    Raises:
        IndexFormatError: The index contains no graph, or the graph is damaged.
        InputError: `out` has an unsupported suffix, or cannot be written.

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
    """Add the triples of another index, or of a run of `subqrag`, to the knowledge graph of an index.

    A run of `subqrag` stores the triples that it extracts from documents in its own folder, and does not change
    the index.

    Args:
        index: An index, or its folder.
        source: Another index with a knowledge graph, or the folder of a run.
        embedder: A sentence-transformers model, by name or folder, as in `pyfast.build_knowledge`.

    Returns:
        The graph of `index` after the merge. Merging the same source again changes nothing.

    Raises:
        IndexFormatError: `source` contains no graph, or a graph is damaged.
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
        raise InputError(f"{source}: another process is using this folder")
    return merge_learned(here, Embedder(embedder), Path(source) / ANSWERS)


def reset_knowledge(index: Index | str | Path, *, embedder: str = DEFAULT) -> Knowledge:
    """Remove all triples that `merge_knowledge` added to the knowledge graph of an index.

    Args:
        index: An index, or its folder.
        embedder: A sentence-transformers model, by name or folder, as in `pyfast.build_knowledge`.

    Returns:
        The graph with only the triples from the index's own documents.

    Raises:
        IndexFormatError: The index contains no graph, or the graph is damaged.
        ModelNotFoundError: The embedding model is not on this machine.

    Example:
        >>> from pyfast.api.knowledge import reset_knowledge
        >>> graph = reset_knowledge("IDX")
    """
    here = index_of(index)
    open_store(here)  # This raises an error if there is no store.
    return reset(here, Embedder(embedder))
