"""Pools: what was retrieved for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pyfast.ops.arrays import Float32, Int32


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """What was retrieved for one query, best first."""

    units: Int32
    """[n] rows of the forward index"""
    scores: Float32
    """[n] the retriever's scores"""

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """(unit, score) pairs."""
        return zip(self.units.tolist(), self.scores.tolist(), strict=True)

    def head(self, n: int) -> Pool:
        """The first `n` of it."""
        return Pool(self.units[:n], self.scores[:n])

    def rescored(self, scores: Float32) -> Pool:
        """The same units with other scores, best first; ties as they were."""
        order = np.argsort(-scores, kind="stable")
        return Pool(self.units[order], scores[order])


def merge(pools: Sequence[Pool], k: int) -> Pool:
    """The `k` best units of several pools, each once.

    Scores of different queries do not compare, so they are min-max normalised per pool (all equal: 1); a unit
    keeps its best. Ties: the earlier pool, then its order.
    """
    pools = [pool for pool in pools if len(pool)]
    if not pools:
        return Pool(np.empty(0, np.int32), np.empty(0, np.float32))
    units = np.concatenate([pool.units for pool in pools])
    scores = np.concatenate([_normalised(pool.scores) for pool in pools])
    order = np.argsort(-scores, kind="stable")
    _, first = np.unique(units[order], return_index=True)  # of each unit, its best place
    kept = order[np.sort(first)[:k]]
    return Pool(units[kept], scores[kept])


def _normalised(scores: Float32) -> Float32:
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)
