"""Questions with the documents that contain their answers, and how ranked documents are compared with these gold
documents: recall, nDCG and the reciprocal rank."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pydantic import ConfigDict

from pyfast.evaluation.gold import Named


class RetrievalQuestion(Named):
    """A question with its gold documents, from a line of a file. Other keys of this line are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    question: str = ""
    supporting: tuple[str, ...] | None = None
    """The uris of the gold documents"""
    table_id: str | None = None
    """For a HybridQA question: the uri of its table, which is then the only gold document. `supporting` is
    ignored, because its documents were found only by matching strings
    """
    type: str | None = None

    @property
    def gold(self) -> frozenset[str]:
        """The uris of the gold documents."""
        return frozenset([self.table_id] if self.table_id else self.supporting or ())


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
