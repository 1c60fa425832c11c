"""Simulate runs, and say which seeds fail.

    python -m simulation SEEDS [FIRST]     so many seeds, from FIRST on
    python -m simulation --seed N          one seed, with what happens
    python -m simulation --plant NAME      with a fault planted in the engine (see plants.py)
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

from simulation.disk import Disk, preload


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1000)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--most", type=int, default=3, help="stop after so many failures")
    options = parser.parse_args()
    preload()
    from simulation.scenario import install
    from simulation.seeds import simulated

    install()
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    failures, done = 0, 0
    gc.set_threshold(50_000, 20, 100)
    with tempfile.TemporaryDirectory(dir=where) as root:
        disk = Disk(Path(root))
        numbers = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
        began, worked = time.time(), time.process_time()
        for seed in numbers:
            fault = simulated(seed, disk, trace=options.seed is not None)
            done += 1
            if fault:
                failures += 1
                print(f"seed {seed}: {fault}", flush=True)
                if failures >= options.most:
                    break
        disk.real_clock()
        worked = time.process_time() - worked
        rate = 60 * done / worked
        print(f"{done} runs, {failures} failed; {worked:.1f} s of processor time: {rate:.0f} runs a minute on one core")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
