"""NQ-open, TriviaQA and PopQA: questions about all of Wikipedia. The sets have no corpus."""

from __future__ import annotations

import csv
from pathlib import Path

import orjson
from pydantic import BaseModel, Field

from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import Pieces, checked, load, one_file, records
from pyfast.jsonl import read_lines


class _NQ(BaseModel):
    question: str
    answer: tuple[str, ...]


def nq(source: Path) -> Pieces:
    """Yield the converted lines of NQ-open.*.jsonl. The id of a question is its line number."""
    path = one_file(source, "*.jsonl", "questions")
    for number, (place, line) in enumerate(read_lines(path), start=1):
        record = checked(line, _NQ, place)
        yield from _pieces(f"nq-{path.stem}-{number}", record.question, record.answer)


class _TriviaAnswer(BaseModel):
    value: str = Field(alias="Value")
    aliases: tuple[str, ...] = Field((), alias="Aliases")


class _Trivia(BaseModel):
    id: str = Field(alias="QuestionId")
    question: str = Field(alias="Question")
    answer: _TriviaAnswer = Field(alias="Answer")


def triviaqa(source: Path) -> Pieces:
    """Yield the converted lines of a TriviaQA file, such as unfiltered-web-dev.json."""
    path = one_file(source, "*.json", "questions")
    content = load(path)
    for record in records(path, _Trivia, content.get("Data", []) if isinstance(content, dict) else content):
        yield from _pieces(record.id, record.question, (record.answer.value, *record.answer.aliases))


def popqa(source: Path) -> Pieces:
    """Yield the converted lines of PopQA's test.tsv."""
    path = one_file(source, "*.tsv", "questions")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, dialect=csv.excel_tab):
                answers = [str(answer) for answer in orjson.loads(row["possible_answers"])]
                yield from _pieces(f"popqa-{row['id']}", row["question"], answers, row.get("prop"))
    except (OSError, UnicodeDecodeError, KeyError, TypeError, csv.Error, orjson.JSONDecodeError) as error:
        raise InputError(f"{path}: not a file of PopQA: {error!r}") from None


def _pieces(id: str, question: str, answers: tuple[str, ...] | list[str], kind: str | None = None) -> Pieces:
    yield "question", {"id": id, "question": question}
    yield "gold", {"id": id, "answers": [*dict.fromkeys(answers)], "type": kind, "metrics": ["squad"]}
