"""Metrics that compare evidence with gold evidence (documents, selected segments and rankings), and the metric of
abstention."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import ConfigDict, model_validator

from pyfast.engine import Evidence, Record
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import Values, exact_match, normalise, of_answers, of_each

Counts = tuple[int, int, int]
"""The counts of one question: (gold segments that were picked, picked segments, gold segments)"""


def counts(picked: Collection[Hashable], wanted: Collection[Hashable]) -> Counts:
    """Count the picked and the gold segments of one question. A repeated id counts once."""
    return len(set(picked) & set(wanted)), len(set(picked)), len(set(wanted))


G = TypeVar("G", bound=Gold)
Rows = Callable[[str], Sequence[str] | None]
"""Returns the rows of a table or the triples of a knowledge graph, each by `row_text`. Returns None for a text.
Raises `KeyError` for a uri that the index does not have"""


@of_each
def evidence(record: Record, gold: Gold) -> Values | None:
    """Compare the documents in the evidence with the gold documents: precision and recall. The figures are
    means over the questions that have gold documents.

    A gold table counts if the evidence has one of its gold rows: a row that `supporting_facts` or
    `supporting_cells` names, otherwise a row with a gold answer. If the table has no such row, any row of it
    counts. The same holds for the triples of a knowledge graph.
    """
    if not gold.supporting:
        return None
    both, picked, wanted = _documents(record, gold)
    return {"evidence_precision": both / picked if picked else 0.0, "evidence_recall": both / wanted}


def _documents(record: Record, gold: Gold) -> Counts:
    """Count the documents of one question. A gold table is found only by a gold row."""
    both, picked, wanted = counts(record.uris, gold.supporting or ())
    if not of_rows(gold).isdisjoint(record.uris):  # Otherwise the evidence need not be read.
        both = len({item.uri for item in record.evidence if is_gold(item, gold)})
    return both, picked, wanted


def of_rows(gold: Gold) -> frozenset[str]:
    """Return the gold documents that are found only by their gold rows or triples."""
    named = {uri for uri, _ in gold.supporting_facts or () if uri not in (gold.sentence_starts or {})}
    return gold.by_row | named | gold.supporting_cells.keys()


def is_gold(item: Evidence, gold: Gold) -> bool:
    """Return whether a piece of evidence finds its document: the document is gold and, of a table or knowledge
    graph with gold rows, the piece is one of them."""
    if item.uri not in (gold.supporting or ()):
        return False
    if item.uri not in of_rows(gold):
        return True
    cells = gold.supporting_cells.get(item.uri, ())
    rows = {place for uri, place in gold.supporting_facts or () if uri == item.uri}
    if rows and "header" not in item.metadata:
        return True  # `supporting_facts` names sentences of a text.
    if rows and item.offsets[0] >= 0:
        return item.offsets[0] in rows
    return holds(row_text(item.snippet), cells or gold.answers)


def row_text(text: str) -> str:
    """Normalise a text, with a blank before and after it, so that a search finds whole words."""
    return f" {normalise(text)} "


def holds(text: str, wanted: Iterable[str]) -> bool:
    """Return whether the result of `row_text` contains one of the wanted texts."""
    return any(one and f" {one} " in text for one in map(normalise, wanted))


def with_rows(gold: G, rows: Rows) -> tuple[G, bool, list[str]]:
    """Return (the gold with `by_row`, whether a gold table has no gold row, so that any row of it counts, the gold
    documents that the index does not have)."""
    named = {uri for uri, _ in gold.supporting_facts or ()} | gold.supporting_cells.keys()
    by_row, whole, missing = set[str](), False, list[str]()
    for uri in gold.supporting or ():
        try:
            texts = rows(uri)
        except KeyError:
            missing.append(uri)
            continue
        if texts is not None and uri not in named and gold.answers:
            own = any(holds(text, gold.answers) for text in texts)
            by_row |= {uri} if own else set()
            whole = whole or not own
    return gold.model_copy(update={"by_row": frozenset(by_row)}), whole, missing


@of_each
def selection(record: Record, gold: Gold) -> Values | None:
    """Compute micro precision, recall and F1 of the selected documents: ratios of sums over all questions
    (HSEQ, A.2). Documents count as in `evidence`."""
    if not gold.supporting:
        return None
    both, picked, wanted = _documents(record, gold)
    return {
        "selection_precision": (both, picked),
        "selection_recall": (both, wanted),
        "selection_f1": (2 * both, picked + wanted),
    }


@of_answers
def abstention(record: Record, gold: Gold) -> Values:
    """Compute coverage (the share of questions with an answer) and risk (the share of these answers that are
    wrong, that is, no exact match)."""
    answered = record.answer is not None
    wrong = answered and not any(exact_match(record.answer or "", answer) for answer in gold.answers)
    return {"coverage": float(answered), "risk": (float(wrong), float(answered))}


class RetrievalQuestion(Gold):
    """A question with its gold documents, from a line of a file. Other keys of this line are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    question: str = ""
    documents: tuple[str, ...] | None = None
    """The uris of the documents that the question searches. None: all documents"""
    table_id: str | None = None
    """For a HybridQA question: the uri of its table, which is then the only gold document. `supporting` is
    ignored, because its documents were found only by matching strings
    """

    @model_validator(mode="before")
    @classmethod
    def _only_the_table(cls, line: Any) -> Any:
        table = line.get("table_id") if isinstance(line, dict) else None
        return {**line, "supporting": [table]} if table else line


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
        >>> from pyfast.evaluation.evidence import ranking_figures
        >>> ranking_figures(["a", "b", "c"], {"b", "d"}, [2])["recall@2"]
        0.5
    """
    ranks = [rank for rank, document in enumerate(ranked, start=1) if document in gold]

    def dcg(ranks: Iterable[int], k: int) -> float:
        return math.fsum(1 / math.log2(1 + rank) for rank in ranks if rank <= k)

    recall = {f"recall@{k}": sum(rank <= k for rank in ranks) / len(gold) for k in at}
    ndcg = {f"ndcg@{k}": dcg(ranks, k) / dcg(range(1, len(gold) + 1), k) for k in at}
    return {**recall, **ndcg, "mrr": 1 / ranks[0] if ranks else 0.0}
