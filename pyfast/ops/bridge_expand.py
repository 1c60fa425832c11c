"""bridge_expand, pyfast's own: the documents of the corpus that a pool's best ones lead to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Csr, Float32, Int32, Int64, Ragged, array, call, forward, ragged, thread_count


def bridge_expand(
    X: Csr,
    XT: Csr,
    seed_offsets: npt.ArrayLike,
    seed_ids: npt.ArrayLike,
    question_terms: Ragged,
    k: int = 10,
    largest_norm: float | None = None,
    max_entries: int | None = None,
    threads: int | None = None,
) -> tuple[Int64, Int32, Float32]:
    """(offsets[S + 1], documents, similarities): for each of S seeds its `k` nearest documents, best first.

    Nearest by sum of x_st * x_jt over the terms outside the question: what a second hop needs shares with a
    document of the first what the question does not say. Documents that share nothing are left out, and so is the
    seed. `seed_offsets` [Q + 1] and `seed_ids` [S] give each question's seeds; `question_terms`, (offsets[Q + 1],
    term ids), its words. `XT` is X transposed, as CSR: terms x documents (`X.T.tocsr()` may give it ids of 64
    bits, of which each call converts the rows that it reads).

    `largest_norm`: at least the largest Euclidean norm of a row of X (1 where rows are l2-normalised); found by a
    pass over all of X where it is not given. `max_entries` bounds the entries of XT read for a seed, and some of
    the nearest may then be missed; without it the result is exact. Raises `ArrayError` on malformed input.
    """
    forward_arrays, transposed = forward(X), forward(XT, "XT")
    offsets, seeds = array("seed_offsets", seed_offsets, np.int64), array("seed_ids", seed_ids, np.int32)
    question_offsets, question_ids = ragged("question_terms", question_terms)
    return call(
        _native.bridge_expand,
        X=forward_arrays,
        XT=transposed,
        seed_offsets=offsets,
        seed_ids=seeds,
        question_offsets=question_offsets,
        question_ids=question_ids,
        k=k,
        largest_norm=largest_norm,
        max_entries=max_entries,
        threads=thread_count(threads),
    )


def bridge_expand_reference(
    X: Csr, seed: int, question_terms: npt.ArrayLike, k: int = 10
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The same for one seed, by a product with the whole index in float64: (documents, similarities)."""
    rows = X.astype(np.float64)
    rows.data[np.isin(rows.indices, question_terms)] = 0.0
    similarity = rows @ rows[[seed]].toarray().ravel()
    similarity[seed] = 0.0
    best = np.argsort(-similarity, kind="stable")[:k]
    best = best[similarity[best] > 0]
    return best, similarity[best]
