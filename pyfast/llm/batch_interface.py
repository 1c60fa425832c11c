"""The interface between a run and an LLM that collects calls into batches, such as a provider's Batch API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyfast.llm.protocol import LLM, InFront


@dataclass(slots=True)
class Progress:
    """Counts how many questions of a run are in progress, and how many of them wait for the reply to a
    collected call."""

    running: int = 0
    waiting: int = 0

    @property
    def all_wait(self) -> bool:
        """Whether every question in progress waits for the reply to a collected call."""
        return self.waiting >= self.running

    @contextmanager
    def question(self) -> Iterator[None]:
        """A context manager: it counts one more question in progress while its `with` block runs."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch of LLM calls, as a `BatchLog` stores it. So a resumed run can find a batch that an earlier
    process of the run has submitted."""

    key: str
    """The key of the batch: 128 random bits in hexadecimal"""
    id: str | None
    """The id that the provider gave to the batch. None: the provider's reply did not arrive"""
    made: float
    """When the batch was made, before it was submitted, in seconds since the epoch"""
    calls: Mapping[int, str] = field(default_factory=dict)
    """The calls of the batch that have no completion in the run yet: the name of each call (`Request.call`), by
    its position in the batch"""


class BatchLog:
    """A store for the batches of a run. When `add` returns, the batch is on the disk.

    This class itself is for runs without a folder, which cannot be resumed: it stores nothing.
    """

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """Return the stored batches of one LLM, the oldest first. `llm` is the name under which `add` stored
        them."""
        return ()

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Store a batch. An LLM calls this method before it submits the batch."""

    async def identify(self, key: str, id: str) -> None:
        """Store the id that the provider gave to a batch."""

    async def remove(self, key: str) -> None:
        """Remove a batch from the store. Its calls can then be submitted again."""


class CollectingLLM(LLM, Protocol):
    """The interface of an LLM that collects the calls of a run into batches."""

    questions_at_once: int
    """How many questions a run should have in progress, so that batches become large"""

    async def join_run(self, progress: Progress, log: BatchLog) -> None:
        """Start collecting calls for a run. Raises `InputError` if another run uses this LLM."""
        ...

    def leave_run(self) -> None:
        """Stop collecting calls for the run."""
        ...


def collecting(llm: LLM) -> CollectingLLM | None:
    """If the LLM collects calls, return it without its wrappers, such as a cache. Otherwise return None."""
    inner: Any = llm
    while isinstance(inner, InFront):
        inner = inner._llm
    return inner if hasattr(inner, "join_run") else None
