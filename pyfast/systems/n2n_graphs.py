"""Recompute the evidence graphs of an `n2n` question from the run's index, with the terms that explain their
edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from pyfast.ops.arrays import Int32, Int64, stack
from pyfast.ops.evidence_graph import evidence_graph
from pyfast.retrieval import Index
from pyfast.retrieval.rerank import TERMS, expand, segment_ids, strongest_shared_terms
from pyfast.systems.traces import Listed, Step

HELD = 1 << 19
"""The maximum number of passage pairs in memory. With more, all of them are dropped"""


class SharedTerms:
    """Finds the strongest shared terms of passage pairs in one index, only once per pair."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._pairs = np.array([np.iinfo(np.int64).max])  # sorted: the lower row of the two, then the higher one
        self._terms = np.full((1, TERMS), -1, np.int32)  # the terms of each pair, then -1

    def find(self, X: csr_array, first: Int32, second: Int32) -> tuple[Int64, Int32]:
        """Return the same as `strongest_shared_terms`. `X` must be the same in each call."""
        pairs = np.minimum(first, second).astype(np.int64) << 32 | np.maximum(first, second)
        places = np.searchsorted(self._pairs, pairs)
        unknown = np.unique(pairs[self._pairs[places] != pairs])
        if len(unknown):
            self._add(X, unknown)
            places = np.searchsorted(self._pairs, pairs)
        terms = self._terms[places]
        edge, place = np.nonzero(terms >= 0)
        if len(self._pairs) > HELD:
            self._forget()
        return edge, terms[edge, place]

    def _add(self, X: csr_array, pairs: Int64) -> None:
        """Find the terms of new pairs, given in sorted order."""
        pair, found = strongest_shared_terms(X, (pairs >> 32).astype(np.int32), pairs.astype(np.int32))
        terms = np.full((len(pairs), TERMS), -1, np.int32)
        terms[pair, np.arange(len(pair)) - np.searchsorted(pair, pair)] = found
        places = np.searchsorted(self._pairs, pairs)
        self._pairs = np.insert(self._pairs, places, pairs)
        self._terms = np.insert(self._terms, places, terms, axis=0)


STRONGEST = 2
"""How many of its strongest edges each node keeps. An edge is in the graph if at least one of its two nodes
keeps it"""
Graph = dict[str, Any]
"""A graph in JSON types: its `step`, the ids of its `nodes`, and its edges in flat lists (see `_edges`)"""


@dataclass(frozen=True, slots=True)
class Pool:
    """The passages (nodes) of one evidence graph before pruning, in the order of retrieval."""

    question: int
    """The question's number among those whose graphs are computed together"""
    step: str
    query: str
    retrieved: tuple[str, ...]
    kept: tuple[str, ...]


def pools_of(steps: Sequence[Step], question: int, text: str) -> list[Pool]:
    """Find the pools that n2n ranked: one for each hop with a pruned pool, and one for the final graph.
    `question` is the question's number, and `text` its text."""
    evidence = steps[-1].lists[-1].segments
    pools = []
    for step in steps:
        names = {each.name: each.segments for each in step.lists}
        if "candidates" in names:
            pools.append(Pool(question, step.name, text, names["candidates"], evidence))
        elif "kept" in names:
            pools.append(Pool(question, step.name, step.query, names["retrieved"], names["kept"]))
    return pools


def graphs_of(
    pools: Sequence[Pool],
    index: Index,
    segments: Mapping[str, int],
    settings: Mapping[str, Any],
    shared_terms: SharedTerms,
) -> list[tuple[Pool, Graph]]:
    """Compute the graph of each pool: its passages, and the strongest edges with their shared terms. Pools without
    a known passage are left out.

    For its ranking, the run used a graph of the same passages with more edges. With the ranking
    `bridge_rank`, terms of the question do not count as shared. With `graph_rank`, all terms count. Nodes are
    in this order: retrieved passages, passages that expansion added, all other kept passages. `segments` maps
    the id of each segment of the pools to its position in the corpus.

    `index` must contain only the documents that the questions could see.
    """
    rows = _rows(index, segments)
    pools = [pool for pool in pools if any(id in rows for id in pool.retrieved)]
    if not pools or settings.get("graph") is False:
        return []
    masked = None
    if settings.get("ranking", "bridge_rank") == "bridge_rank":
        masked = stack([index.question_terms(pool.query) for pool in pools], np.int32)
    expands = masked is not None and settings.get("expand", True)
    expanded = _expanded(index, pools, rows, masked) if masked is not None and expands else [{} for _ in pools]
    nodes = []
    for pool, joined in zip(pools, expanded, strict=True):
        rows |= joined
        nodes.append([id for id in dict.fromkeys([*pool.retrieved, *joined, *pool.kept]) if id in rows])
    edges = _edges(index, [[rows[id] for id in ids] for ids in nodes], masked, shared_terms)
    return [
        (pool, {"step": pool.step, "nodes": ids, **of_pool})
        for pool, ids, of_pool in zip(pools, nodes, edges, strict=True)
    ]


def _rows(index: Index, segments: Mapping[str, int]) -> dict[str, int]:
    """Return the rows of the forward index by segment id. Segments that are not passages are left out."""
    places = np.array(list(segments.values()), np.int64)
    rows = np.searchsorted(index.passages, places)
    known = rows < len(index.passages)
    known[known] = index.passages[rows[known]] == places[known]
    return {id: row for id, row, there in zip(segments, rows.tolist(), known.tolist(), strict=True) if there}


def _expanded(
    index: Index, pools: Sequence[Pool], rows: Mapping[str, int], terms: tuple[Int64, Int32]
) -> list[dict[str, int]]:
    """Return the passages that `bridge_expand` adds to each pool, as a mapping from their ids to their rows
    in the forward index.
    """
    offsets, passages = stack([[rows[id] for id in pool.retrieved if id in rows] for pool in pools], np.int32)
    ends, joined, _ = expand(index, offsets, passages, np.zeros(len(passages), np.float32), terms)
    new = np.ones(len(joined), bool)
    sizes = np.diff(offsets)
    new[np.arange(len(passages)) - np.repeat(offsets[:-1] - ends[:-1], sizes)] = False  # own passages come first
    ids, found = segment_ids(index, index.passages[joined[new]]), joined[new].tolist()
    at = np.concatenate([[0], np.cumsum(np.diff(ends) - sizes)]).tolist()
    return [dict(zip(ids[first:last], found[first:last], strict=True)) for first, last in pairwise(at)]


def _edges(
    index: Index, pools: Sequence[Sequence[int]], masked: tuple[Int64, Int32] | None, shared_terms: SharedTerms
) -> list[dict[str, Any]]:
    """Compute the strongest edges of each node in each pool. If `masked` is given, its terms do not count as
    shared.

    For each pool, `ends` contains the two nodes of each edge, and `weights` its weight. `terms` contains the
    strongest shared terms of all edges, edge after edge, and `counts` the number of these terms per edge.
    """
    offsets, passages = stack(pools, np.int32)
    weight: Literal["sum", "dot"] = "sum" if masked is None else "dot"
    x = index.rows(passages)
    graph = evidence_graph(x, offsets, passages, weight=weight, top_k=STRONGEST, mask_terms=masked)
    first = np.repeat(np.arange(len(passages)), np.diff(graph.indptr))
    pool = np.searchsorted(offsets, first, side="right") - 1
    second = graph.indices + offsets[pool]
    low, high = np.minimum(first, second), np.maximum(first, second)
    once = np.sort(np.unique(low * len(passages) + high, return_index=True)[1])  # both ends may have chosen it
    low, high, pool = low[once], high[once], pool[once]
    edge, terms = shared_terms.find(x, passages[low], passages[high])
    if masked is not None:
        hidden = np.repeat(np.arange(len(pools)), np.diff(masked[0])) * x.shape[1] + masked[1]
        shown = ~np.isin(pool[edge] * x.shape[1] + terms, hidden)
        edge, terms = edge[shown], terms[shown]
    ends = (np.stack([low, high], axis=1) - offsets[pool, None]).ravel().tolist()
    weights, names = np.round(graph.weights[once].astype(float), 4).tolist(), index.terms.names(terms)
    counts = np.bincount(edge, minlength=len(once)).tolist()
    edges = np.searchsorted(pool, np.arange(len(pools) + 1))
    return [
        {"ends": ends[2 * a : 2 * b], "weights": weights[a:b], "counts": counts[a:b], "terms": names[first:last]}
        for (a, b), (first, last) in zip(
            pairwise(edges.tolist()), pairwise(np.searchsorted(edge, edges).tolist()), strict=True
        )
    ]


def with_joined(steps: Sequence[Step], graphs: Sequence[Graph]) -> list[Step]:
    """Return the steps. If expansion added passages to a step's graph, a list of these passages is inserted
    after the step's first list.
    """
    nodes = {graph["step"]: graph["nodes"] for graph in graphs}
    made = []
    for step in steps:
        before = set(step.lists[0].segments) if step.name in nodes else set()
        joined = tuple(id for id in nodes.get(step.name, ()) if id not in before)
        lists = (step.lists[0], Listed("joined by expansion", joined), *step.lists[1:]) if joined else step.lists
        made.append(replace(step, lists=lists))
    return made
