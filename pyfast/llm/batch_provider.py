"""A client for the Batch API of a provider, in OpenAI's format. LLM calls are sent to the provider in files,
and their results come back in files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import tenacity
from yarl import URL

from pyfast.errors import CallError, InputError, LLMUnavailableError, OutageError
from pyfast.llm.chat import one_line
from pyfast.llm.openai import Again, Refused

ENDPOINT = "/v1/chat/completions"
KEY = "pyfast_key"
LARGEST_FILE = 1 << 30  # the maximum number of bytes of a file of results
DUPLICATES = "a run that is killed could submit calls twice; --accept-duplicates runs nevertheless"
_PAGE = 100  # batches in a page of the provider's list
_ENDED = ("completed", "failed", "expired", "cancelled")
_LONGEST_PAUSE_S = 60.0
_log = logging.getLogger("pyfast")


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one LLM call in a batch."""

    status: int
    """The HTTP status of the result. 0: the provider did not carry out the call"""
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """The state of a batch, as the provider reports it."""

    id: str
    status: str
    files: tuple[str, ...]
    """The ids of the files with results and errors"""
    faults: str
    """The reasons why the whole batch failed. Empty if it did not fail"""

    @property
    def has_ended(self) -> bool:
        """Whether the batch has ended: the provider has completed it, or it failed, expired or was
        cancelled."""
        return self.status in _ENDED


class BatchProvider:
    """A client for the Batch API of one provider: it uploads files, submits batches and reads the results of
    batches. `exchange` is the function that makes one HTTP request.

    If the connection or the provider fails, a method repeats its request for `patience_s` seconds. After that
    time it raises `LLMUnavailableError`. Only `check_list` does not repeat its request.
    """

    def __init__(
        self,
        exchange: Callable[..., Awaitable[bytes]],
        base_url: str,
        shown: str,
        *,
        timeout_s: float,
        patience_s: float,
        poll_s: float,
        settle_s: float,
        window: str,
    ) -> None:
        self._exchange = exchange
        self._files, self._batches = URL(f"{base_url}/files"), URL(f"{base_url}/batches")
        self._shown = shown
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._poll_s = poll_s
        self._settle_s = settle_s
        self._window = window

    async def check_list(self) -> None:
        """Raise `InputError` if the provider cannot list its batches."""
        try:
            reply = orjson.loads(await self._send("GET", self._batches.with_query(limit=1)))
            if isinstance(reply["data"], list):
                return
            reason = "no list"
        except (Again, Refused, CallError, LLMUnavailableError) as error:
            reason = str(error)
        except (ValueError, LookupError, TypeError):
            reason = "no list"
        raise InputError(f"{self._shown}/batches does not list batches ({reason}): {DUPLICATES}")

    async def upload(self, name: str, content: bytes) -> str:
        """Upload a file of LLM calls, and return the file's id."""

        def form() -> dict[str, Any]:
            fields = aiohttp.FormData()
            fields.add_field("purpose", "batch")
            fields.add_field("file", content, filename=name, content_type="application/jsonl")
            made = fields()
            return {"data": made, "headers": {"Content-Type": made.headers["Content-Type"]}}

        return _id((await self._ask("POST", self._files, form)).get("id"))

    async def create(self, key: str, file: str) -> tuple[str, bool]:
        """Submit a batch of the calls in an uploaded file. `file` is the id of the file, and `key` is
        pyfast's key for the batch. Even if the provider's reply is lost, the batch is submitted only once.

        Returns:
            (the id of the batch, whether the provider has stored pyfast's key with the batch).
        """
        body = {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": self._window,
            "metadata": {KEY: key},
        }
        async for attempt in self._attempts():
            with attempt:
                try:
                    batch = orjson.loads(await self._send("POST", self._batches, data=orjson.dumps(body)))
                    kept = batch.get("metadata")
                    return _id(batch.get("id")), isinstance(kept, dict) and kept.get(KEY) == key
                except Again as again:
                    # A server that was too busy has not accepted the batch.
                    id = None if again.error.kind == "busy" else await self.adopt(key, time.time())
                    if id is None:
                        raise
                    return id, True
                except (Refused, CallError, ValueError, AttributeError) as error:
                    raise LLMUnavailableError(
                        f"{self._shown} does not accept the batch: {one_line(error)}"
                    ) from None
        raise AssertionError("the last attempt returns or raises")

    async def adopt(self, key: str, made: float) -> str | None:
        """Find the id of the batch that was submitted with this key. Returns None if the provider has no such
        batch.

        `made` is the time at which pyfast made the batch, in seconds since the epoch. A provider may list a
        new batch with a delay. So the method looks for the batch again until `settle_s` seconds after `made`.
        """
        while True:
            looked = time.time()
            async for batch in self._listed():
                metadata = batch.get("metadata")
                if isinstance(metadata, dict) and metadata.get(KEY) == key:
                    return _id(batch.get("id"))
            if looked >= made + self._settle_s:
                return None
            await asyncio.sleep(min(self._settle_s / 10, made + self._settle_s - looked) + 0.01)

    async def _listed(self) -> AsyncIterator[Mapping[str, Any]]:
        after: dict[str, str] = {}
        while True:
            page = await self._ask("GET", self._batches.with_query(limit=_PAGE, **after))
            batches = [batch for batch in page.get("data") or () if isinstance(batch, dict)]
            for batch in batches:
                yield batch
            if not page.get("has_more") or not batches or after.get("after") == batches[-1].get("id"):
                return
            after = {"after": _id(batches[-1].get("id"))}

    async def ended(self, id: str) -> Batch:
        """Wait until a batch ends, and return its final state."""
        pause = min(1.0, self._poll_s)
        while not (batch := await self.look(id)).has_ended:
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, self._poll_s)
        return batch

    async def look(self, id: str) -> Batch:
        """Ask the provider for the state of a batch."""
        told = await self._ask("GET", self._batches / id)
        errors = told.get("errors")
        entries = errors.get("data") if isinstance(errors, dict) else errors
        faults = [
            str(entry.get("message") or entry.get("code"))
            for entry in (entries if isinstance(entries, list) else ())
            if isinstance(entry, dict)
        ]
        files = [told.get("output_file_id"), told.get("error_file_id")]
        status = str(told.get("status"))
        return Batch(id, status, tuple(file for file in files if isinstance(file, str)), "; ".join(faults[:3]))

    async def cancel(self, id: str) -> None:
        """Cancel a batch."""
        await self._ask("POST", self._batches / id / "cancel")

    async def lines(self, batch: Batch, key: str) -> dict[int, Line]:
        """Read the results of a batch. Returns a mapping from the position of a call in the batch (from 0) to
        the result of the call. `key` is pyfast's key for the batch."""
        lines: dict[int, Line] = {}
        for file in batch.files:
            content = await self._content(file)
            for text in content.splitlines():
                for place, line in _line(text, key):
                    lines.setdefault(place, line)
        return lines

    async def _content(self, file: str) -> bytes:
        return await self._persist("GET", self._files / file / "content", most=LARGEST_FILE)

    async def _ask(self, method: str, url: URL, sent: Callable[[], Mapping[str, Any]] = dict) -> Mapping[str, Any]:
        """Send a request and return the JSON object of the reply. For each attempt, `sent` makes the arguments of
        `exchange`, such as the body of the request."""
        reply = await self._persist(method, url, sent)
        try:
            told = orjson.loads(reply)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise LLMUnavailableError(f"{self._shown}/{url.name}: the reply is not a JSON object")
        return told

    async def _persist(
        self, method: str, url: URL, sent: Callable[[], Mapping[str, Any]] = dict, **options: Any
    ) -> bytes:
        async for attempt in self._attempts():
            with attempt:
                return await self._send(method, url, **sent(), **options)
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, method: str, url: URL, **sent: Any) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(method, url, **sent)
        except TimeoutError:
            raise Again(OutageError(f"{self._shown} did not answer in time", "slow")) from None

    async def _attempts(self) -> AsyncIterator[tenacity.AttemptManager]:
        backoff = tenacity.wait_random_exponential(multiplier=0.5, max=_LONGEST_PAUSE_S)

        def pause(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.error.retry_after if isinstance(error, Again) else 0.0
            return max(asked, backoff(state))

        def warn(state: tenacity.RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome is not None:
                _log.warning("%s; trying again", state.outcome.exception())

        policy = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Again),
            stop=tenacity.stop_after_delay(self._patience_s),
            wait=pause,
            before_sleep=warn,
            reraise=True,
        )
        try:
            async for attempt in policy:
                yield attempt
        except Again as again:
            raise LLMUnavailableError(str(again)) from None


def _id(value: object) -> str:
    """Check an id from the provider, and return it. Raises `LLMUnavailableError` if it does not have the form
    of an id."""
    if not isinstance(value, str) or not value.isascii() or not value.replace("-", "").replace("_", "").isalnum():
        raise LLMUnavailableError(f"the provider's reply has no usable id: {one_line(value)}")
    return value


def _line(text: bytes, key: str) -> Iterator[tuple[int, Line]]:
    """Read one line of a file of results. Yields (the position of the call in the batch, its result).
    Yields nothing if the line is not a result of the batch whose key is `key`."""
    try:
        told = orjson.loads(text)
        of, _, place = told["custom_id"].rpartition("-")
        response, error = told.get("response"), told.get("error")
        status = response.get("status_code") if isinstance(response, dict) else 0
        body = response.get("body") if isinstance(response, dict) else {"error": error}
        if of == key and type(status) is int and place.isascii() and place.isdigit():
            yield int(place), Line(0 if error and status == 200 else status, orjson.dumps(body))
    except (ValueError, LookupError, TypeError, AttributeError):
        return
