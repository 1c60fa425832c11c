"""Which LLM call goes next, when more wait than the LLM takes."""

from __future__ import annotations

import asyncio
from collections import deque

from pyfast.llm import Request


class Admission:
    """At most `limit` calls at a time.

    Those that wait go in sweeps: the calls that wait when one sweep is done make the next, in the order of their
    prompts, so that those with a common beginning follow each other and meet it in the engine's prefix cache. A
    call waits for at most the rest of one sweep and its own.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.running = 0
        self._sweep: deque[tuple[list[str], asyncio.Future[None]]] = deque()
        self._waiting: list[tuple[list[str], asyncio.Future[None]]] = []

    def enter_at_once(self) -> bool:
        """Whether there was a free place, which is now taken."""
        free = self.running < self._limit
        self.running += free
        return free

    async def enter(self, request: Request) -> None:
        """Return when the call may go; then `leave` must be called."""
        if self.enter_at_once():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(([said.content for said in request.messages], turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in at that very moment
                self.leave()
            raise

    def leave(self) -> None:
        """A call has ended: its place goes to the next, if there is one."""
        while self._sweep or self._waiting:
            if not self._sweep:
                self._waiting.sort(key=lambda entry: entry[0])
                self._sweep.extend(self._waiting)
                self._waiting.clear()
            _, turn = self._sweep.popleft()
            if not turn.done():  # else its coroutine was cancelled
                turn.set_result(None)
                return
        self.running -= 1
