"""The workers of a run, which are actors of a Ray cluster, and function calls that are spread over them."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyfast.engine.configuration import code_digest
from pyfast.engine.distributed.blocks import Work, Worker
from pyfast.errors import InputError, PyfastError, RunError, error_of, told_of
from pyfast.utils.options import Cluster

T = TypeVar("T")
LOCAL = "local"
AT_ONCE = 2
"""How many blocks a worker has in progress: while the last questions of one block finish, the next block starts"""
_STORE = 100 << 20  # the size of Ray's object store on this machine; blocks go through the run's folder instead

_AHEAD = 3
"""The maximum number of items per worker that are in progress, or whose result waits for that of an earlier
item"""
_SLOW_S, _SLOW = 60.0, 5
"""A call counts as hanging if it takes longer than both `_SLOW_S` seconds and `_SLOW` times as long as the slowest
finished call. Another worker then makes the same call"""
_LOSSES = 5
"""If this many workers die during the same call, the call fails"""
_LOOK_S = 0.25


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Pool]:
    """Connect to the cluster, or start one on this machine, and yield a `Pool` for its workers.

    A cluster that this function started ends after the `with` block.

    Raises `InputError` if no cluster is reachable at the address, or a local cluster has too few resources for a
    worker.
    """
    import ray

    begun_here = not ray.is_initialized()
    logs = _connect(cluster, ray) if begun_here else None
    try:
        yield Pool(cluster, ray, logs)
    finally:
        if begun_here:
            ray.shutdown()


def _connect(cluster: Cluster, ray: Any) -> Path:
    """Connect to the cluster, or start one. Return the folder with Ray's logs on this machine."""
    quiet = {"log_to_driver": False, "logging_level": "error"}
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if cluster.address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default, 15, is for background work
            cores = max(os.cpu_count() or 1, math.ceil((cluster.workers or 1) * cluster.needs["CPU"]))
            own = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE}
            context = ray.init(LOCAL, **own, **quiet)
        else:
            context = ray.init(cluster.address, **quiet)
        return Path(context.address_info["session_dir"], "logs")
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"ray {cluster.address}: {first}") from None
    finally:
        for number, handler in handlers.items():  # Ray replaces them.
            signal.signal(number, handler)


class Pool:
    """Starts the workers of a connected cluster, gets the results of their calls, and ends the workers."""

    def __init__(self, cluster: Cluster, ray: Any, logs: Path | None) -> None:
        """`ray` is the module, which is imported only for clusters, and `logs` the folder with Ray's logs."""
        self._ray, self._logs, needs, there = ray, logs, cluster.needs, ray.cluster_resources()
        others = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU")}
        self._options = {"num_cpus": needs["CPU"], "num_gpus": needs.get("GPU", 0), "resources": others}
        fits = min(
            (math.floor(there.get(name, 0) / amount) for name, amount in needs.items() if amount), default=1
        )
        if not fits and cluster.address == LOCAL:
            lacks = ", ".join(f"{name}={amount:g}" for name, amount in needs.items())
            raise InputError(f"worker_resources: this machine does not have {lacks}")
        self.size = cluster.workers or max(fits, 1)
        """How many workers to start"""
        self.lost = ""
        """Why the last unreachable worker ended, in one line"""

    def new(self, opens: Callable[[], Work], run: Path) -> Any:
        """Create a Ray actor with a `Worker` for the run in the folder `run`. The actor starts when the cluster
        has enough free resources."""
        actor = self._ray.remote(_actor(self._ray))
        actor = actor.options(max_restarts=0, max_concurrency=AT_ONCE + 2, **self._options)
        return actor.remote([self._ray.put(partial(Worker, opens, str(run)))])

    def task(self, function: Callable[[T], Any], losses: int) -> Callable[[T], Any]:
        """Return a function that starts a call of `function` in a worker's process, and returns the Ray call. If
        the worker dies, Ray repeats the call. After `losses` dead workers, the call fails."""
        # A process keeps loaded models for its next call. With a GPU, Ray would otherwise end it after each call.
        made = self._ray.remote(max_calls=0, max_retries=losses - 1, **self._options)(_calling(self._ray))
        return lambda item: made.remote([self._ray.put(partial(function, item))])

    def ready(self, calls: list[Any], seconds: float) -> list[Any]:
        """Return the calls that have ended. If there are none, wait at most `seconds` seconds until one ends."""
        if not calls:
            threading.Event().wait(seconds)
            return []
        self._ray.wait(calls, num_returns=1, timeout=seconds)
        return list(self._ray.wait(calls, num_returns=len(calls), timeout=0)[0])

    def result(self, call: Any) -> Any:
        """Return the result of a call that has ended. If its worker is unreachable, return None, and store the
        reason in `lost`.

        Raises `RunError` if the call failed for an unexpected reason.
        """
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise RunError(f"a worker failed: {error.cause!r}") from None
        except self._ray.exceptions.RayError as error:
            text = str(error)
            detail = text.partition("Worker exit detail: ")[2].partition(" Some common causes")[0]
            self.lost = detail or text.partition("\n")[0]
            pid = re.search(r"\bpid: (\d+)", text)
            if pid and self._logs and (logs := list(self._logs.glob(f"worker-*-{pid[1]}.err"))):
                self.lost += f" Its log: {logs[0]}"
            return None

    def cancel(self, call: Any) -> None:
        """End a call of a task, and its process."""
        with contextlib.suppress(Exception):
            self._ray.cancel(call, force=True)

    def end(self, actor: Any) -> None:
        """Kill a worker."""
        with contextlib.suppress(Exception):
            self._ray.kill(actor)


def _calling(ray: Any) -> Callable[[list[Any]], Any]:
    """Return a function that, in a worker, imports the same pyfast package as this process, and then calls a
    function stored in Ray's memory.

    In a worker, Ray looks for modules first in the working directory of this process, which may contain another
    `pyfast`. Ray sends a module's functions by name, and so would import that one, but sends a nested function as
    code."""
    place, root = os.getcwd(), str(Path(__file__).parents[3])

    def call(stored: list[Any]) -> Any:
        if "pyfast" not in sys.modules:
            others = [path for path in sys.path if path != place]
            sys.path[:] = [root, *others]
            importlib.import_module("pyfast")
            sys.path[:] = [*others, place]  # as in the command line, for plug-ins named MODULE:NAME
        with contextlib.suppress(OSError):
            os.chdir(place)
        return ray.get(stored[0])()

    return call


def _actor(ray: Any) -> type:
    """Create the class of the actors, which Ray also sends as code (see `_calling`)."""
    call = _calling(ray)

    class Actor:
        def __init__(self, makes: list[Any]) -> None:
            self._makes = makes
            self._worker: Any = None

        def start(self) -> Any:
            self._worker = self._worker or call(self._makes)
            return self._worker.start()

        def answer(self, *given: Any) -> Any:
            return self._worker.answer(*given)

        def stop(self) -> None:
            self._worker.stop()

    return Actor


def spread(pool: Pool, function: Callable[[T], Any], items: Iterable[T]) -> Iterator[Any]:
    """Call a function with each item, as `map` does, but in the workers of a cluster.

    Only a few items and results per worker are in memory. If a worker or its machine dies, another worker gets its
    item. If the call whose result must be yielded next hangs, a second worker makes the same call.

    Args:
        pool: The workers, each of which makes one call at a time.
        function: A module-level function that returns equal results for equal items.
        items: The items.

    Yields:
        The results, in the order of the items.

    Raises:
        PyfastError: The function raised this error, or a worker's code differs from this process's.
        RunError: Several workers died while processing the same item.
    """
    call = pool.task(partial(_called, function, code_digest()), _LOSSES)
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
                    raise RunError(
                        f"{_LOSSES} workers died during the same call, which may need more memory. The last one: "
                        f"{pool.lost}"
                    )
                error, value = result
                if error is not None:
                    raise error_of(*error)
                slowest = max(slowest, time.monotonic() - began)
                results[number] = deepcopy(value)  # The original would occupy Ray's memory.
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


def _called(function: Callable[[T], Any], code: str, item: T) -> tuple[tuple[str, str] | None, Any]:
    """Call a function in a worker, and return the class and text of its error (or None), and its result.

    `code` is a checksum of pyfast's code in the calling process. A worker with different code returns an error.
    """
    if code != code_digest():
        return ("InputError", f"{os.uname().nodename}: a worker runs different code from this process"), None
    try:
        return None, function(item)
    except PyfastError as error:
        return told_of(error), None
