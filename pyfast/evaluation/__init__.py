"""Scores of a run against gold answers."""

from pyfast.evaluation.evaluate import Report, evaluate
from pyfast.evaluation.scoring import Score, exact_match, f1, normalise

__all__ = ["Report", "Score", "evaluate", "exact_match", "f1", "normalise"]
