"""select_sentences, pyfast's own op: choose the sentences of a pool that matter most for its question."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.ops.arrays import Bool, Csr, arguments, call


def select_sentences(
    X: Csr,
    pool_offsets: npt.ArrayLike,
    sentence_offsets: npt.ArrayLike,
    semantic: npt.ArrayLike,
    lengths: npt.ArrayLike,
    dependent: npt.ArrayLike,
    budgets: npt.ArrayLike,
    threads: int | None = None,
) -> Bool:
    """Choose the most valuable sentences of each pool's passages that fit into a budget.

    With c, the share of the question's weight that a sentence covers, and p, the score of its passage divided by
    the best score of the pool, its relevance is r = c + 0.7 p. Its value is

        (2 c + 1.5 p + 2 shared + title + named / 2 + opening / 2) / length ** (1 / 4).

    `shared` is the mean strength of its four strongest terms that also occur in sentences of other passages.
    Terms of the question do not count, and the strength of a term is its weight, times the highest r of these
    sentences. `title` is the highest r of a sentence of another passage that has all terms of the passage's
    title. `named` is the share of the title's terms that the question has. `opening` is c of the passage's
    first sentence. We tuned the factors on development questions of HotpotQA, 2WikiMultihopQA and MuSiQue
    (docs/performance.md).

    Args:
        X: The weights (for example idf, from 0 to 1) of the terms in each sentence (the first S rows), then in the
            title of each passage (N rows), then in the question of each pool (P rows).
        pool_offsets: int64[P + 1], where the passages of each pool begin.
        sentence_offsets: int64[N + 1], where the sentences of each passage begin.
        semantic: float32[N], the score of each passage. Scores below 0 count as 0.
        lengths: int64[S], how much of the budget each sentence takes, such as its characters.
        dependent: [S], 1 for sentences that are hard to understand without the previous one, for example
            because they begin with a pronoun. The op then chooses the previous sentence too, if it fits.
        budgets: int64[P], the maximum sum of lengths of each pool. The most valuable sentence is chosen even if
            it is longer.
        threads: See `pyfast.ops`.

    Returns:
        bool[S], whether each sentence is chosen.

    Raises:
        ArrayError: An array is malformed.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> sentences = [[1, 1, 0], [0, 0, 1]]  # of one passage; its title is term 0, and term 1 is asked for
        >>> X = csr_array(np.array([*sentences, [1, 0, 0], [0, 1, 0]], np.float32))
        >>> ops.select_sentences(X, [0, 1], [0, 2], [1.0], [10, 10], [0, 0], [10]).tolist()
        [True, False]
    """
    pools = arguments(X=X, pool_offsets=pool_offsets, sentence_offsets=sentence_offsets, semantic=semantic)
    sentences = arguments(lengths=lengths, dependent=dependent, budgets=budgets, threads=threads)
    return call(native.select_sentences, **pools, **sentences).view(np.bool_)
