"""Runs on a Ray cluster. The workers of the cluster answer the questions, block by block.

This package does not answer questions itself: the public API gives it a `Work` object that does.
"""

from pyfast.distributed.cluster import Cluster
from pyfast.distributed.driver import work_on_blocks
from pyfast.distributed.worker import Work

__all__ = ["Cluster", "Work", "work_on_blocks"]
