"""Runs in a simulated world: virtual time, one thread, a disk and an LLM that fail by a seed.

    make simulate SEEDS=5000            that many fresh seeds
    make simulate SEED=17 TRACE=1       one seed again, step by step

Each seed is one run with its faults: it is killed, cut off from power, its disk fails, its LLM falls silent or lies,
and it is resumed until it is done. Then all that pyfast promises must be true of it (`rules`). The engine is the real
one, with the real SQLite: `loop` replaces asyncio's event loop and the threads, and `disk` stands between the process
and the C library.
"""
