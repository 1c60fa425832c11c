"""Compare ranked documents with the gold documents: recall, nDCG and the reciprocal rank."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def ranking_figures(ranked: Sequence[str], gold: Collection[str], at: Sequence[int]) -> dict[str, float]:
    """Compute `recall@k` and `ndcg@k` for each k, and `mrr`, for one question.

    All gold documents are equally relevant. DCG is the sum of 1 / log2(1 + rank) over the gold documents
    among the first k. nDCG is DCG divided by the DCG of the best order. `mrr` is 1 / (the rank of the first
    gold document), or 0 if no gold document was found.

    Args:
        ranked: The documents, best first, without duplicates.
        gold: The gold documents, at least one.
        at: The values of k.

    Example:
        >>> from pyfast.evaluation.ranking import ranking_figures
        >>> ranking_figures(["a", "b", "c"], {"b", "d"}, [2])["recall@2"]
        0.5
    """
    ranks = [rank for rank, document in enumerate(ranked, start=1) if document in gold]
    figures: dict[str, float] = {}
    for k in at:
        figures[f"recall@{k}"] = sum(rank <= k for rank in ranks) / len(gold)
    for k in at:
        best = math.fsum(1 / math.log2(1 + rank) for rank in range(1, min(len(gold), k) + 1))
        figures[f"ndcg@{k}"] = math.fsum(1 / math.log2(1 + rank) for rank in ranks if rank <= k) / best
    return {**figures, "mrr": 1 / ranks[0] if ranks else 0.0}
