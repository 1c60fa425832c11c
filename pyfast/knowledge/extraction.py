"""Extraction by an LLM: a run of the engine, one question for each chunk. Chunks in, extracts out.

The run's folder lies beside the snapshots, with its chunks in it, so that it can be gone on with even where the
index was built anew meanwhile. Nothing here touches the store: what was extracted is read back from the folder.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
    Questions,
    questions_in,
    recorded_value,
)
from pyfast.engine.run_folder import ANSWERS
from pyfast.errors import InputError
from pyfast.files import write_atomically
from pyfast.jsonl import read_lines
from pyfast.knowledge.chunks import Chunk
from pyfast.knowledge.extraction_prompts import EXTRACT_GRAPH, GraphFields, extract_graph
from pyfast.knowledge.extracts import BY_LLM, Extract
from pyfast.knowledge.support import supported_mentions, supported_statements
from pyfast.llm import FullLLM, Role
from pyfast.retrieval.index import KNOWLEDGE

FOLDER, CHUNKS = "extraction", "chunks.jsonl"
_GRAPHS = TypeAdapter(list[GraphFields])


@dataclass(frozen=True, slots=True)
class Extraction:
    """Chunks that wait for an LLM, or are with it."""

    folder: Path
    chunks: Questions
    chunk_tokens: int


def extraction_folder(index: Path) -> Path:
    """Where an extraction stays, in the folder of its index, until the store has all that came of it."""
    return index / KNOWLEDGE / FOLDER


def is_begun(folder: Path) -> bool:
    """Whether there is an extraction that was stopped, or that the store does not have yet."""
    return (folder / CHUNKS).is_file() and recorded_value(folder, "questions", "digest") is not None


def begun_chunk_tokens(folder: Path) -> int | None:
    """The size of the chunks of an extraction that was begun; None where there is none."""
    tokens: int | None = recorded_value(folder, "system", "set_chunk_tokens")
    return tokens


def plan_extraction(folder: Path, chunks: Iterable[Chunk], chunk_tokens: int) -> Extraction | None:
    """What is to be extracted: the rest of an extraction that was stopped, else `chunks`; None for none.

    `chunks` are not looked at where there is an extraction to go on with.
    """
    if not is_begun(folder):
        shutil.rmtree(folder, ignore_errors=True)  # the documents may be others by now
        lines = [_line(chunk) for chunk in {chunk.digest: chunk for chunk in chunks}.values()]
        if not lines:
            return None
        folder.mkdir(parents=True)
        write_atomically(folder / CHUNKS, b"\n".join(lines))
    return Extraction(folder, questions_in(folder / CHUNKS), chunk_tokens)


def _line(chunk: Chunk) -> bytes:
    passages = [(f"{segment:016x}", text) for segment, text in chunk.passages]
    text = "\n\n".join((chunk.title, *(text for _, text in chunk.passages)))  # also where there is no title
    return orjson.dumps({"id": chunk.digest, "question": text, "title": chunk.title, "passages": passages})


def extraction_job(
    extraction: Extraction, llm: FullLLM | Mapping[Role, FullLLM], budget: Budget, concurrency: int
) -> Job:
    """The run that asks the LLM for the graph of each chunk."""
    return Job(
        folder=extraction.folder,
        questions=extraction.chunks,
        system=EXTRACT_GRAPH.name,
        ask=_answer,
        settings={"chunk_tokens": extraction.chunk_tokens},
        prompts=(EXTRACT_GRAPH,),
        llm=llm,
        concurrency=concurrency,
        budget=budget,
    )


async def _answer(question: Question, ctx: Context) -> Answer:
    title, _, text = question.text.partition("\n\n")
    return Answer(_GRAPHS.dump_json(await extract_graph(title, text, ctx)).decode())


def why_all_failed(extraction: Extraction) -> tuple[str, int] | None:
    """The most frequent reason and how often, where every chunk of an extraction failed; else None."""
    records = (record for _, record in read_lines(extraction.folder / ANSWERS))
    reasons = Counter[str](record.get("reason", "") for record in records)
    return None if "" in reasons else reasons.most_common(1)[0]


def extraction_results(folder: Path) -> tuple[list[Extract], int]:
    """(the extracts so far, in the order of the chunks; how many chunks still wait for an LLM)."""
    if not (folder / CHUNKS).is_file():
        return [], 0
    records = {}
    if is_begun(folder):
        with contextlib.suppress(InputError):  # the last line of a run that was killed may be torn
            for _, record in read_lines(folder / ANSWERS):
                records[record["id"]] = record
    chunks = [chunk for _, chunk in read_lines(folder / CHUNKS)]
    extracts = [_extract(chunk, records[chunk["id"]]) for chunk in chunks if chunk["id"] in records]
    return extracts, len(chunks) - len(extracts)


def _extract(chunk: dict[str, Any], record: dict[str, Any]) -> Extract:
    if record["state"] != "answered":
        return Extract(chunk["id"], BY_LLM, failed=record.get("reason") or record["state"])
    graphs = _GRAPHS.validate_json(record["answer"])
    passages = [(int(segment, 16), f"{chunk['title']} {text}") for segment, text in chunk["passages"]]
    found = supported_statements((relation for graph in graphs for relation in graph.relations), passages)
    mentions = supported_mentions((entity for graph in graphs for entity in graph.entities), passages)
    return Extract(chunk["id"], BY_LLM, tuple(found.statements), tuple(mentions))
