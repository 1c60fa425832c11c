"""Plots of measurements, by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pyfast.experiments.figures import PERCENTILES
from pyfast.experiments.load import STAGES


def plot_bench(result: Mapping[str, Any], path: Path) -> None:
    """Draw latency against throughput, and the mean time by stage, of all loads into a PNG file."""
    loads = sorted(
        (load for load in result["loads"] if "mean_e2el_ms" in load), key=lambda load: load["request_throughput"]
    )
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    throughput = [load["request_throughput"] for load in loads]
    for percent in PERCENTILES:
        left.plot(throughput, [load[f"p{percent}_e2el_ms"] for load in loads], "o-", label=f"p{percent}")
    left.set(xlabel="questions a second", ylabel="latency, ms", ylim=(0, None), title=str(result["system"]))
    left.legend()
    below = [0.0] * len(loads)
    for stage in STAGES:
        means = [load["stages"][stage]["mean_e2el_ms"] for load in loads]
        right.barh([load["load"] for load in loads], means, left=below, label=stage)
        below = [a + b for a, b in zip(below, means, strict=True)]
    right.set(xlabel="mean time of a question, ms")
    right.legend()
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png")
