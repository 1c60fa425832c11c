"""What one question cost, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyfast.llm import Completion


@dataclass(slots=True)
class Stage:
    """One kind of work of one question: a prompt, or a function that is batched."""

    queued: float = 0.0
    """Seconds between asking and the start of the work"""
    running: float = 0.0
    """Seconds of the work: for batched work, those of the whole batch"""
    batches: list[int] = field(default_factory=list)
    """How many calls were worked on together, for each call; for the LLM, how many it had in work"""

    def add(self, queued: float, running: float, batch: int) -> None:
        """One more call."""
        self.queued += queued
        self.running += running
        self.batches.append(batch)


@dataclass(slots=True)
class Ledger:
    """Of one question. Counts include the calls that a resumed run took from its journal."""

    llm_calls: int = 0
    replayed: int = 0
    """Of the calls, those from the journal"""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt's, those that the engine's prefix cache had"""
    completion_tokens: int = 0
    steps: int = 0
    stages: dict[str, Stage] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        stage = self.stages.get(name)
        if stage is None:
            stage = self.stages[name] = Stage()
        return stage

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt_tokens + self.completion_tokens

    def count(self, completion: Completion) -> None:
        """Add a completion's tokens."""
        self.prompt_tokens += completion.prompt_tokens
        self.cached_tokens += completion.cached_tokens
        self.completion_tokens += completion.completion_tokens

    def usage(self) -> dict[str, int]:
        """What depends on the question alone, and so may stand in its answer's record."""
        return {
            "llm_calls": self.llm_calls,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }

    def as_json(self) -> dict[str, Any]:
        """All of it; times in milliseconds."""
        stages = {
            name: {
                "queued_ms": round(stage.queued * 1e3, 3),
                "running_ms": round(stage.running * 1e3, 3),
                "batches": stage.batches,
            }
            for name, stage in self.stages.items()
        }
        cache = {"cached_tokens": self.cached_tokens, "replayed": self.replayed}
        return {**self.usage(), **cache, "steps": self.steps, "stages": stages}
