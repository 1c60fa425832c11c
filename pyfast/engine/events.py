"""The events of a run, and the steps of its questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyfast.engine.outages import Waiting
from pyfast.engine.record import Record


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run."""

    kind: Literal["starting", "started", "answered", "waiting", "answering"]
    """`starting`: the LLM is loaded or probed. `started`: questions are being answered. `answered`: one more has
    its record. `waiting`: the LLM answers nobody, and is waited for; `answering`: it answers again"""
    done: int
    """Questions that have their records, those of earlier sessions among them"""
    total: int
    record: Record | None = None
    """Of `answered`"""
    waiting: Waiting | None = None
    """Of `waiting`: since when, and why"""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a question: of an LLM, or of a batched function. Reported when it begins and when it ends."""

    question: str
    """The question's id"""
    name: str
    """Of the prompt, or of the function"""
    role: str = ""
    """Of a prompt; empty if the step asks no LLM"""
    asked: str = ""
    """What a function looks for, if that is text: the queries of a retrieval"""
    seconds: float | None = None
    """How long it took; None: it begins"""
    reply: str = ""
    """What the LLM answered"""
    passages: int | None = None
    """How many passages a retrieval found; None for other steps"""
    error: str = ""
    """Why it failed; empty: it did not"""
    prompt_tokens: int = 0
    """Of a call of the LLM that has ended"""
    cached_tokens: int = 0
    """Of the prompt's, those that the LLM had in its prefix cache"""
    completion_tokens: int = 0


OnStep = Callable[[Step], None]


def ignore(event: Event) -> None:
    """Ignore the event."""
