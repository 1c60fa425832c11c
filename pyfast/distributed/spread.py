"""Call a function once for each of many items, in the workers of a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar

from pyfast.distributed.cluster import Pool
from pyfast.engine.configuration import code_digest
from pyfast.errors import PyfastError, RunError, error_of, told_of

T = TypeVar("T")
_AHEAD = 3
"""For each worker: the maximum number of items that are in progress, or whose result waits for the result of
an earlier item"""
_SLOW_S, _SLOW = 60.0, 5
"""A call hangs if it takes longer than both `_SLOW_S` seconds and `_SLOW` times the time of the slowest
finished call. Another worker then makes the same call"""
_LOSSES = 5
"""If this many workers end during the same call, the call fails"""
_LOOK_S = 0.25


def spread(pool: Pool, function: Callable[[T], Any], items: Iterable[T]) -> Iterator[Any]:
    """Call a function with each item, as `map` does, but in the workers of a cluster.

    Only a few items and results for each worker are in memory. If a worker or its machine dies, another
    worker gets its item. If the call whose result must be yielded next hangs, another worker also makes this
    call.

    Args:
        pool: The workers. Each makes one call at a time.
        function: A function of a module. It must return equal results for equal items.
        items: The items.

    Yields:
        The results, in the order of the items.

    Raises:
        PyfastError: The function raised this error, or a worker has other code than this process.
        RunError: Several workers died at the same item.
    """
    call = partial(pool.task(_called, _LOSSES).remote, function, os.getcwd(), code_digest())
    numbered = enumerate(items)
    given: dict[int, T] = {}
    running: dict[Any, tuple[int, float]] = {}
    """For each call: the number of its item, and when the call began"""
    results: dict[int, Any] = {}
    wanted, repeated, slowest = 0, -1, 0.0
    try:
        while True:
            while len(running) < pool.size and len(given) + len(results) < _AHEAD * pool.size:
                number, item = next(numbered, (None, None))
                if number is None:
                    break
                given[number] = item  # type: ignore[assignment]
                running[call(item)] = number, time.monotonic()
            if not given:
                return
            for ended in pool.ready(list(running), _LOOK_S):
                number, began = running.pop(ended)
                result = pool.result(ended)
                if given.pop(number, None) is None:  # the repeated call was faster
                    continue
                if result is None:
                    raise RunError(f"{_LOSSES} workers ended during the same call; does it need more memory?")
                error, value = result
                if error is not None:
                    raise error_of(*error)
                slowest = max(slowest, time.monotonic() - began)
                results[number] = deepcopy(value)  # in Ray's memory, it would keep its room there
            while wanted in results:
                yield results.pop(wanted)
                wanted += 1
            if wanted in given and repeated < wanted and len(running) < pool.size + 1:
                began = min(since for number, since in running.values() if number == wanted)
                if time.monotonic() - began > max(_SLOW_S, _SLOW * slowest):
                    repeated = wanted
                    running[call(given[wanted])] = wanted, time.monotonic()
    finally:
        for one in running:
            pool.cancel(one)


def _called(function: Callable[[T], Any], place: str, code: str, item: T) -> tuple[tuple[str, str] | None, Any]:
    """Call a function in a worker. Returns (class and text of its error, its result).

    `place` is the working directory of the calling process. `code` is a checksum of pyfast's code in the
    calling process. A worker with other code returns an error.
    """
    if code != code_digest():
        return ("InputError", f"{os.uname().nodename}: a worker has other code than this process"), None
    with contextlib.suppress(OSError):
        os.chdir(place)
    if place not in sys.path:
        sys.path.append(place)
    try:
        return None, function(item)
    except PyfastError as error:
        return told_of(error), None
