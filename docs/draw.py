"""Draw pictures of the docs: the evidence graph of a question, quality against cost, the ops beside their peers.

python docs/draw.py        # writes evidence-graph.svg, quality.svg and performance.svg into docs/images
"""

import json
import re
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import pyfast
from pyfast.retrieval.rerank import strongest_shared_terms

DOCS = Path(__file__).resolve().parent
QUESTION = "In which year was the moon on which the probe Huygens landed discovered?"
NEEDED = ("Cassini-Huygens was a joint mission", "moons | Moon: Titan")
"""The beginnings of the passages that the answer needs"""
PASSAGES, WIDTH = 8, 22
DARK = "<style>@media (prefers-color-scheme: dark) {svg {filter: invert(.88) hue-rotate(180deg)}}</style>"


def main() -> None:
    """Draw all."""
    # Small figures: their letters can be read on a phone. The same input gives the same small file.
    mpl.rcParams |= {"svg.hashsalt": "pyfast", "svg.fonttype": "none", "font.size": 11}
    draw_graph()
    draw_quality()
    draw_ops()


def save(name: str) -> None:
    """Write the current figure as SVG, with inverted colours where the reader prefers the dark."""
    path = DOCS / "images" / name
    plt.savefig(path, facecolor="white", metadata={"Date": None})
    path.write_text(path.read_text(encoding="utf-8").replace("<defs>", f"{DARK}<defs>", 1), encoding="utf-8")


def draw_graph() -> None:
    """Search, and draw a node for each passage, and edges with the terms that two passages share."""
    with TemporaryDirectory() as place:
        index = pyfast.build_index(DOCS.parent / "examples" / "corpus", Path(place, "IDX"))
        (pool,) = index.search([QUESTION], PASSAGES)
        x, texts = index.rows(pool.passages), [index.text(int(passage)) for passage in pool.passages]
        graph = pyfast.ops.evidence_graph(x, [0, len(pool)], pool.passages, weight="dot", top_k=2)
        first = np.repeat(np.arange(len(pool)), np.diff(graph.indptr)).astype(np.int32)
        pairs, terms = strongest_shared_terms(x, pool.passages[first], pool.passages[graph.indices])
        names = index.names(terms)
    drawn = nx.Graph()
    for edge, (one, other, weight) in enumerate(zip(first, graph.indices, graph.weights, strict=True)):
        shared = [name for pair, name in zip(pairs, names, strict=True) if pair == edge][:2]
        drawn.add_edge(int(one), int(other), weight=float(weight), shared=", ".join(shared))
    drawn = drawn.subgraph(max(nx.connected_components(drawn), key=len))
    spots = nx.kamada_kawai_layout(drawn, weight=None)
    _, axes = plt.subplots(figsize=(6, 5.4))
    nx.draw_networkx_edges(
        drawn,
        spots,
        ax=axes,
        edge_color="#7f7f7f",
        width=[1 + 4 * weight for *_, weight in drawn.edges(data="weight")],
    )
    nx.draw_networkx_edge_labels(
        drawn,
        spots,
        nx.get_edge_attributes(drawn, "shared"),
        ax=axes,
        font_size=10.5,
        font_color="#1f4e79",
        label_pos=0.42,  # not in the middle, where lines cross
        rotate=False,
    )
    for node, spot in spots.items():
        needed = texts[node].startswith(NEEDED)
        box = {
            "boxstyle": "round,pad=0.4",
            "facecolor": "#ffe9a8" if needed else "#eef3f8",
            "edgecolor": "#444444",
        }
        said = "\n".join(textwrap.wrap(texts[node], WIDTH, max_lines=4, placeholder=" …"))
        axes.text(*spot, said, ha="center", va="center", fontsize=10.5, bbox=box)
    axes.margins(0.2, 0.1)
    axes.axis("off")
    plt.tight_layout(pad=0.2)
    save("evidence-graph.svg")


def draw_quality() -> None:
    """Draw F1 against tokens, as the tables of docs/quality.md have them: a panel for each set of questions."""
    page = (DOCS / "quality.md").read_text(encoding="utf-8")
    head = r"\| system \| EM \| F1 \| LLM calls \| tokens \|"
    tables = re.findall(rf"^([^,\n]+).*:\n\n{head}.*\n\|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    _, panels = plt.subplots(len(tables), 1, figsize=(5.6, 3.1 * len(tables)), squeeze=False)
    for axes, (title, table) in zip(panels.flat, tables, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in table.splitlines():
            name, _, f1, _, tokens, *_ = [cell.strip() for cell in row.strip("|").split("|")]
            points = lines.setdefault(name.partition(", `sure")[0].replace("`", ""), [])
            points.append((float(tokens.replace(",", "")), float(f1.split()[0])))
        for (name, points), look in zip(lines.items(), ("D", "s", "o-", "^--"), strict=True):
            order = 3 if len(points) == 1 else 2  # a point alone is not hidden by a line
            axes.plot(*zip(*points, strict=True), look, label=name, markersize=7, zorder=order)
        axes.set(title=title, xlabel="tokens of a question", ylabel="F1", xlim=(0, None), ylim=(0, 0.7))
        axes.legend(loc="lower right", fontsize=10)
    plt.tight_layout(pad=0.4)
    save("quality.svg")


def draw_ops() -> None:
    """Draw the times that `pytest benchmarks --save-results` keeps: each op and the libraries beside it."""
    kept = json.loads((DOCS.parent / "benchmarks" / "results" / "cpu.json").read_text(encoding="utf-8"))["figures"]
    compared = {one["op"] for one in kept if one["goal"] is not None}
    ops: dict[str, list[tuple[str, float]]] = {}
    for one in kept:
        if one["op"] in compared and not one["op"].startswith(("openai", "hseq_stream")) and "MB" not in one["op"]:
            ops.setdefault(one["op"], []).append((one["who"], one["microseconds"]))
    figure, panels = plt.subplots(
        len(ops),
        1,
        figsize=(6, 0.28 * sum(map(len, ops.values())) + 0.42 * len(ops) + 0.6),
        sharex=True,
        height_ratios=[len(bars) for bars in ops.values()],
    )
    for axes, (op, bars) in zip(panels, ops.items(), strict=True):
        names, times = zip(*bars, strict=True)
        drawn = axes.barh(
            names, times, color=["tab:blue" if name.startswith("pyfast") else "tab:gray" for name in names]
        )
        axes.bar_label(drawn, [f"{time:,.0f}" if time >= 10 else f"{time:.1f}" for time in times], padding=3)
        axes.set_title(op, loc="left", fontsize=11, fontweight="bold", pad=3)
        axes.set(xscale="log", xlim=(1, 1e8))
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelbottom=axes is panels[-1])
    figure.supxlabel("microseconds, median (logarithmic)", fontsize=11)
    plt.tight_layout(pad=0.3, h_pad=0.4)
    save("performance.svg")


if __name__ == "__main__":
    main()
