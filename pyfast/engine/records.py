"""What a system gives back for a question, and what is written about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["answered", "abstained", "failed"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A segment that an answer rests on."""

    segment: int
    """Its position in the corpus"""
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system found out. `text` None: it looked, and abstains."""

    text: str | None
    evidence: Sequence[Evidence] = ()
    """Best first"""
    trace: dict[str, Any] = field(default_factory=dict)
    """How it got there, in JSON types"""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of answers.jsonl."""

    id: str
    state: State
    answer: str | None = None
    reason: str | None = None
    """Why it failed"""
    evidence: Sequence[dict[str, Any]] = ()
    trace: dict[str, Any] = field(default_factory=dict)
    llm_calls: int = 0

    def as_json(self) -> dict[str, Any]:
        """As a JSON object; `reason` only where there is one."""
        reason = {} if self.reason is None else {"reason": self.reason}
        return {
            "id": self.id,
            "state": self.state,
            "answer": self.answer,
            **reason,
            "evidence": list(self.evidence),
            "trace": self.trace,
            "usage": {"llm_calls": self.llm_calls},
        }
