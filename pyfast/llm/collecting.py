"""What a run and an LLM share that collects calls into batches, such as a provider's Batch API."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyfast.llm.protocol import LLM, InFront


@dataclass(slots=True)
class Progress:
    """How many questions of a run are in progress, and how many of them wait for calls that are collected."""

    running: int = 0
    waiting: int = 0

    @property
    def all_wait(self) -> bool:
        """Whether no question can go on."""
        return self.waiting >= self.running

    @contextmanager
    def question(self) -> Iterator[None]:
        """A question is in progress while the block runs."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch that an earlier session of the run has submitted, or was about to submit."""

    key: str
    """128 random bits in hexadecimal"""
    id: str | None
    """The provider's; None: its reply did not arrive"""
    made: float
    """Seconds since the epoch, before it was submitted"""
    calls: Mapping[int, str] = field(default_factory=dict)
    """Digests of requests that the run has no completion of, by their place in the batch"""


class BatchLog(Protocol):
    """Where a run keeps its batches. What is added is on the disk when the call returns."""

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """The batches of an LLM, the oldest first."""
        ...

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Add a batch that is about to be submitted."""
        ...

    async def identify(self, key: str, id: str) -> None:
        """Keep the provider's id of a batch."""
        ...

    async def remove(self, key: str) -> None:
        """Remove a batch: its calls may be submitted again."""
        ...


class NoLog:
    """For runs without a folder, which cannot be resumed."""

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """Nothing."""
        return ()

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Keep nothing."""

    async def identify(self, key: str, id: str) -> None:
        """Keep nothing."""

    async def remove(self, key: str) -> None:
        """Keep nothing."""


class CollectingLLM(LLM, Protocol):
    """An LLM that collects the calls of a run into batches."""

    questions_at_once: int
    """How many questions a run should have in progress"""

    async def join_run(self, progress: Progress, log: BatchLog) -> None:
        """Begin a run. Raises `InputError` if another run uses the LLM."""
        ...

    def leave_run(self) -> None:
        """End it."""
        ...


def collecting(llm: LLM) -> CollectingLLM | None:
    """The LLM behind its wrappers if it collects calls; else None."""
    inner: Any = llm
    while isinstance(inner, InFront):
        inner = inner._llm
    return inner if hasattr(inner, "join_run") else None


def new_batch(key: str, digests: Sequence[str]) -> LoggedBatch:
    """A batch of requests that is about to be submitted."""
    return LoggedBatch(key, None, time.time(), dict(enumerate(digests)))
