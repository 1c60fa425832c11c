"""Two processes that take turns: each is a thread, only one of them runs, and they change at drawn moments."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

import pyfast.retrieval.index.manifest
import pyfast.utils.files
from simulation.loop import StuckError

# Where they change: not in code that holds a lock of its process, which the other one would wait for.
_PLACES = os.path.dirname(str(pyfast.retrieval.index.manifest.__file__)), str(pyfast.utils.files.__file__)
_FOREVER = 1 << 60


class KilledError(BaseException):
    """Ends the thread of a killed process, when nothing that it does counts any longer."""


class Turns:
    """Carries out works as processes that take turns. A process may be killed: it gets no turn any more, and the
    operating system releases its locks."""

    def __init__(self, chance: Random, kill_first: bool) -> None:
        self._chance = chance
        self._at = 0
        """Whose turn it is"""
        self._ended: set[int] = set()
        self._turn = threading.Condition()
        self._left = self._drawn()
        self._kill_in = int(10 ** chance.uniform(0, 3.5)) if kill_first else _FOREVER
        self._is_buried = False
        self._locks: dict[int, tuple[int, int]] = {}
        """Of each descriptor that holds a lock: the process, and the inode"""

    def _drawn(self) -> int:
        return int(10 ** self._chance.uniform(0, 3.5))

    @contextmanager
    def carried_out(self, works: list[Callable[[], Any]]) -> Iterator[list[Any]]:
        """Yield what each work returns: its result, its error, or None if it was killed. What is killed ends after
        the `with` block, so that nothing changes in it."""
        results: list[Any] = [None] * len(works)

        def process(number: int) -> None:
            self._wait(number)
            sys.setprofile(lambda frame, event, _: self._event(number, frame))
            try:
                result = works[number]()
            except KilledError:
                return
            except BaseException as error:
                result = error
            finally:
                sys.setprofile(None)
            results[number] = result
            with self._turn:
                self._ended.add(number)
                self._at = 1 - number
                self._turn.notify_all()

        threads = [threading.Thread(target=process, args=(number,)) for number in range(2)]
        with _in_place(self):
            for thread in threads:
                thread.start()
            with self._turn:
                while len(self._ended) < 2:
                    self._turn.wait()
            yield results
            with self._turn:
                self._is_buried = True
                self._turn.notify_all()
            for thread in threads:
                thread.join()

    def _wait(self, number: int) -> None:
        with self._turn:
            while self._at != number and not (self._is_buried and number not in self._ended):
                self._turn.wait()

    def _event(self, number: int, frame: FrameType) -> None:
        if self._is_buried or not frame.f_code.co_filename.startswith(_PLACES):
            return
        if number == 0:
            self._kill_in -= 1
            if not self._kill_in:
                self._kill(number)
        self._left -= 1
        if self._left <= 0:
            self.give_way(number)

    def give_way(self, number: int | None = None) -> bool:
        """Let the other process run, and return after some time. Returns False if it has ended."""
        number = self._at if number is None else number
        self._left = self._drawn()
        with self._turn:
            if 1 - number in self._ended:
                return False
            self._at = 1 - number
            self._turn.notify_all()
        self._wait(number)
        return True

    def _kill(self, number: int) -> None:
        for file, (of, inode) in self._locks.items():
            if of == number and os.path.exists(f"/proc/self/fd/{file}") and os.fstat(file).st_ino == inode:
                other = os.open(os.devnull, os.O_RDONLY)
                os.dup2(other, file, inheritable=False)
                os.close(other)
        with self._turn:
            self._ended.add(number)
            self._at = 1 - number
            self._turn.notify_all()
            while not self._is_buried:
                self._turn.wait()
        raise KilledError

    def lock(self, file: int, how: int) -> None:
        """Take the place of `fcntl.flock`."""
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if how & fcntl.LOCK_NB:
                    raise
                if not self.give_way():
                    raise StuckError("a process waits for a lock for ever") from None
            else:
                self._locks[file] = self._at, os.fstat(file).st_ino
                return


@contextmanager
def _in_place(turns: Turns) -> Iterator[None]:
    """Let locks and pauses of files.py be those of `turns`."""

    class Locks:
        LOCK_EX, LOCK_NB, LOCK_SH = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_SH
        flock = staticmethod(turns.lock)

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            if not turns.give_way():
                time.sleep(seconds)

    files: Any = pyfast.utils.files
    files.fcntl, files.time = Locks, Clock
    try:
        yield
    finally:
        files.fcntl, files.time = fcntl, time
