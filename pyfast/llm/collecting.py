"""The interface between a run and an LLM that collects calls into batches, such as a provider's Batch API."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyfast.llm.protocol import LLM, InFront


@dataclass(slots=True)
class Progress:
    """The number of questions of a run in progress, and how many of them wait for calls that are collected."""

    running: int = 0
    waiting: int = 0

    @property
    def all_wait(self) -> bool:
        """Whether every question in progress waits."""
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
    """A batch of an earlier session of the run. The session has submitted it, or was about to submit it."""

    key: str
    """The key of the batch: 128 random bits in hexadecimal"""
    id: str | None
    """The provider's id. None: the provider's reply did not arrive"""
    made: float
    """When the batch was made, before it was submitted, in seconds since the epoch"""
    calls: Mapping[int, str] = field(default_factory=dict)
    """The digests of requests without a completion in the run, by their place in the batch"""


class BatchLog(Protocol):
    """Where a run stores its batches. An addition is on the disk when the call returns."""

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """The batches of an LLM, the oldest first."""
        ...

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Add a batch that is about to be submitted."""
        ...

    async def identify(self, key: str, id: str) -> None:
        """Store the provider's id of a batch."""
        ...

    async def remove(self, key: str) -> None:
        """Remove a batch. Its calls can then be submitted again."""
        ...


class NoLog:
    """A log for runs without a folder. It stores nothing, because such runs cannot be resumed."""

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """Return nothing."""
        return ()

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Store nothing."""

    async def identify(self, key: str, id: str) -> None:
        """Store nothing."""

    async def remove(self, key: str) -> None:
        """Remove nothing."""


class CollectingLLM(LLM, Protocol):
    """An LLM that collects the calls of a run into batches."""

    questions_at_once: int
    """How many questions a run should have in progress"""

    async def join_run(self, progress: Progress, log: BatchLog) -> None:
        """Begin a run. Raises `InputError` if another run uses this LLM."""
        ...

    def leave_run(self) -> None:
        """End the run."""
        ...


def collecting(llm: LLM) -> CollectingLLM | None:
    """The LLM that collects calls, behind any wrappers. None if the LLM does not collect."""
    inner: Any = llm
    while isinstance(inner, InFront):
        inner = inner._llm
    return inner if hasattr(inner, "join_run") else None


def new_batch(key: str, digests: Sequence[str]) -> LoggedBatch:
    """A batch of requests that is about to be submitted."""
    return LoggedBatch(key, None, time.time(), dict(enumerate(digests)))
