"""The interface of metrics, and how to find a metric by name.

A metric is a function. It gets a list of questions, each as a record with its gold answers, and returns values
by name for each question. A value is a number in [0, 1], or a pair (numerator, denominator) for micro averages:
the sum of all numerators is divided by the sum of all denominators. To leave a question out, the metric returns
None for it. Packages register metrics as entry points of the group `pyfast.metrics`. Any other metric is named
by `MODULE:NAME`.

    >>> from pyfast.evaluation import of_each
    >>> @of_each
    ... def letters(record, gold):
    ...     return {"letters": min(len(record.answer or "") / 100, 1)}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Protocol

import pyfast.plugins as plugins
from pyfast.engine import Record
from pyfast.errors import InputError
from pyfast.evaluation.gold import Gold

Share = tuple[float, float]
"""A value as (numerator, denominator)"""
Values = Mapping[str, float | Share]


class Metric(Protocol):
    """A function that scores questions."""

    def __call__(self, questions: Sequence[tuple[Record, Gold]], /) -> Sequence[Values | None]:
        """Return the values of each question by name, or None to leave the question out."""
        ...


def of_each(score: Callable[[Record, Gold], Values | None]) -> Metric:
    """Make a metric from a function that scores one question.

    Args:
        score: A function of a record and its gold answers. It returns values by name, or None to leave the
            question out.

    Returns:
        The metric.
    """

    @wraps(score)
    def metric(questions: Sequence[tuple[Record, Gold]], /) -> Sequence[Values | None]:
        return [score(record, gold) for record, gold in questions]

    return metric


def of_answers(score: Callable[[Record, Gold], Values | None]) -> Metric:
    """Make a metric of answers, as `of_each`. It leaves out the questions without gold answers."""

    @wraps(score)
    def scored(record: Record, gold: Gold) -> Values | None:
        return score(record, gold) if gold.has_answer else None

    return of_each(scored)


def open_metric(name: str) -> Metric:
    """Find a metric by its name or `MODULE:NAME`. Raises `InputError` if there is no such metric."""
    metric: object = plugins.load("metrics", name)
    if not callable(metric):
        raise InputError(f"the metric {name!r} is not a function")
    return metric


def measured(name: str, metric: Metric, questions: Sequence[tuple[Record, Gold]]) -> list[dict[str, Share]]:
    """Apply a metric to many questions, and return the values of each question by name.

    If the metric returns something that is not a value, an `InputError` gives the `name` of the metric.
    """
    results = metric(questions)
    if len(results) != len(questions):
        raise InputError(f"the metric {name!r} returned {len(results)} results for {len(questions)} questions")
    return [{key: _share(name, key, value) for key, value in (values or {}).items()} for values in results]


def _share(metric: str, key: str, value: object) -> Share:
    above, below = value if isinstance(value, tuple) and len(value) == 2 else (value, 1.0)
    try:
        share = float(above), float(below)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = math.nan, math.nan
    if not (math.isfinite(share[0]) and math.isfinite(share[1])) or share[1] < 0:
        raise InputError(f"the metric {metric!r}: {key} is {value!r}, not a number or (numerator, denominator)")
    return share
