"""Limits of requests, of the number of waiting questions, of API keys, and of the addresses that need no keys."""

from __future__ import annotations

import contextlib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any, Self

from pyfast.errors import InputError
from pyfast.retrieval.index.commit import parse_filter
from pyfast.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server. (For the tokens, calls and seconds of one question, use the argument `budget` of
    `serve`.)
    """

    body_bytes: int = 1 << 20
    """Maximum number of bytes in a request's body"""
    body_seconds: float = 10.0
    """Maximum number of seconds until a request's body has arrived"""
    question_chars: int = 8192
    """Maximum number of characters in one message"""
    turns: int = 100
    """Maximum number of messages in one conversation"""
    documents: int = 1000
    """Maximum number of passages in one search, and of documents in one request to rerank"""
    seconds: float = 300.0
    """Maximum number of seconds from the arrival of a request to its answer, including the time in the queue"""
    file_bytes: int = 200 << 20
    """Maximum number of bytes in a file that is uploaded for a batch"""
    files: int = 1000
    """Maximum number of files on the server, including results of batches"""
    queue: int = 256
    """Maximum number of questions that wait. (Questions wait if `concurrency` questions are in progress.) If
    the queue is full, a further question gets status 429"""

    @classmethod
    def of(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """Make limits from `given`, a mapping from names of limits to values. All other limits have their
        defaults.

        If `given` is a `Limits` object, it is returned unchanged. Raises `InputError` if a name is not the
        name of a limit, or a value is not valid.
        """
        if isinstance(given, Limits):
            return given
        limits = cls()
        known = {field.name: type(getattr(limits, field.name)) for field in fields(cls)}
        for name, value in (given or {}).items():
            if name not in known:
                raise InputError(f"limit {name}: unknown. The limits are: {', '.join(known)}")
            least = 0 if name == "queue" else 1
            if (
                isinstance(value, bool)
                or not isinstance(value, int | known[name])
                or not least <= value < math.inf
            ):
                raise InputError(f"limit {name}: expected a number of at least {least}, got {value}")
        return cls(**(given or {}))


class Queue:
    """Counts the questions in progress and in the queue, and refuses questions if the queue is full."""

    def __init__(self, concurrency: int, limit: int) -> None:
        self.concurrency = concurrency
        self.admitted = 0
        self._limit = concurrency + limit
        self._seconds = 1.0  # from admission to answer, as a moving average

    @property
    def waiting(self) -> int:
        """How many accepted questions have not started yet."""
        return max(0, self.admitted - self.concurrency)

    def check(self) -> None:
        """Raise `ApiError` 429 if the queue is full."""
        if self.admitted >= self._limit:
            pause = max(1, math.ceil(self._seconds))
            raise ApiError(429, "too many questions wait; try again later", "queue_full", retry_after=pause)

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
            # With the time in the queue: a long queue asks for more patience than a short one, up to a minute.
            self._seconds += 0.05 * (min(monotonic() - began, 60.0) - self._seconds)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, and what requests with it can see."""

    key: str = field(repr=False)
    room: str = ""
    """The name of the place in which its files and batches are. Empty: the place of all keys without a filter"""
    filter: tuple[str, ...] = ()
    """Conditions that all documents meet which the requests see. Empty: they see all documents"""


def read_keys(path: Path) -> list[ApiKey]:
    """Read a TOML file with API keys. A table `[NAME]` has `key`, and optionally `filter`: one condition or a list
    of conditions, as in `pyfast.open_index`.

    Raises `InputError` if the file cannot be read, or a table is not valid. The message has no key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    except tomllib.TOMLDecodeError:
        raise InputError(f"{path}: not valid TOML") from None
    keys: dict[str, ApiKey] = {}
    for name, table in tables.items():
        place = f"{path}: [{name}]"
        if not re.fullmatch(r"[\w-][\w.-]*", name) or not isinstance(table, dict):
            raise InputError(f"{place}: expected a table; its name may have letters, digits, dots, - and _")
        if unknown := table.keys() - {"key", "filter"}:
            raise InputError(f"{place}: {min(unknown)} is unknown; a table has key and filter")
        key, given = table.get("key"), table.get("filter")
        if not isinstance(key, str) or not key or key.strip() != key:
            raise InputError(f"{place}: needs `key`, a text without spaces around it")
        conditions = [given] if isinstance(given, str) else given
        if given is not None and (not isinstance(conditions, list) or not conditions):
            raise InputError(f"{place}: `filter` needs to be a condition, or a list of them that is not empty")
        if key in keys:
            raise InputError(f"{place}: another table has the same key")
        parse_filter(read := tuple(map(str, conditions or ())))
        keys[key] = ApiKey(key, name if read else "", read)
    if not keys:
        raise InputError(f"{path}: has no key")
    return list(keys.values())


def is_local(host: str) -> bool:
    """Return whether only this machine can reach a server that listens at this address."""
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
