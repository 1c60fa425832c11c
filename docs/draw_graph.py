"""Draw the evidence graph of a question, for docs/concepts.md.

python docs/draw_graph.py        # writes docs/images/evidence-graph.svg
"""

import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import pyfast
from pyfast.retrieval.rerank import strongest_shared_terms

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "In which year was the moon on which the probe Huygens landed discovered?"
NEEDED = ("Cassini-Huygens was a joint mission", "moons | Moon: Titan")
"""The beginnings of the passages that the answer needs"""
PASSAGES, WIDTH = 8, 26


def main() -> None:
    """Search, and draw a node for each passage, and edges with the terms that two passages share."""
    mpl.rcParams |= {"svg.hashsalt": "pyfast", "svg.fonttype": "none", "font.size": 10}
    with TemporaryDirectory() as place:
        index = pyfast.build_index(ROOT / "examples" / "corpus", Path(place, "IDX"))
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
    _, axes = plt.subplots(figsize=(8, 4.5))
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
        font_size=10,
        font_color="#1f4e79",
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
        axes.text(*spot, said, ha="center", va="center", fontsize=9.5, bbox=box)
    axes.margins(0.16)
    axes.axis("off")
    plt.tight_layout()
    plt.savefig(ROOT / "docs" / "images" / "evidence-graph.svg", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
