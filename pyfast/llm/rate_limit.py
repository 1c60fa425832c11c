"""Rate limits of servers. All models on one server share them, if the same event loop calls the models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakValueDictionary

_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, RateLimit]] = WeakKeyDictionary()


class RateLimit:
    """Limits how often one event loop sends requests to one server. Requests start in the order in which they
    arrive."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._request_s = self._token_s = 0.0
        # Times of the event loop's clock: when the next request may go, for the limit of requests, for the limit
        # of tokens, and after a refusal.
        self._requests = self._tokens = self._opens = 0.0

    def limit(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        """Set limits for requests and tokens. Requests are spread evenly over time. If a limit is set several
        times, the lowest value counts. None: no limit.
        """
        self._request_s = max(self._request_s, 60 / requests_per_minute if requests_per_minute else 0.0)
        self._token_s = max(self._token_s, 60 / tokens_per_minute if tokens_per_minute else 0.0)

    def pause(self, seconds: float) -> None:
        """Start no request for this number of seconds from now."""
        self._opens = max(self._opens, asyncio.get_running_loop().time() + seconds)

    async def turn(self, tokens: int, check: Callable[[], object]) -> float:
        """Wait until a request of about `tokens` tokens may start. Returns how many seconds the wait took.

        The method calls `check` before each wait. If `check` raises an error, the method raises it.
        """
        clock = asyncio.get_running_loop().time
        came = clock()
        if not self._request_s and not self._token_s and came >= self._opens:
            return 0.0
        async with self._gate:  # one request at a time, in the order of arrival
            while (rest := max(self._opens, self._requests, self._tokens) - clock()) > 0:
                check()
                await asyncio.sleep(rest)
            # The sum makes up for late timers. Without it, a thousand requests a minute would become fewer.
            self._requests = max(self._requests, clock() - self._request_s) + self._request_s
            self._tokens = max(self._tokens, clock() - self._request_s) + self._token_s * tokens
        return clock() - came

    def correct(self, tokens: int) -> None:
        """Correct the count of used tokens when a request's real number of tokens is known. `tokens` is the
        real number minus the number that `turn` got."""
        self._tokens += self._token_s * tokens


def limit_of(server: str) -> RateLimit:
    """Return the `RateLimit` for a server. All models on this event loop share it."""
    limits = _limits.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return limits.setdefault(server, RateLimit())
