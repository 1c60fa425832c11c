"""Read the questions in a run's folder one by one, each with its record, its usage (ledger) and its LLM
calls."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyfast.api.run import Run
from pyfast.engine import Question, Record, read_questions
from pyfast.engine.configuration import CONFIGURATION, Configuration, read_configuration, recorded_path
from pyfast.engine.ended_questions import ended_questions
from pyfast.engine.kept_prompts import LLMCall
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import InputError

_LOG = logging.getLogger("pyfast")


@dataclass(frozen=True, slots=True)
class Entry:
    """A question of a run, after the question has ended."""

    number: int
    """The position of the question among the answers, from 0"""
    record: Record
    question: Question | None
    """The question. None if the file of questions is gone"""
    ledger: Mapping[str, Any]
    """The ledger, as `Ledger.as_row` writes it. Empty if the ledger is damaged"""
    calls: tuple[LLMCall, ...]


class RunReader:
    """Reads a run's folder, also while the run is in progress."""

    def __init__(self, path: Path) -> None:
        """Open a run. Raises `InputError` if the folder has no run."""
        self.run = Run(path)
        self.path = path
        self.configuration: Configuration = read_configuration(path / CONFIGURATION)
        self.system = str(self.configuration.get("system", {}).get("name", ""))
        self.settings = _settings(self.configuration)
        self.questions = _questions(path)
        self._turns = _by_conversation(self.questions.values())

    def turns(self, question: Question | None) -> list[Question]:
        """Return the turns of a question's conversation, in order. The list is empty if the question belongs
        to no conversation."""
        if question is None or question.conversation is None:
            return []
        return self._turns[question.conversation]

    def entries(self, first: int = 0) -> Iterator[Entry]:
        """Yield the questions whose answers are already written. `first` is the position of the first of
        them, from 0.

        Raises `InputError` for a damaged run.
        """
        records = self.run.records
        for number, (id, ledger, calls) in enumerate(ended_questions(self.path / JOURNAL, first), start=first):
            if number == len(records):
                return
            record = records[number]
            if id != record.id:
                raise InputError(f"{self.path}: damaged: its answers and its journal differ; try `pyfast verify`")
            yield Entry(number, record, self.questions.get(id), ledger, tuple(calls))

    def entry(self, id: str) -> Entry:
        """Read one question. Raises `InputError` if no question with this id has ended."""
        for number, record in enumerate(self.run.records):
            if record.id == id:
                return next(self.entries(number))
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


def _questions(path: Path) -> dict[str, Question]:
    """Read the run's questions by id, from the file of questions that the run has recorded. Empty if the file
    no longer exists.
    """
    try:
        place = recorded_path(path, "questions")
    except InputError as error:
        _LOG.warning("%s; questions are shown by id", error)
        return {}
    return {question.id: question for question in read_questions(place)}
