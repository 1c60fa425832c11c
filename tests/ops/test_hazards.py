"""What other threads and processes may do while an op runs: write to its arrays, start threads, fork."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pool_problems import random_problem

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.arrays import MOST_THREADS, available_cores, thread_count


def run(script: str) -> None:
    """In a process of its own, because it may crash or hang."""
    program = "import numpy as np\nfrom pool_problems import random_problem\nfrom pyfast import ops\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program + textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_arrays_that_change_during_a_call() -> None:
    """The result means nothing then; but nothing is written where it should not be."""
    run(
        """
    import sys, threading, time
    from pyfast.errors import ArrayError

    def during(name, call, array, wrong):
        print(name, file=sys.stderr)
        right, going = array.copy(), [True]

        def write():
            while going:
                array[:] = wrong
                array[:] = right

        writer = threading.Thread(target=write)
        writer.start()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            try:
                call()
            except ArrayError:
                pass
        going.clear()
        writer.join()
        array[:] = right
        call()

    q = random_problem([40] * 30)
    q.X.indices, q.XT.indices = q.X.indices.astype(np.int32), q.XT.indices.astype(np.int32)
    graph = lambda: ops.evidence_graph(q.X, q.offsets, q.docs)
    expand = lambda: ops.bridge_expand(q.X, q.XT, q.offsets, q.docs, q.question_terms, largest_norm=9.0)
    backwards = np.concatenate([[0], q.offsets[-2::-1]])
    during("graph, offsets", graph, q.offsets, backwards)
    during("graph, terms", graph, q.X.indices, 2**28)
    during("degree, terms", lambda: ops.weighted_degree(q.X, q.offsets, q.docs), q.X.indices, 2**28)
    during("expand, documents", expand, q.XT.indices, 2**28)
    during("prune, offsets", lambda: ops.prune(q.semantic, q.is_table, q.offsets), q.offsets, backwards)

    level = np.where(np.arange(200_000) % 2, 3, 2).astype(np.uint8)
    top = np.full(200_000, -1, np.int64)
    order = lambda: ops.hseq_stream(level, top, top + 2, priority=[3])
    during("order, levels", order, level, np.full_like(level, 3))
    """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_while_another_thread_is_in_an_op() -> None:
    run(
        """
    import os, signal, threading
    from scipy.sparse import csr_array

    q = random_problem([30] * 4)
    # Rows out of order, and many: what reads them all takes its time.
    wide = np.tile(np.arange(60, dtype=np.int32)[::-1], 40_000)
    big = csr_array((np.ones(len(wide), np.float32), wide, np.arange(40_001) * 60), shape=(40_000, 400))
    going = [True]

    def work():
        while going:
            ops.weighted_degree(big.copy(), q.offsets, q.docs, threads=2)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(40):
        child = os.fork()
        if not child:
            signal.alarm(10)
            ops.weighted_degree(big, q.offsets, q.docs, threads=2)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    going.clear()
    worker.join()
    """
    )


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are not listed here")
def test_no_more_threads_than_are_of_use() -> None:
    q = random_problem([60] * 3000)
    before = len(os.listdir("/proc/self/task"))
    caller = threading.Thread(target=ops.evidence_graph, args=(q.X, q.offsets, q.docs), kwargs={"threads": 3000})
    caller.start()
    most = before
    while caller.is_alive():
        most = max(most, len(os.listdir("/proc/self/task")))
        time.sleep(0.001)
    assert most <= before + MOST_THREADS


@pytest.mark.parametrize(
    ("own", "shared", "torch", "expected"),
    [
        ("3", "2", 1, 3),
        (None, "2", 1, 2),
        ("", "2,1", 1, 2),
        (None, "many", 5, 5),
        (None, None, 5, 5),
        (None, None, None, min(available_cores(), MOST_THREADS)),
        ("100000", None, None, MOST_THREADS),
    ],
)
def test_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, own: str | None, shared: str | None, torch: int | None, expected: int
) -> None:
    for name, value in (("PYFAST_THREADS", own), ("OMP_NUM_THREADS", shared)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    module: Any = SimpleNamespace(get_num_threads=lambda: torch) if torch else None
    monkeypatch.setitem(sys.modules, "torch", module)
    assert thread_count(None) == expected
    assert thread_count(1) == 1 and thread_count(np.int64(2)) == 2


@pytest.mark.parametrize("setting", ["four", "0", "-1", "1.5"])
def test_a_number_of_threads_that_is_none(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("PYFAST_THREADS", setting)
    q = random_problem([3])
    with pytest.raises(ArrayError, match=f"PYFAST_THREADS: expected an integer of at least 1, got '{setting}'"):
        ops.weighted_degree(q.X, q.offsets, q.docs)
    ops.weighted_degree(q.X, q.offsets, q.docs, threads=1)


def test_cores_where_the_system_does_not_tell_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert available_cores() == os.cpu_count()
