"""prune: choose which nodes of a ranked pool the LLM reads."""

from __future__ import annotations

import numpy.typing as npt

import pyfast._native as native
from pyfast.ops.arrays import Int32, Int64, arguments, call


def prune(
    score: npt.ArrayLike,
    is_table: npt.ArrayLike,
    pool_offsets: npt.ArrayLike,
    min_nodes: int = 5,
    max_nodes: int = 10,
    per_kind: int = 2,
) -> tuple[Int64, Int32]:
    """Choose which nodes of each ranked pool the LLM reads (the context).

    The op takes nodes in this order, until it has `max_nodes`:

    1. the best `per_kind` passages of text and the best `per_kind` table rows
    2. of the `min_nodes` best nodes of the pool, those that step 1 has not taken
    3. all other nodes whose score is at least the mean score of the pool

    If scores are equal, the node that is earlier in the pool comes first.

    Args:
        score: float32[N], such as the result of `graph_rank`.
        is_table: [N], 1 for table rows, 0 for passages of text.
        pool_offsets: int64[P + 1], where each pool begins.
        min_nodes: The minimum number of nodes to keep, if the pool has enough nodes.
        max_nodes: The maximum number of nodes to keep.
        per_kind: The minimum number of passages of text to keep, and of table rows. If the pool has fewer,
            all of them are kept.

    Returns:
        (offsets int64[P + 1], nodes int32). A node is its position in the pool. The nodes of each pool are best
        first.

    Raises:
        ArrayError: An array or a number is malformed.

    Example:
        >>> from pyfast import ops
        >>> offsets, nodes = ops.prune([0.9, 0.1, 0.5, 0.2], [0, 1, 0, 1], [0, 4], 1, 3, per_kind=1)
        >>> nodes.tolist()  # the best passage, the next node above the mean, the best table row
        [0, 2, 3]
    """
    given = arguments(score=score, is_table=is_table, pool_offsets=pool_offsets)
    return call(native.prune, **given, min_nodes=min_nodes, max_nodes=max_nodes, per_kind=per_kind)
