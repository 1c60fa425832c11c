"""`pyfast.evaluate`: score a run against gold answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyfast.api.indexing import index_of
from pyfast.api.run import Run
from pyfast.corpus import KnowledgeGraph, Table
from pyfast.engine.configuration import CONFIGURATION, read_configuration, recorded_path, recorded_value
from pyfast.engine.run_folder import ANSWERS
from pyfast.errors import InputError
from pyfast.evaluation import Metric, Report
from pyfast.evaluation import evaluate as score
from pyfast.evaluation.data_sets.convert import GOLD
from pyfast.evaluation.evaluate import Answers
from pyfast.evaluation.evidence import Rows, row_text
from pyfast.evaluation.gold import Lines
from pyfast.retrieval import Index

_LOG = logging.getLogger("pyfast")

GoldLike = str | Path | Iterable[Mapping[str, Any]]


def evaluate(
    run: Run | str | Path, gold: GoldLike | None = None, *, metrics: Sequence[str | Metric] | None = None
) -> Report:
    """Score the answers of a run.

    pyfast scores only finished questions. A failed question counts as wrong. `report.not_run` lists the questions
    that are not finished yet. Questions beyond the run's `limit` do not count.

    Args:
        run: A run, or its folder.
        gold: A file of JSON lines, or mappings with the same keys: `id`, `answers` (accepted forms of one answer),
            and optionally `type` and `supporting` (the uris of the gold evidence). With `"answer_mode": "all"`,
            `answers` is a list of several answers, and a correct answer names all of them. Mappings with `turns`
            are conversations. None: the file gold.jsonl in the folder of the questions. If there is no such file,
            the file of the questions.
        metrics: Metrics, as functions or by name (`pyfast.plugins.names("metrics")`, or `MODULE:NAME`). None: the
            metrics that the gold file names. If it names no metric: `em_f1` and `evidence`, or `hits` for
            conversations.

    Returns:
        Figures with 95 % intervals: first for all questions, then for each type of question. For conversations
        also for each domain, source, type of answer and turn. `report.questions` has the figures of each question.

    Raises:
        InputError: The gold answers cannot be read, or the run has none of their questions, or a metric does not
            exist.

    Example:
        >>> import pyfast
        >>> report = pyfast.evaluate("RUN", "QUESTIONS.jsonl")
        >>> em = report.rows[0]["em"]
        >>> print(em.value, em.low, em.high)
    """
    answers, where = answers_of(run)
    return score(answers, gold_of(run, gold), metrics, where, _rows_of(run))


def _rows_of(run: Run | str | Path) -> Rows | None:
    """Return a function that returns the rows of a table in the index of a run. Returns None if the run used no
    index. If the index is not there any more, a warning says so, and the result is None too."""
    path = run.path if isinstance(run, Run) else Path(run)
    if path is None or not recorded_value(path, "places", "index"):
        return None

    @cache
    def index() -> Index | None:
        try:
            return index_of(recorded_path(path, "index"), path)
        except InputError as error:
            _LOG.warning("%s; any row of a gold table counts as evidence", error)
            return None

    @lru_cache(64)
    def rows(uri: str) -> list[str] | None:
        opened = index()
        for part in reversed(
            [] if opened is None else opened.parts
        ):  # An update of a document is in a later part.
            source = part.corpus.find(uri)
            document = None if source is None else part.corpus.document(source)
            if isinstance(document, Table):
                return [row_text(" ".join(row)) for row in document.rows]
            if isinstance(document, KnowledgeGraph):
                return [row_text(f"{triple.head} {triple.relation} {triple.tail}") for triple in document.triples]
            if document is not None:
                return None
        return None

    return rows


def answers_of(run: Run | str | Path) -> tuple[Answers, str]:
    """Return the answers of a run, and a name of the run for error messages. Raises `InputError` if the
    folder has no run."""
    path = run.path if isinstance(run, Run) else Path(run)
    if path is None:
        assert isinstance(run, Run)
        return run.records, "the run"
    if not (path / ANSWERS).is_file():
        raise InputError(f"{path}: not a run folder (it has no {ANSWERS})")
    if (path / CONFIGURATION).exists():
        read_configuration(path / CONFIGURATION)  # a run of another format is refused
    return path / ANSWERS, str(path)


def gold_of(run: Run | str | Path, gold: GoldLike | None) -> Lines:
    """Return the path of the gold answers, or a list of mappings with them. If `gold` is None, the path is
    gold.jsonl in the folder of the run's questions. If there is no such file, it is the file of the questions.
    Raises `InputError` if `gold` is None and the run's file of questions is not known or does not exist.
    """
    if gold is not None:
        return Path(gold) if isinstance(gold, str | Path) else list(gold)
    path = run.path if isinstance(run, Run) else Path(run)
    if path is None:
        raise InputError("the run is in memory: give the gold")
    try:
        place = recorded_path(path, "gold" if recorded_value(path, "places", "gold") else "questions")
    except InputError as error:
        raise InputError(f"{error}; give the gold (--gold)") from None
    beside = place.with_name(GOLD)
    return beside if beside.is_file() else place
