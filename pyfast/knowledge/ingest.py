"""Extracts into the store: each function here makes one snapshot, all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from pyfast.knowledge.extracts import BY_LLM, RULE_BASED, Extract
from pyfast.knowledge.snapshots import make_snapshot
from pyfast.knowledge.store import Knowledge
from pyfast.knowledge.writer import Writer, remove_other_chunks
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder


def add_extracts(index: Index, embedder: Embedder, extracts: Iterable[Extract]) -> Knowledge:
    """Add to the store what is not there yet; an index without knowledge gets it so."""
    return make_snapshot(index, embedder, lambda database: Writer(database).add(extracts))


def ingest(
    index: Index,
    embedder: Embedder,
    extracts: Iterable[Extract],
    current: Iterable[str],
    chunk_tokens: int | None = None,
) -> Knowledge:
    """Add extracts, and remove what was extracted from chunks that the index no longer has.

    What runs have learned, and what other indexes brought, stays.

    Args:
        index: Whose store it is.
        embedder: Its embedding model.
        extracts: From the index's documents.
        current: The digests of all chunks of the index, extracted or not.
        chunk_tokens: The size of the chunks that an LLM read, where there are any; noted in the manifest.

    Returns:
        The store as it is now.
    """

    def write(database: sqlite3.Connection) -> None:
        Writer(database).add(extracts)
        remove_other_chunks(database, current, (BY_LLM, RULE_BASED))

    notes = {"corpus": index.manifest["corpus"], **({"chunk_tokens": chunk_tokens} if chunk_tokens else {})}
    return make_snapshot(index, embedder, write, notes)
