"""Pools: what was retrieved for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from pyfast import ops
from pyfast.ops.arrays import Float32, Int32, Int64, ends


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


_NOTHING = Pool(np.empty(0, np.int32), np.empty(0, np.float32))


def stacked(pools: Sequence[Pool]) -> tuple[Int64, Int32, Float32]:
    """Pools as the ops take them: (offsets [P + 1], units, scores)."""
    return (
        ends(pools),
        np.concatenate([_NOTHING.units, *[pool.units for pool in pools]]),
        np.concatenate([_NOTHING.scores, *[pool.scores for pool in pools]]),
    )


def split(offsets: Int64, units: Int32, scores: Float32) -> list[Pool]:
    """Pools from what the ops give: views into their arrays."""
    return [Pool(units[begin:end], scores[begin:end]) for begin, end in pairwise(offsets.tolist())]


def merge_each(groups: Sequence[Sequence[Pool]], k: int) -> list[Pool]:
    """The `k` best units of several pools, each once; for each group of pools, in one native call.

    Scores of different queries do not compare, so they are min-max normalised per pool (all equal: 1); a unit
    keeps its best. Ties: the earlier pool, then its order.
    """
    return split(*ops.merge(ends(groups), *stacked(list(chain.from_iterable(groups))), k))


def merge(pools: Sequence[Pool], k: int) -> Pool:
    """`merge_each` for one group."""
    return merge_each([pools], k)[0]
