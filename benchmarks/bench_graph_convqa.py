"""graph_convqa's own work a turn, beside PyG: the token graph, and the encoder over it, on real evidence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring import FIGURES, THREADS, Figure, Measure, open_index

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv

from pyfast.engine import read_questions
from pyfast.ops.arrays import thread_count
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape
from pyfast.systems.graph_convqa.entities import linearise
from pyfast.systems.graph_convqa.evidence_items import find_evidence_items
from pyfast.systems.graph_convqa.graph import Chain, TokenGraph, token_graph

TURNS, HIDDEN = 20, 576
SIZES = [20, 100]
"""Pieces of evidence"""


@pytest.fixture(scope="module", params=SIZES)
def chains(data: Path, request: pytest.FixtureRequest) -> list[list[Chain]]:
    """Of real turns. Words stand for tokens: a tokenizer's are some more, and no part of what is measured."""
    index = open_index(request, data / "convmix" / "corpus.jsonl")
    asked = [question.text for question in read_questions(data / "convmix" / "questions.jsonl", TURNS)]
    return [
        [chain(line, spans) for line, spans in zip(linear.lines, linear.spans, strict=True)]
        for linear in linearise(index, find_evidence_items(index, asked, 4 * request.param, request.param))
    ]


def chain(line: str, spans: Any) -> Chain:
    """A line's words, and which of them name an entity."""
    words = line.split()
    ends = np.cumsum([len(word) + 1 for word in words])
    mentions = [(int(np.searchsorted(ends, a, "right")), int(np.searchsorted(ends, b)), e) for a, b, e in spans]
    return Chain(tuple(hash(word) % 49_152 for word in words), tuple(mentions))


@pytest.fixture(scope="module")
def graphs(chains: list[list[Chain]]) -> list[TokenGraph]:
    return [token_graph(each, 10_000) for each in chains]


def as_people_write_it(chains: list[Chain]) -> Data:
    """The same graph as one writes it for PyG: edge after edge into a list, then a tensor."""
    tokens: list[int] = []
    edges: set[tuple[int, int]] = set()
    mentions: list[tuple[int, int, int]] = []
    for one in chains:
        begin = len(tokens)
        tokens.extend(one.tokens)
        edges.update((begin + i, begin + i + 1) for i in range(len(one.tokens) - 1))
        mentions.extend((begin + first, begin + last, entity) for first, last, entity in one.mentions)
    for i, (_, last, entity) in enumerate(mentions):
        edges.update((last, first) for j, (first, _, e) in enumerate(mentions) if i != j and e == entity)
    return Data(x=torch.tensor(tokens), edge_index=torch.tensor(sorted(edges)).view(-1, 2).T)


def note(benchmark: Any, name: str, who: str, goal: float | None, work: Any) -> None:
    benchmark.group = name
    benchmark.pedantic(work, rounds=5, warmup_rounds=1)
    if benchmark.stats is not None:
        FIGURES.append(Figure(name, who, benchmark.stats.stats.median * 1e6 / TURNS, goal))


def name(what: str, graphs: list[TokenGraph]) -> str:
    nodes, edges = (int(np.mean([len(getattr(g, part)) for g in graphs])) for part in ("tokens", "indices"))
    return f"{what} {nodes} nodes {edges} edges"


def test_token_graph(chains: list[list[Chain]], graphs: list[TokenGraph], benchmark: Any) -> None:
    note(benchmark, name("token_graph", graphs), "pyfast", None, lambda: [token_graph(c, 10_000) for c in chains])


def test_token_graph_written_out(chains: list[list[Chain]], graphs: list[TokenGraph], measure: Measure) -> None:
    def compare() -> None:
        for one, graph in zip(chains, graphs, strict=True):
            peer = as_people_write_it(one)
            assert peer.x.tolist() == graph.tokens.tolist()
            destination = np.repeat(np.arange(len(graph.tokens)), np.diff(graph.indptr))
            assert set(map(tuple, peer.edge_index.T.tolist())) == set(
                zip(graph.indices.tolist(), destination.tolist(), strict=True)
            )

    measure.check(compare)
    group = name("token_graph", graphs)
    note(measure.benchmark, group, "Python loops", 1.0, lambda: [as_people_write_it(one) for one in chains])


@pytest.fixture(scope="module")
def encoder() -> GraphEncoder:
    torch.manual_seed(0)
    torch.set_num_threads(thread_count(None))
    return GraphEncoder(Shape(HIDDEN, residual=False)).eval()


def features(graphs: list[TokenGraph]) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(len(graph.tokens), HIDDEN) for graph in graphs]


def test_encoder(graphs: list[TokenGraph], encoder: GraphEncoder, benchmark: Any) -> None:
    x = features(graphs)
    with torch.inference_mode():
        note(
            benchmark,
            name("graph encoder", graphs),
            f"pyfast, {THREADS} threads",
            None,
            lambda: [encoder(a, g) for a, g in zip(x, graphs, strict=True)],
        )


def test_encoder_of_pyg(graphs: list[TokenGraph], encoder: GraphEncoder, measure: Measure) -> None:
    x = features(graphs)
    destinations = [np.repeat(np.arange(len(g.tokens)), np.diff(g.indptr)) for g in graphs]
    edges = [
        torch.from_numpy(np.stack([graph.indices.astype(np.int64), destination]))
        for graph, destination in zip(graphs, destinations, strict=True)
    ]
    peers = []
    for layer in encoder.layers:
        peer = GATv2Conv(HIDDEN, HIDDEN // 2, 2).eval()
        peer.lin_l.load_state_dict(layer.source.state_dict())
        peer.lin_r.load_state_dict(layer.destination.state_dict())
        peer.att.data, peer.bias.data = layer.attention.data[None], layer.bias.data
        peers.append(peer)

    def work() -> list[torch.Tensor]:
        found = []
        for y, edge_index in zip(x, edges, strict=True):
            for peer in peers:
                y = torch.nn.functional.elu(peer(y, edge_index))
            found.append(y)
        return found

    def compare() -> None:
        for found, a, g in zip(work(), x, graphs, strict=True):
            torch.testing.assert_close(encoder(a, g), found, rtol=1e-3, atol=1e-4)

    with torch.inference_mode():
        measure.check(compare)
        note(measure.benchmark, name("graph encoder", graphs), "PyG", 1.0, work)
