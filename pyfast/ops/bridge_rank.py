"""bridge_rank, pyfast's own op: rank a pool by the terms that its documents share, except terms of the
question."""

from __future__ import annotations

import numpy.typing as npt

import pyfast._native as native
from pyfast.ops.arrays import Csr, Float32, Ragged, arguments, call


def bridge_rank(
    X: Csr,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    semantic: npt.ArrayLike,
    question_terms: Ragged,
    edges: int = 5,
    damping: float = 0.5,
    sharpness: float = 4.0,
    mix: float = 0.75,
    threads: int | None = None,
) -> Float32:
    """Rank each pool. Documents that share terms with the pool's best documents rank higher.

    The documents that answer a multi-hop question often share terms that are not in the question. These terms
    are the bridge between the documents. The op does this for each pool:

    1. It weighs each edge between two documents by the square of the `dot` weight (see `evidence_graph`).
       Terms of the question do not count in this weight. Each document keeps its `edges` strongest edges. An
       edge stays if at least one of its two documents keeps it.
    2. It computes personalised PageRank with `damping`. The random walk restarts at a document with a
       probability in proportion to sem ** `sharpness`. sem is the document's score in `semantic`, min-max
       normalised over the pool.
    3. The score of a document is `mix` * (PageRank / the pool's maximum) + (1 - `mix`) * sem.

    Args:
        X: The forward index, documents x terms.
        pool_offsets: int64[P + 1], where each pool begins.
        doc_ids: int32[N], documents of X.
        semantic: float32[N], the retrieval scores.
        question_terms: (offsets int64[P + 1], term ids), the words of each question.
        edges: The number of strongest edges that each document keeps (step 1).
        damping: The damping of the PageRank, in [0, 1).
        sharpness: The exponent of sem in the restart. A higher value gives the best documents more weight.
        mix: The share of the PageRank in the score, in [0, 1].
        threads: See `pyfast.ops`.

    Returns:
        float32[N], scores in [0, 1].

    Raises:
        ArrayError: An array or a number is malformed.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> X = csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], np.float32))
        >>> print(ops.bridge_rank(X, [0, 3], [0, 1, 2], [3, 1, 1], ([0, 1], [0])).round(3))
        [1.    0.429 0.107]
    """
    pools = arguments(X=X, pool_offsets=pool_offsets, doc_ids=doc_ids, semantic=semantic)
    given = pools | arguments(question_terms=question_terms, threads=threads)
    return call(native.bridge_rank, **given, edges=edges, damping=damping, sharpness=sharpness, mix=mix)
