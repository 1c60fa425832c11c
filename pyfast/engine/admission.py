"""Decide which of several waiting LLM calls starts next."""

from __future__ import annotations

import asyncio
from collections import deque

from pyfast.llm import Request


class Admission:
    """Lets at most `limit` LLM calls run at the same time.

    Waiting calls start in groups. When all calls of a group have started, all calls that are waiting at this
    time become the next group. A group is sorted by prompt, so that prompts with the same beginning follow each
    other and the LLM can use its prefix cache. A call waits for the rest of the current group and for the
    earlier calls of its own group.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.running = 0
        self._sweep: deque[tuple[list[str], asyncio.Future[None]]] = deque()
        self._waiting: list[tuple[list[str], asyncio.Future[None]]] = []

    def enter_at_once(self) -> bool:
        """Take a free place for a call. Returns False if no place is free."""
        free = self.running < self._limit
        self.running += free
        return free

    async def enter(self, request: Request) -> None:
        """Wait for a place. The caller must call `leave` when the LLM call ends."""
        if self.enter_at_once():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(([message.content for message in request.messages], turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # The call was admitted at the same moment.
                self.leave()
            raise

    def leave(self) -> None:
        """Mark a call as ended, so that the next waiting call can start."""
        while self._sweep or self._waiting:
            if not self._sweep:
                self._waiting.sort(key=lambda entry: entry[0])
                self._sweep.extend(self._waiting)
                self._waiting.clear()
            _, turn = self._sweep.popleft()
            if not turn.done():  # A future that is done belongs to a cancelled coroutine.
                turn.set_result(None)
                return
        self.running -= 1
