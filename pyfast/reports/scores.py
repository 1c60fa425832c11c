"""The scores of a run's questions, and their gold answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyfast.api.evaluation import GoldLike, evaluate, gold_of
from pyfast.errors import InputError
from pyfast.evaluation import Metric
from pyfast.evaluation.gold import Gold, read_gold

_LOG = logging.getLogger("pyfast")


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of all questions together and of each question. Empty if there are no gold answers."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the report: figures with intervals, for each group of questions"""
    not_run: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)
    """The names of the figures"""
    figures: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """The figures of each question with a gold answer, by its id"""
    gold_lines: Mapping[str, str] = field(default_factory=dict)
    """The gold of each question, by its id, as a line of JSON. `Gold` objects would take four times the memory"""

    def gold(self) -> dict[str, Gold]:
        """Read the gold of each question."""
        return {id: Gold.model_validate_json(line) for id, line in self.gold_lines.items()}

    def of(self, ids: Sequence[str]) -> Scores:
        """The figures and the gold of some questions."""
        known = [id for id in ids if id in self.figures]
        figures, lines = {id: self.figures[id] for id in known}, {id: self.gold_lines[id] for id in known}
        return Scores(names=self.names, figures=figures, gold_lines=lines)


def scores_of(run: Path, gold: GoldLike | None, metrics: Sequence[str | Metric] | None) -> Scores:
    """Score a run. If `gold` is None, the gold answers come from gold.jsonl in the folder of the run's
    questions. If there is no such file, they come from the questions themselves.

    If there are no gold answers, the function logs a warning. Raises `InputError` if the given `gold` has none
    of the run's questions.
    """
    try:
        lines = gold_of(run, gold)
        report = evaluate(run, lines, metrics=metrics)
    except InputError as error:
        if gold is not None:
            raise
        _LOG.warning("%s: no scores: %s", run, error)
        return Scores()
    figures = {one.id: one.figures for one in report.questions}
    known = {}
    for one in read_gold(lines):
        if one.id in figures:
            (one.model_extra or {}).clear()  # No page shows it, and it can be most of the gold.
            known[one.id] = one.model_dump_json(exclude_defaults=True)
    return Scores(report.as_json()["rows"], report.not_run, list(report.rows[0].figures), figures, known)


def wrongness(figures: Mapping[str, float | None]) -> float:
    """Return how wrong an answer is, from 0 to 1. It is 1 minus the first figure of the question that is not
    None. Without such a figure, it is 0.
    """
    value = next((one for one in figures.values() if one is not None), None)
    return 0.0 if value is None else 1.0 - min(max(value, 0.0), 1.0)
