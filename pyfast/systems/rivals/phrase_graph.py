"""The graph of phrases and passages in which HippoRAG ranks passages.

Its phrases are the entities of the knowledge graph. Node i is entity i, and the passages come after the entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.sparse import block_array, csr_array

import pyfast.ops as ops
from pyfast.knowledge import Session
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Float32, Int64, places_of
from pyfast.retrieval import Pool
from pyfast.systems.rivals.linking import nearest_allowed

_ROUNDS = 20
"""The maximum number of edges between a node and the nearest seed"""
_SYNONYMS = 20
"""The maximum number of synonyms per seed"""
Float64 = npt.NDArray[np.float64]
Seed = tuple[int, float]
"""An entity from which the walk starts, and its weight"""
_Item = tuple[Session, Sequence[Seed], Pool]
_Synonym = tuple[int, int, float]
"""A seed, an entity with a similar name, and the cosine of the names"""


class Walk(NamedTuple):
    """The numbers on which a walk depends, from the settings with the same names."""

    passage_nodes: bool
    synonyms: float
    damping: float
    nodes: int
    k: int


class _Graph(NamedTuple):
    relations: csr_array
    """[entities, entities] how many triples join two entities"""
    edges: csr_array
    """[nodes, nodes] the same, plus 1 where a passage states a triple with an entity"""


_GRAPHS: WeakKeyDictionary[Session, _Graph] = WeakKeyDictionary()


def _graph(session: Session) -> _Graph:
    """Return a session's graph, which is built once and has no loops."""
    made = _GRAPHS.get(session)
    if made is not None:
        return made
    store, index, size = session.store, session.index, len(session.store.entities)
    usable = np.arange(len(store)) if session.allowed is None else session.allowed
    usable = usable[store.head[usable] != store.tail[usable]]
    ones = np.ones(len(usable), np.float32)
    one_way = csr_array((ones, (store.head[usable], store.tail[usable])), shape=(size, size))
    relations = csr_array(one_way + one_way.T)
    at = session.numbers(store.statements.segments)
    passages, triples = np.tile(at[at >= 0], 2), store.statements.owners[at >= 0]
    phrases = np.concatenate([store.head[triples], store.tail[triples]])
    contexts = csr_array(
        (np.ones(len(phrases), np.float32), (passages, phrases)), shape=(len(index.passages), size)
    )
    contexts.sum_duplicates()
    contexts.data[:] = 1
    made = _Graph(relations, csr_array(block_array([[relations, contexts.T], [contexts, None]], format="csr")))
    _GRAPHS[session] = made
    return made


def ranked_passages(items: Sequence[_Item], store: Knowledge, walk: Walk) -> list[Pool]:
    """Rank passages by Personalised PageRank, in the part of the graph around a question's seeds.

    Args:
        items: For each question: its session, its seed phrases, and its seed passages, whose scores are their
            weights.
        store: The knowledge graph.
        walk: The settings.

    Returns:
        For each question, the best `walk.k` passages. Without passage nodes, a passage's rank is the sum of
        its phrases' ranks.
    """
    parts, size = [], len(store.entities)
    for (session, phrases, pool), synonyms in zip(items, _synonyms(items, store, walk.synonyms), strict=True):
        passages = [(size + passage, weight) for passage, weight in pool if weight > 0]
        restart = dict((*phrases, *(passages if walk.passage_nodes else ())))
        graph = _graph(session)
        parts.append(_part(graph.edges if walk.passage_nodes else graph.relations, restart, synonyms, walk))
    every, shares, matrices = zip(*parts, strict=True)
    ranks = ops.pagerank(ops.EvidenceGraph.from_scipy(*matrices), walk.damping, np.concatenate(shares))
    of_each = np.split(ranks, np.cumsum(list(map(len, every)))[:-1])
    return [
        _best(_graph(session), nodes, rank, size, walk)
        for (session, _, _), nodes, rank in zip(items, every, of_each, strict=True)
    ]


def _synonyms(items: Sequence[_Item], store: Knowledge, least: float) -> list[list[_Synonym]]:
    """Find the entities whose names have a cosine of at least `least` with a seed's name. If `least` is 1,
    there are none."""
    found: list[list[_Synonym]] = [[] for _ in items]
    seeds = [(at, seed) for at, (_, phrases, _) in enumerate(items) for seed, _ in phrases] if least < 1 else []
    if seeds:
        vectors = store.matrix("entities", np.array([seed for _, seed in seeds]))
        nearest = nearest_allowed([items[at][0] for at, _ in seeds], store, "entities", vectors, _SYNONYMS + 1)
        for (at, seed), near in zip(seeds, nearest, strict=True):
            found[at] += [(seed, *pair) for pair in near if pair[0] != seed and pair[1] >= least]
    return found


def _part(
    edges: csr_array, restart: dict[int, float], synonyms: Sequence[_Synonym], walk: Walk
) -> tuple[Int64, Float32, csr_array]:
    """Return the part of the graph around the seeds in `restart`: (its nodes, ascending; the weight of each as a
    seed; its edges)."""
    reached = {other: restart[seed] * cosine for seed, other, cosine in synonyms}
    nodes = _around(edges, {**reached, **restart}, walk)
    weights = np.zeros(len(nodes), np.float32)
    weights[np.searchsorted(nodes, list(restart))] = list(restart.values())
    which, to, weight = _edges_of(edges, nodes)
    at = np.minimum(np.searchsorted(nodes, to), len(nodes) - 1)
    inside = nodes[at] == to
    of_names = {(a, b): cosine for seed, other, cosine in synonyms for a, b in ((seed, other), (other, seed))}
    pairs = np.searchsorted(nodes, np.array(list(of_names), np.int64).reshape(-1, 2))
    rows, columns = (np.concatenate(both) for both in ((which[inside], pairs[:, 0]), (at[inside], pairs[:, 1])))
    data = np.concatenate([weight[inside], np.array(list(of_names.values()), np.float32)])
    return nodes, weights, csr_array((data, (rows, columns)), shape=(len(nodes), len(nodes)))


def _around(edges: csr_array, start: dict[int, float], walk: Walk) -> Int64:
    """Follow the walk step by step from the nodes in `start`, until it reaches no new nodes, or `walk.nodes`
    nodes. In the last step, the nodes that it reaches most often are kept. Nodes in `start` are always
    kept."""
    first, restart = np.array(list(start), np.int64), np.array(list(start.values()))
    nodes, mass = first[np.argsort(first)], restart[np.argsort(first)]
    for _ in range(_ROUNDS):
        which, to, weight = _edges_of(edges, nodes)
        flow = walk.damping * (mass / np.maximum(np.bincount(which, weight, len(nodes)), 1e-9))[which] * weight
        reached, each = np.unique(np.concatenate([first, to]), return_inverse=True)
        mass = np.bincount(each, np.concatenate([restart, flow]))
        if len(reached) > walk.nodes:
            best = np.lexsort((reached, -mass, ~np.isin(reached, first)))
            return np.sort(reached[best[: max(walk.nodes, len(first))]])
        if len(reached) == len(nodes):
            break
        nodes = reached
    return nodes


def _edges_of(graph: csr_array, nodes: Int64) -> tuple[Int64, Int64, Float64]:
    """Return for each edge of the nodes in `nodes`: (the position of its node in `nodes`, the node to which
    it leads, its weight)."""
    offsets, at = places_of(graph.indptr, nodes)
    which = np.repeat(np.arange(len(nodes)), np.diff(offsets))
    return which, graph.indices[at].astype(np.int64), graph.data[at].astype(np.float64)


def _best(graph: _Graph, nodes: Int64, rank: Float32, size: int, walk: Walk) -> Pool:
    targets, scores = nodes, rank
    if not walk.passage_nodes:
        which, to, _ = _edges_of(graph.edges, nodes)
        targets, each = np.unique(to, return_inverse=True)
        scores = np.bincount(each, rank[which], len(targets)).astype(np.float32)
    is_passage = (targets >= size) & (scores > 0)
    passages, scores = targets[is_passage] - size, scores[is_passage]
    order = np.lexsort((passages, -scores))[: walk.k]
    return Pool(passages[order].astype(np.int32), scores[order])
