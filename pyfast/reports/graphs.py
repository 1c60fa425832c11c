"""The evidence graphs of a question of `n2n`, computed again from the run's index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pyfast import ops
from pyfast.ops.arrays import stack
from pyfast.reports.passages import PassageFinder
from pyfast.reports.paths import Step
from pyfast.retrieval import Index
from pyfast.retrieval.rerank import expand
from pyfast.retrieval.strongest_edges import strongest_shared_terms

STRONGEST = 2
"""The number of edges of each node"""


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of one graph before pruning, in the order of retrieval."""

    step: str
    query: str
    retrieved: tuple[str, ...]
    kept: tuple[str, ...]


def pools_of(steps: Sequence[Step], question: str) -> list[Pool]:
    """The pools of n2n's steps: each hop that was pruned, and the final graph."""
    evidence = steps[-1].lists[-1].segments
    pools = []
    for step in steps:
        names = {each.name: each.segments for each in step.lists}
        if "candidates" in names:
            pools.append(Pool(step.name, question, names["candidates"], evidence))
        elif "kept" in names:
            pools.append(Pool(step.name, step.query, names["retrieved"], names["kept"]))
    return pools


def graphs_of(pools: Sequence[Pool], finder: PassageFinder, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The graph of each pool: the kept nodes, and the strongest edges with their shared terms.

    It is the same graph that the run's ranking used. `bridge_rank` uses a graph without the terms of the question,
    `graph_rank` a graph with all terms. If the index is gone, there are no graphs.
    """
    index = finder.index
    if index is None or not pools or settings.get("graph") is False:
        return []
    bridges = settings.get("ranking", "bridge_rank") == "bridge_rank"
    graphs = []
    for pool in pools:
        rows = _rows(index, finder, pool.retrieved)
        if not rows:
            continue
        expanded = _expanded(index, pool, rows) if bridges and settings.get("expand", True) else []
        nodes = list(dict.fromkeys([*pool.retrieved, *expanded, *pool.kept]))
        rows = _rows(index, finder, nodes)
        nodes = [id for id in nodes if id in rows]
        graphs.append(
            {
                "step": pool.step,
                "query": pool.query,
                "nodes": [_node(id, pool) for id in nodes],
                "edges": _edges(index, [rows[id] for id in nodes], pool.query if bridges else None),
            }
        )
    return graphs


def _rows(index: Index, finder: PassageFinder, ids: Sequence[str]) -> dict[str, int]:
    """The rows of the forward index by segment id."""
    segments = finder.segments(ids)
    rows = np.searchsorted(index.passages, np.array(list(segments.values()), np.int64)).tolist()
    return {
        id: row
        for (id, segment), row in zip(segments.items(), rows, strict=True)
        if row < len(index.passages) and index.passages[row] == segment
    }


def _expanded(index: Index, pool: Pool, rows: Mapping[str, int]) -> list[str]:
    """The ids of what `bridge_expand` joined to a pool."""
    passages = np.array([rows[id] for id in pool.retrieved if id in rows], np.int32)
    terms = stack([index.question_terms(pool.query)], np.int32)
    offsets = np.array([0, len(passages)], np.int64)
    _, joined, _ = expand(index, offsets, passages, np.zeros(len(passages), np.float32), terms)
    return [f"{id:016x}" for id in index.corpus.ids[index.passages[joined[len(passages) :]]].tolist()]


def _node(id: str, pool: Pool) -> dict[str, Any]:
    kept = pool.kept.index(id) + 1 if id in pool.kept else None
    rank = pool.retrieved.index(id) + 1 if id in pool.retrieved else None
    return {"id": id, "kept": kept, "retrieved": rank}


def _edges(index: Index, rows: Sequence[int], query: str | None) -> list[dict[str, Any]]:
    """The strongest edges of each node; with a query, without its terms."""
    passages, offsets = np.array(rows, np.int32), np.array([0, len(rows)], np.int64)
    masked = None if query is None else stack([index.question_terms(query)], np.int32)
    weight: Literal["sum", "dot"] = "sum" if query is None else "dot"
    x = index.rows(passages)
    graph = ops.evidence_graph(x, offsets, passages, weight=weight, top_k=STRONGEST, mask_terms=masked)
    first = np.repeat(np.arange(len(rows)), np.diff(graph.indptr))
    pairs: dict[tuple[int, int], float] = {}
    for a, b, value in zip(first.tolist(), graph.indices.tolist(), graph.weights.tolist(), strict=True):
        pairs[min(a, b), max(a, b)] = value
    if not pairs:
        return []
    ends = np.array(list(pairs), np.int64)
    terms = strongest_shared_terms(x, passages[ends[:, 0]], passages[ends[:, 1]])
    hidden = set() if masked is None else set(masked[1].tolist())
    return [
        {
            "ends": pair,
            "weight": round(value, 4),
            "terms": [index.terms[one] for one in shared if one not in hidden],
        }
        for (pair, value), shared in zip(pairs.items(), terms, strict=True)
    ]
