"""The workers of a run, as actors of a Ray cluster."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyfast.distributed.worker import Work, Worker
from pyfast.errors import InputError, RunError
from pyfast.options import Cluster

LOCAL = "local"
AT_ONCE = 2
"""How many blocks a worker has in progress: while the last questions of one block finish, the next block starts"""
_STORE = 100 << 20  # bytes of Ray's object store on this machine: blocks go through the run's folder


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Pool]:
    """Connect to the cluster, or start a cluster on this machine. Yield a `Pool` for its workers.

    If this function started the cluster, it also ends the cluster after the `with` block.

    Raises `InputError` if no cluster answers at the address, or if a local cluster has too few resources for a
    worker.
    """
    import ray

    begun_here = not ray.is_initialized()
    if begun_here:
        _connect(cluster)
    try:
        yield Pool(cluster)
    finally:
        if begun_here:
            ray.shutdown()


def _connect(cluster: Cluster) -> None:
    import ray

    quiet = {"log_to_driver": False, "logging_level": "error"}
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if cluster.address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 is for what runs beside other work
            cores = max(os.cpu_count() or 1, math.ceil((cluster.workers or 1) * cluster.needs["CPU"]))
            ray.init(LOCAL, num_cpus=cores, include_dashboard=False, object_store_memory=_STORE, **quiet)
        else:
            ray.init(cluster.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"ray {cluster.address}: {first}") from None
    finally:
        for number, handler in handlers.items():  # Ray takes them
            signal.signal(number, handler)


class Pool:
    """Starts the workers of a connected cluster, gets the results of their calls, and ends the workers."""

    def __init__(self, cluster: Cluster) -> None:
        import ray

        self._needs = cluster.needs
        there = ray.cluster_resources()
        fits = min(
            (math.floor(there.get(name, 0) / amount) for name, amount in self._needs.items() if amount), default=1
        )
        if not fits and cluster.address == LOCAL:
            lacks = ", ".join(f"{name}={amount:g}" for name, amount in self._needs.items())
            raise InputError(f"worker_resources: this machine does not have {lacks}")
        self.size = cluster.workers or max(fits, 1)
        """How many workers to start"""

    def new(self, opens: Callable[[], Work], run: Path) -> Any:
        """Create a Ray actor with a `Worker` for the run in the folder `run`. The actor starts when the
        cluster has free resources."""
        import ray

        actor = ray.remote(Worker).options(max_restarts=0, max_concurrency=AT_ONCE + 2, **self._options)
        return actor.remote(opens, str(run), os.getcwd())

    def task(self, function: Callable[..., Any], losses: int) -> Any:
        """Make a Ray function whose calls run in the workers' processes. If a worker dies during a call, Ray
        repeats the call. After `losses` dead workers, the call fails."""
        import ray

        # A process keeps what it has loaded for its next call; with a GPU, Ray would end it after each call.
        return ray.remote(max_calls=0, max_retries=losses - 1, **self._options)(function)

    @property
    def _options(self) -> dict[str, Any]:
        others = {name: amount for name, amount in self._needs.items() if name not in ("CPU", "GPU")}
        return {"num_cpus": self._needs["CPU"], "num_gpus": self._needs.get("GPU", 0), "resources": others}

    def ready(self, calls: list[Any], seconds: float) -> list[Any]:
        """Return the calls that have ended. If no call has ended, wait until one ends, at most `seconds`
        seconds."""
        import ray

        if not calls:
            threading.Event().wait(seconds)
            return []
        ray.wait(calls, num_returns=1, timeout=seconds)
        return list(ray.wait(calls, num_returns=len(calls), timeout=0)[0])

    def result(self, call: Any) -> Any:
        """Return the result of a call that has ended, or None if its worker cannot be reached.

        Raises `RunError` if the call failed for an unexpected reason.
        """
        import ray

        try:
            return ray.get(call)
        except ray.exceptions.RayTaskError as error:
            raise RunError(f"a worker failed: {error.cause!r}") from None
        except ray.exceptions.RayError:
            return None

    def cancel(self, call: Any) -> None:
        """End a call of a task, and the process in which it runs."""
        import ray

        with contextlib.suppress(Exception):
            ray.cancel(call, force=True)

    def end(self, actor: Any) -> None:
        """Kill a worker."""
        import ray

        with contextlib.suppress(Exception):
            ray.kill(actor)
