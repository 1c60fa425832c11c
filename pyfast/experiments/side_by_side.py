"""Carry out several runs at the same time on a Ray cluster. One worker carries out each run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

from pyfast.distributed import connected
from pyfast.engine import Event, Watch
from pyfast.errors import RunError
from pyfast.options import Cluster

_LOOK_S = 0.25


def side_by_side(runs: Sequence[Callable[..., Any]], cluster: Cluster, watch: Watch) -> None:
    """Carry out runs on a cluster. Each worker of the cluster carries out one run at a time.

    Args:
        runs: One function for each run. It gets the arguments `cluster` and `watch` of `pyfast.answer`.
        cluster: The cluster.
        watch: Whom to tell, and how to stop. Calls of `on_event` do not overlap. The counts in an event are sums
            over all runs that have started.

    Raises:
        PyfastError: A run ended with this error. All other runs in progress are stopped before it is raised.
        RunError: `stop` was set before all runs had finished.
    """
    halt, turn = threading.Event(), threading.Lock()
    counts: dict[int, tuple[int, int]] = {}

    def hear(number: int, event: Event) -> None:
        with turn:
            counts[number] = event.done, event.total
            done, total = map(sum, zip(*counts.values(), strict=True))
            watch.on_event(replace(event, done=done, total=total))

    with connected(cluster) as pool:
        threads = ThreadPoolExecutor(pool.size, "pyfast-run")
        one = replace(cluster, workers=1)
        doing = [
            threads.submit(run, cluster=one, watch=Watch(partial(hear, number), stop=halt))
            for number, run in enumerate(runs)
        ]
        try:
            left = set(doing)
            while left and not (watch.stop is not None and watch.stop.is_set()):
                ended, left = wait(left, _LOOK_S, FIRST_COMPLETED)
                for run in ended:
                    run.result()
        finally:
            halt.set()
            threads.shutdown(cancel_futures=True)
        for run in doing:
            if run.cancelled():
                raise RunError("stopped; the same command resumes the experiment")
            run.result()
