"""Build the graph of a turn's evidence. Each item of evidence is a chain of tokens. Edges join the places where
items name the same entity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyfast.ops.arrays import Int32, Int64


@dataclass(frozen=True, slots=True)
class Chain:
    """An item of evidence as a chain of the LLM's tokens."""

    tokens: tuple[int, ...]
    mentions: tuple[tuple[int, int, int], ...] = ()
    """(first token, last token, number of the entity) for each mention of an entity"""


@dataclass(frozen=True, slots=True, eq=False)
class TokenGraph:
    """A graph whose nodes are tokens, in the order in which the LLM reads them. Edges are directed."""

    tokens: Int32
    """[nodes] the LLM's token ids"""
    indptr: Int64
    """[nodes + 1] the position in `indices` at which the incoming edges of each node start"""
    indices: Int32
    """[edges] the nodes from which edges lead to node i are `indices[indptr[i]:indptr[i + 1]]`, ascending"""
    items: int
    """How many chains are in the graph: the best-ranked chains. If not even the first chain fits, the graph
    has only the beginning of this chain"""


def token_graph(chains: Sequence[Chain], max_nodes: int) -> TokenGraph:
    """Build the graph of a turn's evidence (section 4.3 of graph_convqa's paper).

    A chain is one item of evidence. Each token of a chain has an edge to the next token. A mention is a place
    where a chain names an entity. The last token of a mention has an edge to the first token of every other
    mention of the same entity.

    Args:
        chains: The items of evidence, best first.
        max_nodes: The maximum number of nodes. If the chains have more tokens, the function leaves out the
            last chains. If the first chain alone is too long, the function leaves out the end of this chain.

    Returns:
        The graph. Its nodes are the tokens of the chains, in order.
    """
    lengths = np.cumsum([len(chain.tokens) for chain in chains])
    items = int(np.searchsorted(lengths, max_nodes, side="right"))
    if items == 0 and chains and max_nodes > 0:
        first = chains[0]
        inside = tuple(mention for mention in first.mentions if mention[1] < max_nodes)
        chains, items = [Chain(first.tokens[:max_nodes], inside)], 1
    tokens: list[int] = []
    sources: list[Int64] = []
    destinations: list[Int64] = []
    mentions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for chain in chains[:items]:
        begin = len(tokens)
        tokens += chain.tokens
        inner = np.arange(begin, len(tokens) - 1)
        sources.append(inner)
        destinations.append(inner + 1)
        for first_token, last_token, entity in chain.mentions:
            mentions[entity].append((begin + first_token, begin + last_token))
    for places in (each for each in mentions.values() if len(each) > 1):
        first_tokens, last_tokens = np.array(places, np.int64).T
        a, b = np.nonzero(~np.eye(len(places), dtype=bool))
        sources.append(last_tokens[a])
        destinations.append(first_tokens[b])
    return TokenGraph(np.array(tokens, np.int32), *_csr(sources, destinations, len(tokens)), items)


def _csr(sources: Sequence[Int64], destinations: Sequence[Int64], nodes: int) -> tuple[Int64, Int32]:
    """Convert the edges to CSR, grouped by destination and without duplicates."""
    nothing = np.empty(0, np.int64)
    edges = np.unique(np.concatenate([nothing, *destinations]) * nodes + np.concatenate([nothing, *sources]))
    indptr = np.searchsorted(edges, np.arange(nodes + 1) * nodes)
    return indptr.astype(np.int64), (edges % max(nodes, 1)).astype(np.int32)
