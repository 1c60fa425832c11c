"""The token graph against its definition, edge by edge; and at its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyfast.systems.graph_convqa.graph import Chain, TokenGraph, token_graph


@st.composite
def chains(draw: st.DrawFn) -> list[Chain]:
    found = []
    for _ in range(draw(st.integers(0, 6))):
        length = draw(st.integers(1, 12))
        cuts = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
        mentions = [(a, b - 1, draw(st.integers(0, 3))) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
        found.append(Chain(tuple(draw(st.integers(0, 99)) for _ in range(length)), tuple(mentions)))
    return found


def edges(graph: TokenGraph) -> list[tuple[int, int]]:
    """(source, destination) in the order of storage."""
    destination = np.repeat(np.arange(len(graph.tokens)), np.diff(graph.indptr))
    return list(zip(graph.indices.tolist(), destination.tolist(), strict=True))


def written_out(kept: list[Chain]) -> set[tuple[int, int]]:
    """Section 4.3, one edge after the other."""
    found, mentions, begin = set(), [], 0
    for chain in kept:
        found |= {(begin + i, begin + i + 1) for i in range(len(chain.tokens) - 1)}
        mentions += [(begin + first, begin + last, entity) for first, last, entity in chain.mentions]
        begin += len(chain.tokens)
    for i, (_, last, entity) in enumerate(mentions):
        for j, (first, _, other) in enumerate(mentions):
            if i != j and entity == other:
                found.add((last, first))
    return found


@given(chains())
def test_edges_are_those_of_the_definition(given_: list[Chain]) -> None:
    graph = token_graph(given_, 10_000)
    assert graph.tokens.tolist() == [token for chain in given_ for token in chain.tokens]
    found = edges(graph)
    assert len(found) == len(set(found)) and set(found) == written_out(given_)
    assert found == sorted(found, key=lambda edge: (edge[1], edge[0]))
    assert graph.items == len(given_)


@given(chains(), st.integers(0, 40))
def test_what_has_no_room_is_dropped_from_the_last(given_: list[Chain], max_nodes: int) -> None:
    graph = token_graph(given_, max_nodes)
    assert len(graph.tokens) <= max_nodes
    lengths = [len(chain.tokens) for chain in given_]
    whole = [n for n in range(len(given_) + 1) if sum(lengths[:n]) <= max_nodes][-1]
    if whole or not given_ or not max_nodes:
        assert graph.items == whole and set(edges(graph)) == written_out(given_[:whole])
    else:
        assert graph.items == 1 and graph.tokens.tolist() == list(given_[0].tokens[:max_nodes])


def test_a_link_goes_from_the_end_of_a_mention_to_the_beginnings_of_the_others() -> None:
    two = [Chain((1, 2, 3), ((0, 1, 7),)), Chain((4, 1, 2), ((1, 2, 7),))]
    assert set(edges(token_graph(two, 99))) == {(0, 1), (1, 2), (3, 4), (4, 5), (1, 4), (5, 0)}


def test_thousands_of_nodes() -> None:
    many = [Chain(tuple(range(40)), ((0, 2, 0), (5, 6, i % 50))) for i in range(200)]
    graph = token_graph(many, 5_000)
    assert graph.items == 125 and len(graph.tokens) == 5_000
    assert set(edges(graph)) == written_out(many[:125])


@pytest.mark.parametrize("max_nodes", [0, 5])
def test_no_evidence_is_no_graph(max_nodes: int) -> None:
    graph = token_graph([], max_nodes)
    assert (graph.tokens.size, graph.indices.size, graph.indptr.tolist(), graph.items) == (0, 0, [0], 0)
