"""Pools as text for the LLM, and as evidence of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import orjson

from pyfast import ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Float32, Int64, ends
from pyfast.retrieval.index import Index
from pyfast.retrieval.pools import Pool, stack_pools


def narrate(index: Index, pools: Sequence[Pool], characters: int) -> list[str]:
    """Each pool's passages as numbered lines, best first: as many as fit into `characters`.

    A single one may be cut.
    """
    offsets, passages, _ = stack_pools(pools)
    return ops.narrate(index.rendered, offsets, passages, characters)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSegments:
    """The segments that support an answer, best first."""

    segments: Int64
    """[n] the positions of the segments in the corpus"""
    scores: Float32
    """[n] their scores"""

    def __len__(self) -> int:
        return len(self.segments)


def evidence_of(index: Index, pool: Pool) -> ScoredSegments:
    """A pool's passages as evidence."""
    return ScoredSegments(index.passages[pool.passages], pool.scores)


def cite(index: Index, items: Sequence[ScoredSegments]) -> list[bytes]:
    """The JSON text of each list: objects with `segment`, `uri`, `offsets`, `snippet`, `score` (`ops.cite`).

    Segments of a table also have the table's `title`, `section` (if any) and `header`, because their snippet has
    only cells.

    Raises `ArrayError` if there is no such segment.
    """
    segments = np.concatenate([np.empty(0, np.int64), *[item.segments for item in items]])
    scores = np.concatenate([np.empty(0, np.float64), *[item.scores for item in items]])
    corpus, offsets = index.corpus, ends(items)
    level = corpus.level.take(segments, mode="clip")
    in_table = np.flatnonzero((level >= Level.TABLE) & (level <= Level.TABLE_CELL)).tolist()
    if not in_table:
        return ops.cite(corpus.columns, offsets, segments, scores)
    each = ops.cite(corpus.columns, np.arange(len(segments) + 1), segments, scores)
    objects = [one[1:-1] for one in each]
    tables: dict[int, bytes] = {}
    for at in in_table:
        source = int(corpus.source[segments[at]])
        if source not in tables:
            tables[source] = b"," + orjson.dumps(corpus.table(source))[1:]
        objects[at] = objects[at][:-1] + tables[source]
    return [b"[" + b",".join(objects[first:last]) + b"]" for first, last in pairwise(offsets.tolist())]
