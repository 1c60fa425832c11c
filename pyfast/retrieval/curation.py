"""From pools to contexts: ranking and pruning of the evidence graph, the selector, the text.

Each function takes the index, the items of many questions at once, and parameters: `Context.call` batches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pyfast import ops
from pyfast.ops.arrays import Float32, Int32, Int64, stack
from pyfast.retrieval.index import Index
from pyfast.retrieval.pools import Pool

Rank = Literal["graph_rank", "bridge_rank"]


@dataclass(frozen=True, slots=True)
class Curation:
    """How a pool becomes a context."""

    least: int
    most: int
    alpha: float = 0.85
    rank: Rank = "graph_rank"
    per_kind: int = 2


def curate(index: Index, items: Sequence[tuple[Pool, str]], how: Curation) -> list[Pool]:
    """For each (pool, its query) the nodes of its evidence graph that make the context, best first.

    Structural score (weighted degree in closed form, or `bridge_rank`), GraphRank, pruning: each one native call.
    """
    pools = [pool for pool, _ in items]
    offsets, units, semantic = _stacked(pools)
    if how.rank == "bridge_rank":
        terms = stack([index.question_terms(query) for _, query in items], np.int32)
        scores = ops.bridge_rank(index.X, offsets, units, semantic, terms)
    else:
        degree = ops.weighted_degree(index.X, offsets, units)
        scores = ops.graph_rank(semantic, degree, offsets, how.alpha)
    kept_offsets, nodes = ops.prune(scores, index.is_table[units], offsets, how.least, how.most, how.per_kind)
    places = nodes + np.repeat(offsets[:-1], np.diff(kept_offsets))
    cuts = kept_offsets[1:-1]
    return [Pool(u, s) for u, s in zip(np.split(units[places], cuts), np.split(scores[places], cuts), strict=True)]


def bridge_select(index: Index, pools: Sequence[Pool], beta: float) -> list[Pool]:
    """The pools after the bridge-aware selector (algorithm 1 of N2N-GQA), best first."""
    offsets, units, semantic = _stacked(pools)
    boosted = ops.bridge_select(index.X, offsets, units, semantic, index.is_table[units], index.cells, beta)
    return [pool.rescored(s) for pool, s in zip(pools, np.split(boosted, offsets[1:-1]), strict=True)]


def narrate(index: Index, pools: Sequence[Pool], characters: int) -> list[str]:
    """Each pool's units as numbered lines, best first, as many as `characters` hold; one alone may be cut."""
    return [_narrative(index, pool, characters) for pool in pools]


def _narrative(index: Index, pool: Pool, room: int) -> str:
    lines: list[str] = []
    for number, unit in enumerate(pool.units.tolist(), start=1):
        line = f"[{number}] {index.text(unit)}"
        if len(line) > room:
            if not lines:
                lines.append(line[:room])
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join(lines)


def _stacked(pools: Sequence[Pool]) -> tuple[Int64, Int32, Float32]:
    offsets, units = stack([pool.units for pool in pools], np.int32)
    return offsets, units, stack([pool.scores for pool in pools], np.float32)[1]
