"""What a system gives back for a question, and what is written about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["answered", "abstained", "failed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system found out. `text` None: it looked, and abstains."""

    text: str | None
    evidence: Sequence[tuple[int, float]] = ()
    """(unit, score), best first"""
    trace: dict[str, Any] = field(default_factory=dict)
    """How it got there, in JSON types"""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of answers.jsonl."""

    id: str
    state: State
    answer: str | None
    evidence: list[dict[str, Any]]
    trace: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "id": self.id,
            "state": self.state,
            "answer": self.answer,
            "evidence": self.evidence,
            "trace": self.trace,
        }
