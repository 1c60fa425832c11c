"""Evidence: write passages as text for the LLM, and segments as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import orjson

import pyfast.ops as ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Bool, Float32, Int64, ends, utf8
from pyfast.retrieval.index.index import Index, of_index
from pyfast.retrieval.pools import Pool, stack_pools
from pyfast.retrieval.terms import count_terms


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

    The snippet of a table's segment contains only cells, so its object also has the `title`, the `header` and, if
    there is one, the `section` of the table.

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


_LEFT_OUT = " ... "
_PRONOUNS = frozenset(("he", "she", "it", "they", "his", "her", "its", "their", "this", "these", "that", "those"))


@of_index
def narrate_sentences(
    index: Index, items: Sequence[tuple[Pool, str]], characters: int, share: float
) -> list[tuple[str, int]]:
    """Write the passages of each pool as numbered lines, best first, with the sentences that matter most for a
    question (see `ops.select_sentences`). Sentences of a passage that are left out become `...`.

    A table row or a subgraph counts as one sentence. A passage without a chosen sentence has no line.

    Args:
        index: The index.
        items: The pools, each with its question.
        characters: The maximum number of characters in a text, as in `narrate`.
        share: What share of the characters of a pool's sentences is chosen, from 0 to 1.

    Returns:
        For each pool, the text, and the number of passages that it writes.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, narrate_sentences
        >>> index = Index(Path("IDX"))
        >>> pool = index.search(["Who discovered Titan?"], 4)[0]
        >>> ((text, passages),) = narrate_sentences(index, [(pool, "Who discovered Titan?")], 4000, 0.5)
        >>> text.startswith("[1] ") and passages <= 4
        True
    """
    offsets, passages, scores = stack_pools([pool for pool, _ in items])
    corpus, segments = index.corpus, index.passages[passages].tolist()
    units = [_units(index, segment) for segment in segments]
    cuts, flat = ends(units), [unit for some in units for unit in some]
    texts = [corpus.content(unit) if len(some) > 1 else corpus.render(unit) for some in units for unit in some]
    titles = [corpus.headline(segment)[0] for segment in segments]
    lengths = np.array([len(text) for text in texts], np.int64)
    counted, terms = count_terms([*texts, *titles, *(question for _, question in items)], index.analysis)
    weights = index.idfs(index.terms.find(terms)) / math.log(1 + len(index.passages))  # 1: in one passage only
    counted.data = weights[counted.indices].astype(np.float32)
    counted.indptr, counted.indices = counted.indptr.astype(np.int32), counted.indices.astype(np.int32)
    firsts = np.array([text.partition(" ")[0].lower() in _PRONOUNS for text in texts], np.uint8)
    whole = np.diff(np.append(0, np.cumsum(lengths))[cuts[offsets]])
    budgets = np.ceil(share * whole).astype(np.int64)
    kept = ops.select_sentences(counted, offsets, cuts, scores, lengths, firsts, budgets)
    lines = [
        _line(index, segment, flat[begin:end], texts[begin:end], kept[begin:end])
        for segment, (begin, end) in zip(segments, pairwise(cuts.tolist()), strict=True)
    ]
    written = np.flatnonzero([line != "" for line in lines]).astype(np.int32)
    places = np.searchsorted(written, offsets)
    narratives = ops.narrate(utf8(lines), places, written, characters)
    return list(zip(narratives, np.diff(places).tolist(), strict=True))


def _units(index: Index, segment: int) -> Sequence[int]:
    """Return the sentences of a paragraph, or any other passage itself."""
    corpus = index.corpus
    is_text = corpus.level[segment] == Level.PARAGRAPH
    return range(segment + 1, int(corpus.subtree_end[segment])) or [segment] if is_text else [segment]


def _line(index: Index, segment: int, units: Sequence[int], texts: Sequence[str], kept: Bool) -> str:
    """Write the chosen sentences of a passage on one line. The line is empty if none is chosen."""
    places = np.flatnonzero(kept).tolist()
    if len(places) == len(units):
        return index.corpus.render(segment)
    if not places:
        return ""
    parts = [texts[places[0]]]
    for before, place in pairwise(places):
        parts.append((" " if place == before + 1 else _LEFT_OUT) + texts[place])
    return index.corpus.text_line(units[places[0]], "".join(parts))
