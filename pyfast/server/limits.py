"""Limits of requests, of the queue and of API keys, and the addresses that need no keys."""

from __future__ import annotations

import contextlib
import math
import re
import stat
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, time
from typing import Any, Self

from pyfast.errors import InputError
from pyfast.retrieval.index.commit import parse_filter
from pyfast.server.errors import ApiError
from pyfast.utils.log import LOG

_DAY_S = 86_400
KEY_LIMITS = ("requests_per_minute", "requests_at_once", "tokens_per_day")
"""The limits that a key file can set for a key"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server. (For the tokens, calls and seconds of one question, use the argument `budget` of
    `serve`.)
    """

    body_bytes: int = 1 << 20
    """Maximum number of bytes in a request's body"""
    body_seconds: float = 10.0
    """Maximum number of seconds for a request's body to arrive"""
    question_chars: int = 8192
    """Maximum number of characters in one message"""
    turns: int = 100
    """Maximum number of messages in one conversation"""
    documents: int = 1000
    """Maximum number of passages in one search, and of documents in one request to rerank"""
    seconds: float = 300.0
    """Maximum number of seconds from the arrival of a request to its answer, including the time in the queue"""
    file_bytes: int = 200 << 20
    """Maximum number of bytes in a file uploaded for a batch"""
    files: int = 1000
    """Maximum number of files on the server, including results of batches"""
    queue: int = 256
    """Maximum number of questions waiting while `concurrency` others are in progress. When the queue is full,
    further questions get status 429"""

    @classmethod
    def of(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """Create limits from `given`, a mapping from limit names to values. All other limits keep their defaults.

        If `given` is a `Limits` object, it is returned unchanged. Raises `InputError` for an unknown limit or an
        invalid value.
        """
        if isinstance(given, Limits):
            return given
        defaults = asdict(cls())
        for name, value in (given or {}).items():
            if name not in defaults:
                raise InputError(f"unknown limit {name}; known: {', '.join(defaults)}")
            least = 0 if name == "queue" else 1
            is_number = type(value) in (int, type(defaults[name]))
            if not is_number or not least <= value < math.inf:
                raise InputError(f"limit {name}: expected a number of at least {least}, got {value}")
        return cls(**(given or {}))


class Queue:
    """Counts the questions in progress and in the queue, and rejects questions if the queue is full."""

    def __init__(self, concurrency: int, limit: int) -> None:
        self.concurrency = concurrency
        self.admitted = 0
        self._limit = concurrency + limit
        self._seconds = 1.0  # seconds from admission to answer, as a moving average

    @property
    def waiting(self) -> int:
        """How many accepted questions have not started yet."""
        return max(0, self.admitted - self.concurrency)

    def check(self) -> None:
        """Raise `ApiError` 429 if the queue is full."""
        if self.admitted >= self._limit:
            pause = max(1, math.ceil(self._seconds))
            raise ApiError(429, "too many questions are waiting; try again later", "queue_full", retry_after=pause)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Count one question as accepted while the `with` block runs. Raises `ApiError` if the queue is
        full."""
        self.check()
        self.admitted += 1
        began = monotonic()
        try:
            yield
        finally:
            self.admitted -= 1
            # This includes the time in the queue, so the longer the queue, the longer clients are asked to wait,
            # up to a minute.
            self._seconds += 0.05 * (min(monotonic() - began, 60.0) - self._seconds)


@dataclass(slots=True)
class KeyUse:
    """What requests with one key have used. It is kept in memory, so a new server starts from zero."""

    requests: deque[float] = field(default_factory=deque)
    """When the requests of the last minute arrived"""
    in_progress: int = 0
    day: int = 0
    """The day of `tokens`, in UTC, as a number of days since 1970"""
    tokens: int = 0

    def add(self, tokens: int) -> None:
        """Count prompt and completion tokens, beginning at 0 on a new day."""
        today = int(time() // _DAY_S)
        self.day, self.tokens = today, tokens + (self.tokens if self.day == today else 0)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, with the documents that its requests can access, and how much they may use."""

    key: str = field(repr=False)
    room: str = ""
    """The name of the folder with its files and batches. Empty: the folder shared by all keys without a filter"""
    filter: tuple[str, ...] = ()
    """Conditions for the documents that the requests see. Empty: they see all documents"""
    name: str = ""
    """The name in metrics. Empty: the key comes from the environment"""
    requests_per_minute: int | None = None
    requests_at_once: int | None = None
    tokens_per_day: int | None = None
    """Prompt plus completion tokens. The question that exceeds the limit still gets its answer. Above the limit,
    only requests that use tokens are refused"""
    use: KeyUse = field(default_factory=KeyUse, repr=False, compare=False)

    @contextlib.contextmanager
    def request(self, uses_tokens: bool) -> Iterator[None]:
        """Count a request while the `with` block runs. Raises `ApiError` 429 if a limit is reached."""
        use, now = self.use, monotonic()
        while use.requests and use.requests[0] <= now - 60:
            use.requests.popleft()
        use.add(0)
        if self.requests_per_minute is not None and len(use.requests) >= self.requests_per_minute:
            raise self._above("requests_per_minute", 60 - (now - use.requests[0]))
        if self.requests_at_once is not None and use.in_progress >= self.requests_at_once:
            raise self._above("requests_at_once", 1)
        if uses_tokens and self.tokens_per_day is not None and use.tokens >= self.tokens_per_day:
            raise self._above("tokens_per_day", _DAY_S - time() % _DAY_S)
        if self.requests_per_minute is not None:
            use.requests.append(now)
        use.in_progress += 1
        try:
            yield
        finally:
            use.in_progress -= 1

    def _above(self, name: str, pause: float) -> ApiError:
        fault = f"this key has reached its limit {name} = {getattr(self, name)}; try again later"
        return ApiError(429, fault, "rate_limit_exceeded", retry_after=max(1, math.ceil(pause)))


def read_keys(path: Path) -> list[ApiKey]:
    """Read a TOML file with API keys. A table `[NAME]` contains `key` and optionally `filter` (one condition or a
    list of conditions, as in `pyfast.open_index`) and the limits in `KEY_LIMITS`.

    Raises `InputError` if the file cannot be read, or a table is not valid. The message contains no key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        if path.stat().st_mode & stat.S_IROTH:
            LOG.warning("%s: every user of this machine can read the keys in this file; use chmod 600", path)
    except tomllib.TOMLDecodeError:  # Its message could contain a key.
        raise InputError(f"{path}: not valid TOML") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    keys: dict[str, ApiKey] = {}
    for name, table in tables.items():
        place = f"{path}: [{name}]"
        if not re.fullmatch(r"[\w-][\w.-]*", name) or not isinstance(table, dict):
            raise InputError(
                f"{place}: expected a table; its name may contain only letters, digits, dots, - and _"
            )
        if unknown := table.keys() - (known := ("key", "filter", *KEY_LIMITS)):
            raise InputError(f"{place}: unknown field {min(unknown)}; known: {', '.join(known)}")
        limits = {limit: table[limit] for limit in KEY_LIMITS if limit in table}
        for limit, most in limits.items():
            if type(most) is not int or most < 1:
                raise InputError(f"{place}: {limit}: expected a whole number of at least 1, got {most!r}")
        key, given = table.get("key"), table.get("filter")
        if not isinstance(key, str) or not key or key.strip() != key:
            raise InputError(f"{place}: expected a `key`, a string without leading or trailing spaces")
        conditions = [given] if isinstance(given, str) else given
        if given is not None and (not isinstance(conditions, list) or not conditions):
            raise InputError(f"{place}: `filter` must be a condition, or a non-empty list of conditions")
        if key in keys:
            raise InputError(f"{place}: another table has the same key")
        parse_filter(read := tuple(map(str, conditions or ())))
        keys[key] = ApiKey(key, name if read else "", read, name, **limits)
    if not keys:
        raise InputError(f"{path} contains no keys")
    return list(keys.values())


def is_local(host: str) -> bool:
    """Return whether only this machine can reach a server that listens at this address."""
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
