"""Pools. A pool is the list of passages that a search found for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

import pyfast.ops as ops
from pyfast.ops.arrays import Float32, Int32, Int64, ends


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The passages retrieved for one query, best first."""

    passages: Int32
    """[n] the passages, by their row numbers in the forward index"""
    scores: Float32
    """[n] the score of each passage: from the retriever, or from a later fusion or ranking"""

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """(passage, score) pairs."""
        return zip(self.passages.tolist(), self.scores.tolist(), strict=True)

    def head(self, n: int) -> Pool:
        """The first `n` passages of the pool."""
        return Pool(self.passages[:n], self.scores[:n])


_NOTHING = Pool(np.empty(0, np.int32), np.empty(0, np.float32))


def stack_pools(pools: Sequence[Pool]) -> tuple[Int64, Int32, Float32]:
    """Join P pools into the arrays that native ops take: (offsets [P + 1], passages, scores)."""
    return (
        ends(pools),
        np.concatenate([_NOTHING.passages, *[pool.passages for pool in pools]]),
        np.concatenate([_NOTHING.scores, *[pool.scores for pool in pools]]),
    )


def split(offsets: Int64, passages: Int32, scores: Float32) -> list[Pool]:
    """Make pools from the arrays that an op returned, without copying them."""
    return [Pool(passages[begin:end], scores[begin:end]) for begin, end in pairwise(offsets.tolist())]


def fuse(groups: Sequence[Sequence[Pool]], k: int) -> list[Pool]:
    """Join the pools of each group into one list of the `k` best passages, without duplicates, in one native call.

    Scores of different queries are not comparable. So the scores of each pool are min-max normalised. If all
    scores of a pool are equal, they become 1. A passage that is in several pools keeps its best score. Of
    passages with equal scores, a passage of an earlier pool comes first. Passages of one pool keep their
    order.

    Args:
        groups: The groups of pools. Each group becomes one list.
        k: The maximum number of passages in a list.

    Returns:
        One pool for each group, best first.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, fuse
        >>> index = Index(Path("IDX"))
        >>> len(fuse([index.search(["Saturn", "Titan"], 5)], 4)[0])
        4
    """
    return split(*ops.fuse(ends(groups), *stack_pools(list(chain.from_iterable(groups))), k))
