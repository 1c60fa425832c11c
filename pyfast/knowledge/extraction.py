"""Reading an index's texts with a language model: a run of the engine, one question for each chunk.

The run's folder lies beside the store, with its chunks in it, so that it can be gone on with even where the index
was built anew meanwhile. When every chunk has its line, all of them join the store in one change; the folder goes.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from pyfast.engine import (
    Answer,
    Budget,
    Context,
    Job,
    Question,
    check_questions,
    configuration,
    read_questions,
)
from pyfast.jsonl import read_lines
from pyfast.knowledge.chunks import TOKENS, Chunk, chunks
from pyfast.knowledge.reading import READ_GRAPH, GraphFields, mentions_in, statements_in
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
_FOLDER, _CHUNKS = "reading", "chunks.jsonl"


@dataclass(frozen=True, slots=True)
class Reading:
    """Chunks that wait for a language model, or are being read."""

    folder: Path
    chunks: int
    digest: str


def prepare(index: Index, tokens: int = TOKENS, retry_failed: bool = False) -> Reading | None:
    """What is to be read: the rest of a reading that was stopped, else the chunks that are not in the store yet.

    Chunks that failed are left out, but for `retry_failed`. None where nothing is to be read.
    """
    folder = index.folder / KNOWLEDGE / _FOLDER
    if not (folder / _CHUNKS).is_file():
        known: set[str] = set()
        if has_knowledge(index):
            store = open_knowledge(index)
            known = store.chunks() | (set() if retry_failed else {digest for digest, _ in store.failed()})
        wanted = {chunk.digest: chunk for chunk in chunks(index, tokens)}
        lines = [_line(digest, chunk) for digest, chunk in wanted.items() if digest not in known]
        if not lines:
            return None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / f"{_CHUNKS}.new").write_bytes(b"\n".join(lines))
        (folder / f"{_CHUNKS}.new").rename(folder / _CHUNKS)
    return Reading(folder, *check_questions(folder / _CHUNKS))


def _line(digest: str, chunk: Chunk) -> bytes:
    passages = [(f"{segment:016x}", text) for segment, text in chunk.passages]
    return orjson.dumps({"id": digest, "question": chunk.text, "passages": passages})


def job(reading: Reading, llm: Backend, budget: Budget, concurrency: int) -> Job:
    """The run that reads them."""
    described = partial(
        configuration,
        system="read_graph",
        settings={},
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
    fields = await ctx.generate(READ_GRAPH, text=question.text)
    return Answer(fields.model_dump_json())


def take_over(index: Index, embedder: Embedder, tokens: int = TOKENS, texts: bool = False) -> Knowledge:
    """Bring the store up to date: what a finished reading found, and what is read without a model; `texts` too.

    What was read of documents that are no longer in the index goes. What runs have learned stays.
    """
    folder = index.folder / KNOWLEDGE / _FOLDER
    current = [chunk.digest for chunk in chunks(index, tokens)]
    plain = list(read_straight(index, texts))

    def write(database: sqlite3.Connection) -> None:
        writer = Writer(database)
        writer.add(plain)
        if (folder / _CHUNKS).is_file():
            writer.add(_found(folder))
        keep_only(database, [*current, *(extract.digest for extract in plain)], (METHOD, STRAIGHT))

    store = change(index, embedder, write)
    shutil.rmtree(folder, ignore_errors=True)
    return store


def _found(folder: Path) -> Iterator[Extract]:
    answers = {record["id"]: record for _, record in read_lines(folder / "answers.jsonl")}
    for _, chunk in read_lines(folder / _CHUNKS):
        yield _extract(chunk, answers[chunk["id"]])


def _extract(chunk: dict[str, Any], record: dict[str, Any]) -> Extract:
    if record["state"] != "answered":
        return Extract(chunk["id"], METHOD, failed=record.get("reason") or record["state"])
    graph = GraphFields.model_validate_json(record["answer"])
    passages = [(int(segment, 16), text) for segment, text in chunk["passages"]]
    statements = tuple(statements_in(graph.relations, passages))
    return Extract(chunk["id"], METHOD, statements, tuple(mentions_in(graph.entities, passages)))
