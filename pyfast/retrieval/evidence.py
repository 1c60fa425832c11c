"""Evidence: write passages as text for the LLM, and segments as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson

import pyfast.ops as ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Float32, Int64, ends
from pyfast.retrieval.index.index import Index, of_index
from pyfast.retrieval.pools import Pool, stack_pools


@of_index
def narrate(index: Index, pools: Sequence[Pool], characters: int) -> list[str]:
    """Write the passages of each pool as numbered lines, best first.

    Passages are added until the next one would make the text longer than `characters` characters. If the
    first passage alone is too long, it is cut.

    Args:
        index: The index.
        pools: The pools.
        characters: The maximum number of characters in a text.

    Returns:
        One text for each pool.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, narrate
        >>> index = Index(Path("IDX"))
        >>> text = narrate(index, index.search(["Who discovered Titan?"], 2), 400)[0]
        >>> text.startswith("[1] ")
        True
    """
    offsets, passages, _ = stack_pools(pools)
    rendered, places = index.lines(passages)
    return ops.narrate(rendered, offsets, places, characters)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSegments:
    """The segments that support an answer, best first."""

    segments: Int64
    """[n] the positions of the segments in the corpus"""
    scores: Float32
    """[n] the score of each segment"""

    def __len__(self) -> int:
        return len(self.segments)


def evidence_of(index: Index, pool: Pool) -> ScoredSegments:
    """Turn the passages of a pool into evidence.

    Args:
        index: The index.
        pool: A pool of this index.

    Returns:
        The segments of the pool's passages, with the passages' scores.
    """
    return ScoredSegments(index.passages[pool.passages], pool.scores)


@of_index
def cite(index: Index, items: Sequence[ScoredSegments]) -> list[bytes]:
    """Write lists of segments as JSON. Each object has `segment`, `uri`, `offsets`, `snippet` and `score` (see
    `ops.cite`).

    The snippet of a segment of a table has only cells. So the object of this segment also has the `title`,
    the `header` and, if there is one, the `section` of the table.

    Args:
        index: The index.
        items: Lists of segments with scores.

    Returns:
        One JSON array in UTF-8 for each list.

    Raises:
        ArrayError: The corpus has no segment at one of the positions.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, cite, evidence_of
        >>> index = Index(Path("IDX"))
        >>> (text,) = cite(index, [evidence_of(index, index.search("moon of Saturn", 1)[0])])
        >>> sorted(json.loads(text)[0])
        ['header', 'offsets', 'score', 'segment', 'snippet', 'title', 'uri']
    """
    segments = np.concatenate([np.empty(0, np.int64), *[item.segments for item in items]])
    scores = np.concatenate([np.empty(0, np.float64), *[item.scores for item in items]])
    corpus, offsets = index.corpus, ends(items)
    corpus.check(segments)
    level = corpus.columns.level.take(segments, mode="clip")
    of_tables = (level >= Level.TABLE) & (level <= Level.TABLE_CELL)
    tables, which = np.unique(corpus.source[segments[of_tables]], return_inverse=True)
    member_of = np.full(len(segments), -1, np.int32)
    member_of[of_tables] = which
    members = [orjson.dumps(corpus.table(source))[1:-1] for source in tables.tolist()]
    return ops.cite(corpus.columns, offsets, segments, scores, members, member_of)
