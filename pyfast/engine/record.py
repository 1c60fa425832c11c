"""What a system gives back for a question, and what is written about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, Self

import orjson

from pyfast.errors import InputError
from pyfast.retrieval import ScoredSegments

State = Literal["answered", "abstained", "failed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system found out; its last line returns one.

    Example:
        >>> Answer("Paris")
        Answer(text='Paris', evidence=None, trace={})
        >>> Answer(None).text is None  # it looked, and abstains
        True
    """

    text: str | None
    evidence: ScoredSegments | bytes | None = None
    """What it rests on; or the JSON array of it, objects with `uri` and `snippet`, where a system makes its own"""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """How it got there, in JSON types"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One segment that an answer rests on, or that was retrieved."""

    uri: str
    """Of its document"""
    snippet: str
    """The segment's content"""
    offsets: tuple[int, int] = (-1, -1)
    """Zero-based, half-open characters of a text; row and column of a table, -1 for all; (-1, -1) in graphs"""
    segment: str = ""
    """The segment's id, 16 hexadecimal digits"""
    score: float | None = None
    """As it was ranked; None where the system does not rank its evidence"""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else the system tells of it, such as HSEQ's `level`, `source_type` and `meta`"""

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Self:
        """From an object of answers.jsonl."""
        known = {"uri", "snippet", "offsets", "segment", "score", "id"}
        first, last = found.get("offsets", (-1, -1))
        return cls(
            uri=found["uri"],
            snippet=found["snippet"],
            offsets=(first, last),
            segment=found.get("segment") or found.get("id", ""),
            score=found.get("score"),
            metadata={name: value for name, value in found.items() if name not in known},
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer took: the same however the run was interrupted."""

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


_USAGE = tuple(field.name for field in fields(Usage))


@dataclass(frozen=True)
class Record:
    """The answer to one question: one line of answers.jsonl.

    `evidence` and `trace` are read from their JSON when they are first asked for.
    """

    id: str
    state: State
    """`answered`, `abstained` (the system looked, and the evidence does not tell) or `failed`"""
    answer: str | None = None
    reason: str | None = None
    """Why it failed"""
    evidence_json: bytes = field(default=b"[]", repr=False)
    trace_json: bytes = field(default=b"{}", repr=False)
    usage: Usage = Usage()

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the answer rests on, best first where the system ranks it."""
        return tuple(Evidence.read(found) for found in orjson.loads(self.evidence_json))

    @cached_property
    def trace(self) -> dict[str, Any]:
        """How the system got there: its steps in JSON types, see the system's page."""
        found: dict[str, Any] = orjson.loads(self.trace_json)
        return found

    def line(self) -> bytes:
        """As a JSON object on a line; `reason` only where there is one."""
        reason = {} if self.reason is None else {"reason": self.reason}
        record = {
            "id": self.id,
            "state": self.state,
            "answer": self.answer,
            **reason,
            "evidence": orjson.Fragment(self.evidence_json),
            "trace": orjson.Fragment(self.trace_json),
            "usage": self.usage,
        }
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def read(cls, line: bytes) -> Self:
        """What `line` wrote. Raises `InputError` for anything else."""
        try:
            found = orjson.loads(line)
            return cls(
                id=found["id"],
                state=found["state"],
                answer=found["answer"],
                reason=found.get("reason"),
                evidence_json=orjson.dumps(found["evidence"]),
                trace_json=orjson.dumps(found["trace"]),
                usage=Usage(*(found["usage"][name] for name in _USAGE)),
            )
        except (ValueError, KeyError, TypeError):
            raise InputError(f"not a record of a run: {line[:80]!r}") from None

    def as_json(self) -> dict[str, Any]:
        """As it is read back: the object of its line."""
        found: dict[str, Any] = orjson.loads(self.line())
        return found
