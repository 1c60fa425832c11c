"""An event loop whose clock runs fast: minutes of waiting pass in a blink, and nothing else is different."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    speed = 1.0

    def select(self, timeout: float | None = None) -> Any:
        return super().select(None if timeout is None else timeout / self.speed)


class FastLoop(asyncio.SelectorEventLoop):
    """Its `time`, and so all timers and timeouts, run `speed` times as fast."""

    def __init__(self, speed: float = 50.0) -> None:
        selector = _Selector()
        selector.speed = self.speed = speed
        super().__init__(selector)

    def time(self) -> float:
        return super().time() * self.speed


def run_fast(work: Coroutine[Any, Any, T], speed: float = 50.0) -> T:
    """The result of a coroutine, run by such a loop."""
    with asyncio.Runner(loop_factory=lambda: FastLoop(speed)) as runner:
        return runner.run(work)
