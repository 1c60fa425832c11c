"""Compute the figures of a load (a rate of questions or a number of clients), and compare two results of
`pyfast bench`. Figures have the same names as in `vllm bench serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyfast.errors import InputError
from pyfast.experiments.load import STAGES, Sample

FORMAT = "pyfast-bench"
VERSION = 1
PERCENTILES = (50, 90, 95, 99)
LOWER_IS_BETTER = ("mean_e2el_ms", *(f"p{p}_e2el_ms" for p in PERCENTILES))
HIGHER_IS_BETTER = ("request_throughput", "request_goodput")


def figures(samples: Sequence[Sample], objective: float | None) -> dict[str, Any]:
    """Compute the figures of one repetition of a load (a number of clients, or a rate of arrivals).

    Args:
        samples: The measured questions of the repetition. Latencies and `request_throughput` leave out failed
            questions. But the duration of the repetition includes them.
        objective: The goodput counts only questions whose latency is at most this many seconds. None: no goodput.

    Returns:
        Latencies in milliseconds, rates per second, counts, and the time of each stage in milliseconds.
    """
    ended = [sample for sample in samples if sample.state != "failed"]
    duration = max((sample.arrival + sample.latency for sample in samples), default=0.0) - min(
        (sample.arrival for sample in samples), default=0.0
    )
    latencies = 1e3 * np.array([sample.latency for sample in ended])
    tokens_in = sum(sample.prompt_tokens for sample in samples)
    tokens_out = sum(sample.completion_tokens for sample in samples)
    good = None if objective is None else sum(sample.latency <= objective for sample in ended) / duration
    return {
        "duration": duration,
        "completed": len(ended),
        "failed": len(samples) - len(ended),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "total_cached_tokens": sum(sample.cached_tokens for sample in samples),
        "llm_calls": sum(sample.llm_calls for sample in samples),
        "request_throughput": len(ended) / duration,
        "request_goodput": good,
        "output_throughput": tokens_out / duration,
        "total_token_throughput": (tokens_in + tokens_out) / duration,
        **_latency("e2el", latencies),
        "stages": {
            stage: _latency("e2el", 1e3 * np.array([sample.stages[stage] for sample in ended])) for stage in STAGES
        },
    }


def _latency(name: str, values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys((f"mean_{name}_ms", *(f"p{p}_{name}_ms" for p in PERCENTILES)))
    percentiles = {f"p{p}_{name}_ms": float(np.percentile(values, p)) for p in PERCENTILES}
    spread = {f"mean_{name}_ms": float(values.mean()), f"median_{name}_ms": float(np.median(values))}
    return {**spread, f"std_{name}_ms": float(values.std()), **percentiles}


def summary(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compute the median, the smallest and the largest value of each figure over the repetitions."""
    names = [name for name, value in repeats[0].items() if isinstance(value, int | float)]
    values = {name: [repeat[name] for repeat in repeats] for name in names}
    return {
        **{name: float(np.median(of)) for name, of in values.items() if None not in of},
        "ranges": {name: [min(of), max(of)] for name, of in values.items() if None not in of},
        "stages": {
            stage: {
                name: float(np.median([repeat["stages"][stage][name] or 0.0 for repeat in repeats]))
                for name in repeats[0]["stages"][stage]
            }
            for stage in repeats[0]["stages"]
        },
    }


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in an earlier and in a later result, at the same load."""

    load: str
    figure: str
    before: float
    after: float
    is_real: bool
    """Whether the values of all later repetitions are above the values of all earlier repetitions, or all are
    below. Otherwise the difference may be noise
    """
    is_better: bool
    """Whether the later value is better than the earlier value"""

    @property
    def ratio(self) -> float:
        """The later value, divided by the earlier value."""
        return self.after / self.before if self.before else float("inf")


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Compare two results of `Bench.as_json`. Only loads that are in both results are compared.

    Raises:
        InputError: An argument is not a result of `bench`, or the two results share no load.
    """
    for result in (before, after):
        if result.get("format") != FORMAT or result.get("version") != VERSION:
            raise InputError(f"not a result of `pyfast bench`, version {VERSION}")
    earlier = {load["load"]: load for load in before["loads"]}
    changes = []
    for load in after["loads"]:
        if load["load"] not in earlier:
            continue
        old = earlier[load["load"]]
        for name in (*LOWER_IS_BETTER, *HIGHER_IS_BETTER):
            if name not in load["ranges"] or name not in old["ranges"]:
                continue
            (low, high), (old_low, old_high) = load["ranges"][name], old["ranges"][name]
            better = load[name] < old[name] if name in LOWER_IS_BETTER else load[name] > old[name]
            is_real = low > old_high or high < old_low
            changes.append(Change(load["load"], name, old[name], load[name], is_real, better))
    if not changes:
        raise InputError("the two results share no load: give the same rates and clients")
    return changes
