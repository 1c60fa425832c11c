"""Build an index with summaries of its passages or of its knowledge graph, which `raptor` or `graphrag` reads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson

from pyfast.api.index import index_of
from pyfast.api.jobs import allowed_failures, carry_out_with
from pyfast.api.models import GivenLLM
from pyfast.corpus import TextDocument
from pyfast.engine import Job, Watch, questions_in
from pyfast.engine.events import UNWATCHED
from pyfast.errors import CallError, InputError, RunError
from pyfast.retrieval import Index
from pyfast.retrieval.index import changes
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.retrieval.vectors.embeddings import DEFAULT, Embedder
from pyfast.systems.rivals.graphs.communities import community_layers
from pyfast.systems.rivals.summary_tree import cluster_layers
from pyfast.utils.files import built_aside, link_file, write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.options import OF_EXTRACTION, RUN_DEFAULTS, RunOptions, at_least_one

SUMMARIES = "summaries"
"""The folder, inside the index, of the runs that wrote the summaries. It is not in the index's manifest"""
_UNFINISHED = "summaries.json"


def summarize_index(
    index: Index | str | Path,
    llm: GivenLLM,
    *,
    out: str | Path,
    of: Literal["clusters", "communities"] = "clusters",
    overwrite: bool = False,
    embedder: str = DEFAULT,
    layers: int = 5,
    llm_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    budget: Mapping[str, Any] | None = None,
    options: RunOptions = RUN_DEFAULTS,
    watch: Watch = UNWATCHED,
) -> Index:
    """Build a second index with the documents of an index and summaries of them.

    With clusters (RAPTOR, section 3), passages with similar vectors form clusters, and the LLM summarises each
    cluster. The summaries are clustered again, up to `layers` times. Each summary is a document in the second
    index, whose uri begins with `summary/` and whose metadata names its `layer` and `children`.

    With communities (GraphRAG, section 3.1), the entities of the knowledge graph form communities, which consist
    of smaller ones. The LLM writes a report on each community, the smallest first. Each report is a document whose
    uri begins with `report/` and whose metadata contains its `level`, `rating`, `entities` and `children`. The
    knowledge graph is copied into the second index. To resume a stopped build, call the function again.

    Args:
        index: An index, or its folder. It is not changed.
        llm: The model that writes the summaries, with the role `read`, or a string that names it.
        out: The folder of the second index. It appears when all summaries are written. Its folder `summaries`
            contains the run of each layer.
        of: What to summarize: `clusters` of passages, or `communities` in the knowledge graph.
        overwrite: Replace an existing index, for example because documents have changed. The LLM does not read
            unchanged clusters or communities again, unless `options.restart` is set.
        embedder: A sentence-transformers model, by name or folder: the one whose vectors form clusters, or that of
            the knowledge graph.
        layers: The maximum number of summary layers, or of community levels (the largest communities first).
        llm_options: Options of a model given by name.
        concurrency: As in `pyfast.answer`.
        budget: Limits per summary, as in `pyfast.answer`.
        options: Supported are `outage`, `max_failures` (per layer), `restart` and `retry_failed`; others are
            rejected. Failed summaries are left out.
        watch: As in `pyfast.answer`. If `watch.stop` is set, no new summary starts, and the function raises
            `RunError`.

    Returns:
        The second index.

    Raises:
        CallError: All summaries of a layer failed.
        InputError: `out` exists, the index already contains summaries, `out` was started with other documents, or
            there is no knowledge graph.
        MissingPackageError: The package that finds communities is not installed.
        ModelNotFoundError: The LLM or the embedding model is not on this machine.
        RunError: The build cannot continue, or was stopped. No finished work is lost.

    Example:
        >>> from pyfast.api.summaries import summarize_index
        >>> tree = summarize_index("IDX", "openai:qwen3-8b@http://127.0.0.1:8000", out="TREE")
        >>> print(tree.corpus.documents, "documents and summaries")
    """
    options.only("summarize_index", *OF_EXTRACTION)
    source, place, most = index_of(index), Path(out), at_least_one("layers", layers)
    if place.exists() and not overwrite:
        raise InputError(f"{place} already exists: use overwrite to replace it")
    encoder = Embedder(embedder, source.hardware)
    made_of = cluster_layers(source, encoder) if of == "clusters" else community_layers(source, encoder, most)
    begun = {"documents": source.manifest["corpus"], "embedder": encoder.fingerprint, **made_of.begun}
    with built_aside(place, _UNFINISHED) as aside:
        marker = aside / _UNFINISHED
        if options.restart:
            shutil.rmtree(aside / SUMMARIES, ignore_errors=True)
        elif marker.is_file() and orjson.loads(marker.read_bytes()) != begun:
            raise InputError(
                f"{place} was started with other documents, other options or another embedder; to start again, use"
                " restart"
            )
        write_atomically(marker, orjson.dumps(begun))
        job = partial(Job, system="summarize", ask=made_of.ask, prompts=(made_of.prompt,))

        def summaries_of(folder: Path, plan: Path, layer: int) -> list[TextDocument]:
            """Carry out the run of a layer."""
            questions, earlier = questions_in(plan), place / SUMMARIES / str(layer)
            allowed = allowed_failures(options.max_failures, questions.count)
            reused = [earlier] if earlier.is_dir() and not options.restart else []
            run = carry_out_with(
                partial(job, questions=questions, failures=allowed),
                *(folder, "summarize", made_of.prompt.role, llm, llm_options, concurrency, budget),
                replace(options, restart=False, reuse=reused, keep_prompts=False),
                watch,
            )
            if left := run.status.questions - run.status.ended:
                raise RunError(f"{folder}: stopped; summaries of layer {layer} left to write: {left}")
            written = made_of.written(folder, layer)
            if not written:
                raise CallError(f"{folder}: all {questions.count} summaries of layer {layer} failed")
            if failed := questions.count - len(written):
                LOG.warning("layer %d: %d of %d summaries failed", layer, failed, questions.count)
            return written

        documents = list[TextDocument]()
        for layer in range(1, most + 1):
            folder = aside / SUMMARIES / str(layer)
            if (plan := made_of.plan(folder, layer)) is None:
                break
            documents += summaries_of(folder, plan, layer)
        for rest in aside.iterdir():  # A process that was killed here may have left a part of the index.
            if rest.name not in (SUMMARIES, _UNFINISHED):
                shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
        made = aside / "index"  # because `aside` itself is locked, as it is when an index is changed
        ignored = shutil.ignore_patterns(KNOWLEDGE, SUMMARIES)
        shutil.copytree(source.folder, made, copy_function=link_file, ignore=ignored)
        if documents:
            changes.add_documents(made, documents)
        made_of.finish(made)
        for path in made.iterdir():
            path.rename(aside / path.name)
        made.rmdir()
        marker.unlink()
    return Index(place)
