"""Compare runs on the same questions: which differences are significant, and what each run costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import ceil, log2
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from pyfast.engine import Evidence, Record
from pyfast.evaluation.cost import Cost
from pyfast.evaluation.evaluate import DRAWS, Float64, Unanswered, groups_of, names_of, ratio_draws, table_of
from pyfast.evaluation.metrics import Scored
from pyfast.utils.text_forms import counted

_LEVEL = 0.05
_MOST_EXACT = 17
"""The maximum number of differing groups for which all exchanges are counted"""
_MOST_EXCHANGES = 20_000
_MOST_DRAWN = 20_000_000
"""The maximum number of random bits for a difference. An exchange takes one bit for each group"""
_AT_ONCE = 1_000_000
_DRAWS_EACH = 1_000
"""The number of exchanges drawn for each difference, if needed: the smallest p-value stays below 0.001 after
Holm's correction"""
Test = Literal["mcnemar", "permutation"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two runs in one figure (such as F1), over the questions that both runs have."""

    a: str
    b: str
    """`a` and `b` are the names of the two runs"""
    figure: str
    of_a: float
    of_b: float
    difference: float
    """The value of b minus the value of a"""
    low: float
    high: float
    """`low` and `high` are the bounds of the difference's 95 % interval, from a paired bootstrap"""
    test: Test
    """The test that gives the p-value: McNemar's exact test if all values are 0 or 1 and no two questions
belong to the same conversation, otherwise a paired permutation test
    """
    p: float
    p_holm: float
    """The p-value after Holm's correction for all differences of the comparison"""
    questions: int


@dataclass(frozen=True, slots=True)
class Flips:
    """Flips: questions that only one of two runs answers correctly, that is, for which `figure` is 1. It is 0 or 1
    for each question."""

    a: str
    b: str
    figure: str
    gained: tuple[str, ...]
    """Ids of questions that only b gets right"""
    lost: tuple[str, ...]
    """Ids of questions that only a gets right"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `pyfast.compare`."""

    questions: int
    """The number of questions that all runs have finished"""
    left_out: tuple[str, ...]
    """Ids of questions that at least one run has not finished"""
    differences: list[Difference]
    flips: list[Flips]
    costs: list[Cost]
    independent: int
    """The number of independent questions. All turns of a conversation together count as one"""
    least: int
    """The smallest number of independent questions with which a difference can be significant (see
    `least_to_differ`)"""
    without_gold: tuple[str, ...] = ()
    """Ids of questions that have no gold (see `Report.without_gold`). They are not compared"""
    unanswered: tuple[Unanswered, ...] = ()
    """For each run, in the order of `costs`: how many of the compared questions failed or abstained"""

    def as_json(self) -> dict[str, Any]:
        """Return the comparison in JSON types."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """A question whose records in two runs differ."""

    id: str
    differs: tuple[str, ...]
    """What differs: `state`, `answer`, `evidence`. Evidence is compared by uris and snippets, but not by order and
    scores"""
    before: Record
    after: Record
    question: str = ""
    """The text of the question. Empty: the question file no longer exists"""
    own: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The fields of the question file that pyfast does not use"""

    @property
    def evidence(self) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
        """The evidence that only the record `before` has, and the evidence that only the record `after` has."""

        def only(of: Record, other: Record) -> tuple[Evidence, ...]:
            known = {(one.uri, one.snippet) for one in other.evidence}
            return tuple(one for one in of.evidence if (one.uri, one.snippet) not in known)

        return only(self.before, self.after), only(self.after, self.before)

    def as_json(self) -> dict[str, Any]:
        """Return the change in JSON types."""
        sides = zip(("before", "after"), (self.before, self.after), self.evidence, strict=True)
        shown = {
            name: {"state": record.state, "answer": record.answer, "evidence": list(map(asdict, only))}
            for name, record, only in sides
        }
        return {"id": self.id, "question": self.question, "differs": self.differs, **shown}


def change_of(before: Record, after: Record) -> AnswerChange:
    """Compare two records of a question."""
    change = AnswerChange(before.id, (), before, after)
    differs = [name for name in ("state", "answer") if getattr(before, name) != getattr(after, name)]
    return replace(change, differs=(*differs, *(["evidence"] if any(change.evidence) else [])))


def compare(scored: Mapping[str, Sequence[Scored]], together: int = 0) -> tuple[list[Difference], list[Flips]]:
    """Compare each pair of runs, all of which must have the same questions. Returns the differences of their
    figures, and the flips (questions that only one of the two runs answers correctly). If the caller corrects the
    p-values of several calls together, `together` is the number of all their differences.

    Flips are counted only in the first figure that both runs have. If its values are not all 0 or 1, the pair has
    no flips.
    """
    differences, flips = list[Difference](), list[Flips]()
    names = {run: names_of(of_run) for run, of_run in scored.items()}
    shared = {(a, b): [name for name in names[a] if name in names[b]] for a, b in combinations(scored, 2)}
    draws = max(DRAWS, _DRAWS_EACH * max(together, sum(map(len, shared.values()))))
    for (a, b), both in shared.items():
        differences += _differences(a, b, scored[a], scored[b], both, draws)
        for name in both[:1]:
            if _is_binary(scored[a], name) and _is_binary(scored[b], name):
                pairs = zip(scored[a], scored[b], strict=True)
                change = {one.id: other.shares[name][0] - one.shares[name][0] for one, other in pairs}
                gained, lost = (tuple(id for id in change if change[id] * sign > 0) for sign in (1, -1))
                flips.append(Flips(a, b, name, gained, lost))
    corrected = holm([one.p for one in differences])
    return [replace(one, p_holm=p) for one, p in zip(differences, corrected, strict=True)], flips


def _differences(
    a: str, b: str, of_a: Sequence[Scored], of_b: Sequence[Scored], names: Sequence[str], most: int
) -> list[Difference]:
    if not names:
        return []
    tables = [table_of(scored, names) for scored in (of_a, of_b)]
    groups = groups_of(of_a)
    draws = [ratio_draws(above, below, groups) for above, below in tables]  # Both runs use the same draws.
    apart = draws[1] - draws[0]
    alone = len(set(groups)) == len(groups)
    differences = []
    for place, name in enumerate(names):
        first, second = ((above[:, place], below[:, place]) for above, below in tables)
        if not first[1].sum() or not second[1].sum():
            continue
        values = float(first[0].sum() / first[1].sum()), float(second[0].sum() / second[1].sum())
        low, high = np.nanquantile(apart[:, place], [0.025, 0.975]).tolist()
        exact = alone and _is_binary(of_a, name) and _is_binary(of_b, name)
        p = mcnemar(first[0], second[0]) if exact else permutation_p(first, second, groups, most)
        test: Test = "mcnemar" if exact else "permutation"
        questions = int(((first[1] > 0) | (second[1] > 0)).sum())
        differences.append(
            Difference(a, b, name, *values, values[1] - values[0], low, high, test, p, p, questions)
        )
    return differences


def mcnemar(a: Float64, b: Float64) -> float:
    """Compute the p-value of McNemar's exact test for two columns of 0 and 1.

    The test is a binomial test over the rows in which the two columns differ.
    """
    gained, lost = int((b > a).sum()), int((a > b).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def permutation_p(
    a: tuple[Float64, Float64], b: tuple[Float64, Float64], groups: Sequence[object], most: int = DRAWS
) -> float:
    """Compute the two-sided p-value of a paired permutation test. A figure is the ratio of two sums.

    If the runs do not differ, each group of questions could equally well have its two results exchanged. The
    p-value is the share of such exchanges whose difference is at least as large as the observed one. If at most 17
    groups differ, all exchanges are counted, otherwise 20,000 drawn ones (fewer with more than 1,000 groups, but
    at least `DRAWS`) and the observed one, so that the p-value is never 0. While no drawn exchange has such a
    difference, more are drawn.

    Args:
        a: For each question, what the first run adds to the numerator (float64 [questions]) and the denominator.
        b: The same for the second run.
        groups: The group of each question, such as its conversation.
        most: The maximum number of drawn exchanges while none has such a difference.
    """
    place = np.unique(np.asarray(groups), return_inverse=True)[1]
    sums = [np.bincount(place, side) for side in (*a, *b)]
    change = np.array([sums[2] - sums[0], sums[3] - sums[1]])
    differs = change.any(axis=0)
    count, change = int(differs.sum()), change[:, differs]

    def apart(exchanged: npt.NDArray[Any]) -> Float64:
        """The difference after each exchange (0 or 1 [groups, exchanges]). NaN: undefined."""
        above, below = change @ exchanged
        first, second = sums[0].sum() + above, sums[2].sum() - above
        with np.errstate(invalid="ignore", divide="ignore"):
            far: Float64 = np.abs(first / (sums[1].sum() + below) - second / (sums[3].sum() - below))
        return far

    least = apart(np.zeros((count, 1)))[0] - 1e-12
    if count <= _MOST_EXACT:
        # Exchanging all groups changes only the sign, so the last group need not be exchanged.
        far = apart(np.arange(2 ** max(count - 1, 0)) >> np.arange(count)[:, None] & 1)
        return float((far >= least).sum() / (~np.isnan(far)).sum())
    random, enough = np.random.default_rng(0), min(max(DRAWS, _MOST_DRAWN // count), _MOST_EXCHANGES)
    found = drawn = valid = 0
    while drawn < enough or (drawn < most and not found):  # Some at a time: all of them would fill the memory.
        some = 8 * max(min(_AT_ONCE // count, enough) // 8, 1)
        bits = np.unpackbits(np.frombuffer(random.bytes(count * some // 8), np.uint8))
        far = apart(bits.reshape(count, some))
        found, drawn, valid = found + int((far >= least).sum()), drawn + some, valid + int((~np.isnan(far)).sum())
    return (found + 1) / (valid + 1)


def least_to_differ(differences: int) -> int:
    """Return the smallest number of independent questions with which a difference can be significant (0.05).

    If n questions all change in the same direction, McNemar's exact test and the sign test give p = 2 / 2^n.
    Holm's correction multiplies the smallest p by `differences`, the number of differences in the comparison.

    Example:
        >>> from pyfast.evaluation.compare import least_to_differ
        >>> least_to_differ(1), least_to_differ(4)
        (6, 8)
    """
    return ceil(log2(2 * max(differences, 1) / _LEVEL))


def few_note(independent: int, differences: int) -> str:
    """Return a remark for people if this number of independent questions is too small for this number of
    differences, and otherwise an empty string."""
    least = least_to_differ(differences)
    if not differences or independent >= least:
        return ""
    return (
        f"{counted(independent, 'independent question')} cannot show a difference, regardless of p: to test"
        f" {counted(differences, 'difference')}, at least {least} questions must change, all in the same direction"
    )


def holm(p: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's step-down method: the k-th smallest of n is multiplied by n - k + 1.

    The corrected values keep the order of the p-values, and no corrected value is above 1.
    """
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(steps, 1.0)
    return list(corrected.tolist())


def _is_binary(scored: Sequence[Scored], name: str) -> bool:
    return all(one.shares.get(name) in ((0.0, 1.0), (1.0, 1.0)) for one in scored)
