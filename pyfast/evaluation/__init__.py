"""Scores of a run against gold answers."""

from pyfast.evaluation.conversations import Hits, TurnsRow, evaluate_turns, hits
from pyfast.evaluation.evaluate import Report, evaluate
from pyfast.evaluation.intervals import interval
from pyfast.evaluation.scoring import Score, exact_match, f1, normalise

__all__ = [
    "Hits",
    "Report",
    "Score",
    "TurnsRow",
    "evaluate",
    "evaluate_turns",
    "exact_match",
    "f1",
    "hits",
    "interval",
    "normalise",
]
