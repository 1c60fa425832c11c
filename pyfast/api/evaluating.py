"""`pyfast.evaluate`: score a run against gold answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyfast.api.run import Run
from pyfast.engine.configuration import check_format
from pyfast.engine.run_folder import ANSWERS
from pyfast.errors import InputError
from pyfast.evaluation import ConversationReport, Report, evaluate_turns
from pyfast.evaluation import evaluate as score
from pyfast.evaluation.jsonl_records import Lines, placed


def evaluate(run: Run | str | Path, gold: str | Path | Iterable[Mapping[str, Any]]) -> Report | ConversationReport:
    """Score the answers of a run.

    Args:
        run: A run, or its folder.
        gold: A file of JSON lines, or such mappings: `id` and `answers` (accepted forms of one answer; with
            `"answer_mode": "all"` a set, all of which is expected), and optionally `type` and `supporting` (the
            uris of the gold evidence). Mappings with `turns` are conversations.

    Returns:
        Exact match, F1 and the recall of evidence, by type of question; for conversations H@1 and H@5, by domain,
        source and turn.

    Raises:
        InputError: The gold cannot be read, or shares no question with the run.

    Example:
        >>> import pyfast
        >>> report = pyfast.evaluate("RUN", "QUESTIONS.jsonl")
        >>> print(report.rows[0].em, report.rows[0].f1)
    """
    path = run.path if isinstance(run, Run) else Path(run)
    lines: Lines = Path(gold) if isinstance(gold, str | Path) else list(gold)
    if path is None:
        assert isinstance(run, Run)
        answers: Lines = [record.as_json() for record in run.records]
    else:
        answers = path / ANSWERS
        if not answers.is_file():
            raise InputError(f"{path}: not a run folder (it has no {ANSWERS})")
        check_format(path)
    where = "the run" if path is None else str(path)
    first = next(iter(placed(lines)), None)
    if first is not None and "turns" in first[1]:
        return ConversationReport(evaluate_turns(answers, lines, where))
    return score(answers, lines, where)
