"""Read the finished questions of a run, with their usage (ledgers) and their LLM calls."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyfast.engine.journal import open_to_read, read_calls
from pyfast.engine.kept_prompts import DamagedError, KeptPrompts, LLMCall
from pyfast.engine.ledger import ledger_of
from pyfast.errors import InputError
from pyfast.sqlite_files import fault

_FRAMES = 128  # frames of kept prompts in memory: about as many as the questions in progress need
_AT_ONCE = 128  # questions whose calls are read together
_QUESTIONS = "SELECT number, id, ledger FROM questions WHERE number BETWEEN ? AND ? ORDER BY number"
_IDS = "SELECT id FROM questions WHERE number >= ? ORDER BY number"
# The table has no index, so SQLite reads all of it, and sorts what it finds.
_COMPLETIONS = "SELECT question, entry FROM completions WHERE question BETWEEN ? AND ? ORDER BY question, rowid"

Ended = tuple[str, dict[str, Any], list[LLMCall]]
"""A question that has ended: its id, its ledger (empty if it is damaged), and its LLM calls"""


def ended_questions(journal: Path, first: int, count: int) -> Iterator[Ended]:
    """Of the `count` questions from number `first` on, read those that have ended, in the order of the run.

    All questions are read from one state of the journal, even if a run writes to it meanwhile.

    Raises `InputError` if the journal cannot be read or is damaged.
    """
    with contextlib.closing(open_to_read(journal)) as database:
        try:
            database.execute("BEGIN")
            prompts = KeptPrompts(database, _FRAMES)
            completions = database.execute(_COMPLETIONS, (first, first + count - 1))
            row = completions.fetchone()
            questions = database.execute(_QUESTIONS, (first, first + count - 1))
            while some := questions.fetchmany(_AT_ONCE):
                entries: dict[int, list[str]] = {number: [] for number, _, _ in some}
                while row is not None and row[0] <= some[-1][0]:
                    if row[0] in entries:
                        entries[row[0]].append(row[1])
                    row = completions.fetchone()
                calls = read_calls(entries, prompts)
                for number, id, ledger in some:
                    yield str(id), ledger_of(ledger), calls.pop(number)
        except sqlite3.Error as error:
            raise InputError(f"{journal}: {fault(error)}") from None
        except DamagedError as error:
            raise InputError(f"{journal}: {error}") from None


def ended_ids(journal: Path, first: int = 0) -> list[str]:
    """Read the ids of the questions that have ended, in the order of the run, beginning at number `first`.

    Raises `InputError` if the journal cannot be read.
    """
    with contextlib.closing(open_to_read(journal)) as database:
        try:
            return [str(id) for (id,) in database.execute(_IDS, (first,))]
        except sqlite3.Error as error:
            raise InputError(f"{journal}: {fault(error)}") from None
