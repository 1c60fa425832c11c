"""NQ-open, TriviaQA and PopQA: questions about all of Wikipedia. The sets have no corpus."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BaseModel, BeforeValidator, Field

from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import OrNull, Pieces, Text, gold, lines, load, one_file, question, records


class _NQ(BaseModel):
    question: Text
    answer: Annotated[
        tuple[Text, ...], OrNull, BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
    ] = ()


def nq(source: Path) -> Pieces:
    """Yield the converted lines of NQ-open.*.jsonl. The id of a question is its line number."""
    path = one_file(source, "*.jsonl", "questions")
    for number, record in enumerate(lines(path, _NQ), start=1):
        yield from _pieces(f"nq-{path.stem}-{number}", record.question, record.answer)


class _TriviaAnswer(BaseModel):
    value: Text = Field("", alias="Value")
    aliases: Annotated[tuple[Text, ...], OrNull] = Field((), alias="Aliases")


class _Trivia(BaseModel):
    id: Text = Field(alias="QuestionId")
    question: Text = Field(alias="Question")
    answer: _TriviaAnswer | None = Field(None, alias="Answer")


def triviaqa(source: Path) -> Pieces:
    """Yield the converted lines of a TriviaQA file, such as unfiltered-web-dev.json."""
    path = one_file(source, "*.json", "questions")
    content = load(path)
    for record in records(path, _Trivia, content.get("Data", []) if isinstance(content, dict) else content):
        answers = () if record.answer is None else (record.answer.value, *record.answer.aliases)
        yield from _pieces(record.id, record.question, answers)


def popqa(source: Path) -> Pieces:
    """Yield the converted lines of PopQA's test.tsv."""
    path = one_file(source, "*.tsv", "questions")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, dialect=csv.excel_tab):
                answers = [str(answer) for answer in orjson.loads(row["possible_answers"]) if answer is not None]
                yield from _pieces(f"popqa-{row['id']}", row["question"], answers, row.get("prop"))
    except (OSError, UnicodeDecodeError, KeyError, TypeError, csv.Error, orjson.JSONDecodeError) as error:
        raise InputError(f"{path}: not a file of PopQA: {error!r}") from None


def _pieces(id: str, text: str, answers: tuple[str, ...] | list[str], kind: str | None = None) -> Pieces:
    yield question(id, text)
    right = [answer for answer in dict.fromkeys(answers) if answer.strip()]
    if right:
        yield gold(id, answers=right, type=kind, metrics=["squad"])
