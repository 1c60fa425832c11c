"""bridge_expand, pyfast's own op: find documents of the corpus that share terms with a pool's best documents."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

import pyfast._native as native
from pyfast.ops.arrays import Csr, Float32, Int32, Int64, Ragged, arguments, call


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
    """For each seed (a document of a pool), find the `k` most similar documents of the corpus. Terms of the
    question do not count for the similarity.

    A question rarely contains the words that link a document of the first hop to one of the second hop. The
    similarity of a seed s and a document j is therefore the sum of x_st * x_jt over the terms t that are not in
    the question, where x_st is the weight of term t in document s. The result leaves out the seed itself, and
    documents that share with it only terms of the question or no term at all.

    Args:
        X: The forward index, documents x terms.
        XT: X transposed, as CSR, terms x documents. `X.T.tocsr()` sometimes has 64-bit ids, and each call
            then converts those of the rows that it reads.
        seed_offsets: int64[Q + 1]. Question q has the seeds `seed_ids[seed_offsets[q]:seed_offsets[q + 1]]`.
        seed_ids: int32[S], documents of X.
        question_terms: (offsets int64[Q + 1], term ids), the words of each question.
        k: The maximum number of documents for a seed.
        largest_norm: An upper bound on the Euclidean norms of X's rows, to end the search early. If the rows
            are l2-normalised, it is 1. None: the op reads all of X to compute the largest norm.
        max_entries: The maximum number of entries of XT to read for a seed. With a limit, the op can miss some
            of the most similar documents. None: no limit, and the result is exact.
        threads: See `pyfast.ops`.

    Returns:
        (offsets int64[S + 1], documents int32, similarities float32). The documents of each seed are best first.

    Raises:
        ArrayError: An array or a number is malformed.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> X = csr_array(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], np.float32))
        >>> offsets, documents, similarity = ops.bridge_expand(X, X.T.tocsr(), [0, 1], [0], ([0, 1], [0]))
        >>> documents.tolist(), similarity.tolist()  # document 2 shares only the question's term 0
        ([1], [1.0])
    """
    given = arguments(X=X, XT=XT, seed_offsets=seed_offsets, seed_ids=seed_ids, question_terms=question_terms)
    limits: dict[str, Any] = {"largest_norm": largest_norm, "max_entries": max_entries}
    return call(native.bridge_expand, **given, k=k, **limits, **arguments(threads=threads))
