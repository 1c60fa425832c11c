"""Count what a question uses: calls, tokens and time, for each stage (kind of work)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, create_model

from pyfast.llm import Completion
from pyfast.llm.protocol import ServerCall

JOURNALLING = "journal"
"""The name of the stage in which a question waits until the run's journal has stored its completion"""
MOMENTS = 64
"""The maximum number of calls per stage whose times are stored"""
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_REUSED = ("reused", "reused_prompt_tokens", "reused_completion_tokens")
COUNTS = ("llm_calls", *_REUSED, *_TOKENS, "nothing_found")
BY_PROMPT = ("fall_backs", "left_out", "repaired")
"""The counts of a question, and the counts by the name of a prompt"""
_OF_STAGE = "calls", "queued_us", "running_us", "batches", "prompt_tokens", "completion_tokens", "questions"
_ALWAYS = frozenset({"llm_calls", "prompt_tokens", "completion_tokens"})  # Every complete row has these counts.
_OFTEN = ("llm_calls", "replayed", "prompt_tokens", "cached_tokens", "completion_tokens", "steps", "started")
_SELDOM = (*_REUSED, "reasoning_tokens", *BY_PROMPT, "nothing_found")  # These are stored only if not empty.


@dataclass(slots=True)
class StageTotals:
    """The totals of one kind of work over all questions that have ended. The first seven fields are in the same
    order as in a row of the journal."""

    calls: int = 0
    queued_us: int = 0
    """The sum of the microseconds that calls waited for their work to start"""
    running_us: int = 0
    """The sum of the microseconds that the work of calls took. In batched work, the time of a batch counts in full
    for each of its calls"""
    batches: int = 0
    """The sum of the batch sizes of all calls. For an LLM, the batch size is the number of its calls in progress
    when the call ended"""
    role: str = ""
    """The role of the prompt. Empty for work without an LLM"""
    prompt_tokens: int = 0
    """The tokens of prompts, or of texts read by an embedding model or a reranker on a server"""
    completion_tokens: int = 0
    questions: int = 0

    def add(self, other: StageTotals) -> None:
        """Add the calls, times and tokens of other questions."""
        self.role = other.role
        for name in _OF_STAGE:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Stage(StageTotals):
    """One kind of work of one question: a prompt, or a batched function such as a search."""

    questions: int = 1
    moments: list[tuple[float, int, int]] = field(default_factory=list)
    """For each of the first `MOMENTS` calls: when it ended (by `perf_counter`), and how many microseconds it
    waited and worked"""

    def add_call(self, queued: float, running: float, batch: int) -> None:
        """Count one more call of this stage. `queued` and `running` are the seconds that the call waited and
        worked, and `batch` is the size of its batch."""
        queued_us, running_us = int(queued * 1e6), int(running * 1e6)
        self.calls += 1
        self.queued_us += queued_us
        self.running_us += running_us
        self.batches += batch
        if self.calls <= MOMENTS:
            self.moments.append((perf_counter(), queued_us, running_us))

    def as_row(self) -> tuple[str | int, ...]:
        """Return the stage for the journal. Only prompts have a role, and only prompts and models on servers have
        tokens."""
        has_tokens = self.role or self.prompt_tokens
        of_prompt = (self.role, self.prompt_tokens, self.completion_tokens) if has_tokens else ()
        return (self.calls, self.queued_us, self.running_us, self.batches, *of_prompt)


def add_stages(totals: dict[str, StageTotals], stages: Mapping[str, StageTotals]) -> None:
    """Add the stages of other questions to the totals."""
    for name, stage in stages.items():
        if name not in totals:
            totals[name] = StageTotals()
        totals[name].add(stage)


@dataclass(slots=True)
class UsageTotals:
    """LLM calls and their tokens, including calls whose replies come from the journal or an earlier run."""

    llm_calls: int = 0
    replayed: int = 0
    """How many replies came from the journal"""
    reused: int = 0
    """How many replies came from an earlier run (`RunOptions.reuse`), or from another question
    (`RunOptions.ask_once`)"""
    reused_prompt_tokens: int = 0
    """The prompt tokens of these replies, which `prompt_tokens` includes"""
    reused_completion_tokens: int = 0
    """The tokens of these replies, which `completion_tokens` includes"""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """How many prompt tokens the LLM took from its prefix cache"""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """How many completion tokens are reasoning"""
    fall_backs: Counter[str] = field(default_factory=Counter)
    """How often a system fell back to a simpler step because a reply was unusable, by prompt name"""
    left_out: Counter[str] = field(default_factory=Counter)
    """How many passages did not fit into a prompt, by prompt name"""
    repaired: Counter[str] = field(default_factory=Counter)
    """How many list items in replies were shortened or left out because they did not fit the schema, by prompt
    name"""
    nothing_found: int = 0
    """How many questions had a search that found nothing"""

    def add(self, other: UsageTotals) -> None:
        """Add the numbers of another `UsageTotals`."""
        for name in ("replayed", *COUNTS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in BY_PROMPT:
            if counts := getattr(other, name):
                getattr(self, name).update(counts)

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Add the numbers of a mapping, such as a ledger of the journal, as `Ledger.as_row` wrote it."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + row.get(name, 0))
        for name in BY_PROMPT:
            if counts := row.get(name):
                getattr(self, name).update(counts)


@dataclass(slots=True)
class Ledger(UsageTotals):
    """The usage of one question: calls, tokens, and the time of each stage."""

    steps: int = 0
    began: float = field(default_factory=perf_counter)
    """When work on the question started, by `perf_counter`, as if there were no pauses between sessions"""
    started: float = 0.0
    """When work on the question started, in seconds since the epoch, as if there were no pauses between
    sessions"""
    earlier: float = 0.0
    """How many seconds earlier sessions worked on the question, until its last call in the journal"""
    seconds: float = 0.0
    """The number of seconds from `began` to the question's end"""
    stages: dict[str, Stage] = field(default_factory=dict)

    def stage(self, name: str, role: str = "") -> Stage:
        """Return the stage with this name, and create it if it does not exist yet. `role` is the role of a
        prompt."""
        stage = self.stages.get(name)
        if stage is None:
            stage = self.stages[name] = Stage(role=role)
        return stage

    @property
    def tokens(self) -> int:
        """The tokens of all prompts and completions of the question."""
        return self.prompt_tokens + self.completion_tokens

    def count(self, completion: Completion, stage: Stage) -> None:
        """Add the tokens of an LLM reply to the totals of the question and of the stage."""
        stage.prompt_tokens += completion.prompt_tokens
        stage.completion_tokens += completion.completion_tokens
        self.prompt_tokens += completion.prompt_tokens
        self.cached_tokens += completion.cached_tokens
        self.completion_tokens += completion.completion_tokens
        self.reasoning_tokens += completion.reasoning_tokens

    def count_server_calls(self, calls: Iterable[ServerCall]) -> None:
        """Add calls of embedding models and rerankers on servers. The batch size of a call is its number of
        texts."""
        for call in calls:
            stage = self.stage(call.name)
            stage.add_call(0.0, call.seconds, call.texts)
            stage.prompt_tokens += call.tokens

    def as_row(self) -> dict[str, object]:
        """Return the ledger as JSON types for the journal.

        Each stage has its number of calls, the microseconds that they waited and worked, and the sum of their
        batch sizes; a prompt also has its role and tokens. `spans` contains the times of single calls, as returned
        by `_spans`."""
        return {
            **{name: value for name in _SELDOM if (value := getattr(self, name))},
            **{name: getattr(self, name) for name in _OFTEN},
            "seconds": round(self.seconds, 6),
            "stages": {name: stage.as_row() for name, stage in self.stages.items()},
            "spans": {name: self._spans(stage) for name, stage in self.stages.items()},
        }

    def _spans(self, stage: Stage) -> list[tuple[int, int, int]]:
        """Return three numbers for each call, in microseconds: when the call was made (from the question's start),
        and how long it waited and worked."""
        began = self.began
        return [
            (max(int((ended - began) * 1e6) - queued - running, 0), queued, running)
            for ended, queued, running in stage.moments
        ]


@cache
def _row() -> type[BaseModel]:
    """Create the pydantic model of a ledger in the journal, which accepts only a complete one, as returned by
    `Ledger.as_row`."""
    count = Annotated[int, Field(strict=True, ge=0)]
    seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
    role = Annotated[str, Field(strict=True)]
    of_stage = tuple[count, count, count, count] | tuple[count, count, count, count, role, count, count]
    fields: dict[str, Any] = {name: (count, ... if name in _ALWAYS else 0) for name in COUNTS}
    fields |= dict.fromkeys(BY_PROMPT, (dict[str, count], Field(default_factory=dict)))
    fields |= {"started": (seconds, 0.0), "seconds": (seconds, 0.0), "stages": (dict[str, of_stage], ...)}
    return create_model("Row", **fields)


def ledger_of(text: Any) -> dict[str, Any]:
    """Parse a ledger from the journal. The result is empty if the ledger is incomplete, because it is then
    damaged, and none of its values can be trusted."""
    try:
        row: dict[str, Any] = orjson.loads(text)
        _row().model_validate(row)
    except (TypeError, ValueError):
        return {}
    return row
