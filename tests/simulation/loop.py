"""An event loop without a clock, threads or sockets. Time passes only when nothing else can happen."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from random import Random
from threading import RLock
from typing import Any
from weakref import ref

from simulation.disk import Disk


class StuckError(Exception):
    """Nothing more can happen, and the work has not ended."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class _Handle(float):
    """A callback, and the moment of its timer: of the same moment, none is before the other. There are none of the
    checks of asyncio, which are half of what a loop without sockets does."""

    __slots__ = ("args", "callback", "context")
    callback: Callable[..., Any] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        self.callback, self.args = None, ()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs what is ready in a drawn order (`shuffles`), or in the order of asyncio. Work of threads is done in the
    loop, at drawn moments."""

    def __init__(self, chance: Random, disk: Disk, now: float, shuffles: bool, slow: bool) -> None:
        super().__init__()
        self._chance, self._disk, self._now, self._shuffles, self._slow = chance, disk, now, shuffles, slow
        self.steps = 0
        self.kill_at = -1
        """The number of the step after which the process is killed"""
        self.faults: list[str] = []
        """What asyncio reported to nobody: exceptions that were lost"""
        self._threads = SimulatedThreads(self, 4)
        self._made = 0
        self._tasks: list[ref[_Task]] = []  # asyncio's set has the tasks of all loops before
        self.set_exception_handler(self._heard)

    def _heard(self, _: Any, told: dict[str, Any]) -> None:
        self.faults.append(f"{told.get('message')}: {told.get('exception')!r}")

    def create_task(self, work: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        self._made += 1
        task = _Task(work, loop=self, name=name or "task", context=context)
        task.number = self._made
        self._tasks.append(ref(task))
        return task

    def create_future(self) -> asyncio.Future[Any]:
        self._made += 1
        future = _Future(loop=self)
        future.number = self._made
        return future

    def time(self) -> float:
        return self._now

    get_debug = bool  # False, without a Python function that each task and future would call

    def call_soon(self, callback: Any, *given: Any, context: Any = None) -> Any:
        handle = _Handle()
        handle.callback, handle.args = callback, given
        handle.context = copy_context() if context is None else context
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *given: Any, context: Any = None) -> Any:
        handle = _Handle(when)
        handle.callback, handle.args = callback, given
        handle.context = copy_context() if context is None else context
        heapq.heappush(self._scheduled, handle)
        return handle

    def call_later(self, delay: float, callback: Any, *given: Any, context: Any = None) -> Any:
        return self.call_at(self._now + delay, callback, *given, context=context)

    def run_in_executor(self, executor: Any, work: Any, *given: Any) -> Any:
        return asyncio.wrap_future((executor or self._threads).submit(work, *given), loop=self)

    def pause(self) -> float:
        """How many seconds a thread takes: usually next to none. A slow disk may let it wait for seconds, also
        before it fails."""
        if self._slow and self._chance.random() < 0.1:
            return self._chance.choice((0.5, 2.0, 5.0))
        return 0.0 if self._chance.random() < 0.7 else self._chance.choice((1e-4, 1e-3, 0.05))

    def work(self, work: Coroutine[Any, Any, Any], most: int = 200_000) -> asyncio.Task[Any] | None:
        """Run until the work has ended, and return its task. None: the process was killed."""
        events._set_running_loop(self)
        try:
            task = self.create_task(work)
            while not task.done():
                if not self._turn():
                    return None
                if self.steps > most:
                    raise StuckError(f"{most} steps, and no end")
            return task
        finally:
            events._set_running_loop(None)

    def bury(self) -> None:
        """Let all tasks end by cancelling them, so that nothing of a killed process is left over."""
        self.kill_at = -1
        events._set_running_loop(self)
        try:
            for _ in range(20):
                tasks = [task for made in self._tasks if (task := made()) and not task.done()]
                if not tasks:
                    return
                for task in tasks:
                    task.cancel()
                while self._ready:
                    self._turn(buried=True)
                if any(not task.done() for task in tasks) and self._scheduled:
                    self._turn(buried=True)
        finally:
            events._set_running_loop(None)

    def _turn(self, buried: bool = False) -> bool:
        ready, scheduled, stopped = self._ready, self._scheduled, self._disk.stopped
        while scheduled and (scheduled[0] <= self._now or scheduled[0].callback is None or not ready):
            timer = heapq.heappop(scheduled)
            if timer.callback is None:
                continue
            ready.append(timer)
            if timer > self._now:
                self._now = float(timer)
                self._disk.set_clock(self._now)
        if not ready:
            raise StuckError("nothing more can happen: the run waits for ever")
        if self._shuffles and len(ready) > 1:
            self._chance.shuffle(ready)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if (callback := handle.callback) is None:
                continue
            try:
                handle.context.run(callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.faults.append(f"Exception in callback {callback}: {error!r}")
            self.steps += 1
            if not buried and (self.steps == self.kill_at or stopped.value):
                return False
        return True


class _Nobody(type(RLock())):  # type: ignore[misc]
    """Takes the place of a condition on which nobody waits. Conditions are written in Python, and locks in C."""

    def notify_all(self) -> None: ...


class _Work(Future[Any]):
    """What a simulated thread does. As there is one real thread, all share a lock, and nobody waits."""

    _shared = _Nobody()

    def __init__(self, work: Callable[[], Any]) -> None:
        self._condition, self._state, self._result, self._exception = self._shared, "PENDING", None, None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Future[Any]], Any]] = []
        self.work = work

    def set_result(self, result: Any) -> None:
        self._result, self._state = result, "FINISHED"
        self._invoke_callbacks()


class SimulatedThreads:
    """Takes the place of a ThreadPoolExecutor. What is submitted runs later, as a whole."""

    def __init__(self, loop: SimulatedLoop, workers: int) -> None:
        self._loop, self._free = loop, workers
        self._queue: deque[_Work] = deque()
        self._begun: list[_Work] = []

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        future = _Work(partial(work, *given))
        self._queue.append(future)
        self._begin()
        return future

    def _begin(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            future = self._queue.popleft()
            self._begun.append(future)
            self._loop.call_later(self._loop.pause(), self._run, future)

    def _run(self, future: _Work) -> None:
        if future not in self._begun:  # Somebody waited for it.
            return
        self._begun.remove(future)
        self._free += 1
        if future.set_running_or_notify_cancel():
            try:
                result = future.work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        self._begin()

    def finish(self) -> None:
        """Do all that was submitted, now."""
        while self._begun:
            self._run(self._begun[0])

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        self.finish()

    def __enter__(self) -> SimulatedThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
