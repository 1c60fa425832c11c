"""fuse: make one ranked list from several lists of a question."""

from __future__ import annotations

import numpy.typing as npt

import pyfast._native as native
from pyfast.ops.arrays import Float32, Int32, Int64, arguments, call


def fuse(
    list_offsets: npt.ArrayLike,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    semantic: npt.ArrayLike,
    k: int,
) -> tuple[Int64, Int32, Float32]:
    """Join the pools of each group into one ranked list of the `k` best documents, without duplicates.

    Scores of different queries are not comparable, so the op first min-max normalises the scores of each pool. If
    all scores of a pool are equal, they become 1. A document that is in several pools keeps its best score.
    Documents with equal scores are in the order of the pools, and within a pool in the order of that pool.

    Args:
        list_offsets: int64[G + 1]. Group g has the pools list_offsets[g] to list_offsets[g + 1].
        pool_offsets: int64[P + 1], where each pool begins.
        doc_ids: int32[N], documents.
        semantic: float32[N], the retrieval scores.
        k: The maximum number of documents in a fused list.

    Returns:
        (offsets int64[G + 1], documents int32, scores float32). The documents of each group are best first.

    Raises:
        ArrayError: An array or a number is malformed.

    Example:
        >>> from pyfast import ops
        >>> offsets, documents, scores = ops.fuse([0, 2], [0, 2, 4], [7, 8, 8, 9], [2.0, 1.0, 5.0, 3.0], k=3)
        >>> documents.tolist(), scores.tolist()
        ([7, 8, 9], [1.0, 1.0, 0.0])
    """
    lists = arguments(list_offsets=list_offsets, pool_offsets=pool_offsets, doc_ids=doc_ids, semantic=semantic)
    return call(native.fuse, **lists, k=k)
