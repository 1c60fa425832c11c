"""What a run tells while it goes on."""

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


def ignore(event: Event) -> None:
    """Hear nothing."""
