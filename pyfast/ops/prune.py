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
    least: int = 5,
    most: int = 10,
    per_kind: int = 2,
) -> tuple[Int64, Int32]:
    """(offsets int64[P + 1], nodes int32[K]): the nodes kept of each pool, best first, by position in it.

    Kept are the best `per_kind` passages and table rows (where the pool has them; `is_table` [N] tells them
    apart), the `least` best nodes, and of the others those that score at least the pool's mean; never more
    than `most`, where the first named come first. Ties: retrieval rank. Raises `ArrayError` on malformed
    input.
    """
    kept: tuple[Int64, Int32] = call(
        _native.prune,
        array("score", score, np.float32),
        array("is_table", is_table, np.uint8),
        array("pool_offsets", pool_offsets, np.int64),
        least,
        most,
        per_kind,
    )
    return kept


def prune_reference(
    score: npt.ArrayLike, is_table: npt.ArrayLike, least: int = 5, most: int = 10, per_kind: int = 2
) -> list[int]:
    """The same for one pool, in plain Python."""
    scores = np.asarray(score, dtype=np.float32).astype(np.float64)
    tables = np.asarray(is_table, dtype=bool)
    ranked = sorted(range(len(scores)), key=lambda v: -scores[v])
    secured = [v for kind in (True, False) for v in [u for u in ranked if tables[u] == kind][:per_kind]]
    secured = sorted(secured, key=ranked.index)[:most]
    good = [v for r, v in enumerate(ranked) if r < least or scores[v] >= scores.mean()][:most]
    others = [v for v in good if v not in secured][: max(most - len(secured), 0)]
    return sorted(secured + others, key=ranked.index)
