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
"""The maximum number of calls of a stage for which the times are stored"""
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_REUSED = ("reused", "reused_prompt_tokens", "reused_completion_tokens")
COUNTS = ("llm_calls", *_REUSED, *_TOKENS, "nothing_found")
BY_PROMPT = ("fall_backs", "left_out", "repaired")
"""The counts of a question, and the counts by the name of a prompt"""
_OF_STAGE = "calls", "queued_us", "running_us", "batches", "prompt_tokens", "completion_tokens", "questions"
_ALWAYS = frozenset({"llm_calls", "prompt_tokens", "completion_tokens"})  # Each whole row has these counts.
_OFTEN = ("llm_calls", "replayed", "prompt_tokens", "cached_tokens", "completion_tokens", "steps", "started")
_SELDOM = (*_REUSED, "reasoning_tokens", *BY_PROMPT, "nothing_found")  # A row has them only if they are not empty.


@dataclass(slots=True)
class StageTotals:
    """The totals of one kind of work, over all questions that have ended. The first seven fields have the order
    of a stage in a row of the journal."""

    calls: int = 0
    queued_us: int = 0
    """The microseconds from a call until its work starts, summed over all calls"""
    running_us: int = 0
    """The microseconds of the work, summed over all calls. For batched work, each call counts the time of its
    whole batch"""
    batches: int = 0
    """The sum of the batch sizes of all calls. For an LLM, a call counts how many of its calls were in progress
    when the call ended"""
    role: str = ""
    """The role of the prompt. Empty for work without an LLM"""
    prompt_tokens: int = 0
    """The tokens of prompts, or of the texts that an embedding model or a reranker on a server read"""
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
    """For each of the first `MOMENTS` calls: when it ended (by `perf_counter`), how many microseconds it
    waited, and how many microseconds its work took"""

    def add_call(self, queued: float, running: float, batch: int) -> None:
        """Count one more call of this stage. `queued` is the time that it waited, and `running` the time of
        its work, in seconds. `batch` is the size of its batch."""
        queued_us, running_us = int(queued * 1e6), int(running * 1e6)
        self.calls += 1
        self.queued_us += queued_us
        self.running_us += running_us
        self.batches += batch
        if self.calls <= MOMENTS:
            self.moments.append((perf_counter(), queued_us, running_us))

    def as_row(self) -> tuple[str | int, ...]:
        """Return the stage for the journal. Only a prompt has a role. Only a prompt and a model on a server have
        tokens."""
        has_tokens = self.role or self.prompt_tokens
        of_prompt = (self.role, self.prompt_tokens, self.completion_tokens) if has_tokens else ()
        return (self.calls, self.queued_us, self.running_us, self.batches, *of_prompt)


def add_stages(totals: dict[str, StageTotals], stages: Mapping[str, StageTotals]) -> None:
    """Add the stages of other questions to the totals."""
    for name, stage in stages.items():
        totals.setdefault(name, StageTotals()).add(stage)


@dataclass(slots=True)
class UsageTotals:
    """LLM calls and their tokens. Calls whose replies come from the journal or from an earlier run count too."""

    llm_calls: int = 0
    replayed: int = 0
    """How many replies came from the journal"""
    reused: int = 0
    """How many replies came from an earlier run (`RunOptions.reuse`), or from another question
    (`RunOptions.ask_once`)"""
    reused_prompt_tokens: int = 0
    """The prompt tokens of these replies. They count in `prompt_tokens` too"""
    reused_completion_tokens: int = 0
    """The tokens of these replies. They count in `completion_tokens` too"""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """How many prompt tokens the LLM took from its prefix cache"""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """How many completion tokens are reasoning"""
    fall_backs: Counter[str] = field(default_factory=Counter)
    """How often a system took a fallback because a reply was not usable, by the name of the prompt"""
    left_out: Counter[str] = field(default_factory=Counter)
    """How many passages did not fit into a prompt, by the name of the prompt"""
    repaired: Counter[str] = field(default_factory=Counter)
    """How many items of lists in replies were cut or left out because they did not fit the schema, by the name of
    the prompt"""
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
    """What one question used: calls, tokens, and the time of each stage."""

    steps: int = 0
    began: float = field(default_factory=perf_counter)
    """When work on the question started, by `perf_counter`, as if earlier sessions had worked on it just before"""
    started: float = 0.0
    """When work on the question started, in seconds since the epoch, without the pauses between sessions"""
    earlier: float = 0.0
    """The seconds that earlier sessions worked on the question, until its last call in the journal"""
    seconds: float = 0.0
    """The seconds from `began` to the end of the question"""
    stages: dict[str, Stage] = field(default_factory=dict)

    def stage(self, name: str, role: str = "") -> Stage:
        """Return the stage with this name. A new name makes a new stage. `role` is the role of a prompt."""
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
        """Add calls of embedding models and rerankers on servers. The batch of a call is its number of texts."""
        for call in calls:
            stage = self.stage(call.name)
            stage.add_call(0.0, call.seconds, call.texts)
            stage.prompt_tokens += call.tokens

    def as_row(self) -> dict[str, object]:
        """Write the ledger as JSON for the journal.

        Each stage has its number of calls, the microseconds of waiting and of work, and the sum of its batch
        sizes. A prompt also has its role and its tokens. `spans` has the times of single calls, as `_spans`
        returns them.
        """
        return {
            **{name: value for name in _SELDOM if (value := getattr(self, name))},
            **{name: getattr(self, name) for name in _OFTEN},
            "seconds": round(self.seconds, 6),
            "stages": {name: stage.as_row() for name, stage in self.stages.items()},
            "spans": {name: self._spans(stage) for name, stage in self.stages.items()},
        }

    def _spans(self, stage: Stage) -> list[tuple[int, int, int]]:
        """Return three numbers for each call, in microseconds: when the call was made (counted from the start
        of the question), how long it waited, and how long its work took."""
        began = self.began
        return [
            (max(int((ended - began) * 1e6) - queued - running, 0), queued, running)
            for ended, queued, running in stage.moments
        ]


@cache
def _row() -> type[BaseModel]:
    """Make the model of a row of the journal: only a whole ledger fits, as `Ledger.as_row` writes it."""
    count = Annotated[int, Field(strict=True, ge=0)]
    seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
    role = Annotated[str, Field(strict=True)]
    of_stage = tuple[count, count, count, count] | tuple[count, count, count, count, role, count, count]
    fields: dict[str, Any] = {name: (count, ... if name in _ALWAYS else 0) for name in COUNTS}
    fields |= dict.fromkeys(BY_PROMPT, (dict[str, count], {}))
    fields |= {"started": (seconds, 0.0), "seconds": (seconds, 0.0), "stages": (dict[str, of_stage], ...)}
    return create_model("Row", **fields)


def ledger_of(text: Any) -> dict[str, Any]:
    """Parse a row of the journal. The result is empty if the row is not a whole ledger: then it is damaged, and
    none of its values can be trusted."""
    try:
        row: dict[str, Any] = orjson.loads(text)
        _row().model_validate(row)
    except (TypeError, ValueError):
        return {}
    return row
