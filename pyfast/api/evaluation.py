"""Score runs against gold answers, compare runs, and convert published data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import pyarrow as pa

from pyfast.api.retrieval_evaluation import RetrievalReport
from pyfast.api.run import (
    GoldLike,
    Run,
    folder_of,
    gold_of,
    own_of,
    report_of,
    results_of,
    run_of,
    texts_of,
    warn_of_other_questions,
    warn_of_other_wordings,
)
from pyfast.engine import read_status, recorded_value
from pyfast.errors import InputError
from pyfast.evaluation import Metric, Report
from pyfast.evaluation.compare import AnswerChange, Comparison, change_of, least_to_differ
from pyfast.evaluation.compare import compare as differences_of
from pyfast.evaluation.cost import Prices, cost_of, listed
from pyfast.evaluation.data_sets import Converted
from pyfast.evaluation.data_sets import convert as write
from pyfast.evaluation.evaluate import groups_of, unanswered_of, with_figures
from pyfast.evaluation.judge import judged_by
from pyfast.evaluation.predictions import FORMATS, write_predictions
from pyfast.evaluation.results import KINDS, rows_of, schema_of, side_by_side, write_results
from pyfast.evaluation.tables import AnswerChanges, WithRows, check_new, tables_of, write_table
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted, some


def evaluate(
    run: Run | str | Path,
    gold: GoldLike | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    figures: Sequence[str] = (),
    by: str | Sequence[str] = (),
    judged: str | Path | None = None,
    costs: bool = False,
    prices: str | Path | Prices | None = None,
) -> Report:
    """Score the answers of a run.

    Only finished questions are scored; a failed question counts as wrong. `report.not_run` lists the unfinished
    questions. Questions beyond the run's `limit` are ignored.

    Args:
        run: A run, or its folder.
        gold: A file (JSON lines, CSV, TSV, XLSX, Parquet or Arrow), a DataFrame, or mappings with the same keys:
            `id`, `answers` (accepted forms of one answer), and optionally `type` and `supporting` (the uris of the
            gold evidence). With `"answer_mode": "all"`, `answers` lists several answers, and a correct answer must
            name all of them. Mappings with `turns` are conversations. For a file with other column names: a pair
            such as `("gold.xlsx", {"answers": "Antwort"})`. None: the file gold.jsonl in the folder of the
            questions or, if there is no such file, the question file.
        metrics: Metrics, as functions or by name (`pyfast.utils.plugins.names("metrics")`, or `MODULE:NAME`).
            None: the metrics that the gold file names, and `evidence` if a question with metrics has
            `supporting`; if the file names none, `em_f1` and `evidence`, or `hits` for
            conversations.
        figures: The names of the figures to report, such as `em`. Empty: all the metrics' figures.
        by: One or more fields of the gold, such as `level`. The report also has a row for each of their values.
        judged: The folder of a judge's run (`pyfast.api.judgement.judge_answers`), whose verdicts become the
            figures `judged_correct`, `agreement`, `faithful` and `supporting` (see `docs/evaluation.md`).
        costs: Whether to report the mean calls, tokens and seconds per question, as `report.cost`. A run in memory
            records no seconds.
        prices: As in `pyfast.compare`. If given, the report includes the costs.

    Returns:
        Figures with 95 % intervals: first for all questions, then for each question type and, for conversations
        and questions with `domain` or `answer_src`, also for each domain, source (`answer_src`), answer type and
        turn. `report.questions` contains the figures of each
        question.

    Raises:
        InputError: The gold answers cannot be read, the run contains none of their questions, a metric, a figure
            or a field of `by` does not exist, or a model is missing from the price list.

    Example:
        >>> import pyfast
        >>> report = pyfast.evaluate("RUN", "QUESTIONS.jsonl")
        >>> em = report.rows[0]["em"]
        >>> print(em.value, em.low, em.high)
    """
    also = () if judged is None else (judged_by(judged),)
    report = report_of(run, gold_of(run, gold), metrics, figures, also, [by] if isinstance(by, str) else by)
    if not costs and prices is None:
        return report
    return replace(report, cost=cost_of(_names([run])[0], folder_of(run), report.questions, listed(prices)))


def export(
    runs: Sequence[Run | str | Path],
    out: str | Path,
    gold: GoldLike | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    wide: bool = False,
    sources: bool = False,
    format: str | None = None,
    overwrite: bool = False,
    prices: str | Path | Prices | None = None,
) -> int:
    """Write the results of runs as a table for other programs (CSV, JSON lines, Parquet or XLSX), or the answers
    of one run as predictions for the official script of a data set.

    The columns are `run`, `id`, `question`, `answer`, `state`, `reason`, `gold`, each figure (such as `em` and
    `f1`), `uris` and `snippets` of the evidence, `llm_calls`, `prompt_tokens`, `completion_tokens` and `seconds`.
    Columns of the question file that pyfast does not use follow `question`, renamed `question.NAME` if pyfast has
    a column of the same name. Lists are written as JSON in CSV and XLSX,
    but a single gold answer as its text.

    With `sources`, there is one row per source of an answer: each passage of its evidence, whether or not the
    answer is based on it. In place of the columns from `uris` on, it has `rank` (from 1), `uri`, `title`, `page`
    (from 1, in files with pages), `sheet` (in workbooks with several), `row` (in tables: its number in the file,
    see `pyfast.corpus.Table.number_of`), `score` and `snippet`, and, if the gold names gold documents, `is_gold`:
    whether `evidence_recall` counts the source.

    With `format`, the file contains the predictions of one run for `hotpotqa`, `2wiki`, `musique` or `hybridqa`.
    From this file, the official script of the data set computes the same figures as `pyfast.evaluate`. The gold
    must come from `pyfast.convert`, which stores how the published file refers to documents and sentences.
    HybridQA's format needs no gold. For a test set without answers, the converted question file suffices.

    Args:
        runs: Runs, or their folders. With `format`, only one.
        out: The file to write (.csv, .jsonl, .parquet or .xlsx). With `format`: .json, for MuSiQue .jsonl.
        gold: As in `pyfast.evaluate`, for each run. If a run has no gold answers, pyfast leaves its figures empty
            and, without `sources`, logs a warning.
        metrics: As in `pyfast.evaluate`.
        wide: Write one row per question, with the runs side by side in columns named `RUN: COLUMN`. Otherwise,
            each question has one row per run.
        sources: Write one row per source of an answer. Titles, pages and rows come from the run's index.
        format: The data set in whose prediction format the answers are written. None: a table.
        overwrite: Whether to replace an existing file `out`.
        prices: As in `pyfast.compare`. If given, the column `money` contains the price of a question's LLM calls.

    Returns:
        The number of rows or predictions. Unfinished questions have none; pyfast logs a warning with their number.

    Raises:
        InputError: `out` exists or has a different extension, a run or the given gold cannot be read, two runs
            have different questions under one id (with `wide`), `sources` is combined with `wide` or
            `prices`, or a model is missing from the price list. With `format`: there is no such
            format, the gold does not come from `pyfast.convert`, or another option shapes a table.
        MissingPackageError: `out` is an XLSX file, and the extra `formats` is not installed.

    Example:
        >>> import pyfast
        >>> pyfast.export(["RUN_A", "RUN_B"], "results.csv")
        28
    """
    path = Path(out)
    if format is not None and format not in FORMATS:
        raise InputError(f"format: unknown data set {format!r}; known: {', '.join(FORMATS)}")
    check_new(path, overwrite, KINDS if format is None else (FORMATS[format],))
    if not runs:
        raise InputError("export: expected a run")
    if format is not None:
        if len(runs) > 1 or wide or sources or metrics is not None or prices is not None:
            raise InputError("format: needs a single run, and excludes wide, sources, metrics and prices")
        records = run_of(runs[0]).records
        _warn_of_unfinished(runs[0], len(records))
        write_predictions(path, format, records, None if format == "hybridqa" else gold_of(runs[0], gold))
        return len(records)
    if wide and sources:
        raise InputError("export: wide and sources cannot be used together")
    if prices is not None and sources:
        raise InputError("sources: a table with one row per source cannot show costs")
    lines, known = gold_of(runs[0], gold) if gold is not None else None, listed(prices)
    if gold is None and not (sources or wide):
        warn_of_other_questions(runs)
    named = zip(runs, _names(runs), strict=True)
    results = [results_of(run, name, lines, metrics, sources, known) for run, name in named]
    for run, one in zip(runs, results, strict=True):
        _warn_of_unfinished(run, len(one.records))
    schema = schema_of(results)
    if wide:
        tables = {one.run: pa.Table.from_batches(rows_of(one, schema), schema) for one in results}
        table = side_by_side(tables)
        return write_results(path, table.schema, table.to_batches())
    return write_results(path, schema, chain.from_iterable(rows_of(one, schema) for one in results))


def _warn_of_unfinished(run: Run | str | Path, finished: int) -> None:
    """Log a warning if questions of a run are missing in an exported file."""
    folder = folder_of(run)
    count = folder and recorded_value(folder, "questions", "count")
    if folder and isinstance(count, int) and (left := count - finished) > 0:
        held = read_status(folder).ended - finished
        why = (
            f"; of these, {held} have ended, but answers are written in the order of the questions"
            if held > 0
            else ""
        )
        LOG.warning(
            "%s: %d of its %d questions have no row, because they have no answer yet%s", folder, left, count, why
        )


def compare(
    runs: Sequence[Run | str | Path],
    gold: GoldLike | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    figures: Sequence[str] = (),
    prices: str | Path | Prices | None = None,
    judged: Sequence[str | Path] = (),
) -> Comparison:
    """Compare runs on the questions that all of them have finished. Other questions are ignored.

    Args:
        runs: Two or more runs, or their folders. Each run is compared with every later one.
        gold: As in `pyfast.evaluate`. None: the file gold.jsonl in the folder of the first run's questions
            or, if there is no such file, the first run's question file.
        metrics: As in `pyfast.evaluate`.
        figures: The names of the figures to compare; Holm's correction covers only these. Empty: all the metrics'
            figures.
        prices: A price list, or its file (see `pyfast.evaluation.read_prices`). None: the result contains no costs
            in money.
        judged: The `judged` folder of each run, in the same order, as in `pyfast.evaluate`. Empty: no judges'
            figures.

    Returns:
        For each pair of runs and each figure (such as F1): the difference between the runs, its 95 % interval
        (paired bootstrap), its p-value, and the p-value after Holm's correction. The p-value comes from McNemar's
        exact test if each question's value is 0 or 1; for other values, and if several questions belong to one
        conversation, it comes from a paired permutation test. The field `least` is the minimum number of
        independent questions for a significant difference. For each pair, the result also lists the questions that
        only one run answers correctly, if the first figure is 0 or 1 for each question, and for each run the
        calls, tokens, seconds and money, per question and per correct answer.

    Raises:
        InputError: There are fewer than two runs, the runs share no question, the gold file contains none of these
            questions, `judged` does not contain one folder per run, a model is missing from the price list, or a
            figure does not exist.

    Example:
        >>> import pyfast
        >>> comparison = pyfast.compare(["RUN_A", "RUN_B"], "QUESTIONS.jsonl")
        >>> for one in comparison.differences:
        ...     print(one.figure, one.difference, one.low, one.high, one.p_holm)
    """
    if len(runs) < 2:
        raise InputError("compare: expected two or more runs")
    if len(judged) not in (0, len(runs)):
        raise InputError(f"judged: expected one folder per run ({len(runs)}), got {len(judged)}")
    names = _names(runs)
    lines = gold_of(runs[0], gold)
    if gold is None:
        warn_of_other_questions(runs, f"all runs are scored with those of {names[0]}")
    reports = [evaluate(run, lines, metrics=metrics, judged=folder) for run, folder in zip_longest(runs, judged)]
    scored = {name: {one.id: one for one in it.questions} for name, it in zip(names, reports, strict=True)}
    first, *others = scored.values()
    shared = [id for id in first if all(id in other for other in others)]
    if not shared:
        raise InputError(f"{', '.join(names)}: these runs have no question in common")
    ended = [[*some, *report.without_gold] for some, report in zip(scored.values(), reports, strict=True)]
    of_all = set(ended[0]).intersection(*ended)
    asked = {name: with_figures([some[id] for id in shared], figures) for name, some in scored.items()}
    differences, flips = differences_of(asked)
    known = listed(prices)
    costs = [
        cost_of(name, folder_of(run), [scored[name][id] for id in shared], known)
        for name, run in zip(names, runs, strict=True)
    ]
    left_out = tuple(id for id in dict.fromkeys(chain.from_iterable(ended)) if id not in of_all)
    independent = len(set(groups_of([first[id] for id in shared])))
    least = least_to_differ(len(differences))
    without = tuple(dict.fromkeys(id for report in reports for id in report.without_gold if id in of_all))
    unanswered = tuple(unanswered_of([of_run[id] for id in shared]) for of_run in scored.values())
    return Comparison(len(shared), left_out, differences, flips, costs, independent, least, without, unanswered)


def write_figures(
    results: Mapping[str, WithRows] | Comparison | RetrievalReport | Sequence[AnswerChange],
    out: str | Path,
    *,
    overwrite: bool = False,
) -> None:
    """Write figures of runs, or differences between runs, as a table for a paper or for other programs.

    Markdown and LaTeX show each figure with its 95 % interval. Files in other formats contain one row per run and
    group of questions, with columns such as `em`, `em_low` and `em_high`. If a report includes costs, so does the
    row of its run. For a comparison, Markdown and LaTeX show the costs in a table before the differences; the
    other formats contain one row per `Difference`, followed by one for each cost of each pair of runs, such as
    `llm_calls`, without an interval. A cost in money is named after its currency, such as `USD`.

    If questions failed, or the system abstained from some, the table has a column for each of these two counts.
    For a comparison in a format for other programs, each count has a row, like a cost. Below a table in Markdown
    or LaTeX, a note gives the reason for the first failure. For several settings of `pyfast.evaluate_retrieval`,
    the table shows the figures first, then their differences.

    Args:
        results: Reports of `pyfast.evaluate` by run name, the result of `pyfast.evaluate_retrieval` or its
            `settings`, the result of `pyfast.compare`, or that of `pyfast.changed_answers` (one row per question,
            with its own columns, its state and answer in both runs, and the uris and texts of the evidence found
            in only one of them).
        out: The file to write (.md, .tex, .csv, .jsonl, .parquet or .xlsx).
        overwrite: Whether to replace an existing file `out`.

    Raises:
        InputError: `out` exists, or has a different extension, or `results` is something else, such as a report
            without a name.
        MissingPackageError: An extra is not installed: `formats` for XLSX, `experiments` for Markdown and LaTeX.

    Example:
        >>> import pyfast
        >>> reports = {name: pyfast.evaluate(name) for name in ("RUN_A", "RUN_B")}
        >>> pyfast.write_figures(reports, "figures.tex")
        >>> pyfast.write_figures(pyfast.compare(["RUN_A", "RUN_B"]), "differences.csv")
    """
    check_new(Path(out), overwrite)
    if not isinstance(results, Mapping | Comparison | RetrievalReport | Sequence):
        got = type(results).__name__
        raise InputError(
            f'results: expected a comparison or reports by name, such as {{"RUN": report}}; got {got}'
        )
    if isinstance(results, RetrievalReport):
        tables = tables_of(results.settings, results.differences)
    else:
        tables = tables_of(results)
    write_table(Path(out), *tables)


def changed_answers(before: Run | str | Path, after: Run | str | Path) -> AnswerChanges:
    """Find the questions whose state, answer or evidence differs between two runs, for example before and after
    the documents have changed. No gold answers are needed.

    Args:
        before: A run, or its folder.
        after: A run, or its folder. Questions that only one of the runs has finished are left out, with a warning.

    Returns:
        A list of the changes, with the methods `to_arrow` and `to_pandas`. Questions whose state or answer differs
        come before those with other evidence only. Otherwise, they have the order of `after`.

    Raises:
        InputError: A folder contains no run, its files cannot be read, or the runs have no question in common.

    Example:
        >>> import pyfast
        >>> for change in pyfast.changed_answers("RUN_A", "RUN_B"):
        ...     print(change.id, change.differs, change.before.answer, change.after.answer)
    """
    first, second = (run_of(run).records for run in (before, after))
    places = {record.id: place for place, record in enumerate(first)}
    shared = [(places[record.id], record) for record in second if record.id in places]
    if not shared:
        raise InputError(f"{', '.join(_names([before, after]))}: these runs have no question in common")
    asked = {record.id for _, record in shared}
    if alone := [*(places.keys() - asked), *(record.id for record in second if record.id not in places)]:
        told = "%s left out, because only one run has finished %s: %s"
        what = counted(len(alone), "question is", "questions are")
        LOG.warning(told, what, "it" if len(alone) == 1 else "them", some(sorted(alone)))
    warn_of_other_wordings([before, after])
    changes = (change_of(first[place], record) for place, record in shared)
    found = sorted(filter(lambda one: one.differs, changes), key=lambda one: one.differs == ("evidence",))
    texts, own = texts_of(run_of(after)), own_of(run_of(after)) if found else {}
    return AnswerChanges(replace(one, question=texts.get(one.id, ""), own=own.get(one.id, {})) for one in found)


def _names(runs: Sequence[Run | str | Path]) -> list[str]:
    """Return the name of each run in tables: the path of its folder or, for a run in memory, its position in
    `runs`, such as `run 2`. Raises `InputError` if two names are equal."""
    names = [
        str(path) if path is not None else f"run {number}"
        for number, path in enumerate(map(folder_of, runs), start=1)
    ]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"the run {repeated.pop()} is given twice")
    return names


def convert(name: str, source: str | Path, out: str | Path) -> Converted:
    """Convert a data set, as its authors publish it, into corpus.jsonl, questions.jsonl and gold.jsonl.

    If each question in a set has its own documents, its field `documents` lists their uris.

    Args:
        name: The name of the set: `hotpotqa`, `2wiki`, `musique`, `hybridqa`, `metaqa`, `tatqa` or `convmix`. The
            sets `ottqa`, `nq`, `triviaqa`, `popqa` and `hipporag` work too, but we have not tested them with the
            published files. For `hipporag`, the source is one of the corpora that HippoRAG's authors publish for
            2Wiki, MuSiQue and HotpotQA, such as `musique_corpus.json`, with the questions (here `musique.json`) in
            the same folder. For `beir`, it is the folder with corpus.jsonl, queries.jsonl and qrels, or a split's
            file in qrels. For `flashrag`, it is a question file.
        source: The set's question file, or a folder with only one such file.
        out: The folder to create. It is not created if the conversion fails.

    Returns:
        The paths of the files, the numbers of documents and questions, and notes on what was changed or left out,
        such as repeated ids. `convmix`, `nq`, `triviaqa` and `popqa` come without a corpus. To get one for
        `convmix`, pass the file `dev_ers.jsonl` of CONVINSE or EXPLAIGNN as the source.

    Raises:
        InputError: The source does not have the layout of this data set, or `out` already exists.

    Example:
        >>> import pyfast
        >>> made = pyfast.convert("nq", "NQ-open.dev.jsonl", "NQ")
        >>> made.questions.name
        'questions.jsonl'
    """
    return write(name, Path(source), Path(out))
