"""Metrics that measure evidence and abstention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from pyfast.engine import Evidence, Record
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import exact_match, normalise
from pyfast.evaluation.protocol import Values, of_answers, of_each
from pyfast.evaluation.selection_metrics import counts

Rows = Callable[[str], Sequence[str] | None]
"""Returns the rows of a table or the triples of a knowledge graph, each by `row_text`. Returns None for a text and
for a uri that the index does not have"""


@of_each
def evidence(record: Record, gold: Gold) -> Values | None:
    """Compare the documents in the evidence with the gold documents: precision and recall. The figures are
    means over the questions that have gold documents.

    A gold table counts if the evidence has one of its gold rows: a row that `supporting_facts` names, otherwise a
    row with a gold answer. If the table has no such row, any row of it counts. The same holds for the triples of
    a knowledge graph.
    """
    if not gold.supporting:
        return None
    _, picked, wanted = counts(record.uris, gold.supporting)
    both = len(_found(record, gold))
    return {"evidence_precision": both / picked if picked else 0.0, "evidence_recall": both / wanted}


def _found(record: Record, gold: Gold) -> set[str]:
    """Return the gold documents that the evidence has."""
    uris = set(record.uris) & set(gold.supporting or ())
    named: dict[str, set[int]] = defaultdict(set)
    for uri, place in gold.supporting_facts or ():
        if uri not in (gold.sentence_starts or {}):
            named[uri].add(place)
    for uri in uris & (gold.by_row | named.keys()):
        items = [item for item in record.evidence if item.uri == uri]
        if not any(_is_gold_row(item, gold, named.get(uri)) for item in items):
            uris.discard(uri)
    return uris


def _is_gold_row(item: Evidence, gold: Gold, rows: set[int] | None) -> bool:
    if rows is not None and "header" not in item.metadata:
        return True  # `supporting_facts` names sentences of a text.
    if rows is not None and item.offsets[0] >= 0:
        return item.offsets[0] in rows
    return holds(row_text(item.snippet), gold)


def row_text(text: str) -> str:
    """Return a normalised text with a blank before and after it, so that a search finds whole words."""
    return f" {normalise(text)} "


def holds(text: str, gold: Gold) -> bool:
    """Return whether the result of `row_text` has a gold answer."""
    return any(answer and f" {answer} " in text for answer in map(normalise, gold.answers))


def with_rows(gold: Gold, rows: Rows) -> tuple[Gold, bool]:
    """Return (the gold with `by_row`, whether a gold table has no gold row, so that any row of it counts)."""
    named = {uri for uri, _ in gold.supporting_facts or ()}
    by_row, whole = set[str](), False
    for uri in gold.supporting or () if gold.answers else ():
        texts = None if uri in named else rows(uri)
        if texts is not None:
            own = any(holds(text, gold) for text in texts)
            by_row |= {uri} if own else set()
            whole = whole or not own
    return gold.model_copy(update={"by_row": frozenset(by_row)}), whole


@of_each
def selection(record: Record, gold: Gold) -> Values | None:
    """Compute micro precision, recall and F1 of the selected documents: ratios of sums over all questions
    (HSEQ, A.2)."""
    if not gold.supporting:
        return None
    both, picked, wanted = counts(record.uris, gold.supporting)
    return {
        "selection_precision": (both, picked),
        "selection_recall": (both, wanted),
        "selection_f1": (2 * both, picked + wanted),
    }


@of_answers
def abstention(record: Record, gold: Gold) -> Values:
    """Compute coverage (the share of questions with an answer) and risk (the share of these answers that are
    wrong).

    An answer counts as correct if it is an exact match.
    """
    answered = record.answer is not None
    wrong = answered and not any(exact_match(record.answer or "", answer) for answer in gold.answers)
    return {"coverage": float(answered), "risk": (float(wrong), float(answered))}
