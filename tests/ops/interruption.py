"""A signal in the middle of a call."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """Raised by the signal's handler."""


@contextmanager
def interrupted(after: float = 0.1) -> Iterator[None]:
    """Within it a signal comes after so many seconds, as Ctrl-C would."""

    def stop(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
