"""A model on several OpenAI-compatible servers. If one server fails, its calls go to the other servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyfast.errors import InputError, LLMUnavailableError
from pyfast.llm.openai import LONGEST_BACKOFF, OpenAI
from pyfast.llm.options import take_options
from pyfast.llm.protocol import Completion, Request

LONGEST_REST_S = 30.0  # the maximum number of seconds without a call for a server that failed


@dataclass(slots=True, eq=False)
class _Server:
    """One of the servers and its state."""

    llm: OpenAI
    weight: float
    running: int = 0
    failures: int = 0
    """How often the server has failed since its last answer. Calls that fail together count once"""
    rests_until: float = field(default=0.0)
    """Until this time, on the event loop's clock, a call goes to this server only if no other server is left"""

    def may_take_one(self, now: float) -> bool:
        """Return whether the server is ready for a call at the time `now`. A server that has failed is not ready
        before `rests_until`. Then it is ready for one call, and for more calls after it has answered."""
        return not self.failures or (now >= self.rests_until and not self.running)


class OpenAIServers:
    """A model on several servers. Each call goes to the server that has the fewest running calls in relation to
    its weight.

    If a call fails on one server, it goes to another server.

    After a failure, a server gets no calls for some time, unless no other server is left. The time grows with
    each failure. Then pyfast tries the server with one call. If no server answers a call, pyfast waits and
    tries all servers again, up to `attempts` times in total. Then the call fails. Each server has the same
    options as an `OpenAI` model. In addition, `weights` is a list with one number for each server: a server
    with twice the weight gets twice as many calls.
    """

    def __init__(
        self,
        model: str,
        specs: Sequence[tuple[str, str]],
        *,
        weights: Sequence[float] | None = None,
        attempts: int = 5,
        backoff_s: float = 0.5,
        **options: Any,
    ) -> None:
        """Make the model from its servers. Each server is a pair (spec, base URL)."""
        weights = [1.0] * len(specs) if weights is None else weights
        numbers = isinstance(weights, list | tuple) and all(
            isinstance(weight, int | float) and 0 < weight < float("inf") for weight in weights
        )
        if not numbers or len(weights) != len(specs):
            raise InputError(f"weights: expected {len(specs)} numbers above 0, one for each server")
        if len({url for _, url in specs}) < len(specs):
            raise InputError("the same server is given twice")
        options = {**options, "attempts": 1, "backoff_s": backoff_s}  # The next attempt goes to another server.
        self._servers = [
            _Server(take_options("openai", OpenAI, spec, model, url, **options), weight)
            for (spec, url), weight in zip(specs, weights, strict=True)
        ]
        self._attempts = attempts
        self._backoff_s = backoff_s
        llms = [server.llm for server in self._servers]
        self.spec = ",".join([llms[0].spec, *(llm.spec.removeprefix(f"openai:{model}@") for llm in llms[1:])])
        self.slots = sum(llm.slots for llm in llms)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model. It does not depend on the servers."""
        return self._servers[0].llm.fingerprint

    @property
    def context_window(self) -> int:
        """The smallest context window of the servers that have not failed since their last answer, in tokens.
        If all servers have failed, the smallest context window of all."""
        reached = [server for server in self._servers if not server.failures]
        return min(server.llm.context_window for server in reached or self._servers)

    async def start(self) -> None:
        """Check which servers answer. Raises `LLMUnavailableError` if no server answers."""
        starting = (server.llm.start() for server in self._servers)
        results = await asyncio.gather(*starting, return_exceptions=True)
        for server, error in zip(self._servers, results, strict=True):
            if isinstance(error, LLMUnavailableError):
                self._failed(server)
            elif isinstance(error, BaseException):
                raise error
        if all(server.failures for server in self._servers):
            assert isinstance(results[0], LLMUnavailableError)
            raise results[0]

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(server.llm.close() for server in self._servers))

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        for attempt in range(self._attempts):
            if attempt:
                longest = min(self._backoff_s * 2 ** (attempt - 1), LONGEST_BACKOFF)
                await asyncio.sleep(random.uniform(0, longest))
            untried = list(self._servers)
            while untried:
                server = self._chosen(untried)
                untried.remove(server)
                try:
                    return await self._ask(server, request)
                except LLMUnavailableError as error:
                    last = error
        raise last

    def _chosen(self, untried: Sequence[_Server]) -> _Server:
        """Choose a server for a call: of the servers that are ready (`may_take_one`), the one with the fewest
        running calls in relation to its weight. If no server is ready, the one with the earliest
        `rests_until`."""
        now = asyncio.get_running_loop().time()
        ready = [server for server in untried if server.may_take_one(now)]
        if ready:
            return min(ready, key=lambda server: (server.running + 1) / server.weight)
        return min(untried, key=lambda server: server.rests_until)

    async def _ask(self, server: _Server, request: Request) -> Completion:
        server.running += 1
        try:
            await server.llm.start()  # A server that was reached before is not asked again.
            completion = await server.llm.complete(request)
        except LLMUnavailableError:
            self._failed(server)
            raise
        finally:
            server.running -= 1
        server.failures = 0
        return completion

    def _failed(self, server: _Server) -> None:
        now = asyncio.get_running_loop().time()
        if now >= server.rests_until:  # Calls that fail together count as one failure.
            server.failures += 1
            server.rests_until = now + min(self._backoff_s * 2**server.failures, LONGEST_REST_S)
