"""What explains an evidence graph: its strongest edges, and the terms that its nodes share there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pyfast import ops
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.retrieval.index import Index
from pyfast.retrieval.pools import Pool

EDGES = 3
"""That are told of a graph, at most"""
_DIGITS = 4
TERMS = 5
"""That are told of an edge, at most"""


@dataclass(frozen=True, slots=True)
class Edge:
    """Between two nodes of a pool, by their places in it."""

    nodes: tuple[int, int]
    weight: float
    terms: tuple[str, ...]
    """Those that weigh most, the heaviest first"""


@dataclass(frozen=True, slots=True, eq=False)
class RankedPool(Pool):
    """The nodes of an evidence graph that were kept: `scores` is what they were ranked by."""

    semantic: Float32
    """[n] the retriever's scores"""
    structural: Float32 | None
    """[n] GraphRank's centralities; None where another ranking has no such score"""
    edges: tuple[Edge, ...]
    """The graph's strongest, the strongest first"""


def traced(index: Index, pool: Pool) -> dict[str, object]:
    """A pool for a trace: each passage with its segment, uri and scores; of a graph the edges between segments."""
    corpus = index.corpus
    segments = index.passages[pool.passages]
    ids = [f"{id:016x}" for id in corpus.ids[segments].tolist()]
    uris = [corpus.uri(source) for source in corpus.source[segments].tolist()]
    columns: dict[str, Sequence[object]] = {"segment": ids, "uri": uris, "score": _told(pool.scores)}
    if not isinstance(pool, RankedPool):
        return {"evidence": _rows(columns)}
    columns["semantic"] = _told(pool.semantic)
    if pool.structural is not None:
        columns["structural"] = _told(pool.structural)
    edges = [
        {
            "segments": [ids[node] for node in edge.nodes],
            "weight": round(edge.weight, _DIGITS),
            "terms": edge.terms,
        }
        for edge in pool.edges
    ]
    return {"evidence": _rows(columns), "edges": edges}


def _told(numbers: Float32) -> list[float]:
    """With as many digits as a reader wants."""
    told: list[float] = np.round(numbers.astype(np.float64), _DIGITS).tolist()
    return told


def _rows(columns: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def strongest_edges(index: Index, offsets: Int64, passages: Int32) -> list[tuple[Edge, ...]]:
    """Of each pool's evidence graph the strongest edges, the strongest first (ties: the earlier nodes)."""
    graph = ops.evidence_graph(index.X, offsets, passages)
    first = np.repeat(np.arange(len(passages)), np.diff(graph.indptr))
    pool = np.searchsorted(offsets, first, side="right") - 1
    second = graph.indices + offsets[pool]
    once = np.flatnonzero(first < second)
    order = once[np.lexsort((second[once], first[once], -graph.weights[once], pool[once]))]
    starts = np.searchsorted(pool[order], np.arange(len(offsets)))
    order = order[np.arange(len(order)) - starts[pool[order]] < EDGES]
    ends = np.searchsorted(pool[order], np.arange(len(offsets)))
    places = np.stack([first[order], second[order]], axis=1) - offsets[pool[order], None]
    terms = _shared(index, passages[first[order]], passages[second[order]])
    edges = [
        Edge((a, b), weight, shared)
        for (a, b), weight, shared in zip(places.tolist(), graph.weights[order].tolist(), terms, strict=True)
    ]
    return [tuple(edges[begin:end]) for begin, end in pairwise(ends.tolist())]


def _shared(index: Index, first: Int32, second: Int32) -> list[tuple[str, ...]]:
    """For each pair of passages the terms that weigh most in their edge: `ops.shared_terms`, of many at once."""
    a, b = index.X[first], index.X[second]
    both = (a.multiply(b > 0) + b.multiply(a > 0)).tocsr()
    found = []
    for begin, end in pairwise(both.indptr.tolist()):
        terms = both.indices[begin:end]
        heaviest = np.lexsort((terms, -both.data[begin:end]))[:TERMS]
        found.append(tuple(map(index.terms.__getitem__, terms[heaviest].tolist())))
    return found
