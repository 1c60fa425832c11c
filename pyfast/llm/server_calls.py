"""What all clients of OpenAI-compatible servers need: addresses, proxies, rate limits, and reply bodies."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary, WeakValueDictionary

import aiohttp
import tenacity
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from pyfast.errors import CallError, InputError, OutageError, RefusalError
from pyfast.llm.chat import one_line
from pyfast.llm.protocol import Completion
from pyfast.llm.redaction import HIDDEN, keys_in

T = TypeVar("T")

LARGEST_ANSWER = 8 << 20  # the maximum number of bytes of a reply
LONGEST_RETRY_AFTER = 30 * 86400.0


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of a model on one server. They are explained at `OpenAI`."""

    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    context_window: int | None = None
    timeout_s: float = 300.0
    attempts: int = 5
    backoff_s: float = 0.5
    reasoning_tokens: int = 0
    extra: Mapping[str, Any] | None = None
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    longest_backoff_s: ClassVar[float] = 20.0
    """The maximum number of seconds between two attempts"""

    def retries(
        self, error: type[Exception], stop: Callable[[tenacity.RetryCallState], bool]
    ) -> tenacity.AsyncRetrying:
        """Return a policy that repeats an attempt that raises `error`, until `stop` returns True. The last
        attempt's error is then raised."""
        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(error),
            stop=stop,
            # Random waits, so that refused calls do not all return at the same moment.
            wait=tenacity.wait_random_exponential(multiplier=self.backoff_s, max=self.longest_backoff_s),
            reraise=True,
        )

    async def persist(
        self,
        attempt: Callable[[], Awaitable[T]],
        error: type[Exception],
        stop: Callable[[tenacity.RetryCallState], bool],
    ) -> T:
        """Await an attempt, and repeat it as `retries` says. A first attempt that succeeds, as most do, bypasses
        tenacity, which would take a third of a call's time."""
        try:
            return await attempt()
        except error as failed:
            failures = [failed]

        async def first_again() -> T:
            if failures:
                raise failures.pop()
            return await attempt()

        result: T = await self.retries(error, stop)(first_again)
        return result


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
        self._closed_until, self._closed_by = 0.0, ""

    def limit(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        """Set limits for requests and tokens. Requests are spread evenly over time. If a limit is set several
        times, the lowest value counts. None: no limit.
        """
        self._request_s = max(self._request_s, 60 / requests_per_minute if requests_per_minute else 0.0)
        self._token_s = max(self._token_s, 60 / tokens_per_minute if tokens_per_minute else 0.0)

    def pause(self, seconds: float) -> None:
        """Start no request for this number of seconds from now."""
        self._opens = max(self._opens, asyncio.get_running_loop().time() + seconds)

    def close(self, error: OutageError) -> None:
        """Let every request fail, without being sent, for as long as `error` asks to wait."""
        self._closed_until, self._closed_by = asyncio.get_running_loop().time() + error.retry_after, str(error)

    async def turn(self, tokens: int, check: Callable[[], object]) -> float:
        """Wait until a request of about `tokens` tokens may start. Returns how many seconds the wait took.

        The method calls `check` before each wait, and raises any error that `check` raises. After `close`, it
        raises `OutageError` instead of waiting.
        """
        clock = asyncio.get_running_loop().time
        came = clock()
        if not self._request_s and not self._token_s and came >= max(self._opens, self._closed_until):
            return 0.0
        async with self._gate:  # one request at a time, in the order of arrival
            while (rest := max(self._opens, self._requests, self._tokens, self._closed_until) - clock()) > 0:
                check()
                if (left := self._closed_until - clock()) > 0:
                    message = f"{self._closed_by}; pyfast sends no call for another {math.ceil(left)} s"
                    raise OutageError(message, "busy", left)
                await asyncio.sleep(rest)
            # The sum makes up for late timers; without it, a thousand requests per minute would become fewer.
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


def parse_spec(spec: str) -> tuple[str, str]:
    """Split `openai:MODEL@URL` into the model's name and the base URL.

    pyfast adds `/chat/completions` to the base URL. If the URL has no path, its path becomes `/v1`. Raises
    `InputError` if the text has another form.
    """
    match = re.fullmatch(r"openai:(.+?)@(https?://\S+)", spec)
    unreadable = InputError(f"cannot read the LLM {shown_url(spec)!r}; expected openai:MODEL@http://HOST:PORT")
    if match is None or "://" in match[1]:
        raise unreadable
    if re.search(r"[@?#]", match[2]):
        raise InputError(
            "an LLM's URL must not contain a password, query or fragment; put the key into OPENAI_API_KEY, and a"
            ' query into the option query, such as query={"api-version": "..."}'
        )
    try:
        parts = urlsplit(match[2])
        path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        base_url = f"{parts.scheme}://{parts.netloc}{path}"
        if not URL(base_url).host or parts.port == 0:
            raise unreadable
    except ValueError as error:  # The port is not a number, or the address in brackets is invalid.
        raise InputError(f"{unreadable} ({one_line(error)})") from None
    return match[1], base_url


def shown_url(url: str) -> str:
    """Return a URL without its passwords and keys, for messages. The URL may be malformed."""
    bare = re.sub(r"(?:(?<=://)|(?<=@)).*@(?!https?://)", f"{HIDDEN}@", url, flags=re.DOTALL)
    head, slashes, rest = re.split(r"[?#]", bare)[0].partition("://")
    host, *path = rest.split("/")
    keys = keys_in("/".join(path))
    return head + slashes + "/".join([host, *(HIDDEN if part in keys else part for part in path)])


def proxy_for(base_url: URL) -> str | None:
    """Return the proxy for a URL, from the environment variables for proxies, which curl reads too. Return
    None if there is no proxy, or if the URL is on this machine."""
    host = base_url.host or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(f"{host}:{base_url.port}"):
        return None
    proxies = getproxies()
    url = proxies.get(base_url.scheme) or proxies.get("all") or ""
    proxy = url if "://" in url or not url else f"http://{url}"
    return proxy if proxy.startswith(("http://", "https://")) else None  # aiohttp has no SOCKS.


class Again(Exception):
    """Raised if an attempt failed, but another attempt may succeed. If the last attempt fails too, the caller
    gets `error`."""

    def __init__(self, error: OutageError) -> None:
        super().__init__(str(error))
        self.error = error


class Refused(Exception):
    """Raised if the server refuses a part of a request. `complaint` is the server's message.

    pyfast then looks for a change of the request that the server accepts, and raises `error` if there is none.
    """

    def __init__(self, error: CallError | RefusalError, complaint: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.complaint = complaint


class Unfit(Exception):
    """Raised if the server itself rejects the model's output, because it does not fit the schema. `completion`
    contains this output if the server reports it, so that the caller can ask again."""

    def __init__(self, completion: Completion) -> None:
        super().__init__(completion.text)
        self.completion = completion


class _Connection(ResponseHandler):
    """A connection that counts as closed if the server has sent more than its reply, because the next call would
    take the rest for its own reply."""

    def is_connected(self) -> bool:
        return super().is_connected() and not self.should_close


def connector() -> aiohttp.TCPConnector:
    """Create a connector for a server. It does not limit the number of connections, because the slots do."""
    made = aiohttp.TCPConnector(limit=0)
    made._factory = partial(_Connection, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    return made


async def read_body(
    response: aiohttp.ClientResponse, most: int = LARGEST_ANSWER, on_piece: Callable[[bytes], None] | None = None
) -> bytes:
    """Read a reply's body. Raises `CallError` if it has more than `most` bytes. The body is read piece by piece,
    so that an endless body cannot fill the memory. `on_piece` is called with each piece."""
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            response.close()  # The rest of the body is unread, so the connection cannot be used again.
            raise CallError(f"the LLM's reply is larger than {most >> 20} MB")
        if on_piece is not None:
            on_piece(piece)
    return b"".join(pieces)


def pause_asked(retry_after: str | None) -> float:
    """Return how many seconds a Retry-After header asks the client to wait. The header contains a number of
    seconds or a date. Without a usable header, the result is 0."""
    try:
        seconds = float(retry_after or 0)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(str(retry_after)).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)


def _entries(models: object) -> list[dict[str, Any]]:
    entries = models.get("data") if isinstance(models, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def others_in(models: object, model: str) -> list[str]:
    """Return the names in the reply to `GET /models` if there are several, none of which is the model's. Ollama
    adds a tag to a name, and Gemini a path before it. The result is empty for one page of several."""
    names = [str(entry.get("id")) for entry in _entries(models)]
    is_name = re.compile(rf"(.*/)?{re.escape(model)}(:.*)?", re.DOTALL)
    is_whole = isinstance(models, dict) and not models.get("has_more")
    return names if is_whole and len(names) > 1 and not any(map(is_name.fullmatch, names)) else []


def context_window_in(models: object, model: str) -> int | None:
    """Find the context window in the reply to `GET /models`, in tokens. The model's entry gives it as vLLM's
    `max_model_len`, or as llama.cpp's `n_ctx` or `n_ctx_train`. Returns None if it is missing."""
    known = _entries(models)
    # A server with one model often accepts any name.
    entry = next((entry for entry in known if entry.get("id") == model), known[0] if len(known) == 1 else {})
    meta = entry.get("meta")
    if not isinstance(meta, dict):
        meta = {}
    sizes = [entry.get("max_model_len"), meta.get("n_ctx"), meta.get("n_ctx_train")]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)
