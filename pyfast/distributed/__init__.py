"""Runs and calls of functions on a Ray cluster. The workers of the cluster answer the questions, block by block.

This package does not answer questions itself: the public API gives it a `Work` object that does.
"""

from pyfast.distributed.cluster import Cluster, cluster_of, connected
from pyfast.distributed.driver import work_on_blocks
from pyfast.distributed.spread import spread
from pyfast.distributed.worker import Work

__all__ = ["Cluster", "Work", "cluster_of", "connected", "spread", "work_on_blocks"]
