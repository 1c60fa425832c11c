"""Score runs against gold answers, compare runs, and convert published data sets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyfast.api.index import index_of
from pyfast.api.run import Run, folder_of
from pyfast.corpus import KnowledgeGraph, Table
from pyfast.engine import Record
from pyfast.engine.configuration import CONFIGURATION, read_configuration, recorded_path, recorded_value
from pyfast.engine.run_folder import ANSWERS
from pyfast.errors import InputError
from pyfast.evaluation import Metric, Report
from pyfast.evaluation import evaluate as score
from pyfast.evaluation.compare import AnswerChange, Comparison, change_of, least_to_differ
from pyfast.evaluation.compare import compare as differences_of
from pyfast.evaluation.cost import Cost, Prices, cost_of, listed
from pyfast.evaluation.data_sets import Converted
from pyfast.evaluation.data_sets import convert as write
from pyfast.evaluation.data_sets.convert import GOLD
from pyfast.evaluation.evaluate import Answers, Scored, groups_of, read_answers
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
        metrics: Metrics, as functions or by name (`pyfast.utils.plugins.names("metrics")`, or `MODULE:NAME`).
            None: the metrics that the gold file names. If it names no metric: `em_f1` and `evidence`, or `hits`
            for conversations.

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
    path = folder_of(run)
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
    path = folder_of(run)
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
    path = folder_of(run)
    if path is None:
        raise InputError("the run is in memory: give the gold")
    try:
        place = recorded_path(path, "gold" if recorded_value(path, "places", "gold") else "questions")
    except InputError as error:
        raise InputError(f"{error}; give the gold (--gold)") from None
    beside = place.with_name(GOLD)
    return beside if beside.is_file() else place


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
    reports = [evaluate(run, lines, metrics=metrics) for run in runs]
    scored = {name: {one.id: one for one in it.questions} for name, it in zip(names, reports, strict=True)}
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
    without = tuple(dict.fromkeys(id for report in reports for id in report.without_gold))
    return Comparison(len(shared), left_out, differences, flips, costs, independent, least, without)


def changed_answers(before: Run | str | Path, after: Run | str | Path) -> list[AnswerChange]:
    """Find the questions whose state, answer or evidence differs between two runs, for example before and after a
    change of the documents. No gold is needed.

    Args:
        before: A run, or its folder.
        after: A run, or its folder. Questions that only one of the runs has finished are left out.

    Returns:
        The changes, in the order of the questions in `after`.

    Raises:
        InputError: A folder has no run, its files cannot be read, or the runs have no question in common.

    Example:
        >>> import pyfast
        >>> for change in pyfast.changed_answers("RUN_A", "RUN_B"):
        ...     print(change.id, change.differs, change.before.answer, change.after.answer)
    """
    first, second = ((run if isinstance(run, Run) else Run(run)).records for run in (before, after))
    places = {record.id: place for place, record in enumerate(first)}
    shared = [(places[record.id], record) for record in second if record.id in places]
    if not shared:
        raise InputError(f"{', '.join(_names([before, after]))}: they have no question in common")
    changes = (change_of(first[place], record) for place, record in shared)
    return [change for change in changes if change.differs]


def _names(runs: Sequence[Run | str | Path]) -> list[str]:
    """Return the name of each run in tables. The name of a run with a folder is the path of the folder. A run
    in memory is named by its position in `runs`, such as `run 2`. Raises `InputError` if two names are equal."""
    names = [
        str(path) if path is not None else f"run {number}"
        for number, path in enumerate((folder_of(run) for run in runs), start=1)
    ]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{repeated.pop()}: given twice")
    return names


def _cost(name: str, run: Run | str | Path, scored: Sequence[Scored], prices: Prices | None) -> Cost:
    answers, _ = answers_of(run)
    records: dict[str, Record] = {
        record.id: record for record in (read_answers(answers) if isinstance(answers, Path) else answers)
    }
    return cost_of(name, folder_of(run), records, scored, prices)


def convert(name: str, source: str | Path, out: str | Path) -> Converted:
    """Convert a data set from its authors' files into corpus.jsonl, questions.jsonl and gold.jsonl.

    In some sets, each question has its own documents. The field `documents` of the question then lists their uris.

    Args:
        name: The name of the set: `hotpotqa`, `2wiki`, `musique`, `hybridqa`, `metaqa`, `tatqa` or `convmix`.
            The sets `ottqa`, `nq`, `triviaqa`, `popqa` and `hipporag` work too, but were not tested with the
            published files. `hipporag` stands for the corpora that HippoRAG's authors publish for 2Wiki,
            MuSiQue and HotpotQA. For `hipporag`, the source is one of these corpora, such as
            `musique_corpus.json`. The questions, here `musique.json`, must be in the same folder. For `beir`, the
            source is the folder with corpus.jsonl, queries.jsonl and qrels, or the file of a split in qrels.
            For `flashrag`, it is a file of questions.
        source: The set's file of questions. If a folder has only one such file, you can give the folder.
        out: The folder to make. If the conversion fails, no folder is made.

    Returns:
        The paths of the files, the numbers of documents and questions, and notes on what was changed or left out,
        such as repeated ids. `convmix`, `nq`, `triviaqa` and `popqa`
        have no corpus. To get a corpus for `convmix`, give the file `dev_ers.jsonl` of CONVINSE or EXPLAIGNN as
        the source.

    Raises:
        InputError: The source does not have the layout of this data set, or `out` exists already.

    Example:
        >>> import pyfast
        >>> made = pyfast.convert("nq", "NQ-open.dev.jsonl", "NQ")
        >>> made.questions.name
        'questions.jsonl'
    """
    return write(name, Path(source), Path(out))
