"""Models on HTTP servers that compute a value per text: embedding models and rerankers."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import islice
from threading import Lock
from time import perf_counter
from typing import Any, ClassVar

import orjson
import tenacity

from pyfast.errors import CallError, InputError, LLMUnavailableError, OutageError, RefusalError
from pyfast.llm.chat import token_count
from pyfast.llm.openai import OpenAI
from pyfast.llm.protocol import ServerCall, count_calls, take_options
from pyfast.llm.redaction import keys_in
from pyfast.llm.server_calls import Refused, ServerOptions, shown_url
from pyfast.utils.event_loop import run_blocking
from pyfast.utils.log import LOG

_OPTIONS = {"concurrency", "requests_per_minute", "tokens_per_minute", "timeout_s", "attempts", "backoff_s"}
_OPTIONS |= {"extra", "query", "headers"}


def split_options(spec: str) -> tuple[str, dict[str, Any]]:
    """Split `SPEC {JSON}` into the spec and its options. Without JSON, there are no options.

    Raises `InputError` if the text has another form, an option is unknown, or the spec has a secret.
    """
    address, brace, rest = spec.partition("{")
    address = address.strip()
    try:
        options = dict(orjson.loads(brace + rest or "{}"))
    except (ValueError, TypeError):
        raise InputError(f"{shown_url(address)}: expected the options as a JSON object after the URL") from None
    if unknown := sorted(options.keys() - _OPTIONS):
        raise InputError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS))}")
    if keys_in(address.partition("://")[2]):
        raise InputError(
            'the URL contains a key, which would be written to files; use {"headers": {"NAME": "$VARIABLE"}}'
        )
    return address, options


class Endpoint(ABC):
    """A model on a server that computes a value for each text. Several threads can call it at the same time.

    A request contains many texts. If the server rejects it, its halves are sent separately, and later requests
    contain no more texts than the server accepted. Other failed requests are repeated like LLM calls, and in an
    outage until `timeout_s` is over. If the server rejects one request but answers others, only this request
    fails.
    """

    name: ClassVar[str]
    """The name of the stage in which the calls are counted"""

    def __init__(self, spec: str, model: str, base_url: str, options: Mapping[str, Any], most: int) -> None:
        """Prepare the calls of a model. `spec` names it in messages. `most` is the maximum number of texts of a
        request.

        Raises `InputError` if an option is not valid.
        """
        self.spec, self.model, self.most = spec, model, most
        self._base_url = base_url
        self._options = take_options(self.name, ServerOptions, **{"concurrency": 16, **options})
        self._client = self._opened()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = Lock()

    @abstractmethod
    def request(self, texts: Sequence[str], query: str) -> tuple[str, Mapping[str, Any]]:
        """Return the path and the JSON body of a request."""

    @abstractmethod
    def read(self, texts: int, data: Any) -> list[Any]:
        """Return the value of each of the `texts` texts from a reply's JSON. Raises `CallError` if the reply lacks
        one."""

    def adapts(self, complaint: str) -> bool:
        """Return whether later requests will avoid what the server complains about."""
        return False

    def _opened(self) -> OpenAI:
        return OpenAI(self.spec, self.model, self._base_url, self._options)

    @property
    def fingerprint(self) -> str:
        """A string with the model's name and the fields of `extra`."""
        return self._client.fingerprint

    def fault(self, what: str) -> CallError:
        """Return the error for an unusable reply."""
        return CallError(f"{self.spec} returned {what}")

    def in_order(self, given: object, texts: int) -> list[Mapping[str, Any]]:
        """Return a reply's items in the order of the texts. The `index` of each item is the number of its text.
        Raises `CallError` unless there is one item per text."""
        items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
        by_number = {str(item.get("index")): item for item in items}
        if len(items) != texts:
            raise self.fault(f"{len(items)} results for {texts} texts")
        if by_number.keys() != set(map(str, range(texts))):
            raise self.fault("results whose `index` values are not 0, 1, 2, …")
        return [by_number[str(place)] for place in range(texts)]

    def values(self, jobs: Sequence[tuple[Sequence[str], str]]) -> list[list[Any]]:
        """Compute the values of the texts of each job (texts, query). All requests are sent concurrently.

        Raises:
            CallError: The server refuses a request, or its reply cannot be used.
            LLMUnavailableError: The server cannot be reached, or refuses every request.
        """
        calls: list[ServerCall] = []
        try:
            with self._turn:
                run_blocking(self._begin(calls))
            return run_blocking(self._all(jobs, calls))
        finally:
            count_calls(calls)

    async def _begin(self, calls: list[ServerCall]) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:  # A forked process has its own loop.
                self._client = self._opened()
            self._loop = loop
            atexit.register(self._close)
        await self._client.start()
        await self.prepare(calls)

    async def _all(self, jobs: Sequence[tuple[Sequence[str], str]], calls: list[ServerCall]) -> list[list[Any]]:
        cuts = [(*job, start, start + self.most) for job in jobs for start in range(0, len(job[0]), self.most)]
        parts = [(texts[start:end], query) for texts, query, start, end in cuts]
        # All requests end, so that none is cancelled that the server works on.
        ended = await asyncio.gather(*(self._values(*part, calls) for part in parts), return_exceptions=True)
        values: list[Any] = []
        for one in ended:
            if isinstance(one, BaseException):
                raise one
            values += one
        each = iter(values)
        return [list(islice(each, len(texts))) for texts, _ in jobs]

    async def prepare(self, calls: list[ServerCall]) -> None:  # noqa: B027
        """Prepare the first request."""

    async def _values(self, texts: Sequence[str], query: str, calls: list[ServerCall]) -> list[Any]:
        failure: CallError | RefusalError
        try:
            return await self.ask(texts, query, calls)
        except Refused as refused:
            if self.adapts(refused.complaint):
                return await self._values(texts, query, calls)
            if half := len(texts) // 2:
                values = await self._values(texts[:half], query, calls)
                values += await self._values(texts[half:], query, calls)
                self.most = min(self.most, half)
                return values
            failure = refused.error
        except RefusalError as error:
            failure = error
        if isinstance(failure, RefusalError):
            # If the server answers a small request, it answers others.
            with contextlib.suppress(Refused, CallError, LLMUnavailableError):
                await self.ask(PROBE, PROBE[0], calls)
                failure = failure.of_this_call()
        raise failure from None

    async def ask(self, texts: Sequence[str], query: str, calls: list[ServerCall]) -> list[Any]:
        """Send one request. Raises `Refused`, and the same errors as `values`."""
        began = perf_counter()
        path, body = self.request(texts, query)

        def read(data: Any) -> tuple[list[Any], int]:
            usage = data.get("usage") if isinstance(data, dict) else None
            counts = usage if isinstance(usage, dict) else {}
            tokens = token_count(counts.get("prompt_tokens")) or token_count(counts.get("total_tokens"))
            return self.read(len(texts), data), tokens

        async def attempt() -> tuple[list[Any], int]:
            try:
                return await self._client.post(path, body, read)
            except OutageError as error:
                if error.retry_after > self._options.timeout_s:
                    raise LLMUnavailableError(str(error)) from None
                LOG.warning("waiting for %s: %s", self.spec, error)
                await asyncio.sleep(error.retry_after)
                raise

        stop = tenacity.stop_after_delay(self._options.timeout_s)
        answer: tuple[list[Any], int] = await self._options.retries(OutageError, stop)(attempt)
        calls.append(ServerCall(self.name, len(texts), answer[1], perf_counter() - began))
        return answer[0]

    def _close(self) -> None:
        with contextlib.suppress(RuntimeError):  # The event loop has ended.
            run_blocking(self._client.close())


PROBE = ("a",)
"""The text of the smallest request"""
