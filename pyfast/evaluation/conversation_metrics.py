"""Answers of conversations: H@1 and H@5 as ConvMix counts them, by domain, source and turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import BaseModel

from pyfast.engine.traces import records_of
from pyfast.errors import InputError
from pyfast.evaluation.bootstrap import bootstrap_interval
from pyfast.evaluation.jsonl_records import Lines, Named, name_of, read_records
from pyfast.evaluation.metrics import normalise

NEAREST = 5


@dataclass(frozen=True, slots=True)
class Hits:
    """Of one answer, each 0 or 1."""

    first: float
    among_five: float


def hits(prediction: str | None, answers: Sequence[str], entities: Sequence[str]) -> Hits:
    """H@1 and H@5 (graph_convqa, section 5.2).

    An answer that is right as it stands counts for both. Any other is taken for that of the `entities` (those of
    the turn's evidence) whose name is nearest to it by Levenshtein distance, for H@5 for any of the five nearest;
    ties go by their order.
    """
    gold = {normalise(answer) for answer in answers} - {""}
    if prediction is None or not gold:
        return Hits(0.0, 0.0)
    if normalise(prediction) in gold:
        return Hits(1.0, 1.0)
    right = [normalise(entity) in gold for entity in nearest(prediction, entities)]
    return Hits(float(any(right[:1])), float(any(right)))


def nearest(prediction: str, entities: Sequence[str]) -> list[str]:
    """The five entities nearest to the answer; upper and lower case are the same."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    found = process.extract(
        prediction, entities, scorer=Levenshtein.distance, processor=str.casefold, limit=NEAREST
    )
    return [entity for entity, _, _ in found]


@dataclass(frozen=True, slots=True)
class TurnsRow:
    """Means over some of the turns, with their 95 % intervals over conversations."""

    by: str
    """all, domain, source or turn"""
    value: str
    turns: int
    first: float
    first_interval: tuple[float, float]
    among_five: float
    among_five_interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ConversationReport:
    """All turns first, then by domain, source of the answer, and turn."""

    rows: list[TurnsRow]


@dataclass(frozen=True, slots=True)
class _Scored:
    conversation: str
    domain: str
    source: str
    turn: int
    hits: Hits


def evaluate_turns(answers: Lines, gold: Lines, where: str = "the run") -> list[TurnsRow]:
    """Score answers, lines of answers.jsonl: all turns, then by domain, source of the answer and turn (figure 4).

    Turns of the gold file that were not asked are left out, turns that failed count as wrong. What the system
    noted as `entities` in the trace normalises an answer. Raises `InputError` for files that do not fit.
    """
    records = {record.id: record for record in read_records(answers, _Answered, records_of)}
    scored = [
        _Scored(
            talk.id,
            talk.domain or "(none)",
            turn.answer_src or "(none)",
            number,
            hits(records[turn.id].answer, turn.answers, records[turn.id].trace.entities),
        )
        for talk in read_records(gold, _Conversation)
        for number, turn in enumerate(talk.turns, start=1)
        if turn.id in records
    ]
    if not scored:
        raise InputError(f"{name_of(gold)}: none of its turns is among the answers of {where}")
    rows = [_row("all", "", scored)]
    for by in ("domain", "source", "turn"):
        groups: dict[Any, list[_Scored]] = defaultdict(list)
        for one in scored:
            groups[getattr(one, by)].append(one)
        rows += [_row(by, str(value), groups[value]) for value in sorted(groups)]
    return rows


def _row(by: str, value: str, scored: Sequence[_Scored]) -> TurnsRow:
    conversations = [one.conversation for one in scored]
    first, five = ([getattr(one.hits, name) for one in scored] for name in ("first", "among_five"))
    means = (
        fmean(first),
        bootstrap_interval(first, conversations),
        fmean(five),
        bootstrap_interval(five, conversations),
    )
    return TurnsRow(by, value, len(scored), *means)


class _Trace(BaseModel):
    entities: tuple[str, ...] = ()


class _Answered(Named):
    answer: str | None = None
    trace: _Trace = _Trace()


class _Turn(BaseModel):
    id: str
    answers: tuple[str, ...]
    answer_src: str | None = None


class _Conversation(Named):
    turns: tuple[_Turn, ...]
    domain: str | None = None
