"""Whole runs over text, tables and knowledge graphs, with the same code: every snippet is where it says it is."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest
from scripted import Scripted, run

from pyfast.corpus import read
from pyfast.engine import Question, read_questions
from pyfast.llm import Request
from pyfast.retrieval import Index, build_index
from pyfast.systems.hseq.actions import action_text

STRATEGIES = ("guided_topk", "children", "parent", "row", "column", "relation")


def roaming() -> Scripted:
    """Picks and expands as the prompt's own bytes have it: the same for the same prompt, and everywhere."""

    def select(request: Request) -> str:
        assert request.schema is not None
        labels = request.schema["$defs"]["Args"]["properties"]["segment_ids"]["items"]
        window = labels.get("enum") or [labels["const"]]
        number = crc32(request.messages[-1].content.encode())
        picked = dict.fromkeys(window[(number >> shift) % len(window)] for shift in (0, 5, 9))
        strategy: Any = STRATEGIES[number % len(STRATEGIES)]
        return action_text(list(picked)[: number % 3 + 1], number % 7 == 0, 3, strategy)

    return Scripted(
        guide={"first_look": "all of it, to the end", "expansion": "", "stop": "never"},
        select=select,
        head=lambda request: {"answer": "so", "supporting": [1]},
        verify=lambda request: {"contradiction": len(request.messages[-1].content) % 2 == 0, "settle": "that"},
    )


def check(piece: dict[str, Any], record: dict[str, Any]) -> None:
    """A piece against the line of the corpus file that it is from."""
    (start, end), snippet = piece["offsets"], piece["snippet"]
    if record["kind"] == "text":
        assert piece["source_type"] == "text" and record["text"][start:end] == snippet
    elif record["kind"] == "table":
        assert piece["source_type"] == "table" and piece["meta"]["schema"] == record["header"]
        rows = record["rows"] if start < 0 else [record["rows"][start]]
        assert snippet == "\n".join("\t".join(row if end < 0 else [row[end]]) for row in rows)
    else:
        assert piece["source_type"] == "kg" and [start, end] == [-1, -1]
        assert snippet in "; ".join(map(" ".join, record["triples"]))  # all of one head, in the file's order


def run_and_check(index: Index, corpus: Path, questions: list[Question]) -> Counter[str]:
    """The levels of all pieces of a run."""
    with corpus.open(encoding="utf-8") as file:
        records = {record["id"]: record for record in map(json.loads, file)}
    levels: Counter[str] = Counter()
    for answered in run(index, roaming(), questions, "hseq", refine="2", steps="5"):
        assert answered.state == "answered", answered.reason
        ids = [piece["segment"] for piece in answered.evidence]
        assert ids and len(set(ids)) == len(ids) and set(answered.trace["supporting"]) <= set(ids)
        places = [(piece["uri"], *piece["offsets"]) for piece in answered.evidence]
        assert places == sorted(places)
        for piece in answered.evidence:
            check(piece, records[piece["uri"]])
            levels[piece["level"]] += 1
    return levels


def test_snippets_are_in_their_sources(hybridqa: Index, hybridqa_questions: list[Question], data: Path) -> None:
    levels = run_and_check(hybridqa, data / "hybridqa" / "corpus.jsonl", hybridqa_questions)
    assert {"paragraph", "sentence", "table", "table_row", "table_cell"} <= levels.keys()


@pytest.mark.slow(suite="data")
@pytest.mark.parametrize("name", ["hotpotqa", "tatqa", "metaqa"])
def test_over_every_modality(data: Path, name: str, tmp_path: Path) -> None:
    corpus = data / name / "corpus.jsonl"
    questions = list(islice(read_questions(data / name / "questions.jsonl"), 200))
    levels = run_and_check(build_index(read([corpus]), tmp_path / name), corpus, questions)
    assert len(levels) >= 3


def test_the_same_bytes_at_any_concurrency(hybridqa: Index, hybridqa_questions: list[Question]) -> None:
    def written(questions: list[Question], concurrency: int, **settings: str) -> bytes:
        records = run(hybridqa, roaming(), questions, "hseq", concurrency, **settings)
        return b"\n".join(orjson.dumps(vars(record)) for record in records)

    for settings in ({"refine": "2"}, {"iterator": "lexical"}):
        whole = written(hybridqa_questions[:100], 100, **settings)
        assert whole.count(b'"state":"answered"') == 100
        assert whole.startswith(written(hybridqa_questions[:12], 1, **settings))
        assert whole.startswith(written(hybridqa_questions[:40], 16, **settings))
