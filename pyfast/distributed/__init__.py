"""Runs whose questions the workers of a Ray cluster answer, block by block.

This package does not know how to answer a question. The public API makes a `Work` object, which answers questions.
"""

from pyfast.distributed.cluster import Cluster
from pyfast.distributed.driver import work_on_blocks
from pyfast.distributed.worker import Work

__all__ = ["Cluster", "Work", "work_on_blocks"]
