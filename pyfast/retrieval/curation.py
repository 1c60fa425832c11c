"""From pools to better pools: merging, the evidence graph's ranking and pruning, the selector.

Each function takes the index, the items of many questions at once, and parameters: `Context.call` batches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from pyfast import ops
from pyfast.ops.arrays import Float32, Int32, Int64, stack
from pyfast.retrieval.index import Index
from pyfast.retrieval.pools import Pool, merge_each, split, stacked

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
    offsets, units, semantic = stacked([pool for pool, _ in items])
    if how.rank == "bridge_rank":
        terms = stack([index.question_terms(query) for _, query in items], np.int32)
        scores = ops.bridge_rank(index.X, offsets, units, semantic, terms)
    else:
        degree = ops.weighted_degree(index.X, offsets, units)
        scores = ops.graph_rank(semantic, degree, offsets, how.alpha)
    kept = ops.prune(scores, index.is_table[units], offsets, how.least, how.most, how.per_kind)
    return _chosen(offsets, units, scores, *kept)


def bridge_select(index: Index, pools: Sequence[Pool], beta: float) -> list[Pool]:
    """The pools after the bridge-aware selector (algorithm 1 of N2N-GQA), best first."""
    offsets, units, semantic = stacked(pools)
    is_table = index.is_table[units]
    boosted = ops.bridge_select(index.X, offsets, units, semantic, is_table, index.cells, beta)
    most = max(len(units), 1)
    return _chosen(offsets, units, boosted, *ops.prune(boosted, is_table, offsets, most, most))  # all, in order


def _chosen(offsets: Int64, units: Int32, scores: Float32, kept_offsets: Int64, nodes: Int32) -> list[Pool]:
    """The pools of these nodes, counted within each pool."""
    places = nodes + np.repeat(offsets[:-1], np.diff(kept_offsets))
    return split(kept_offsets, units[places], scores[places])


def search_and_merge(index: Index, items: Sequence[tuple[Sequence[str], Sequence[Pool]]], k: int) -> list[Pool]:
    """For each (queries, pools found before) the `k` best units of those pools and of the queries' own.

    One search, one merge (`merge_each`) for all; what was found before comes first.
    """
    found = iter(index.search([query for queries, _ in items for query in queries], k))
    return merge_each([[*before, *islice(found, len(queries))] for queries, before in items], k)
