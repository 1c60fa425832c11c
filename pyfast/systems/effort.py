"""Effort by question: which of the ranked passages an LLM should read for a question.

An LLM reads passages in order of expected evidence relative to length, until too little evidence is expected
in the rest. The signals for this cost nothing: the passage's rank in the evidence graph and in the search, how
many of the question's terms the passage contains, and how many of these terms occur in better-ranked passages.
Search scores add nothing to these signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from pyfast.engine import Context
from pyfast.ops.arrays import ends, places_of
from pyfast.retrieval import Index, Pool
from pyfast.retrieval.index.index import of_index
from pyfast.systems.system import Effort

FEATURES = ("bias", "rank", "place", "share", "before", "new", "length")
"""What the worth of a passage depends on: the logarithms of its rank and of its place in the search, the
share of the question's terms that it contains (compared with the ranked passage that contains the most), the
share of the terms that better passages contain, the share that only this passage adds, and the logarithm of
its length in bytes. A rare term counts more than a frequent one"""
WEIGHTS = (-2.201, -1.613, 0.591, 2.396, 0.794, 2.985, -0.158)
"""The weight of each feature in the log odds that a passage is evidence. benchmarks/effort.py fits them"""
UNREAD = 0.13
"""How many passages with evidence may be expected among those that `effort=auto` leaves out. With more, `n2n`
would lose recall on two of the four sets on which benchmarks/effort.py fits it"""
NOT_FOUND = 100
"""The place of a passage that the search did not find"""

Item = tuple[Pool, Pool, str]
"""A ranked pool, the pool as the search returned it, and the question"""


def features_of(index: Index, items: Sequence[Item]) -> list[NDArray[np.float64]]:
    """Compute the features of the passages in ranked pools: for each pool, float64[passages, FEATURES]."""
    made = []
    passages = np.concatenate([np.empty(0, np.int32), *(ranked.passages for ranked, _, _ in items)])
    (offsets, _), places = index.lines(passages)
    lengths = np.log(np.maximum(offsets[places + 1] - offsets[places], 1))
    rows, starts = index.rows(passages), ends([ranked for ranked, _, _ in items])
    for (ranked, searched, question), (begin, end) in zip(items, pairwise(starts.tolist()), strict=True):
        asked = np.array(index.question_terms(question), np.int64)
        weights = index.idfs(asked)
        weights /= weights.sum() or 1.0
        bounds, entries = places_of(rows.indptr, ranked.passages)
        has = np.zeros((len(ranked), len(asked)), bool)
        if len(asked):
            terms = rows.indices[entries]
            at = np.minimum(np.searchsorted(asked, terms), len(asked) - 1)
            same = asked[at] == terms
            has[np.repeat(np.arange(len(ranked)), np.diff(bounds))[same], at[same]] = True
        covered, known = has @ weights, np.maximum.accumulate(has, axis=0) @ weights
        before = np.append(0.0, known[:-1])[: len(ranked)]
        place = {passage: at for at, passage in enumerate(searched.passages.tolist())}
        found = np.array([place.get(passage, NOT_FOUND) for passage in ranked.passages.tolist()])
        columns = (
            np.ones(len(ranked)),
            np.log1p(np.arange(len(ranked))),
            np.log1p(found),
            covered / max(covered.max(initial=0.0), 1e-9),
            before,
            known - before,
            lengths[begin:end],
        )
        made.append(np.stack(columns, axis=1))
    return made


@of_index
def worth_reading(index: Index, items: Sequence[Item], unread: float) -> list[Pool]:
    """Choose which passages of ranked pools an LLM should read.

    The passages with the highest odds of being evidence, divided by their length, are chosen first.

    Args:
        index: The index.
        items: For each question: its ranked pool, the pool as the search returned it, and the question.
        unread: How many passages with evidence may be expected among those not chosen. The best passage of a
            pool is always chosen.

    Returns:
        For each item, the chosen passages, best first, with their scores.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index
        >>> from pyfast.systems.effort import worth_reading
        >>> index, question = Index(Path("IDX")), "Who discovered Titan?"
        >>> pool = index.search([question], 10)[0]
        >>> len(worth_reading(index, [(pool, pool, question)], 0.1)[0]) <= len(pool)
        True
    """
    chosen = []
    for (ranked, _, _), features in zip(items, features_of(index, items), strict=True):
        odds = features @ np.array(WEIGHTS)
        worth = odds - features[:, -1]
        worth[:1] = inf
        order = np.argsort(-worth, kind="stable")
        chances = 1 / (1 + np.exp(-odds[order]))
        left = chances.sum() - chances.cumsum()  # what is expected after each passage
        kept = np.sort(order[: np.count_nonzero(left > unread) + 1])
        chosen.append(Pool(ranked.passages[kept], ranked.scores[kept]))
    return chosen


def may_be_unread(effort: Effort, auto: float = UNREAD) -> float | None:
    """Return how many passages with evidence may be expected among those left out: `auto` if the setting
    `effort` is `auto`. None: nothing is left out."""
    return None if effort == "paper" else auto / (1.0 if effort == "auto" else effort)


async def passages_to_read(
    ranked: Pool, searched: Pool, question: str, effort: Effort, ctx: Context, unread: float = UNREAD
) -> Pool:
    """Choose which passages of a ranked pool the LLM reads, according to the setting `effort`.

    Args:
        ranked: The ranked pool.
        searched: The pool as the search returned it.
        question: The question.
        effort: The setting.
        ctx: The context of the question.
        unread: As in `worth_reading`, for `auto`.
    """
    left_out = may_be_unread(effort, unread)
    return ranked if left_out is None else await ctx.call(worth_reading, (ranked, searched, question), left_out)
