"""Runs in a simulated world: virtual time, one thread, a disk and an LLM that fail by a seed.

    make simulate SEEDS=5000       that many fresh seeds
    make simulate SEED=17          one seed again, as short as it still fails

Each seed is one run with its faults: it is killed, its power is cut, its disk fails, its LLM is silent or lies,
and it is resumed until it is done. Then all that pyfast promises must be true of it (`rules`). The engine and
SQLite are the real ones: `loop` replaces asyncio's event loop and the threads, and `disk` stands between the
process and the C library.
"""
