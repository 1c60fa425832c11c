"""The answers of a run against a file of gold questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import BaseModel

from pyfast.errors import InputError
from pyfast.evaluation.jsonl_records import Lines, Named, name_of, read_records
from pyfast.evaluation.metrics import Score, score, score_set


@dataclass(frozen=True, slots=True)
class Row:
    """Means over the questions of one type."""

    type: str
    questions: int
    em: float
    f1: float
    recall: float | None
    """Share of the gold evidence's uris among the answer's evidence; None where no question names any"""


@dataclass(frozen=True, slots=True)
class Report:
    """All questions first, then each type."""

    rows: list[Row]
    states: dict[str, int]
    missing: int
    """Gold questions that the run did not answer: they score 0"""


def evaluate(answers: Lines, gold: Lines, where: str = "the run") -> Report:
    """Score answers, lines of answers.jsonl. Gold questions that were not asked count as wrong.

    Gold lines hold `id` and `answers` (aliases of one answer; with `answer_mode` "all" a set to give in full),
    and may hold `type` and `supporting` (uris). Raises `InputError` for files that do not fit.
    """
    records = {record.id: record for record in read_records(answers, _Answered)}
    by_type: dict[str, list[tuple[Score, float | None]]] = defaultdict(list)
    missing, total = 0, 0
    for question in read_records(gold, _Gold):
        total += 1
        record = records.get(question.id)
        missing += record is None
        scorer = score_set if question.answer_mode == "all" else score
        scored = scorer(record.answer if record else None, question.answers)
        by_type[question.type or ""].append((scored, _recall(record, question.supporting)))
    if not total:
        raise InputError(f"{name_of(gold)}: holds no question")
    if missing == total:
        raise InputError(f"{name_of(gold)}: none of its ids is among the answers of {where}")
    everything = [item for items in by_type.values() for item in items]
    rows = [_row("all", everything)]
    if len(by_type) > 1:
        rows += [_row(name or "(none)", by_type[name]) for name in sorted(by_type)]
    return Report(rows, dict(Counter(r.state for r in records.values())), missing)


def _row(name: str, items: list[tuple[Score, float | None]]) -> Row:
    recalls = [recall for _, recall in items if recall is not None]
    return Row(
        type=name,
        questions=len(items),
        em=fmean(s.em for s, _ in items),
        f1=fmean(s.f1 for s, _ in items),
        recall=fmean(recalls) if recalls else None,
    )


def _recall(record: _Answered | None, supporting: Sequence[str] | None) -> float | None:
    if not supporting:
        return None
    found = {item.uri for item in record.evidence} if record else set()
    return len(found & set(supporting)) / len(set(supporting))


class _Piece(BaseModel):
    uri: str


class _Answered(Named):
    """What is needed of a line of answers.jsonl."""

    state: str
    answer: str | None = None
    evidence: tuple[_Piece, ...] = ()


class _Gold(Named):
    """What is needed of a line of gold."""

    answers: tuple[str, ...]
    answer_mode: str = ""
    type: str | None = None
    supporting: tuple[str, ...] | None = None
