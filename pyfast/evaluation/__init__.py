"""Score the answers of a run against gold answers, and compare runs."""

from pyfast.evaluation.bootstrap import bootstrap_interval
from pyfast.evaluation.cost import Prices, read_prices
from pyfast.evaluation.evaluate import Figure, Report, Row, evaluate
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import Hits, Metric, Score, Scored, exact_match, f1, hits, normalise, of_each

__all__ = [
    "Figure",
    "Gold",
    "Hits",
    "Metric",
    "Prices",
    "Report",
    "Row",
    "Score",
    "Scored",
    "bootstrap_interval",
    "evaluate",
    "exact_match",
    "f1",
    "hits",
    "normalise",
    "of_each",
    "read_prices",
]
