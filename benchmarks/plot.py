"""docs/performance.svg from the figures that `pytest benchmarks --save-results` keeps: each op beside its peers.

python benchmarks/plot.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).parent


def main() -> None:
    mpl.rcParams |= {"svg.hashsalt": "pyfast", "svg.fonttype": "none"}  # the same figures: the same small file
    figures = json.loads((HERE / "results" / "cpu.json").read_text())["figures"]
    shown = [f for f in figures if not f["op"].startswith(("openai", "hseq_stream")) and "MB" not in f["op"]]
    names = [f"{f['op']}\n{f['who']}" for f in shown]
    colours = ["tab:blue" if f["goal"] is None else "tab:gray" for f in shown]
    _, axes = plt.subplots(figsize=(9, 0.42 * len(shown) + 1))
    bars = axes.barh(names, [f["microseconds"] for f in shown], color=colours)
    axes.bar_label(
        bars,
        [f"{f['microseconds']:,.0f}" if f["microseconds"] >= 10 else f"{f['microseconds']:.1f}" for f in shown],
        padding=3,
    )
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per pool, median (logarithmic)")
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(x=0.12, y=0.01)
    plt.tight_layout()
    plt.savefig(HERE.parent / "docs" / "performance.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
