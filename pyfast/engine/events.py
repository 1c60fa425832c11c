"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyfast.engine.record import Record


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run."""

    kind: Literal["starting", "started", "answered"]
    """`starting`: the LLM is loaded or probed. `started`: questions are being answered. `answered`: one more has
    its record"""
    done: int
    """Questions that have their records, those of earlier sessions among them"""
    total: int
    record: Record | None = None
    """Of `answered`"""


OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Hear nothing."""
