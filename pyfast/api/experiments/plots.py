"""Draw measurements with matplotlib."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyfast.api.experiments.load import PERCENTILES, STAGES
from pyfast.utils.log import LOG

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LETTERS = 60
"""How many letters of names one line below a plot has room for"""
_NUMBERS = re.compile(r"(?<!\w)\d[\d.,]*(/s)?\s*")


def _empty_plot(width: float, height: float) -> Figure | None:
    """Return an empty plot of this size in inches. If matplotlib is not installed, warn and return None."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        LOG.warning("plotting needs matplotlib, which is not installed (pip install 'pyfast-qa[experiments]')")
        return None
    return Figure((width, height), layout="constrained")


def plot_bench(result: Mapping[str, Any], path: Path) -> None:
    """Draw the results of all loads of a benchmark into a PNG file: latency against throughput, and the mean
    time of each stage. Without matplotlib, only warn."""
    figure = _empty_plot(6.5, 5 + 0.5 * len(result["loads"]))  # narrow: it can be read on a phone
    if figure is None:
        return
    loads = sorted(
        (load for load in result["loads"] if "mean_e2el_ms" in load), key=lambda load: load["request_throughput"]
    )
    above, below = figure.subplots(2, 1)
    loops: dict[str, list[Mapping[str, Any]]] = {}
    for load in loads:  # `n2n, 8 clients` and `n2n, 16 clients` are points of one line.
        loops.setdefault(_NUMBERS.sub("", load["load"]), []).append(load)
    for number, (loop, of_loop) in enumerate(sorted(loops.items())):
        throughput = [load["request_throughput"] for load in of_loop]
        for percent, line in ((PERCENTILES[0], "o-"), (PERCENTILES[-1], "^--")):
            times, name = [load[f"p{percent}_e2el_ms"] for load in of_loop], f"{loop}, p{percent}"
            above.plot(throughput, times, line, color=f"C{number % 10}", label=name)
    above.set(xlabel="questions per second", ylabel="latency, ms", ylim=(0, None), title=str(result["system"]))
    above.legend(loc="upper left", bbox_to_anchor=(1, 1))
    start = [0.0] * len(loads)
    for stage in STAGES:
        means = [load["stages"][stage]["mean_e2el_ms"] for load in loads]
        below.barh([load["load"] for load in loads], means, left=start, label=stage)
        start = [a + b for a, b in zip(start, means, strict=True)]
    below.set(xlabel="mean time of a question, ms")
    below.legend(loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, path)


def pareto_front(points: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Find the points (name, cost, quality) that no other point dominates.

    A point dominates another one if it costs no more and is at least as good.

    Args:
        points: Points in any order. Of equal points, only the first is in the result.

    Returns:
        The Pareto front, the cheapest point first.
    """
    front: list[tuple[str, float, float]] = []
    for point in sorted(points, key=lambda one: (one[1], -one[2])):
        if not front or point[2] > front[-1][2]:
            front.append(point)
    return front


def plot_pareto(
    panels: Mapping[str, Sequence[tuple[str, float, float]]], unit: str, quality: str, path: Path
) -> None:
    """Draw the points (name, cost, quality) of each data set into a panel of a PNG file (and of a PDF file beside
    it), with the Pareto front as a line. `unit` is the unit of the cost, and `quality` is the name of the measured
    quality. Without matplotlib, only warn."""
    wide = min(len(panels), 2)
    deep = -(-len(panels) // max(wide, 1))
    names = list(dict.fromkeys(name for points in panels.values() for name, *_ in points))
    # Narrow, with the names below: it can be read on a phone.
    across = min(max(_LETTERS // max(map(len, names), default=1), 1), 3)
    figure = _empty_plot(7.5 if wide > 1 else 6, 3 * deep + 0.3 * (1 + len(names) // across))
    if figure is None or not panels:
        return
    styles = {name: {"marker": "os^DvP*X"[at % 8], "color": f"C{at % 10}"} for at, name in enumerate(names)}
    shown: dict[str, Any] = {}
    every = list(figure.subplots(deep, wide, squeeze=False).flat)
    for axes in every[len(panels) :]:
        axes.remove()
    for axes, (title, points) in zip(every, panels.items(), strict=False):
        front = pareto_front(points)
        (shown["front"],) = axes.plot([one[1] for one in front], [one[2] for one in front], "-", color="0.7")
        for name, cost, value in points:
            (shown[name],) = axes.plot(cost, value, linestyle="none", markersize=8, clip_on=False, **styles[name])
        top = 1.05 * max((value for *_, value in points), default=0)
        axes.set(xlabel=unit, ylabel=quality, title=_literal(title), xlim=(0, None), ylim=(0, top or None))
        axes.locator_params("x", nbins=4)  # More labels overlap, such as 0.000025.
    figure.legend(shown.values(), map(_literal, shown), loc="outside lower center", ncols=across)
    _save(figure, path, path.with_suffix(".pdf"))


def _literal(text: str) -> str:
    """Return a text that matplotlib shows as it is: a dollar sign would begin a formula."""
    return text.replace("$", r"\$")


def _save(figure: Figure, *paths: Path) -> None:
    """Write a plot, in the format of each path. Log matplotlib's warnings, for example about a character that the
    font lacks, as pyfast's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for path in paths:
            figure.savefig(path, format=path.suffix[1:])
    for message in dict.fromkeys(str(one.message) for one in caught):
        LOG.warning("%s: %s", paths[0].name, message)
