"""How far a run is, read from its folder, also while it runs."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from pyfast.engine.configuration import CONFIGURATION, read_configuration
from pyfast.engine.journal import open_to_read
from pyfast.engine.outages import Waiting
from pyfast.engine.run import Summary
from pyfast.engine.run_folder import JOURNAL, OUTAGE, is_running
from pyfast.errors import InputError


@dataclass(frozen=True, slots=True)
class StageStatus:
    """One kind of work, over all questions that have ended."""

    name: str
    calls: int
    queued_ms: float
    """Mean of a question's waiting for it"""
    running_ms: float
    batch: float
    """Mean size of the batches that a call was worked on in; for the LLM, calls in work"""


@dataclass(frozen=True, slots=True)
class Status:
    """Of a run."""

    questions: int
    states: dict[str, int]
    """How many questions ended as `answered`, `abstained`, `failed`"""
    running: bool
    failures: list[tuple[str, int]]
    """The commonest reasons"""
    llm_calls: int
    prompt_tokens: int
    cached_tokens: int
    """Of the prompts' tokens, those that the engine's prefix cache had"""
    completion_tokens: int
    seconds_left: float | None
    """At the speed of this session; None where it is not known"""
    stages: list[StageStatus]
    waiting: Waiting | None = None
    """The outage that it waits for"""

    @property
    def ended(self) -> int:
        """Questions that have ended."""
        return sum(self.states.values())


def status_of(summary: Summary, questions: int) -> Status:
    """Of a run in memory: what its only session did."""
    stages = [
        StageStatus(
            name,
            stage.calls,
            stage.queued_us / 1000 / stage.questions,
            stage.running_us / 1000 / stage.questions,
            stage.batches / max(stage.calls, 1),
        )
        for name, stage in summary.stages.items()
    ]
    return Status(
        questions=questions,
        states=dict(summary.states),
        running=False,
        failures=summary.failures.most_common(10),
        llm_calls=summary.llm_calls,
        prompt_tokens=summary.prompt_tokens,
        cached_tokens=summary.cached_tokens,
        completion_tokens=summary.completion_tokens,
        seconds_left=None,
        stages=stages,
    )


_TOKENS = """
SELECT coalesce(sum(ledger ->> 'llm_calls'), 0), coalesce(sum(ledger ->> 'prompt_tokens'), 0),
    coalesce(sum(ledger ->> 'cached_tokens'), 0), coalesce(sum(ledger ->> 'completion_tokens'), 0)
FROM questions
"""
_STAGES = """
SELECT key, sum(json_array_length(value, '$.batches')) AS calls, avg(value ->> 'queued_us') / 1000,
    avg(value ->> 'running_us') / 1000,
    sum((SELECT sum(size.value) FROM json_each(stage.value, '$.batches') AS size))
FROM questions, json_each(ledger, '$.stages') AS stage GROUP BY key ORDER BY min(stage.id)
"""


def read_status(folder: Path) -> Status:
    """Raises `InputError` where the folder is not a run's."""
    if not (folder / CONFIGURATION).is_file():
        raise InputError(f"{folder}: not a run folder (it has no {CONFIGURATION})")
    total = read_configuration(folder / CONFIGURATION).get("questions", {}).get("count")
    if not isinstance(total, int):
        raise InputError(f"{folder / CONFIGURATION}: damaged: it does not tell how many questions there are")
    running = is_running(folder)
    with contextlib.closing(open_to_read(folder / JOURNAL)) as database:
        try:
            states = dict(database.execute("SELECT state, count(*) FROM questions GROUP BY state"))
            failures = database.execute(
                "SELECT reason, count(*) AS n FROM questions WHERE state = 'failed' GROUP BY reason"
                " ORDER BY n DESC LIMIT 10"
            ).fetchall()
            calls, prompt, cached, completion = database.execute(_TOKENS).fetchone()
            stages = [
                StageStatus(name, times, queued, work, (sizes or 0) / max(times, 1))
                for name, times, queued, work, sizes in database.execute(_STAGES)
            ]
            session = database.execute("SELECT * FROM sessions ORDER BY started DESC LIMIT 1").fetchone()
        except sqlite3.Error as error:
            raise InputError(f"{folder / JOURNAL}: {error}") from None
    ended = sum(states.values())
    seconds_left = None
    if running and session is not None and ended > session[1]:
        seconds_left = (total - ended) * (time.time() - session[0]) / (ended - session[1])
    return Status(
        questions=total,
        states=states,
        running=running,
        failures=failures,
        llm_calls=calls,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        seconds_left=seconds_left,
        stages=stages,
        waiting=_waiting(folder) if running else None,
    )


def _waiting(folder: Path) -> Waiting | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        said = orjson.loads((folder / OUTAGE).read_bytes())
        return Waiting(float(said["since"]), str(said["reason"]))
    return None
