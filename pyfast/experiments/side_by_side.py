"""Several runs at once, each by one worker of a Ray cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

from pyfast.distributed import Cluster, connected
from pyfast.engine import Event, OnEvent
from pyfast.errors import RunError

_LOOK_S = 0.25


def side_by_side(
    runs: Sequence[Callable[..., Any]], cluster: Cluster, on_event: OnEvent, stop: threading.Event | None
) -> None:
    """Do runs on a cluster, as many at once as it has workers.

    Args:
        runs: Functions that call `pyfast.answer` with the keyword arguments that they get.
        cluster: The cluster.
        on_event: Called with each event, one at a time. It counts the questions of all runs that have started.
        stop: Once it is set, the runs in progress finish their questions.

    Raises:
        PyfastError: A run raised it, or was stopped. The runs in progress have finished their questions.
    """
    halt, turn = threading.Event(), threading.Lock()
    counts: dict[int, tuple[int, int]] = {}

    def hear(number: int, event: Event) -> None:
        with turn:
            counts[number] = event.done, event.total
            done, total = map(sum, zip(*counts.values(), strict=True))
            on_event(replace(event, done=done, total=total))

    with connected(cluster) as pool:
        threads = ThreadPoolExecutor(pool.size, "pyfast-run")
        given = {"ray": cluster.address, "workers": 1, "worker_resources": cluster.resources, "stop": halt}
        doing = [threads.submit(run, on_event=partial(hear, number), **given) for number, run in enumerate(runs)]
        try:
            left = set(doing)
            while left and not (stop is not None and stop.is_set()):
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
