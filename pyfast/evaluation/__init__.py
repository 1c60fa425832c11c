"""Scores of a run against gold answers."""

from pyfast.evaluation.bootstrap import bootstrap_interval
from pyfast.evaluation.conversation_metrics import ConversationReport, Hits, TurnsRow, evaluate_turns, hits
from pyfast.evaluation.evaluate import Report, evaluate
from pyfast.evaluation.metrics import Score, exact_match, f1, normalise

__all__ = [
    "ConversationReport",
    "Hits",
    "Report",
    "Score",
    "TurnsRow",
    "bootstrap_interval",
    "evaluate",
    "evaluate_turns",
    "exact_match",
    "f1",
    "hits",
    "normalise",
]
