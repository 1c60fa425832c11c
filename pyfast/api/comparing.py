"""`pyfast.compare`: find out which of several runs is better, and what each run costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyfast.api.evaluating import GoldLike, answers_of, evaluate, gold_of
from pyfast.api.run import Run
from pyfast.engine import Record
from pyfast.errors import InputError
from pyfast.evaluation import Metric
from pyfast.evaluation.compare import Comparison, least_to_differ
from pyfast.evaluation.compare import compare as differences_of
from pyfast.evaluation.cost import Cost, Prices, cost_of, listed
from pyfast.evaluation.evaluate import Scored, groups_of, read_answers


def compare(
    runs: Sequence[Run | str | Path],
    gold: GoldLike | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    prices: str | Path | Prices | None = None,
) -> Comparison:
    """Compare runs, by the questions that all runs have finished. Other questions do not count.

    Args:
        runs: Two runs or more, or their folders. Each run is compared with each later run.
        gold: As in `pyfast.evaluate`. None: the file gold.jsonl in the folder of the first run's questions.
            If there is no such file, the first run's file of questions.
        metrics: As in `pyfast.evaluate`.
        prices: A price list, or its file (see `pyfast.evaluation.read_prices`). None: the result has no costs in
            money.

    Returns:
        For each pair of runs and each figure (such as F1): the difference between the runs, its 95 % interval
        (paired bootstrap), its p-value, and the p-value after Holm's correction. The p-value comes from
        McNemar's exact test if each question's value is 0 or 1. For other values, and if several questions
        belong to one conversation, it comes from the bootstrap. The field `least` says how many independent
        questions are needed before a difference can be significant. With fewer questions, do not trust the
        p-values of the bootstrap: they are too small. For each pair, the result lists the questions that only
        one run answers correctly, if the first figure is 0 or 1 for each question. For each run, it has the
        calls, tokens, seconds and money, per question and per correct answer.

    Raises:
        InputError: There are fewer than two runs, the runs share no question, the gold file has none of these
            questions, or a model is missing in the price list.

    Example:
        >>> import pyfast
        >>> comparison = pyfast.compare(["RUN_A", "RUN_B"], "QUESTIONS.jsonl")
        >>> for one in comparison.differences:
        ...     print(one.figure, one.difference, one.low, one.high, one.p_holm)
    """
    if len(runs) < 2:
        raise InputError("compare: expected two runs or more")
    names = _names(runs)
    lines = gold_of(runs[0], gold)
    scored = {
        name: {one.id: one for one in evaluate(run, lines, metrics=metrics).questions}
        for name, run in zip(names, runs, strict=True)
    }
    first, *others = scored.values()
    shared = [id for id in first if all(id in other for other in others)]
    if not shared:
        raise InputError(f"{', '.join(names)}: they have no question in common")
    every = dict.fromkeys(id for some in scored.values() for id in some)
    differences, flips = differences_of({name: [some[id] for id in shared] for name, some in scored.items()})
    known = listed(prices)
    costs = [
        _cost(name, run, [scored[name][id] for id in shared], known) for name, run in zip(names, runs, strict=True)
    ]
    left_out = tuple(id for id in every if id not in set(shared))
    independent = len(set(groups_of([first[id] for id in shared])))
    least = least_to_differ(len(differences))
    return Comparison(len(shared), left_out, differences, flips, costs, independent, least)


def _names(runs: Sequence[Run | str | Path]) -> list[str]:
    """Return the name of each run in tables. The name of a run with a folder is the path of the folder. A run
    in memory is named by its position in `runs`, such as `run 2`. Raises `InputError` if two names are equal."""
    names = [
        str(path) if path is not None else f"run {number}"
        for number, path in enumerate((run.path if isinstance(run, Run) else Path(run) for run in runs), start=1)
    ]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{repeated.pop()}: given twice")
    return names


def _cost(name: str, run: Run | str | Path, scored: Sequence[Scored], prices: Prices | None) -> Cost:
    answers, _ = answers_of(run)
    records: dict[str, Record] = {
        record.id: record for record in (read_answers(answers) if isinstance(answers, Path) else answers)
    }
    return cost_of(name, run.path if isinstance(run, Run) else Path(run), records, scored, prices)
