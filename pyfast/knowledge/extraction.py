"""Reading an index's texts with a language model: a run of the engine, one question for each chunk.

The run's folder lies beside the store, with its chunks in it, so that it can be gone on with even where the index
was built anew meanwhile. The chunks that have their lines join the store in one change; when all have, the folder
goes. A store keeps the size of its chunks: chunks of another would all be read, and paid for, again.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from pyfast.engine import (
    Answer,
    Budget,
    Context,
    Job,
    Question,
    check_questions,
    configuration,
    known_of,
    read_questions,
)
from pyfast.engine.folder import ANSWERS
from pyfast.errors import InputError
from pyfast.jsonl import read_lines
from pyfast.knowledge.chunks import TOKENS, Chunk, chunks
from pyfast.knowledge.reading import READ_GRAPH, GraphFields, mentions_in, read_graph, statements_in
from pyfast.knowledge.records import Extract, Writer, keep_only
from pyfast.knowledge.snapshots import change, has_knowledge, open_knowledge
from pyfast.knowledge.store import Knowledge
from pyfast.knowledge.straight import METHOD as STRAIGHT
from pyfast.knowledge.straight import read_straight
from pyfast.llm import Backend
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.index import KNOWLEDGE

METHOD = "read"
_GRAPHS = TypeAdapter(list[GraphFields])
_FOLDER, _CHUNKS = "reading", "chunks.jsonl"


@dataclass(frozen=True, slots=True)
class Reading:
    """Chunks that wait for a language model, or are being read."""

    folder: Path
    chunks: int
    digest: str
    tokens: int
    """The size of a chunk"""


def chunk_size(index: Index, tokens: int | None = None) -> int:
    """The size of chunks, in tokens: as before, where this index's texts were read; else as given, or `TOKENS`.

    Raises `InputError` where another one is given than before.
    """
    before = known_of(reading_folder(index), "system", "set_chunk_tokens")
    if before is None and has_knowledge(index):
        before = open_knowledge(index).manifest.get("chunk_tokens")
    if before is not None and tokens not in (None, before):
        raise InputError(
            f"{index.folder}: was read in chunks of {before} tokens, not {tokens}; to have it all read anew,"
            f" remove {index.folder / KNOWLEDGE}"
        )
    return before or tokens or TOKENS


def reading_folder(index: Index) -> Path:
    """Where a reading is kept until the store has what it found."""
    return index.folder / KNOWLEDGE / _FOLDER


def prepare(index: Index, tokens: int | None = None, retry_failed: bool = False) -> Reading | None:
    """What is to be read: the rest of a reading that was stopped, else the chunks that are not in the store yet.

    Chunks that failed are left out, but for `retry_failed`. None where nothing is to be read. Raises `InputError`
    as `chunk_size` does.
    """
    folder, size = reading_folder(index), chunk_size(index, tokens)
    if not is_begun(folder):
        shutil.rmtree(folder, ignore_errors=True)  # the documents may be others by now
        known: set[str] = set()
        if has_knowledge(index):
            store = open_knowledge(index)
            known = store.chunks() | (set() if retry_failed else {digest for digest, _ in store.failed()})
        wanted = {chunk.digest: chunk for chunk in chunks(index, size)}
        lines = [_line(digest, chunk) for digest, chunk in wanted.items() if digest not in known]
        if not lines:
            return None
        folder.mkdir(parents=True)
        (folder / f"{_CHUNKS}.new").write_bytes(b"\n".join(lines))
        (folder / f"{_CHUNKS}.new").rename(folder / _CHUNKS)
    return Reading(folder, *check_questions(folder / _CHUNKS), size)


def is_begun(folder: Path) -> bool:
    """Whether a reading was stopped there, or waits to be taken over."""
    return (folder / _CHUNKS).is_file() and known_of(folder, "questions", "digest") is not None


def _line(digest: str, chunk: Chunk) -> bytes:
    passages = [(f"{segment:016x}", text) for segment, text in chunk.passages]
    asked = "\n\n".join((chunk.title, *(text for _, text in chunk.passages)))  # also where there is no title
    return orjson.dumps({"id": digest, "question": asked, "title": chunk.title, "passages": passages})


def job(reading: Reading, llm: Backend, budget: Budget, concurrency: int) -> Job:
    """The run that reads them."""
    described = partial(
        configuration,
        system="read_graph",
        settings={"chunk_tokens": reading.tokens},
        prompts=(READ_GRAPH,),
        llm=llm,
        index=None,
        budget=budget.shaping(),
        questions={"count": reading.chunks, "digest": reading.digest},
        places={"llm": llm.spec},
    )
    return Job(
        folder=reading.folder,
        questions=partial(read_questions, reading.folder / _CHUNKS),
        ask=_read,
        index=None,
        llm=llm,
        describe=described,
        concurrency=concurrency,
        budget=budget,
    )


async def _read(question: Question, ctx: Context) -> Answer:
    title, _, text = question.text.partition("\n\n")
    return Answer(_GRAPHS.dump_json(await read_graph(title, text, ctx)).decode())


def why_nothing_was_read(reading: Reading) -> tuple[str, int] | None:
    """Of a reading that is done: the most frequent reason and how often, where every chunk failed; else None."""
    records = (record for _, record in read_lines(reading.folder / ANSWERS))
    reasons = Counter[str](record.get("reason", "") for record in records)
    return None if "" in reasons else reasons.most_common(1)[0]


def take_over(index: Index, embedder: Embedder, tokens: int | None = None, texts: bool = False) -> Knowledge:
    """Bring the store up to date: what a reading has found so far, and what is read without a model; `texts` too.

    What was read of documents that are no longer in the index goes. What runs have learned stays. Raises
    `InputError` as `chunk_size` does.
    """
    folder, size = reading_folder(index), chunk_size(index, tokens)
    current = [chunk.digest for chunk in chunks(index, size)]
    plain = list(read_straight(index, texts))
    found, waiting = _found(folder)

    def write(database: sqlite3.Connection) -> None:
        writer = Writer(database)
        writer.add(plain)
        writer.add(found)
        keep_only(database, [*current, *(extract.digest for extract in plain)], (METHOD, STRAIGHT))

    noted = {"corpus": index.manifest["corpus"], **({"chunk_tokens": size} if found else {})}
    store = change(index, embedder, write, noted)
    if not waiting:
        shutil.rmtree(folder, ignore_errors=True)
    return store


def unread(index: Index) -> int:
    """How many chunks of a reading that was stopped, or never begun, wait for their language model."""
    return _found(reading_folder(index))[1]


def _found(folder: Path) -> tuple[list[Extract], int]:
    """(what was read, how many chunks wait)."""
    if not (folder / _CHUNKS).is_file():
        return [], 0
    answers = {}
    if is_begun(folder):
        with contextlib.suppress(InputError):  # the last line of a run that was killed may be torn
            for _, record in read_lines(folder / ANSWERS):
                answers[record["id"]] = record
    asked = [chunk for _, chunk in read_lines(folder / _CHUNKS)]
    found = [_extract(chunk, answers[chunk["id"]]) for chunk in asked if chunk["id"] in answers]
    return found, len(asked) - len(found)


def _extract(chunk: dict[str, Any], record: dict[str, Any]) -> Extract:
    if record["state"] != "answered":
        return Extract(chunk["id"], METHOD, failed=record.get("reason") or record["state"])
    graphs = _GRAPHS.validate_json(record["answer"])
    passages = [(int(segment, 16), f"{chunk['title']} {text}") for segment, text in chunk["passages"]]
    statements = statements_in((relation for graph in graphs for relation in graph.relations), passages)
    mentions = mentions_in((entity for graph in graphs for entity in graph.entities), passages)
    return Extract(chunk["id"], METHOD, tuple(statements), tuple(mentions))
