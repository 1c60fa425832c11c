"""Read the questions in a run's folder one by one, each with its record, its usage (ledger) and its LLM
calls."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pyfast.api.run import Run
from pyfast.engine import Question, Record, read_questions
from pyfast.engine.configuration import (
    CONFIGURATION,
    Configuration,
    read_configuration,
    recorded_path,
    recorded_value,
)
from pyfast.engine.ended_questions import ended_questions
from pyfast.engine.kept_prompts import LLMCall
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import InputError

_AT_ONCE = 64  # records that are read together
_LOG = logging.getLogger("pyfast")


@dataclass(frozen=True, slots=True)
class Entry:
    """A question of a run, after the question has ended."""

    number: int
    """The position of the question among the answers, from 0"""
    record: Record
    question: Question | None
    """The question. None if the file of questions is gone"""
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
        self._turns = _by_conversation(self._of.values())

    def of(self, id: str) -> Question | None:
        """Return the question with this id. None if it is not known."""
        return self._of.get(id)

    def turns(self, question: Question | None) -> list[Question]:
        """Return the turns of a question's conversation, in order. The list is empty if the question belongs
        to no conversation."""
        return [] if question is None or question.conversation is None else self._turns[question.conversation]

    def around(self, ids: Iterable[str]) -> list[Question]:
        """Return the questions with these ids, and all turns of their conversations. Questions that are not known
        are left out."""
        found = [question for id in ids if (question := self._of.get(id)) is not None]
        return list({turn.id: turn for question in found for turn in self.turns(question) or [question]}.values())


class RunReader:
    """Reads a run's folder, also while the run is in progress."""

    def __init__(self, path: Path) -> None:
        """Open a run. Raises `InputError` if the folder has no run."""
        self.run = Run(path)
        self.path = path
        self.configuration: Configuration = read_configuration(path / CONFIGURATION)
        self.system = str(self.configuration.get("system", {}).get("name", ""))
        self.settings = _settings(self.configuration)

    def entries(self, asked: Asked, first: int, count: int) -> Iterator[Entry]:
        """Yield at most `count` questions whose answers are already written. `first` is the position of the first
        of them, from 0.

        Raises `InputError` for a damaged run.
        """
        records = self.run.records
        end = min(first + count, len(records))
        some = chain.from_iterable(records[at : min(at + _AT_ONCE, end)] for at in range(first, end, _AT_ONCE))
        ended = ended_questions(self.path / JOURNAL, first, count)
        for number, (record, (id, ledger, calls)) in enumerate(zip(some, ended, strict=False), start=first):
            if id != record.id:
                raise InputError(f"{self.path}: damaged: its answers and its journal differ; try `pyfast verify`")
            question = asked.of(id)
            yield Entry(number, record, question, asked.turns(question), ledger, calls)

    def entry(self, id: str, asked: Asked) -> Entry:
        """Read one question. Raises `InputError` if no question with this id has ended."""
        for number, record in enumerate(self.run.records):
            if record.id == id:
                return next(self.entries(asked, number, 1))
        raise InputError(f"{self.path}: no question {id!r} has ended")


def _settings(configuration: Configuration) -> dict[str, Any]:
    """Return the settings of the run's system, by name."""
    table = configuration.get("system", {})
    return {name.removeprefix("set_"): value for name, value in table.items() if name.startswith("set_")}


def _by_conversation(questions: Iterable[Question]) -> dict[str, list[Question]]:
    turns: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        if question.conversation is not None:
            turns[question.conversation].append(question)
    return turns


def read_asked(run: Path) -> Asked:
    """Read the questions of a run from the file that its run.toml names, as the run saw them. If the file no
    longer exists, the function logs a warning and returns no question.
    """
    try:
        place = recorded_path(run, "questions")
    except InputError as error:
        _LOG.warning("%s; questions are shown by id", error)
        return Asked(())
    questions = read_questions(place)
    if recorded_value(run, "questions", "documents") == "all":
        questions = (replace(question, documents=()) for question in questions)
    return Asked(questions)
