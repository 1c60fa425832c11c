"""The first screen of a report: the configuration of the run, and figures over all its questions."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyfast.engine import Status
from pyfast.reports.run_reader import Scores

BINS = 60  # of the run's time, in the charts
EXTREMES = 10  # questions of each kind
HIDDEN = ("prompts", "code", "format")  # digests tell a reader nothing
_USAGE = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_OF_STAGE = {name: name for name in ("name", "role", "calls", "queued_ms", "running_ms", "batch")}
_OF_STAGE |= {"tokens_in": "prompt_tokens", "tokens_out": "completion_tokens"}
"""What a page shows of a stage: the name on the page, and the name in `StageStatus`"""


@dataclass
class Series:
    """Numbers about each finished question. They are collected while the run is read."""

    ids: list[str] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    """When each question ended, in seconds since the epoch"""
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    """For each question: the mean number of LLM calls in flight, over the calls of this question"""
    worked: list[float] = field(default_factory=list)
    """For each question: the mean size of the batches of its other calls, such as searches"""
    money: dict[str, float] = field(default_factory=dict)
    """The cost of each stage in money, over all questions. Empty without a price list"""
    paid: list[float] = field(default_factory=list)
    """The cost of each question in money. 0 without a price list"""
    gold: list[bool] = field(default_factory=list)
    """For each question with gold documents: whether all of them are in the evidence of the answer"""
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """(state, reason) of each question without an answer"""

    def add(
        self, row: Mapping[str, Any], ledger: Mapping[str, Any], wrong: float, money: Mapping[str, float]
    ) -> None:
        """Add one question: its row in the list, its usage (ledger), how wrong its answer is, and the cost of
        its stages.
        """
        self.ids.append(row["id"])
        self.texts.append(row["question"])
        self.seconds.append(row["seconds"] or 0.0)
        self.ends.append(float(ledger.get("started", 0.0)) + self.seconds[-1])
        self.tokens.append(row["tokens"])
        self.wrong.append(wrong)
        for sizes, of_prompts in ((self.batches, True), (self.worked, False)):  # prompts' stages have a role
            some = [stage for stage in ledger.get("stages", {}).values() if any(stage[4:5]) == of_prompts]
            calls = sum(stage[0] for stage in some)
            sizes.append(sum(stage[3] for stage in some) / calls if calls else 0.0)
        reached, gold = row["gold"]
        self.gold += [reached == gold] * bool(gold)
        self._pay(money)
        self.paid.append(sum(money.values()))
        if row["state"] != "answered":
            self.reasons.append((row["state"], row["reason"] or "the evidence does not contain the answer"))

    def extend(self, other: Series) -> None:
        """Add the questions of another series."""
        for name, values in vars(other).items():
            if name != "money":
                getattr(self, name).extend(values)
        self._pay(other.money)

    def _pay(self, money: Mapping[str, float]) -> None:
        for stage, value in money.items():
            self.money[stage] = self.money.get(stage, 0.0) + value

    def extremes(self) -> dict[str, list[tuple[str, float, str | None]]]:
        """Return the slowest, the most expensive and the most wrong questions, each as (id, number, text).
        The number is the time in seconds, the cost in money (without prices, the number of tokens), or how
        wrong the answer is, from 0 to 1.
        """
        ranked: dict[str, Sequence[float]] = {"wrong": self.wrong, "slowest": self.seconds}
        ranked |= {"money": self.paid} if any(self.paid) else {"tokens": self.tokens}
        return {
            name: [
                (self.ids[at], numbers[at], self.texts[at])
                for at in heapq.nlargest(EXTREMES, range(len(numbers)), key=numbers.__getitem__)
                if numbers[at] > 0
            ]
            for name, numbers in ranked.items()
        }

    def over_time(self) -> list[dict[str, float]]:
        """Return throughput and batch sizes over the time of the run. Empty if the run has stored no times."""
        ends = np.asarray(self.ends)
        timed = ends > 1
        if not timed.any():
            return []
        sizes = {"batch": np.asarray(self.batches)[timed], "worked": np.asarray(self.worked)[timed]}
        ends = ends[timed]
        first = float(ends.min() - np.asarray(self.seconds)[timed][ends.argmin()])
        width = max(float(ends.max()) - first, 1e-3) / BINS
        place = np.minimum(((ends - first) / width).astype(int), BINS - 1)
        counts = np.bincount(place, minlength=BINS)
        bins = {"second": (np.arange(BINS) + 0.5) * width, "rate": counts / width}
        for name, values in sizes.items():
            bins[name] = np.bincount(place, weights=values, minlength=BINS) / np.maximum(counts, 1)
        columns = [values.tolist() for values in bins.values()]
        return [dict(zip(bins, row, strict=True)) for row in zip(*columns, strict=True)]

    def latencies(self) -> list[dict[str, float]]:
        """Return a histogram of the seconds that questions took."""
        seconds = np.asarray([one for one in self.seconds if one > 0])
        if not len(seconds):
            return []
        counts, edges = np.histogram(seconds, bins=40)
        bars = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        return [{"from": low, "to": high, "questions": count} for low, high, count in bars]


def summary_of(
    status: Status, scores: Scores, series: Series, configuration: Mapping[str, Any], currency: str | None
) -> dict[str, Any]:
    """Collect what the first screen of a report shows about one run, in JSON types. `currency` is the currency of
    the prices, if prices are given.
    """
    return {
        "configuration": {name: table for name, table in configuration.items() if name not in HIDDEN},
        "questions": status.questions,
        "running": status.running,
        "seconds_left": status.seconds_left,
        "waiting": status.waiting and {"llm": status.waiting.llm, "reason": status.waiting.reason},
        "states": status.states,
        "reasons": [(state, why, count) for (state, why), count in Counter(series.reasons).most_common(20)],
        "usage": {name: getattr(status, name) for name in _USAGE},
        "currency": currency,
        "percentiles": {f"p{percent}": value for percent, value in status.seconds.items()},
        "fall_backs": status.fall_backs,
        "left_out": status.left_out,
        "stages": [
            {shown: getattr(stage, name) for shown, name in _OF_STAGE.items()}
            | ({} if currency is None else {"money": series.money.get(stage.name, 0)})
            for stage in status.stages
        ],
        "gold": {"questions": len(series.gold), "lost": series.gold.count(False)},
        "scores": scores.rows,
        "not_run": scores.not_run[:100],
        "extremes": series.extremes(),
        "over_time": series.over_time(),
        "latencies": series.latencies(),
    }
