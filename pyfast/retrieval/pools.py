"""Pools, and how to make one list from several. A pool is the list of passages that a search found for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

import pyfast.ops as ops
from pyfast.ops.arrays import Float32, Int32, Int64, ends

RANK_CONSTANT = 10
"""Reciprocal rank fusion scores a passage by 1 / (this number + its rank) in each list. Ranks start at 1"""


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


def reciprocal_ranks(lists: Sequence[Int32]) -> Pool:
    """Rank the passages of several lists by the sum of their reciprocal ranks.

    Args:
        lists: Lists of passages, best first, without duplicates. A list adds nothing to the sums of passages
            that are not in the list.

    Returns:
        Every passage once, best first. If sums are equal, passages of earlier lists come first.
    """
    return _summed([(passages, 1 / (RANK_CONSTANT + 1 + np.arange(len(passages)))) for passages in lists])


def weighted_scores(pools: Sequence[Pool], weights: Sequence[float]) -> Pool:
    """Rank the passages of several pools by the weighted sum of their scores. The scores of each pool are first
    min-max normalised.

    After that, the highest score of a pool is 1 and the lowest is 0. If all scores of a pool are equal, all
    of them are 1. A pool adds 0 for a passage that it does not have.
    """
    scored = []
    for pool, weight in zip(pools, weights, strict=True):
        scores = pool.scores.astype(np.float64)
        spread = np.ptp(scores) if len(scores) else 0.0
        scored.append((pool.passages, weight * ((scores - scores.min()) / spread if spread else scores * 0 + 1)))
    return _summed(scored)


def _summed(scored: Sequence[tuple[Int32, np.ndarray[tuple[int], np.dtype[np.float64]]]]) -> Pool:
    passages = np.concatenate([np.empty(0, np.int32), *(each for each, _ in scored)])
    distinct, first, place = np.unique(passages, return_index=True, return_inverse=True)
    sums = np.zeros(len(distinct))
    np.add.at(sums, place, np.concatenate([np.empty(0), *(values for _, values in scored)]))
    order = np.lexsort((first, -sums))
    scores: Float32 = sums[order].astype(np.float32)
    return Pool(distinct[order].astype(np.int32), scores)
