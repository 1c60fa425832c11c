"""The graph of a turn's evidence: a chain of tokens for each piece, links between mentions of an entity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyfast.ops.arrays import Int32, Int64


@dataclass(frozen=True, slots=True)
class Chain:
    """One piece of evidence in the LLM's tokens."""

    tokens: tuple[int, ...]
    mentions: tuple[tuple[int, int, int], ...] = ()
    """(first token, last token, number of the entity)"""


@dataclass(frozen=True, slots=True, eq=False)
class TokenGraph:
    """Nodes are tokens, in the order in which the LLM will read them. Edges are directed."""

    tokens: Int32
    """[nodes] the LLM's ids"""
    indptr: Int64
    """[nodes + 1]"""
    indices: Int32
    """[edges] the sources of node i, ascending: `indices[indptr[i]:indptr[i + 1]]`"""
    pieces: int
    """How many of the chains are in it, the first ones; the last of them may be cut"""


def token_graph(chains: Sequence[Chain], most: int) -> TokenGraph:
    """The graph of section 4.3 with at most `most` nodes: chains are dropped from the last, the lowest in rank.

    Within a chain each token leads to the next. The last token of a mention leads to the first token of every
    other mention of that entity: what is read there goes on from what was said here. Where already the first
    chain is too long, its tail is dropped.
    """
    lengths = np.cumsum([len(chain.tokens) for chain in chains])
    pieces = int(np.searchsorted(lengths, most, side="right"))
    if pieces == 0 and chains and most > 0:
        first = chains[0]
        inside = tuple(mention for mention in first.mentions if mention[1] < most)
        chains, pieces = [Chain(first.tokens[:most], inside)], 1
    tokens: list[int] = []
    sources: list[Int64] = []
    destinations: list[Int64] = []
    mentions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for chain in chains[:pieces]:
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
    return TokenGraph(np.array(tokens, np.int32), *_csr(sources, destinations, len(tokens)), pieces)


def _csr(sources: Sequence[Int64], destinations: Sequence[Int64], nodes: int) -> tuple[Int64, Int32]:
    """By destination, each edge once."""
    nothing = np.empty(0, np.int64)
    edges = np.unique(np.concatenate([nothing, *destinations]) * nodes + np.concatenate([nothing, *sources]))
    indptr = np.searchsorted(edges, np.arange(nodes + 1) * nodes)
    return indptr.astype(np.int64), (edges % max(nodes, 1)).astype(np.int32)
