"""Add extracts to the store, or remove them. An extract has the triples of one chunk. Each function makes one
new snapshot, or none if there is nothing to change."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import partial
from typing import Any

from pyfast.knowledge.extracts import BY_LLM, RULE_BASED, Extract
from pyfast.knowledge.snapshots import has_knowledge, make_snapshot, open_knowledge
from pyfast.knowledge.store import Knowledge
from pyfast.knowledge.writer import Writer, remove_other_chunks
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder


def add_extracts(index: Index, embedder: Embedder, extracts: Iterable[Extract]) -> Knowledge:
    """Add extracts to the knowledge graph of an index. Extracts that are already in the graph are skipped.

    Args:
        index: The index. If it has no knowledge graph yet, this call makes one.
        embedder: The embedding model.
        extracts: The extracts to add, in order.

    Returns:
        The current snapshot of the knowledge.
    """
    return make_snapshot(index, embedder, lambda database: Writer(database).add(extracts))


def ingest(
    index: Index,
    embedder: Embedder,
    extracts: Iterable[Extract],
    current: Iterable[str],
    chunk_tokens: int | None = None,
    extraction: dict[str, Any] | None = None,
) -> Knowledge:
    """Add extracts to the store, and remove the extracts of chunks that the index no longer has.

    Triples that were merged from runs or from other indexes stay.

    Args:
        index: The index of the store.
        embedder: The embedding model of the store.
        extracts: The extracts of the index's documents.
        current: The checksums of all chunks that the index has now, including chunks that are not extracted
            yet.
        chunk_tokens: The chunk size of the extraction by an LLM, for the manifest. None: the manifest keeps
            the chunk size of the snapshot before.
        extraction: The description of a finished extraction (`describe_extraction`), for the manifest.

    Returns:
        The current snapshot of the knowledge.
    """

    def write(database: sqlite3.Connection) -> None:
        Writer(database).add(extracts)
        remove_other_chunks(database, current, (BY_LLM, RULE_BASED))

    notes: dict[str, Any] = {"corpus": index.manifest["corpus"]}
    if chunk_tokens:
        notes["chunk_tokens"] = chunk_tokens
    if extraction is not None:
        before = open_knowledge(index).extractions if has_knowledge(index) else []
        # A process that ended has noted it already.
        known = any(one["questions"] == extraction["questions"] for one in before[-1:])
        notes["extractions"] = before if known else [*before, extraction]
    return make_snapshot(index, embedder, write, notes)


def prune(index: Index, embedder: Embedder, current: Iterable[str]) -> Knowledge:
    """Remove from the store the chunks whose checksums are not in `current`, with their triples. Merged triples
    stay."""
    write = partial(remove_other_chunks, digests=list(current), methods=(BY_LLM, RULE_BASED))
    return make_snapshot(index, embedder, write)
