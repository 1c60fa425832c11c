"""Batch points: calls of one kind from many coroutines, executed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BatchPoint(Generic[T, R]):
    """`await point(item)` joins the next batch.

    A batch starts when no coroutine can go further, or when `limit` items wait. `work` runs in `executor`, one
    batch at a time: what arrives meanwhile makes the next batch. Where it raises, the items are tried one by one,
    so that an item that cannot be worked on fails alone.
    """

    def __init__(self, work: Callable[[Sequence[T]], Sequence[R]], executor: Executor, limit: int = 4096) -> None:
        self._work = work
        self._executor = executor
        self._limit = limit
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._armed = False
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, item: T) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if not self._armed and self._running is None:
            self._armed = True
            loop.call_soon(self._settle, loop, 0)
        return await future

    def _settle(self, loop: asyncio.AbstractEventLoop, seen: int) -> None:
        # The loop has run everything that was ready since the last look. Did anybody join meanwhile?
        if seen < len(self._waiting) < self._limit:
            loop.call_soon(self._settle, loop, len(self._waiting))
            return
        self._armed = False
        self._running = loop.create_task(self._drain(loop))

    async def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            # Nobody waits for the answer of a cancelled coroutine.
            batch = [(item, future) for item, future in batch if not future.done()]
            outcomes = await loop.run_in_executor(self._executor, self._attempt, [item for item, _ in batch])
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
            # Let those who got their answers run up to their next call before the next batch is cut.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self._running = None

    def _attempt(self, items: Sequence[T]) -> Sequence[R | Exception]:
        if not items:
            return []
        try:
            return self._work(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [outcome for item in items for outcome in self._attempt([item])]
