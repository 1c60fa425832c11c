"""Pruning of a ranked pool to the nodes that make the context."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Int32, Int64, array, call


def prune(
    score: npt.ArrayLike,
    is_table: npt.ArrayLike,
    pool_offsets: npt.ArrayLike,
    min_nodes: int = 5,
    max_nodes: int = 10,
    per_kind: int = 2,
) -> tuple[Int64, Int32]:
    """(offsets int64[P + 1], nodes int32[K]): the nodes kept of each pool, best first, by position in it.

    Kept are the best `per_kind` passages and table rows (where the pool has them; `is_table` [N] tells them
    apart), the `min_nodes` best nodes, and of the others those that score at least the pool's mean; never more
    than `max_nodes`, where the first named come first. Ties: retrieval rank. Raises `ArrayError` on malformed
    input.
    """
    return call(
        _native.prune,
        score=array("score", score, np.float32),
        is_table=array("is_table", is_table, np.uint8),
        pool_offsets=array("pool_offsets", pool_offsets, np.int64),
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        per_kind=per_kind,
    )


def prune_reference(
    score: npt.ArrayLike, is_table: npt.ArrayLike, min_nodes: int = 5, max_nodes: int = 10, per_kind: int = 2
) -> list[int]:
    """The same for one pool, in plain Python."""
    scores = np.asarray(score, dtype=np.float32).astype(np.float64)
    tables = np.asarray(is_table, dtype=bool)
    ranked = sorted(range(len(scores)), key=lambda v: -scores[v])
    secured = [v for kind in (True, False) for v in [u for u in ranked if tables[u] == kind][:per_kind]]
    secured = sorted(secured, key=ranked.index)[:max_nodes]
    good = [v for r, v in enumerate(ranked) if r < min_nodes or scores[v] >= scores.mean()][:max_nodes]
    others = [v for v in good if v not in secured][: max(max_nodes - len(secured), 0)]
    return sorted(secured + others, key=ranked.index)
