"""bridge_rank, pyfast's own: which documents does a pool's graph lead to, beyond the question's words?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Csr, Float32, Ragged, array, call, forward, pools, ragged, thread_count
from pyfast.ops.evidence_graph import evidence_graph_reference


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
    """float32[N]: scores in [0, 1] that lift the documents which the best ones lead to.

    What two documents share beyond the question's own words is the bridge between them. So, per pool:
    `dot` weights without the question's terms (`question_terms`: offsets[P + 1], term ids), squared; an edge
    stays where it is among the `edges` strongest of either end; personalised PageRank with `damping`, restarting
    in proportion to sem ** `sharpness`, where sem is the semantic score min-max normalised over the pool; then
    `mix` parts of the PageRank (divided by its maximum) and 1 - `mix` parts of sem. Raises `ArrayError` on
    malformed input.
    """
    offsets, documents = pools(pool_offsets, doc_ids)
    question_offsets, question_ids = ragged("question_terms", question_terms)
    return call(
        _native.bridge_rank,
        X=forward(X),
        pool_offsets=offsets,
        doc_ids=documents,
        semantic=array("semantic", semantic, np.float32),
        question_offsets=question_offsets,
        question_ids=question_ids,
        edges=edges,
        damping=damping,
        sharpness=sharpness,
        mix=mix,
        threads=thread_count(threads),
    )


def bridge_rank_reference(
    X: Csr,
    pool: npt.ArrayLike,
    semantic: npt.ArrayLike,
    question_terms: npt.ArrayLike,
    edges: int = 5,
    damping: float = 0.5,
    sharpness: float = 4.0,
    mix: float = 0.75,
) -> npt.NDArray[Any]:
    """The same for one pool: PageRank solved as a linear system, in float64."""
    sem = np.asarray(semantic, dtype=np.float64)
    sem = (sem - sem.min()) / np.ptp(sem) if np.ptp(sem) > 0 else np.ones_like(sem)
    strongest = evidence_graph_reference(X, pool, "dot", top_k=edges, mask=question_terms)
    weights = np.maximum(strongest, strongest.T) ** 2
    restart = sem**sharpness / (sem**sharpness).sum()
    total = weights.sum(axis=1, keepdims=True)
    walk = np.where(total > 0, weights / np.where(total > 0, total, 1.0), restart)
    rank = np.linalg.solve(np.eye(len(sem)) - damping * walk.T, (1.0 - damping) * restart)
    return np.asarray((1.0 - mix) * sem + mix * rank / rank.max())
