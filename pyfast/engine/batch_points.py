"""Batch points: queues that each collect calls of one kind from many questions, and execute them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import Generic, TypeVar

from pyfast.engine.journal.ledger import Ledger, Stage
from pyfast.errors import RunError
from pyfast.llm.protocol import ServerCall, calls_counted

T = TypeVar("T")
R = TypeVar("R")
_Waiting = tuple[T, asyncio.Future[R], Stage, float, Ledger | None]


class BatchPoint(Generic[T, R]):
    """A queue for calls of one kind from many coroutines. `await point(item, stage)` puts a call into the next
    batch.

    A batch starts when no coroutine can continue, or when `limit` items wait. `work` computes a batch in
    `executor`, one batch at a time. Items that arrive during a batch go into the next one. If `work` raises an
    error, the batch is bisected until only the items that cause the error fail. Each item has a `stage`, which
    counts calls and times, and to which the time of the whole batch is added. Calls to embedding models and
    rerankers on servers count for one question of the batch.
    """

    def __init__(self, work: Callable[[Sequence[T]], Sequence[R]], executor: Executor, limit: int = 128) -> None:
        self._work = work
        self._executor = executor
        self._limit = limit
        self._waiting: list[_Waiting[T, R]] = []
        self._armed = False
        self._running: asyncio.Task[None] | None = None

    def __call__(self, item: T, stage: Stage, ledger: Ledger | None = None) -> asyncio.Future[R]:
        """Put an item into the next batch, and return a future for its result. `ledger` is that of the item's
        question.

        This is an ordinary method, because a coroutine would make each call slower.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future, stage, perf_counter(), ledger))
        self._arm(loop)
        return future

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._armed and self._running is None:
            self._armed = True
            loop.call_soon(self._settle, loop, 0)

    def _settle(self, loop: asyncio.AbstractEventLoop, seen: int) -> None:
        # The loop has run everything that was ready. If more callers have joined in the meantime, wait for the
        # next round.
        if seen < len(self._waiting) < self._limit:
            loop.call_soon(self._settle, loop, len(self._waiting))
            return
        self._armed = False
        self._running = loop.create_task(self._run_batch(loop))

    async def _run_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
        # Nobody is waiting for a cancelled coroutine's result.
        batch = [waiting for waiting in batch if not waiting[1].done()]
        started = perf_counter()
        calls: list[ServerCall] = []
        try:
            items = [item for item, *_ in batch]
            outcomes, calls = await loop.run_in_executor(self._executor, self._counted, items)
        except BaseException as error:  # The executor has shut down, or the loop is closing.
            outcomes = [RuntimeError(f"the batch failed: {error!r}")] * len(batch)
            if not isinstance(error, Exception):
                for _, future, *_ in batch:  # Without this, their callers would wait for ever.
                    future.cancel()
                raise
        finally:
            self._running = None
            self._arm(loop)
        running = perf_counter() - started
        ledger = next((of_question for *_, of_question in batch if of_question is not None), None)
        if ledger is not None:
            ledger.count_server_calls(calls)
        for (_, future, stage, joined, _), outcome in zip(batch, outcomes, strict=True):
            if future.done():
                continue
            stage.add_call(started - joined, running, len(batch))
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _counted(self, items: Sequence[T]) -> tuple[Sequence[R | Exception], list[ServerCall]]:
        with calls_counted() as calls:
            return self._attempt(items), calls

    def _attempt(self, items: Sequence[T]) -> Sequence[R | Exception]:
        if not items:
            return []
        try:
            results = self._work(items)
            if len(results) != len(items):  # With too few results, some callers would wait for ever.
                raise RuntimeError(f"a batch of {len(items)} items got {len(results)} results")
            return results
        except StopIteration as error:  # A future cannot hold a StopIteration.
            failure: Exception = RuntimeError(f"StopIteration: {error}")
        except Exception as error:
            failure = error
        if len(items) == 1 or isinstance(failure, RunError):  # The halves would fail too, each after its own wait.
            return [failure] * len(items)
        half = len(items) // 2
        return [*self._attempt(items[:half]), *self._attempt(items[half:])]
