"""A client for the Batch API of a provider, in OpenAI's format. LLM calls and their results travel in files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

import aiohttp
import orjson
import tenacity
from yarl import URL

from pyfast.errors import CallError, InputError, LLMUnavailableError, OutageError
from pyfast.llm.chat import one_line
from pyfast.llm.server_calls import Again, Refused, ServerOptions
from pyfast.utils.log import LOG

ENDPOINT = "/v1/chat/completions"
KEY = "pyfast_key"
LARGEST_FILE = 1 << 30  # the maximum number of bytes of a file of results
DUPLICATES = "so a killed run could submit calls twice; to run anyway, use --accept-duplicates"
_PAGE = 100  # batches in a page of the provider's list
_ENDED = ("completed", "failed", "expired", "cancelled")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class BatchOptions(ServerOptions):
    """The options of a model behind a Batch API. They are explained at `OpenAIBatches`."""

    concurrency: int = field(default=64, init=False)
    backoff_s: float = field(default=0.5, init=False)
    requests_per_minute: None = field(default=None, init=False)
    tokens_per_minute: None = field(default=None, init=False)
    max_calls: int = 50_000
    max_mb: float = 100.0
    quiet_s: float = 0.5
    wait_s: float = 600.0
    poll_s: float = 30.0
    settle_s: float = 60.0
    patience_s: float = 1800.0
    online_calls: int | None = None
    questions_at_once: int = 10_000
    accept_duplicates: bool = False
    completion_window: str = "24h"
    longest_backoff_s: ClassVar[float] = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one LLM call in a batch."""

    status: int
    """The HTTP status of the result. 0: the provider did not carry out the call"""
    body: bytes


Batch = Mapping[str, Any]
"""The state of a batch, as the provider reports it"""


class BatchProvider:
    """A client for one provider's Batch API: it uploads files, submits batches and reads their results. `exchange`
    is the function that makes one HTTP request.

    If the connection or the provider fails, each method except `check_list` repeats its request for `patience_s`
    seconds, and then raises `LLMUnavailableError`.
    """

    def __init__(
        self, exchange: Callable[..., Awaitable[bytes]], base_url: str, shown: str, options: BatchOptions
    ) -> None:
        self._exchange = exchange
        self._files, self._batches = URL(f"{base_url}/files"), URL(f"{base_url}/batches")
        self._shown = shown
        self._options = options

    async def check_list(self) -> None:
        """Raise `InputError` if the provider cannot list its batches, and `OutageError` if it does not answer."""
        try:
            reply = orjson.loads(await self._send("GET", self._batches.with_query(limit=1)))
            if isinstance(reply["data"], list):
                return
            reason = "no list"
        except Again as again:  # It may list batches when it works again.
            raise again.error from None
        except (Refused, CallError, LLMUnavailableError) as error:
            reason = str(error)
        except (ValueError, LookupError, TypeError):
            reason = "no list"
        raise InputError(f"{self._shown}/batches does not list batches ({reason}), {DUPLICATES}")

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
            "completion_window": self._options.completion_window,
            "metadata": {KEY: key},
        }

        async def submit() -> tuple[str, bool]:
            try:
                batch = orjson.loads(await self._send("POST", self._batches, data=orjson.dumps(body)))
                return _id(batch.get("id")), _has_key(batch, key)
            except Again as again:
                # A server that was too busy has not accepted the batch.
                id = None if again.error.kind == "busy" else await self.adopt(key)
                if id is None:
                    raise
                return id, True
            except (Refused, CallError, ValueError, AttributeError) as error:
                raise LLMUnavailableError(f"{self._shown} does not accept the batch: {one_line(error)}") from None

        return await self._persist(submit)

    async def adopt(self, key: str) -> str | None:
        """Find the id of the batch that was submitted with this key. Returns None if the provider has no such
        batch.

        A provider may list a new batch with a delay, so the method keeps looking for `settle_s` seconds. How long
        ago an earlier session submitted the batch is unknown, because the clock may have been changed.
        """
        clock, settle_s = asyncio.get_running_loop().time, self._options.settle_s
        until = clock() + settle_s
        while True:
            looked = clock()
            async for batch in self._listed():
                if _has_key(batch, key):
                    return _id(batch.get("id"))
            if looked >= until:
                return None
            await asyncio.sleep(min(settle_s / 10, until - looked) + 0.01)

    async def _listed(self) -> AsyncIterator[Batch]:
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
        pause = min(1.0, self._options.poll_s)
        while (batch := await self._ask("GET", self._batches / id)).get("status") not in _ENDED:
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, self._options.poll_s)
        return batch

    async def cancel(self, id: str) -> None:
        """Cancel a batch."""
        await self._ask("POST", self._batches / id / "cancel")

    async def lines(self, batch: Batch, key: str) -> dict[int, Line]:
        """Read the results of a batch. Returns a mapping from the position of a call in the batch (from 0) to
        the result of the call. `key` is pyfast's key for the batch."""
        lines: dict[int, Line] = {}
        files = (batch.get("output_file_id"), batch.get("error_file_id"))
        for file in (file for file in files if isinstance(file, str)):
            sending = partial(self._send, "GET", self._files / file / "content", most=LARGEST_FILE)
            content = await self._persist(sending)
            for text in content.splitlines():
                for place, line in _line(text, key):
                    lines.setdefault(place, line)
        return lines

    async def _ask(self, method: str, url: URL, sent: Callable[[], Mapping[str, Any]] = dict) -> Mapping[str, Any]:
        """Send a request and return the JSON object of the reply. For each attempt, `sent` creates the arguments
        of `exchange`, such as the body of the request."""
        reply = await self._persist(lambda: self._send(method, url, **sent()))
        try:
            told = orjson.loads(reply)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise LLMUnavailableError(f"{self._shown}/{url.name}: the reply is not a JSON object")
        return told

    async def _send(self, method: str, url: URL, **sent: Any) -> bytes:
        try:
            async with asyncio.timeout(self._options.timeout_s):
                return await self._exchange(method, url, **sent)
        except TimeoutError:
            raise Again(OutageError(f"{self._shown} did not answer in time", "slow")) from None

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt until it does not raise `Again`."""
        retries = self._options.retries(Again, tenacity.stop_after_delay(self._options.patience_s))

        def pause(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.error.retry_after if isinstance(error, Again) else 0.0
            return max(asked, retries.wait(state))

        def warn(state: tenacity.RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome is not None:
                LOG.warning("%s; trying again", state.outcome.exception())

        async def attempted() -> T:  # tenacity awaits only what an async function returns.
            return await attempt()

        try:
            return await retries.copy(wait=pause, before_sleep=warn)(attempted)
        except Again as again:
            raise LLMUnavailableError(str(again)) from None


def faults_of(batch: Batch) -> str:
    """Return the first three reasons why a whole batch failed."""
    errors = batch.get("errors")
    entries = errors.get("data") if isinstance(errors, dict) else errors
    given = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return "; ".join(str(entry.get("message") or entry.get("code")) for entry in given[:3])


def _has_key(batch: Batch, key: str) -> bool:
    metadata = batch.get("metadata")
    return isinstance(metadata, dict) and metadata.get(KEY) == key


def _id(value: object) -> str:
    """Return an id from the provider. Raises `LLMUnavailableError` if it is malformed."""
    if not isinstance(value, str) or not value.isascii() or not value.replace("-", "").replace("_", "").isalnum():
        raise LLMUnavailableError(f"the provider's reply has no usable id: {one_line(value)}")
    return value


def _line(text: bytes, key: str) -> Iterator[tuple[int, Line]]:
    """Read one line of a results file. Yields (the position of the call in the batch, its result). Yields nothing
    if the line is not a result of the batch whose key is `key`."""
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
