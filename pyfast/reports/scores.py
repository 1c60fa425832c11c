"""The scores of a run's questions, and their gold answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyfast.api.evaluating import GoldLike, evaluate, gold_of
from pyfast.errors import InputError
from pyfast.evaluation import Metric
from pyfast.evaluation.evaluate import Report, Scored
from pyfast.evaluation.gold import Gold, read_gold

_LOG = logging.getLogger("pyfast")


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of all questions together and of each question. Empty if there are no gold answers."""

    report: Report | None = None
    by_id: Mapping[str, Scored] = field(default_factory=dict)
    gold: Mapping[str, Gold] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the figures."""
        return [] if self.report is None else list(self.report.rows[0].figures)

    def figures(self, id: str) -> dict[str, float | None]:
        """Return the figures of one question. Empty if the question has no gold answer."""
        return self.by_id[id].figures if id in self.by_id else {}

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the report: figures with intervals, for each group of questions."""
        return [] if self.report is None else self.report.as_json()["rows"]


def scores_of(run: Path, gold: GoldLike | None, metrics: Sequence[str | Metric] | None) -> Scores:
    """Score a run. Without `gold`, the gold answers come from the run's questions, or from gold.jsonl in the
    questions' folder.

    If there are no gold answers, the function logs a warning. Raises `InputError` if the given `gold` has none
    of the run's questions.
    """
    try:
        lines = gold_of(run, gold)
        known = {one.id: one for one in read_gold(lines)}
        report = evaluate(run, lines, metrics=metrics)
    except InputError as error:
        if gold is not None:
            raise
        _LOG.warning("%s: no scores: %s", run, error)
        return Scores()
    return Scores(report, {one.id: one for one in report.questions}, known)


def wrongness(figures: Mapping[str, float | None]) -> float:
    """Return how wrong an answer is, from 0 to 1. It is 1 minus the first figure of the question that is not
    None. Without such a figure, it is 0.
    """
    value = next((one for one in figures.values() if one is not None), None)
    return 0.0 if value is None else 1.0 - min(max(value, 0.0), 1.0)
