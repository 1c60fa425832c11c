"""Fusion: make one list from several, by ranks or by weighted scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval.pools import Pool

RANK_CONSTANT = 10
"""Reciprocal rank fusion scores a passage by 1 / (this number + its rank) in each list. Ranks start at 1"""


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
