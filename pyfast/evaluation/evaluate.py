"""Score answers against gold answers, for all questions and for groups of questions. Bootstrap intervals show how
much a figure depends on the random choice of questions."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pyfast.engine import Record
from pyfast.engine.record import REPLY_BEGINS
from pyfast.engine.traces import TRACES, Traces
from pyfast.errors import InputError
from pyfast.evaluation.cost import Cost
from pyfast.evaluation.evidence import Rows, with_rows
from pyfast.evaluation.gold import Gold, Lines, read_gold
from pyfast.evaluation.metrics import FIGURES, Metric, Scored, Share, measured, open_metric
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted

Float64 = npt.NDArray[np.float64]
DRAWS = 2_000  # the number of draws of the bootstrap
Answers = Path | Iterable[Record]
"""A run's answers.jsonl, or its records"""
AT_ONCE = 1_024  # the number of questions that a metric scores in one call
CONVERSATIONS, QUESTIONS = ("hits",), ("em_f1", "evidence")


@dataclass(frozen=True, slots=True)
class Figure:
    """The value of a metric for some questions, with a 95 % interval from a bootstrap over questions or
    conversations."""

    value: float
    low: float
    high: float
    questions: int
    """The number of questions from which the figure is computed"""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """How many of the scored questions failed or abstained."""

    questions: int
    """The number of scored questions"""
    failed: int
    abstained: int
    reason: str = ""
    """Why the first of the failed questions failed. Empty: none failed"""

    @property
    def note(self) -> str:
        """A remark for readers if questions failed, otherwise empty."""
        if not self.failed:
            return ""
        failed = f"{self.failed} of {counted(self.questions, 'question')} failed and"
        return (
            f"{failed} {'counts' if self.failed == 1 else 'count'} as wrong; the first reason is: {self.because}"
        )

    @property
    def because(self) -> str:
        """The reason on one line, without the LLM's reply."""
        return " ".join(self.reason.partition(REPLY_BEGINS)[0].split())

    def __add__(self, other: Unanswered) -> Unanswered:
        counts = self.failed + other.failed, self.abstained + other.abstained
        return Unanswered(self.questions + other.questions, *counts, self.reason or other.reason)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a group of questions."""

    by: str
    """The key by which the questions are grouped: `type`, `domain`, `source`, `answer type`, `turn` or a field
    that the call of `pyfast.evaluate` named. `all`: the row of all questions"""
    value: str
    questions: int
    figures: Mapping[str, Figure]
    """The figures by name, without those that no question has"""
    unanswered: Unanswered
    """How many questions of the group failed or abstained"""

    def __getitem__(self, name: str) -> Figure:
        return self.figures[name]


def unanswered_of(scored: Sequence[Scored]) -> Unanswered:
    """Count the scored questions that failed or abstained, in one or several runs."""
    failed = [one.reason or "" for one in scored if one.state == "failed"]
    abstained = sum(one.state == "abstained" for one in scored)
    return Unanswered(len(scored), len(failed), abstained, next(iter(failed), ""))


@dataclass(frozen=True, slots=True)
class Report:
    """The scores of a run. The first row covers all questions, and each further row a group of questions."""

    rows: list[Row]
    questions: Sequence[Scored] = field(repr=False)
    states: dict[str, int]
    """How many questions are in each state"""
    not_run: tuple[str, ...]
    """Ids of gold questions without an answer in the run. They are not scored"""
    without_gold: tuple[str, ...] = ()
    """Ids of questions of the run that have no gold: the gold has no line for them, or `answers` is missing, null
    or empty, and there is no gold evidence. They are not scored"""
    whole_tables: tuple[str, ...] = ()
    """Ids of questions with a gold table (or knowledge graph) in which no row contains a gold answer. In the
    evidence, any row of it counts"""
    not_indexed: tuple[str, ...] = ()
    """Gold documents that are not in the run's index. They count as not found"""
    cost: Cost | None = None
    """What the run cost, if the call of `pyfast.evaluate` asked for it"""
    named: ClassVar[str] = "run"  # the heading of the column with the reports' names

    @property
    def unanswered(self) -> Unanswered:
        """How many of the scored questions failed or abstained."""
        return self.rows[0].unanswered

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON types, without the scores of single questions."""
        left_out = ("not_run", "without_gold", "whole_tables", "not_indexed")
        return {
            "rows": [asdict(row) for row in self.rows],
            "states": self.states,
            "first_failure": self.unanswered.reason or None,
            **{name: list(getattr(self, name)) for name in left_out},
            **({} if self.cost is None else {"cost": asdict(self.cost)}),
        }


def evaluate(
    answers: Answers,
    gold: Lines,
    metrics: Sequence[str | Metric] | None = None,
    where: str = "the run",
    rows: Rows | None = None,
    figures: Sequence[str] = (),
    also: Sequence[Metric] = (),
    by: Sequence[str] = (),
) -> Report:
    """Score answers. A failed question counts as wrong. Unfinished questions do not count, but `not_run`
    lists them.

    Args:
        answers: A run's answers.jsonl (the trace file must be in the same folder), or records.
        gold: Lines with `id` and `answers`. A question without `answers` and without gold evidence is not scored.
            A conversation has `id` and `turns`, and each turn has `answers`.
            The class `Gold` lists all other keys.
        metrics: Metrics by name or as functions. None: the metrics that the gold file names, and `evidence` if a
            question that names metrics also has `supporting`. If it names no metric: `em_f1` and `evidence`, or
            `hits` for conversations.
        where: The name of the run, for error messages.
        rows: A function that returns the rows of a gold table, for the metric `evidence`. None: if the gold names
            no rows, a gold table counts as found with any of its rows.
        figures: The names of the figures in the report. Empty: all of them.
        also: Metrics in addition to `metrics`.
        by: Fields of the gold whose values are groups too.

    Returns:
        Figures with 95 % intervals, for all questions and then for each group.

    Raises:
        InputError: A file cannot be read, or there is no such metric, figure or field.
    """
    records = _by_id(answers)
    gold = gold if isinstance(gold, Path) else list(gold)
    not_run, without, names, conversations = list[str](), list[str](), dict[str, None](), list[bool]()
    columns, fields = dict[str, None](), dict[str, None]()
    # A question that searches all documents can cite those of other questions.
    cited, starts, has_facts = None, dict[str, tuple[int, ...]](), False
    for one in read_gold(gold):
        has_facts |= bool(one.supporting_facts) and one.id in records
        fields |= dict.fromkeys((*one.model_fields_set, *(one.model_extra or ()))) if by else {}
        if one.sentence_starts is not None:
            cited = {uri for record in records.values() for uri in record.uris} if cited is None else cited
            starts |= {uri: places for uri, places in one.sentence_starts.items() if uri in cited}
        if one.id in records and not (one.has_answer or one.supporting or one.supporting_facts):
            without.append(one.id)
            columns.update(dict.fromkeys((*one.model_fields_set, *(one.model_extra or ()))))
            del records[one.id]
        elif one.id in records:
            of_evidence = QUESTIONS[1:] if one.metrics and one.supporting else ()
            names.update(dict.fromkeys((*one.metrics, *of_evidence)))
            conversations.append(one.conversation is not None)
        else:
            not_run.append(one.id)
    if not conversations and not_run and not (records or without):
        order = (
            "pyfast writes answers in the order of the questions, so an unfinished question holds back later ones"
        )
        raise InputError(f"{where}: no answer has been written yet ({order})")
    if not conversations:
        fault = f"none of its ids is among the answers of {where}" if not_run else "there are no questions"
        if without:
            own = columns.keys() - {"answers", "sentence_starts", "published_as"}
            there = shorten(", ".join(sorted(own)), 200, placeholder=" ...")
            fault = (
                f"there are no `answers` to the {counted(len(without), 'finished question')}, only the columns"
                f" {there}; if one of them has the gold, add --gold FILE --column answers=COLUMN"
            )
        raise InputError(f"{gold if isinstance(gold, Path) else 'gold'}: {fault}")
    if unknown := [name for name in by if name not in fields]:
        known = ", ".join(sorted(fields.keys() - {"id", "question", "answers"}))
        raise InputError(f"by: the gold has no field {unknown[0]!r}; its fields are: {known}")
    chosen = _chosen(list(names), conversations[0]) if metrics is None else metrics
    rows = rows if any(_reads_rows(metric, figures) for metric in chosen) else None
    named = [*chosen, *also]
    only_answers = bool(figures) and {*figures}.issubset(FIGURES["em_f1"])
    of_facts = not only_answers and any(one in ("hotpotqa", "2wiki") for one in named)
    if has_facts and cited is None and of_facts:
        told = (
            "%s: the supporting facts are not scored, because no question in the gold file has `sentence_starts`"
        )
        LOG.warning(told, where)
    # The gold is read a second time: all of it would take more memory than the rest.
    whole, not_indexed = list[str](), dict[str, None]()

    def complete(one: Gold) -> Gold:
        if cited is not None and one.supporting_facts is not None:
            known = ChainMap({**(one.sentence_starts or {})}, starts)
            one = one.model_copy(update={"sentence_starts": known})
        if rows is None:
            return one
        one, is_whole, missing = with_rows(one, rows)
        whole.extend([one.id] if is_whole else [])
        not_indexed.update(dict.fromkeys(missing))
        return one

    asked = ((records.pop(one.id), complete(one)) for one in read_gold(gold) if one.id in records)
    scored = with_figures(_scored(dict(map(_opened, named)), _pairs_together(asked), by), figures)
    states = dict(Counter(one.state for one in scored))
    without += records  # The remaining records have no line in the gold.
    left_out = tuple(not_run), tuple(without), tuple(whole), tuple(not_indexed)
    return Report(rows_of(scored), scored, states, *left_out)


def _pairs_together(asked: Iterator[tuple[Record, Gold]]) -> Iterator[list[tuple[Record, Gold]]]:
    """Yield each question as a list, and the questions with the same `pair` as one list."""
    waiting: dict[str, tuple[Record, Gold]] = {}
    for one in asked:
        pair = one[1].pair
        if pair is None:
            yield [one]
        elif pair in waiting:
            yield [waiting.pop(pair), one]
        else:
            waiting[pair] = one
    yield from ([one] for one in waiting.values())


def rows_of(scored: Sequence[Scored]) -> list[Row]:
    """Make the rows of a report: first a row for all questions, then the rows for groups of questions.

    A key, such as `type`, divides the questions into groups with the same value. A key for which all questions
    have the same value has no rows.
    """
    rows = [_row("all", "", scored)]
    for key in dict.fromkeys(chain.from_iterable(one.groups for one in scored)):
        groups: dict[str, list[Scored]] = defaultdict(list)
        for one in scored:
            groups[one.groups.get(key, "(none)")].append(one)
        rows += [_row(key, value, groups[value]) for value in sorted(groups) if len(groups) > 1]
    return rows


def table_of(scored: Sequence[Scored], names: Sequence[str]) -> tuple[Float64, Float64]:
    """Return numerators and denominators as two arrays, float64 [questions, names]. Both are 0 for a figure that a
    question does not have."""
    shares = [[one.shares.get(name, (0.0, 0.0)) for name in names] for one in scored]
    table = np.array(shares, np.float64).reshape(len(scored), len(names), 2)
    return table[..., 0], table[..., 1]


def groups_of(scored: Sequence[Scored]) -> list[str]:
    """Return the group of each question for the bootstrap. The turns of a conversation are one group."""
    return [f"c{one.conversation}" if one.conversation is not None else f"q{one.id}" for one in scored]


def names_of(scored: Iterable[Scored]) -> list[str]:
    """Return the names of all figures that these questions have."""
    return list(dict.fromkeys(chain.from_iterable(one.shares for one in scored)))


def with_figures(scored: Sequence[Scored], figures: Sequence[str]) -> Sequence[Scored]:
    """Return the scores with only these figures, in their order, or with all if `figures` is empty. Raises
    `InputError` if no question has one of the figures."""
    known = names_of(scored)
    if unknown := [name for name in figures if name not in known]:
        raise InputError(f"unknown figure {unknown[0]!r}; known: {', '.join(known)}")
    names = figures or known
    return [
        replace(one, shares={name: one.shares[name] for name in names if name in one.shares}) for one in scored
    ]


def _row(by: str, value: str, scored: Sequence[Scored]) -> Row:
    # A ratio without a denominator has no value, and no draw of the bootstrap would have one.
    names = [name for name in names_of(scored) if any(one.shares.get(name, (0, 0))[1] for one in scored)]
    above, below = table_of(scored, names)
    sums, totals = above.sum(axis=0), below.sum(axis=0)
    low, high = ratio_intervals(above, below, groups_of(scored)) if names else (sums, sums)
    figures = {
        name: Figure(float(sums[i] / totals[i]), float(low[i]), float(high[i]), int((below[:, i] > 0).sum()))
        for i, name in enumerate(names)
    }
    return Row(by, value, len(scored), figures, unanswered_of(scored))


def _chosen(names: list[str], conversations: bool) -> list[str]:
    """Return the metrics that the gold file names or, if it names none, the default metrics. `conversations` says
    whether the questions are turns of conversations.

    Raises `InputError` for a name `MODULE:NAME`, because a gold file must not make pyfast import code.
    """
    code = next((name for name in names if ":" in name), None)
    if code is not None:
        raise InputError(
            f"the gold file names the metric {code!r}, but a gold file may not name code to import; to use this"
            f" metric, pass --metric {code}"
        )
    return names or list(CONVERSATIONS if conversations else QUESTIONS)


def _reads_rows(metric: str | Metric, figures: Sequence[str]) -> bool:
    """Return whether a metric may need the rows of gold tables for these figures (empty: for any figure)."""
    own = FIGURES.get(metric) if isinstance(metric, str) else None
    return own is None or (metric in ("evidence", "selection") and not (figures and {*figures}.isdisjoint(own)))


def _opened(metric: str | Metric) -> tuple[str, Metric]:
    """Return (the name of the metric, its function). `metric` is a name or a function."""
    if isinstance(metric, str):
        return metric, open_metric(metric)
    return str(getattr(metric, "__name__", metric)), metric


def _scored(
    metrics: Mapping[str, Metric], asked: Iterator[list[tuple[Record, Gold]]], by: Sequence[str]
) -> list[Scored]:
    """Compute the scores of all questions, some at a time, and keep only the scores: a record keeps its evidence
    in memory after a metric has read it."""
    scored: list[Scored] = []
    owner: dict[str, str] = {}
    while some := list(chain.from_iterable(islice(asked, AT_ONCE))):
        shares: list[dict[str, Share]] = [{} for _ in some]
        for metric, function in metrics.items():
            for mine, values in zip(shares, measured(metric, function, some), strict=True):
                for name, share in values.items():
                    own = owner.setdefault(name, metric) == metric
                    mine[name if own else f"{metric}.{name}"] = share
        scored += [
            Scored(
                *(one.id, one.state, one.answer, gold.groups(by), gold.conversation, mine, one.usage, one.reason)
            )
            for (one, gold), mine in zip(some, shares, strict=True)
        ]
    return scored


def _by_id(answers: Answers) -> dict[str, Record]:
    where, given = (answers, read_answers(answers)) if isinstance(answers, Path) else ("the run", answers)
    records: dict[str, Record] = {}
    for number, record in enumerate(given, start=1):
        if record.id in records:
            raise InputError(f"{where}, line {number}: the id {record.id!r} occurs twice")
        records[record.id] = as_scored(record)
    return records


def as_scored(record: Record) -> Record:
    """Return a record as metrics see it. A failed question counts as wrong in all figures, so what it found before
    it failed is not evidence."""
    return replace(record, evidence_json=b"[]") if record.state == "failed" else record


def read_answers(path: Path) -> Iterator[Record]:
    """Read the records of answers.jsonl. Evidence and traces are read only if a metric uses them.

    If a line cannot be read, an `InputError` names the line.
    """
    traces = Traces(path.with_name(TRACES))
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        for number, line in enumerate(file):
            try:
                yield Record.read(line, partial(traces.line, number))
            except InputError as error:
                raise InputError(f"{path}, line {number + 1}: {error}") from None


def bootstrap_interval(values: Sequence[float], groups: Sequence[str], level: float = 0.95) -> tuple[float, float]:
    """Compute a percentile bootstrap interval of the mean of `values` from 2,000 draws.

    The values within a group depend on each other, as those of a conversation's turns do. Each draw picks groups
    at random with replacement, and uses all of their values. The same input always results in the same draws.

    Args:
        values: One number for each question.
        groups: The group of each question.
        level: The share of draws inside the interval.

    Returns:
        (low, high).

    Raises:
        ValueError: There is no value.

    Example:
        >>> from pyfast.evaluation import bootstrap_interval
        >>> bootstrap_interval([1.0, 1.0, 1.0], ["a", "b", "c"])
        (1.0, 1.0)
    """
    column = np.asarray(values, np.float64)[:, None]
    low, high = ratio_intervals(column, np.ones_like(column), groups, level)
    return float(low[0]), float(high[0])


def ratio_intervals(
    numerators: Float64, denominators: Float64, groups: Sequence[str], level: float = 0.95
) -> tuple[Float64, Float64]:
    """Compute a bootstrap interval (low, high) of sum(numerators) / sum(denominators) for each column.

    `numerators` and `denominators` are float64 [questions, columns], with a column for each figure.
    """
    ratios = ratio_draws(numerators, denominators, groups)
    low, high = np.nanquantile(ratios, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def ratio_draws(numerators: Float64, denominators: Float64, groups: Sequence[Hashable]) -> Float64:
    """Draw whole groups of questions, and compute sum(numerators) / sum(denominators) for each draw and
    column: float64 [draws, columns]. A division by 0 gives NaN.
    """
    if not len(numerators):
        raise ValueError("an interval needs at least one value")
    _, place = np.unique(np.asarray(groups), return_inverse=True)
    above, below = (
        np.column_stack([np.bincount(place, column) for column in values.T])
        for values in (numerators, denominators)
    )
    columns = np.arange(below.shape[1])
    if (below % 1 == 0).all():  # Sums of integers are exact, so equal columns have equal sums.
        below, columns = np.unique(below, axis=1, return_inverse=True)
    ratios = np.empty((DRAWS, numerators.shape[1]))
    random, count = np.random.default_rng(0), len(above)  # The same number of groups has the same draws.
    for number in range(DRAWS):
        times = np.bincount(random.integers(0, count, count), minlength=count).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios[number] = (times @ above) / (times @ below)[columns]
    return ratios
