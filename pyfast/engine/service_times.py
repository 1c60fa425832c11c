"""Compute how fast a run was, and how its questions spent their time, from the usage (ledgers) in its
journal."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyfast.engine.journal import open_to_read
from pyfast.engine.ledger import ledger_of
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import InputError
from pyfast.sqlite_files import fault

_EDGE = 0.1
"""The share of the questions that do not count at the beginning of a run. The same share does not count at
its end. At these times, fewer questions than usual are in progress
"""
_FEW = 20


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """The measured times of a run."""

    seconds: tuple[float, ...]
    """The seconds of each question, from its start to its end"""
    rate: float
    """Questions a second, while the usual number of questions was in progress"""
    shares: Mapping[str, float]
    """The shares of a question's time, between 0 and 1, by their names: `llm`, `waiting for the llm`,
    `search` (searches and other batched calls) and `engine` (pyfast's own process)"""

    @property
    def in_progress(self) -> float:
        """The average number of questions in progress, by Little's law."""
        return self.rate * float(np.mean(self.seconds))


def service_times(run: Path) -> ServiceTimes | None:
    """Compute the times of a run. Pauses between its sessions do not count. Returns None if fewer than two
    questions have recorded times.

    Raises `InputError` if the run's journal cannot be read.
    """
    ends, seconds = list[float](), list[float]()
    parts = dict.fromkeys(("llm", "waiting for the llm", "search"), 0.0)
    with contextlib.closing(open_to_read(run / JOURNAL)) as database:
        try:
            for (text,) in database.execute("SELECT ledger FROM questions"):
                ledger = ledger_of(text)
                # A ledger that was written again from the answer has no times.
                if not ledger or "started" not in ledger or "seconds" not in ledger:
                    continue
                took = float(ledger["seconds"])
                for calls, queued, running, _batches, *of_prompt in ledger["stages"].values():
                    if calls:
                        parts["llm" if of_prompt else "search"] += running / 1e6
                        parts["waiting for the llm" if of_prompt else "search"] += queued / 1e6
                seconds.append(took)
                ends.append(float(ledger["started"]) + took)
        except sqlite3.Error as error:
            raise InputError(f"{run / JOURNAL}: {fault(error)}") from None
    if len(seconds) < 2 or not sum(seconds):
        return None
    gaps = np.diff(np.sort(ends))
    edge = int(_EDGE * len(gaps)) if len(gaps) >= _FEW else 0
    gaps = gaps[edge : len(gaps) - edge]
    gaps = gaps[gaps <= max(seconds)]  # A longer gap is a pause: no question was in progress.
    rate = len(gaps) / max(float(gaps.sum()), 1e-9)
    shares = {name: part / sum(seconds) for name, part in parts.items()}
    shares["engine"] = max(1.0 - sum(shares.values()), 0.0)
    return ServiceTimes(tuple(seconds), rate, shares)
