"""Simulate runs, and say which seeds fail.

python -m simulation SEEDS [FIRST]         so many seeds, from FIRST on
python -m simulation --seconds N FIRST     the seeds of so many seconds
python -m simulation --seed N [--shrink]   one seed, with what happens
python -m simulation --batches ...         runs whose LLM is behind a provider's Batch API
python -m simulation --index ...           an index that is changed, instead of a run
python -m simulation --knowledge ...       builds of a knowledge graph
python -m simulation --jobs ...            the batches of a server
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from simulation.disk import Disk, preload
from simulation.plants import plant

KINDS = {
    "runs": "runs (the default)",
    "batches": "runs whose LLM is behind a Batch API",
    "index": "changes of an index",
    "knowledge": "builds of a knowledge graph",
    "jobs": "batches of a server",
}


def main() -> int:
    """Carry out the seeds that the command line names. Returns 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1000)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--seed", type=int, help="only this seed, step by step")
    parser.add_argument("--shrink", action="store_true", help="leave out what is not needed for its failure")
    parser.add_argument("--most", type=int, default=3, help="stop after so many failures")
    kinds = parser.add_mutually_exclusive_group()
    for name in KINDS:
        kinds.add_argument(f"--{name}", action="store_const", const=name, dest="kind", help=KINDS[name])
    parser.add_argument("--plant", help="plant this fault in the engine first (see plants.py)")
    parser.set_defaults(kind="runs")
    options = parser.parse_args()
    preload()
    if options.plant is not None:
        plant(options.plant)
    # Only now: a planted fault must be there before pyfast is imported.
    os.environ["OMP_NUM_THREADS"] = "1"
    modules = {"index": "index_changes", "knowledge": "knowledge_builds", "jobs": "server_jobs"}
    modules |= {"runs": "runs", "batches": "batch_runs"}
    from simulation import seeds

    kind: Any = import_module(f"simulation.{modules[options.kind]}")
    kind.install()
    asyncio.tasks._all_tasks.add = bool  # type: ignore[attr-defined] # Nobody asks for the set of all tasks.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as root:
        disk = Disk(Path(root))
        if options.seed is not None:
            fault = seeds.told(kind, options.seed, disk, options.shrink)
            print(fault or "no fault")
            return bool(fault)
        again = "" if options.kind == "runs" else f" KIND={options.kind}"
        failures = done = 0
        began, worked = time.monotonic(), time.process_time()
        for seed in itertools.islice(itertools.count(options.first), options.seeds):
            fault = seeds.fault_of(kind, kind.drawn(seed), disk)
            done += 1
            if fault:
                failures += 1
                print(
                    f"seed {seed}: {fault}\n    again: make simulate SEED={seed}{again}",
                    flush=True,
                )
            disk.real_clock()
            if failures >= options.most or (options.seconds and time.monotonic() - began > options.seconds):
                break
        worked = time.process_time() - worked
        rate = 60 * done / worked
        print(
            f"{done} runs, {failures} failed; {worked:.1f} s of processor time:"
            f" {rate:.0f} runs a minute on one core"
        )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
