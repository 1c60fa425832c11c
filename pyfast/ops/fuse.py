"""fuse: several ranked lists as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Float32, Int32, Int64, array, call, pools


def fuse(
    list_offsets: npt.ArrayLike,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    semantic: npt.ArrayLike,
    k: int,
) -> tuple[Int64, Int32, Float32]:
    """(offsets int64[P + 1], documents, scores): of each group of pools the `k` best documents, each once.

    Group p has the pools list_offsets[p] to list_offsets[p + 1]. Scores of different queries do not compare, so
    they are min-max normalised per pool (all equal: 1); a document keeps its best. Ties: the earlier pool, then
    its order. Raises `ArrayError` on malformed input.
    """
    offsets, documents = pools(pool_offsets, doc_ids)
    return call(
        _native.fuse,
        list_offsets=array("list_offsets", list_offsets, np.int64),
        pool_offsets=offsets,
        doc_ids=documents,
        semantic=array("semantic", semantic, np.float32),
        k=k,
    )


def fuse_reference(lists: Sequence[tuple[Int32, Float32]], k: int) -> tuple[Int32, Float32]:
    """The same for one group of pools, each (documents, scores)."""

    def normalised(scores: Float32) -> Float32:
        low, high = scores.min(), scores.max()
        return (scores - low) / (high - low) + np.float32(0) if high > low else np.ones_like(scores)

    lists = [(np.empty(0, np.int32), np.empty(0, np.float32)), *((d, normalised(s)) for d, s in lists if len(d))]
    documents, scores = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    order = np.argsort(-scores, kind="stable")
    _, first = np.unique(documents[order], return_index=True)  # of each document, its best place
    kept = order[np.sort(first)[:k]]
    return documents[kept], scores[kept]
