"""Blocks of a run's questions, answered by workers on the machines of a Ray cluster.

Nothing here knows how a question is answered. `Work` answers it, and the public API makes the `Work`.
"""

from pyfast.distributed.cluster import Cluster
from pyfast.distributed.driver import work_on_blocks
from pyfast.distributed.worker import Work

__all__ = ["Cluster", "Work", "work_on_blocks"]
