"""Metrics that measure evidence and abstention."""

from __future__ import annotations

from pyfast.engine import Record
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import exact_match
from pyfast.evaluation.protocol import Values, of_answers, of_each
from pyfast.evaluation.selection_metrics import counts


@of_each
def evidence(record: Record, gold: Gold) -> Values | None:
    """Compare the documents in the evidence with the gold documents: precision and recall. The figures are
    means over the questions that have gold documents.
    """
    if not gold.supporting:
        return None
    both, picked, wanted = counts(record.uris, gold.supporting)
    return {"evidence_precision": both / picked if picked else 0.0, "evidence_recall": both / wanted}


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
