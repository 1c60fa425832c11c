"""A worker: one process on a machine of the cluster, with its own engine."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyfast.engine import Configuration, Event, OnEvent, Summary, dedicate_process
from pyfast.engine.distributed.blocks import Lease, take
from pyfast.engine.status import totals_of
from pyfast.errors import PyfastError, told_of


class Work(Protocol):
    """The interface of a worker's task: answer blocks of one run. The models stay loaded between blocks."""

    def start(self) -> Configuration:
        """Load the models, and return the configuration of the whole run. Raises `PyfastError`."""
        ...

    def answer(self, block: Path, on_event: OnEvent, stop: threading.Event) -> Summary:
        """Answer the questions in a block's folder, or resume the block. Raises `PyfastError`."""
        ...

    def concurrency(self) -> int:
        """Return how many questions of a block are in progress at once."""
        ...

    def turn(self) -> Future[None]:
        """Return a future that ends as soon as the event loop has time. If the event loop hangs, the future
        never ends."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """The result of a call that a worker executed, or the error of this call.

    pyfast's errors are sent as plain values, because pickle cannot restore all errors.
    """

    configuration: Configuration | None = None
    totals: Summary | None = None
    """The calls, tokens and times of all ended questions of the block, in all sessions"""
    session: Summary | None = None
    """The counts of the questions that this call has answered. If both `session` and `error` are None in the
    result of `answer`, another worker has the block"""
    error: tuple[str, str] | None = None
    """The class and the text of the error"""


class Worker:
    """A worker. It runs in a Ray actor, and several threads call its methods."""

    def __init__(self, opens: Callable[[], Work], run: str) -> None:
        """Prepare the worker. `start` opens the index and loads the models.

        Args:
            opens: A function that makes the `Work` object of this worker. The actor calls the function.
            run: The run's folder.
        """
        self._opens, self._run = opens, Path(run)
        self._work: Work | None = None
        self._stop = threading.Event()
        self._full = threading.Lock()
        """A block takes this lock when it starts, and releases it when it has few questions left. Then the
        next block of this worker starts"""

    def start(self) -> Told:
        """Open the index and load the models. Returns the configuration of the run, or an error."""
        try:
            if not self._run.is_dir():
                raise PyfastError(
                    f"{os.uname().nodename}: {self._run} does not exist: the folder of a run must be on a file"
                    " system that all machines of the cluster share, at the same path"
                )
            self._work = self._work or self._opens()
            described = self._work.start()
        except PyfastError as error:
            return Told(error=told_of(error))
        dedicate_process()
        return Told(described)

    def answer(self, name: str, free: Lease | None) -> Told:
        """Answer the questions in the folder `name` of a block, and return the counts of the block, or an
        error. If the block no longer has the lease that the driver saw (`free`), return an empty `Told`."""
        work, block = self._work, Path(name)
        assert work is not None
        with contextlib.ExitStack() as full:
            full.enter_context(self._full)
            try:
                holding = take(block, free)
            except PyfastError as error:
                return Told(error=told_of(error))
            except OSError as error:
                return Told(error=("RunError", f"{block}: {error.strerror}"))
            if holding is None:
                return Told()
            turn = work.turn()

            def is_alive() -> bool:
                nonlocal turn
                if not turn.done():
                    return False
                turn = work.turn()
                return True

            def hear(event: Event) -> None:
                holding.hear(event)
                if event.total - event.done <= work.concurrency() // 2:
                    full.close()  # This releases the lock, so that this worker's next block can start.

            # If another worker takes the block, this process ends immediately.
            holding.keep(is_alive, lambda: os._exit(1))
            try:
                session = work.answer(block, hear, self._stop)
                return Told(totals=session if holding.is_new else totals_of(block), session=session)
            except PyfastError as error:
                return Told(error=told_of(error))
            finally:
                holding.give_back()
                gc.collect()  # what a run leaves holds all its questions, and the collector is seldom called

    def stop(self) -> None:
        """Stop: no new question starts, and the questions in progress finish."""
        self._stop.set()
