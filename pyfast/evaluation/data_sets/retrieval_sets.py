"""BEIR: a corpus, queries and judgements of relevance (qrels). FlashRAG: a corpus, and questions with answers.
NQ-open, TriviaQA and PopQA: questions about all of Wikipedia, without a corpus."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, Field

import pyfast.evaluation.data_sets.layout as layout
from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import OrNull, Pieces, Text
from pyfast.utils.jsonl import read_lines


class _Passage(BaseModel):
    id: Text = Field(alias="_id")
    title: Text = ""
    text: Text = ""


class _Query(BaseModel):
    id: Text = Field(alias="_id")
    text: Text


def beir(source: Path) -> Pieces:
    """Yield the converted lines of a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

    `source` is the folder, or the file of a split inside qrels. Of a folder, the split is `test`, or the only
    split that there is. A query without a judgement in the split is left out. A judgement of 0 is not gold.
    """
    qrels = _qrels(source)
    folder = qrels.parent.parent
    judged = _judgements(qrels)
    for each in layout.lines(folder / "corpus.jsonl", _Passage):
        yield layout.passage(each.id, each.title, each.text)
    asked, without = set[str](), 0
    for query in layout.lines(folder / "queries.jsonl", _Query):
        if query.id not in judged:
            without += 1
            continue
        asked.add(query.id)
        yield layout.question(query.id, query.text)
        yield layout.gold(query.id, supporting=judged[query.id], metrics=["evidence"])
    unknown = f"queries of {qrels.name} left out because they are not in queries.jsonl"
    yield "note", {"what": f"queries left out because {qrels.name} does not judge them", "number": without}
    yield "note", {"what": unknown, "number": len(judged.keys() - asked)}


def _qrels(source: Path) -> Path:
    if source.is_file() and source.parent.name == "qrels":
        return source
    folder = (source if source.is_dir() else source.parent) / "qrels"
    splits = sorted(folder.glob("*.tsv"))
    chosen = [path for path in splits if path.stem == "test"] or splits
    if len(chosen) != 1:
        listed = ", ".join(path.name for path in splits) or "none"
        raise InputError(f"{folder}: expected the judgements of one split, found {listed}: pass one of them")
    return chosen[0]


def _judgements(path: Path) -> dict[str, list[str]]:
    """Return the relevant documents of each judged query. Lines are `query document score`, or `query 0 document
    score` as in TREC."""
    judged: dict[str, list[str]] = defaultdict(list)
    for number, line in layout.text_lines(path):
        cells = line.split("\t")
        if number == 1 and "score" in cells[-1].lower():
            continue
        try:
            query, document, score = cells[0], cells[-2], float(cells[-1])
            if len(cells) not in (3, 4):
                raise ValueError
        except (ValueError, IndexError):
            raise InputError(f"{path}, line {number}: expected query, document and score, split by tabs") from None
        relevant = judged[query]
        if score > 0 and document not in relevant:
            relevant.append(document)
    return judged


class _Contents(BaseModel):
    id: Text
    contents: Text = ""
    title: Text = ""
    text: Text = ""


class _Question(BaseModel):
    id: Text
    question: Text
    golden_answers: Annotated[tuple[Any, ...], OrNull] = ()


def flashrag(source: Path) -> Pieces:
    """Yield the converted lines of a file of questions, such as test.jsonl, and of the corpus in the same folder:
    the file whose lines have `id` and `contents`. A set without this file has no corpus.

    A first line of `contents` in quotes is the title of the passage.
    """
    folder = source if source.is_dir() else source.parent
    kinds: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        first = next(iter(read_lines(path)), ("", {}))[1]
        kinds["question" if "question" in first else "contents" if "contents" in first else "other"].append(path)
    questions = [source] if source.is_file() else kinds["question"]
    for what, found, most in (("questions", questions, 1), ("a corpus", kinds["contents"], 1)):
        if len(found) > most or (what == "questions" and not found):
            listed = ", ".join(path.name for path in found) or "none"
            raise InputError(f"{folder}: expected one file of {what}, found {listed}: pass one of them")
    for path in kinds["contents"]:
        for each in layout.lines(path, _Contents):
            yield layout.passage(each.id, *_divided(each))
    for asked in layout.lines(questions[0], _Question):
        yield layout.question(asked.id, asked.question)
        if asked.golden_answers:
            yield layout.gold(asked.id, answers=list(asked.golden_answers))


def _divided(given: _Contents) -> tuple[str, str]:
    first, line_end, rest = given.contents.partition("\n")
    quoted = first.strip()
    if line_end and len(quoted) > 1 and quoted[0] == quoted[-1] == '"':
        return quoted[1:-1], rest
    return given.title, given.contents or given.text


class _NQ(BaseModel):
    question: Text
    answer: Annotated[
        tuple[Text, ...], OrNull, BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
    ] = ()


def nq(source: Path) -> Pieces:
    """Yield the converted lines of NQ-open.*.jsonl. The id of a question is its line number."""
    path = layout.one_file(source, "*.jsonl", "questions")
    for number, record in enumerate(layout.lines(path, _NQ), start=1):
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
    path = layout.one_file(source, "*.json", "questions")
    content = layout.load(path)
    for record in layout.records(path, _Trivia, content.get("Data", []) if isinstance(content, dict) else content):
        answers = () if record.answer is None else (record.answer.value, *record.answer.aliases)
        yield from _pieces(record.id, record.question, answers)


def popqa(source: Path) -> Pieces:
    """Yield the converted lines of PopQA's test.tsv."""
    path = layout.one_file(source, "*.tsv", "questions")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, dialect=csv.excel_tab):
                answers = [str(answer) for answer in orjson.loads(row["possible_answers"]) if answer is not None]
                yield from _pieces(f"popqa-{row['id']}", row["question"], answers, row.get("prop"))
    except (OSError, UnicodeDecodeError, KeyError, TypeError, csv.Error, orjson.JSONDecodeError) as error:
        raise InputError(f"{path}: not a file of PopQA: {error!r}") from None


def _pieces(id: str, text: str, answers: tuple[str, ...] | list[str], kind: str | None = None) -> Pieces:
    yield layout.question(id, text)
    right = [answer for answer in dict.fromkeys(answers) if answer.strip()]
    if right:
        yield layout.gold(id, answers=right, type=kind, metrics=["squad"])
