"""What a system gives back for a question, and what is written about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from pyfast.retrieval import Evidence

State = Literal["answered", "abstained", "failed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system found out. `text` None: it looked, and abstains."""

    text: str | None
    evidence: Evidence | bytes | None = None
    """What it rests on; or the JSON array of it, objects with `uri` and `snippet`, where a system makes its own"""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """How it got there, in JSON types"""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of answers.jsonl."""

    id: str
    state: State
    answer: str | None = None
    reason: str | None = None
    """Why it failed"""
    evidence: bytes = b"[]"
    """JSON"""
    trace: bytes = b"{}"
    """JSON"""
    usage: Mapping[str, int] = field(default_factory=dict)

    def line(self) -> bytes:
        """As a JSON object on a line; `reason` only where there is one."""
        reason = {} if self.reason is None else {"reason": self.reason}
        record = {
            "id": self.id,
            "state": self.state,
            "answer": self.answer,
            **reason,
            "evidence": orjson.Fragment(self.evidence),
            "trace": orjson.Fragment(self.trace),
            "usage": self.usage,
        }
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)

    def as_json(self) -> dict[str, Any]:
        """As it is read back."""
        found: dict[str, Any] = orjson.loads(self.line())
        return found
