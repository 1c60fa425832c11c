"""Read the questions in a run's folder one by one, each with its record, its usage (ledger) and its LLM calls, and
score the answers of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pyfast.api.run import GoldLike, Run, questions_of, scores_and_gold
from pyfast.engine import Question, Record
from pyfast.engine.configuration import CONFIGURATION, read_configuration
from pyfast.engine.journal.journal_reader import ended_questions
from pyfast.engine.journal.prompt_store import LLMCall
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import InputError
from pyfast.evaluation import Metric
from pyfast.evaluation.cost import Prices
from pyfast.evaluation.gold import Gold, read_gold

_AT_ONCE = 64  # records that are read together


@dataclass(frozen=True, slots=True)
class Entry:
    """A question of a run, after the question has ended."""

    number: int
    """The position of the question among the answers, from 0"""
    record: Record
    question: Question | None
    """The question. None if the question file no longer exists"""
    turns: Sequence[Question]
    """The turns of the question's conversation, in order. Empty if the question belongs to no conversation"""
    ledger: Mapping[str, Any]
    """The ledger, as `Ledger.as_row` writes it. Empty if the ledger is damaged"""
    calls: Sequence[LLMCall]


class Asked:
    """Questions of a run, by their ids."""

    def __init__(self, questions: Iterable[Question]) -> None:
        """`questions` must have all turns of each conversation."""
        self._of = {question.id: question for question in questions}
        self._turns: dict[str | None, list[Question]] = defaultdict(list)
        for question in self._of.values():
            self._turns[question.conversation].append(question)

    def of(self, id: str) -> Question | None:
        """Return the question with this id, or None if it is unknown."""
        return self._of.get(id)

    def turns(self, question: Question | None) -> list[Question]:
        """Return the turns of a question's conversation, in order. The list is empty if the question belongs
        to no conversation."""
        return [] if question is None or question.conversation is None else self._turns[question.conversation]

    def around(self, ids: Iterable[str]) -> list[Question]:
        """Return the questions with these ids, and all turns of their conversations. Unknown ids are left out."""
        found = [question for id in ids if (question := self._of.get(id)) is not None]
        return list({turn.id: turn for question in found for turn in self.turns(question) or [question]}.values())


class RunReader:
    """Reads a run's folder, also while the run is in progress."""

    def __init__(self, path: Path) -> None:
        """Open a run. Raises `InputError` if the folder has no run."""
        self.run = Run(path)
        self.path = path
        self.configuration = read_configuration(path / CONFIGURATION)
        table = self.configuration.get("system", {})
        self.system = str(table.get("name", ""))
        self.settings = {name[4:]: value for name, value in table.items() if name.startswith("set_")}
        """The settings of the run's system, by name"""

    def asked(self) -> Asked:
        """Read the questions of the run, as `questions_of` does."""
        return Asked(questions_of(self.path))

    def entries(self, asked: Asked, first: int, count: int) -> Iterator[Entry]:
        """Yield at most `count` questions whose answers are already written; `first` is the position of the first
        of them, from 0. Raises `InputError` for a damaged run."""
        records = self.run.records
        end = min(first + count, len(records))
        some = chain.from_iterable(records[at : min(at + _AT_ONCE, end)] for at in range(first, end, _AT_ONCE))
        ended = ended_questions(self.path / JOURNAL, first, count)
        for number, (record, (id, ledger, calls)) in enumerate(zip(some, ended, strict=False), start=first):
            if id != record.id:
                raise InputError(
                    f"{self.path} is damaged: its answers and journal differ; try `pyfast verify {self.path}`"
                )
            question = asked.of(id)
            yield Entry(number, record, question, asked.turns(question), ledger, calls)

    def entry(self, id: str, asked: Asked) -> Entry:
        """Read one question. Raises `InputError` if no question with this id has ended."""
        for number, record in enumerate(self.run.records):
            if record.id == id:
                return next(self.entries(asked, number, 1))
        raise InputError(f"{self.path}: there is no finished question {id!r}")


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of all questions together and of each question. Empty if there are no gold answers."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the report: figures with intervals, for each group of questions"""
    not_run: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)
    """The names of the figures"""
    figures: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """The figures of each question with a gold answer, by its id"""
    gold_lines: Mapping[str, str] = field(default_factory=dict)
    """The gold of each question, by its id, as a line of JSON. `Gold` objects would take four times the memory"""

    def gold(self) -> dict[str, Gold]:
        """Read the gold of each question."""
        return {id: Gold.model_validate_json(line) for id, line in self.gold_lines.items()}

    def of(self, ids: Sequence[str]) -> Scores:
        """The figures and the gold of some questions."""
        known = [id for id in ids if id in self.figures]
        figures, lines = {id: self.figures[id] for id in known}, {id: self.gold_lines[id] for id in known}
        return Scores(names=self.names, figures=figures, gold_lines=lines)


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the answers of runs are scored, and what they cost: arguments of `pyfast.evaluate`."""

    gold: GoldLike | None = None
    metrics: Sequence[str | Metric] | None = None
    prices: Prices | None = None


BY_DEFAULT = Scoring()


def scores_of(run: Path, scoring: Scoring) -> Scores:
    """Score a run. If there is no `gold`, the gold answers come from gold.jsonl in the folder of the run's
    questions. If there is no such file, they come from the questions themselves.

    If there are no gold answers, the function logs a warning. Raises `InputError` if the given `gold` has none
    of the run's questions.
    """
    scored = scores_and_gold(run, scoring.gold, scoring.metrics)
    if scored is None:
        return Scores()
    report, lines = scored
    figures = {one.id: one.figures for one in report.questions}
    known, starts = dict[str, str](), dict[str, tuple[int, ...]]()
    lacking = {uri for one in read_gold(lines) if one.id in figures for uri in _without_sentences(one)}
    for one in read_gold(lines) if lacking else ():  # As in `evaluate`, starts of other questions count too.
        starts |= {uri: places for uri, places in (one.sentence_starts or {}).items() if uri in lacking}
    for one in read_gold(lines):
        if one.id in figures:
            (one.model_extra or {}).clear()  # No page shows these keys, and they can be most of the gold.
            others = {uri: starts[uri] for uri in _without_sentences(one) & starts.keys()}
            if others:
                one = one.model_copy(update={"sentence_starts": {**(one.sentence_starts or {}), **others}})
            known[one.id] = one.model_dump_json(exclude_defaults=True)
    return Scores(report.as_json()["rows"], report.not_run, list(report.rows[0].figures), figures, known)


def _without_sentences(gold: Gold) -> set[str]:
    """Return the documents of a question's supporting facts whose sentences its own gold does not have."""
    return {uri for uri, _ in gold.supporting_facts or ()} - (gold.sentence_starts or {}).keys()


def wrongness(figures: Mapping[str, float | None]) -> float:
    """Return how wrong an answer is, from 0 to 1. It is 1 minus the first figure of the question that is not
    None. Without such a figure, it is 0.
    """
    value = next((one for one in figures.values() if one is not None), None)
    return 0.0 if value is None else 1.0 - min(max(value, 0.0), 1.0)
