"""Find the passages that are nearest to a passage, by a retriever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyfast.ops.arrays import Int32
from pyfast.retrieval.pools import Pool
from pyfast.retrieval.retriever import Retriever

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index


def neighbours(index: Index, retriever: Retriever, passages: Int32, k: int) -> list[Pool]:
    """Find the `k` passages that are nearest to each passage, without the passage itself.

    A retriever with a method `near(passages, k)` compares the vectors of passages. Any other retriever searches
    for the passage's text.

    Args:
        index: The index.
        retriever: A retriever of this index.
        passages: int32[n], rows of the forward index.
        k: The maximum number of neighbours of a passage.

    Returns:
        One pool for each passage, best first.
    """
    distinct, place = np.unique(passages, return_inverse=True)
    near = getattr(retriever, "near", None)
    if near is not None:
        found = near(distinct, k + 1)
    else:
        found = retriever.search([index.text(passage) for passage in distinct.tolist()], k + 1)
    others = []
    for passage, pool in zip(distinct.tolist(), found, strict=True):
        kept = pool.passages != passage
        others.append(Pool(pool.passages[kept], pool.scores[kept]).head(k))
    return [others[at] for at in place.tolist()]
