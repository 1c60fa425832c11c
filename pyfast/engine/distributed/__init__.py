"""Spread a run, or calls of a function, over a Ray cluster. Each worker answers one block (some consecutive
questions) after another.

This package does not know how to answer questions: the public API passes it a `Work` object that does.
"""

from pyfast.engine.distributed.blocks import Work
from pyfast.engine.distributed.cluster import connected, spread
from pyfast.engine.distributed.driver import work_on_blocks

__all__ = ["Work", "connected", "spread", "work_on_blocks"]
