"""Build the knowledge graph of an index: extract triples from new documents, and add them to the store (the stored
graph). Merge the graph of another index, or the triples that a run learned, into a store.

All chunks of a store have the same maximum size. If this size changed, an LLM would have to read all texts
again.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyfast.knowledge.extraction as by_llm
from pyfast.engine import Event, Job, Watch, recorded_value, set_aside
from pyfast.engine.events import UNWATCHED
from pyfast.errors import CallError, InputError, RunError
from pyfast.knowledge.extracts import BY_LLM, LEARNED, MERGED, RULE_BASED, Extract, Mention, Statement, Theme
from pyfast.knowledge.names import name_key
from pyfast.knowledge.rule_based import extract_by_rules
from pyfast.knowledge.session import learned_extracts
from pyfast.knowledge.snapshots import (
    Writer,
    has_knowledge,
    make_snapshot,
    open_knowledge,
    remove_other_chunks,
    repair,
)
from pyfast.knowledge.store import Knowledge
from pyfast.llm import FullLLM, Role
from pyfast.retrieval import Index
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.utils.log import LOG

_OF_DOCUMENTS = (BY_LLM, RULE_BASED)  # the methods that read the index's own documents, not merged triples
_TELL_S = 0.5
"""How many seconds pass between two reports of what rules have read"""


def build_knowledge(
    index: Index,
    llm: FullLLM | Mapping[Role, FullLLM] | None = None,
    *,
    embedder: Embedder,
    run_job: Callable[[Job], object],
    chunk_tokens: int | None = None,
    packed: bool = False,
    passes: int = 1,
    limit: int | None = None,
    restart: bool = False,
    retry_failed: bool = False,
    watch: Watch = UNWATCHED,
) -> Knowledge:
    """Extract triples from the documents of an index, or resume an extraction, skipping chunks whose triples are
    already in the store.

    A damaged store is repaired first.

    Args:
        index: The index.
        llm: The LLM that reads the texts. None: pyfast reads them by rules.
        embedder: The embedding model.
        run_job: A function that carries out the extraction run described by a `Job` to its end, or raises an
            error. It also sets the run's limits, such as the budget.
        chunk_tokens: The maximum size of a chunk in tokens. None: the size of an earlier extraction. If there
            was none, `chunks.TOKENS`.
        packed: Let the LLM read several short chunks in one call, up to the size of one full chunk. Each chunk
            still belongs to its own document.
        passes: How often the LLM reads a chunk. In later passes, it looks for missing triples.
        limit: The maximum number of new chunks to read.
        restart: Start a new extraction instead of resuming a stopped one. The stopped extraction's folder is
            renamed, and the store stays as it is.
        retry_failed: Retry chunks that failed in an earlier extraction.
        watch: Functions that follow the reading by rules, and stop it and the vectors. `run_job` has its own.

    Returns:
        The current snapshot of the knowledge.

    Raises:
        CallError: Every chunk of the last extraction failed.
        InputError: An earlier extraction had a different chunk size, or another process is working on
            the extraction.
        IndexFormatError: All snapshots are damaged.
        OtherBuildError: The store or the extraction has another format.
    """
    repair(index)
    folder = by_llm.extraction_folder(index.folder)
    if restart and (aside := set_aside(folder)) is not None:
        LOG.info("the stopped extraction was moved to %s", aside)
    size = chunk_size(index, chunk_tokens)  # A wrong size is refused before the first LLM call.
    failure: tuple[str, int] | None = None  # if every chunk failed: the most frequent reason, and its count

    def extract(chunks: Iterable[by_llm.Chunk]) -> None:
        """Resume or start an extraction, if there is something to extract."""
        nonlocal failure
        extraction = by_llm.plan_extraction(folder, chunks, size, packed, passes)
        if llm is not None and extraction is not None:
            run_job(by_llm.extraction_job(extraction, llm))
            failure = by_llm.why_all_failed(extraction)

    if llm is not None:
        # A stopped extraction is finished with its own settings. New chunks follow in another one.
        if by_llm.is_begun(folder):
            extract(())
            update_knowledge(index, embedder, chunk_tokens)
        extract(islice(new_chunks(index, size, retry_failed), limit))
    LOG.info("computing vectors")
    store = update_knowledge(index, embedder, chunk_tokens, texts_by_rules=llm is None, watch=watch)
    again = f"`pyfast knowledge build {index.folder} --llm LLM"
    if failure is not None:
        reason, times = failure
        raise CallError(
            f"every chunk of the extraction failed; the most frequent reason ({times} times): {reason}; to try the"
            f" chunks again, run {again} --retry-failed`"
        )
    if waiting := by_llm.extraction_results(folder).waiting:
        LOG.warning("chunks that still wait for an LLM: %d; to resume, run %s`", waiting, again)
    elif by_llm_too(store) and (unread := sum(1 for _ in new_chunks(index, size))):
        LOG.warning("chunks that no LLM has read: %d; to have them read, run %s`", unread, again)
    if not len(store):
        LOG.warning("the knowledge graph has no triples, so systems will find nothing in it")
    models = {extraction["fingerprint"] for extraction in store.extractions}
    if len(models) > 1:
        told = "the knowledge graph was extracted by %d models; `pyfast knowledge show %s` lists them"
        LOG.warning(told, len(models), index.folder)
    return store


def prune_knowledge(index: Index, embedder: Embedder) -> Knowledge:
    """Remove the triples of deleted documents.

    Args:
        index: The index.
        embedder: The embedding model.

    Returns:
        The current snapshot of the knowledge.
    """
    current = [chunk.digest for chunk in by_llm.split_into_chunks(index, chunk_size(index))]
    current += [extract.digest for extract in extract_by_rules(index)]
    return make_snapshot(index, embedder, lambda database: remove_other_chunks(database, current, _OF_DOCUMENTS))


def by_llm_too(store: Knowledge) -> bool:
    """Return whether an LLM has extracted a part of the graph."""
    return (BY_LLM,) in store.rows("SELECT DISTINCT method FROM chunks")


def update_knowledge(
    index: Index,
    embedder: Embedder,
    chunk_tokens: int | None = None,
    texts_by_rules: bool = False,
    watch: Watch = UNWATCHED,
) -> Knowledge:
    """Update the knowledge of an index without an LLM.

    Triples that a stopped extraction has already extracted, and those that rules find in new documents, are added,
    and the triples of deleted documents are removed. Triples that were merged from runs or other indexes stay.

    Args:
        index: The index.
        embedder: The embedding model.
        chunk_tokens: The maximum size of a chunk in tokens. None: the size of an earlier extraction. If there
            was none, `chunks.TOKENS`.
        texts_by_rules: Let rules read texts too, unless an LLM has already read a text of the index. False:
            rules read only tables and knowledge graphs.
        watch: Receives the number of documents that rules have read, and can stop the build.

    Returns:
        The current snapshot of the knowledge.

    Raises:
        InputError: `chunk_tokens` differs from the size of an earlier extraction.
        RunError: `watch.stop` was set. The knowledge stays as it is.
    """
    folder, size = by_llm.extraction_folder(index.folder), chunk_size(index, chunk_tokens)
    extracted = by_llm.extraction_results(folder)
    read_by_llm = bool(extracted.extracts) or (has_knowledge(index) and by_llm_too(open_knowledge(index)))
    by_rules = list(_followed(extract_by_rules(index, texts_by_rules), index.corpus.documents, watch))
    current = [chunk.digest for chunk in by_llm.split_into_chunks(index, size)]
    current += [extract.digest for extract in by_rules]  # Triples that rules found in texts earlier stay.
    if texts_by_rules and read_by_llm:
        by_rules = list(extract_by_rules(index, text=False))
    finished = by_llm.is_begun(folder) and not extracted.waiting
    notes: dict[str, Any] = {"corpus": index.manifest["corpus"]}
    if extracted.extracts:
        notes["chunk_tokens"] = size
    if finished:
        extraction = by_llm.describe_extraction(folder, extracted)
        before = open_knowledge(index).extractions if has_knowledge(index) else []
        # A process that was stopped after this may have noted it already.
        known = any(one["questions"] == extraction["questions"] for one in before[-1:])
        notes["extractions"] = before if known else [*before, extraction]

    def write(database: sqlite3.Connection) -> None:
        Writer(database).add([*by_rules, *extracted.extracts])
        remove_other_chunks(database, current, _OF_DOCUMENTS)

    store = make_snapshot(index, embedder, write, notes, watch.stop)
    if finished:
        by_llm.keep_extraction(folder)
    elif not extracted.waiting:
        shutil.rmtree(folder, ignore_errors=True)
    return store


def _followed(extracts: Iterable[Extract], documents: int, watch: Watch) -> Iterator[Extract]:
    told = time.monotonic()
    watch.on_event(Event("progress", 0, documents))
    for number, extract in enumerate(extracts, start=1):
        if watch.stop is not None and watch.stop.is_set():
            raise RunError("stopped; the next build starts from the beginning")
        if time.monotonic() - told > _TELL_S:
            watch.on_event(Event("progress", number, documents))
            told = time.monotonic()
        yield extract
    watch.on_event(Event("progress", documents, documents))


def chunk_size(index: Index, tokens: int | None = None) -> int:
    """Return the maximum size of a chunk in tokens.

    If there was an extraction by an LLM, finished or not, it is that extraction's size, otherwise `tokens`, or
    `TOKENS` if `tokens` is None. Raises `InputError` if `tokens` differs from the size of an earlier extraction.
    """
    before: int | None = recorded_value(by_llm.extraction_folder(index.folder), "system", "set_chunk_tokens")
    if before is None and has_knowledge(index):
        before = open_knowledge(index).manifest.get("chunk_tokens")
    if before is not None and tokens not in (None, before):
        raise InputError(
            f"{index.folder}: the earlier extraction's chunks have {before} tokens, not {tokens}; to extract"
            f" everything again, remove {index.folder / KNOWLEDGE}"
        )
    return before or tokens or by_llm.TOKENS


def new_chunks(index: Index, tokens: int, retry_failed: bool = False) -> Iterator[by_llm.Chunk]:
    """Yield the chunks that still need an extraction: chunks of the index that are not in the store. If
    `retry_failed` is True, also yield the chunks whose extraction failed."""
    known: set[str] = set()
    if has_knowledge(index):
        store = open_knowledge(index)
        failed = set() if retry_failed else {digest for digest, _ in store.failed_chunks()}
        known = store.extracted_chunks() | failed
    yield from (chunk for chunk in by_llm.split_into_chunks(index, tokens) if chunk.digest not in known)


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


def merge_knowledge(index: Index, embedder: Embedder, other: Knowledge) -> Knowledge:
    """Add all triples of another index to the knowledge of an index.

    An entity of `other` and an entity of `index` become one if their names differ only in case or spaces
    (`matching_entities` has the exceptions). The source of an added triple is a segment of the other index. An
    answer can cite the source only if `index` has the same segment.

    Args:
        index: The index. If it has no knowledge yet, its graph will have only the added triples.
        embedder: The embedding model.
        other: The knowledge of the other index.

    Returns:
        The current snapshot of the knowledge.
    """

    def write(database: sqlite3.Connection) -> None:
        here = matching_entities(other.entities, database)
        Writer(database).add(_renamed(extract, here) for extract in extracts_of(other))

    return make_snapshot(index, embedder, write, None if has_knowledge(index) else {"corpus": None})


def merge_learned(index: Index, embedder: Embedder, answers: Path) -> Knowledge:
    """Add the triples that a run has learned to the knowledge of an index. Triples that the knowledge already
    has are not added again.

    Args:
        index: The index.
        embedder: The embedding model.
        answers: The file `answers.jsonl` of the run.

    Returns:
        The current snapshot of the knowledge.
    """
    learned = learned_extracts(answers)
    notes = None if has_knowledge(index) else {"corpus": None}
    return make_snapshot(index, embedder, lambda database: Writer(database).add(learned), notes)


def reset_knowledge(index: Index, embedder: Embedder) -> Knowledge:
    """Remove all merged triples. Triples from the index's own documents stay.

    Args:
        index: The index.
        embedder: The embedding model.

    Returns:
        The current snapshot of the knowledge.
    """
    return make_snapshot(index, embedder, lambda database: remove_other_chunks(database, (), (LEARNED, MERGED)))


def matching_entities(names: Sequence[str], database: sqlite3.Connection) -> dict[str, str]:
    """Find the names that a store's entities get when the store is merged into another store, which has this
    `database`. Returns a dict from old names to new names.

    The new name is the first name in the database that differs only in case or spaces. A name stays unchanged if
    the database contains exactly this name, or no such other name. It also stays unchanged if another of the
    `names` differs from it only in case or spaces. These two names then stay two entities.
    """
    here = {name for (name,) in database.execute("SELECT name FROM entities")}
    first = dict(database.execute("SELECT key, name FROM entities ORDER BY id DESC").fetchall())
    keys = [name_key(name) for name in names]
    often = Counter(keys)
    return {
        name: name if name in here or often[key] > 1 else first.get(key, name)
        for name, key in zip(names, keys, strict=True)
    }


def _renamed(extract: Extract, names: Mapping[str, str]) -> Extract:
    statements = (replace(one, head=names[one.head], tail=names[one.tail]) for one in extract.statements)
    mentions = (replace(one, entity=names[one.entity]) for one in extract.mentions)
    return replace(extract, statements=tuple(statements), mentions=tuple(mentions))


def extracts_of(store: Knowledge) -> Iterator[Extract]:
    """Read the extracts of a store's chunks, in order. Failed chunks are left out."""
    statements_of = (
        "SELECT triple, strength, h.name, r.name, t.name, segment, time, description FROM statements"
        " JOIN triples ON triples.id = triple"
        " JOIN entities h ON h.id = head JOIN relations r ON r.id = relation JOIN entities t ON t.id = tail"
        " WHERE chunk = ? ORDER BY triple, segment"
    )
    keys_of = "SELECT triple, text FROM statement_keys JOIN keys ON id = key WHERE chunk = ? ORDER BY triple, key"
    themes_of = "SELECT text, segment FROM themes JOIN keys ON id = key WHERE chunk = ? ORDER BY key, segment"
    mentions_of = (
        "SELECT name, segment, kind, description FROM mentions JOIN entities ON id = entity WHERE chunk = ?"
        " ORDER BY entity, segment"
    )
    for number, digest in list(store.rows("SELECT id, digest FROM chunks WHERE failed IS NULL ORDER BY id")):
        keys: dict[int, list[str]] = defaultdict(list)
        for triple, key in store.rows(keys_of, number):
            keys[triple].append(key)
        statements = []
        for triple, strength, *stated in store.rows(statements_of, number):
            one = Statement(*stated)
            others = tuple(key for key in keys[triple] if key != one.relation)
            statements.append(replace(one, keys=others, strength=strength))
        mentions = [Mention(*row) for row in store.rows(mentions_of, number)]
        themes = [Theme(*row) for row in store.rows(themes_of, number)]
        yield Extract(digest, MERGED, tuple(statements), tuple(mentions), tuple(themes), exact=True)
