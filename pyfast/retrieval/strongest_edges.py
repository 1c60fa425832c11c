"""Describe evidence graphs for the trace of a question: passages with scores, the strongest edges, and their
terms.

To save time, one call of a function works on the graphs of many questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
import orjson
from scipy.sparse import csr_array

import pyfast.ops as ops
from pyfast.ops.arrays import Float32, Int32, Int64, places_of
from pyfast.retrieval.index import Index
from pyfast.retrieval.pools import Pool, stack_pools

EDGES = 3
"""The maximum number of edges of each graph in the trace"""
TERMS = 5
"""The maximum number of terms of an edge in the trace"""
_DIGITS = 4
_ID, _NEXT = 16, 19  # characters, see `_joined_ids`

Trace = dict[str, "list[dict[str, Any]] | orjson.Fragment | PassageList"]
"""A part of a trace. A native op writes long lists as JSON. Making a dict for each passage would take as long
as ranking the passages"""


class PassageList:
    """A pool in a trace. When the question ends, the engine writes it as a list of segments.

    The lists of many questions are written together. Writing each by itself takes several times as long.
    """

    __slots__ = ("pool", "scored", "segments")

    def __init__(self, pool: Pool, scored: bool) -> None:
        """`scored`: each segment is an object with its id and its score, and not only its id."""
        self.pool, self.scored = pool, scored
        self.segments: list[dict[str, Any]] | orjson.Fragment = []
        """The segments in JSON types, after `write_lists`"""


@dataclass(frozen=True, slots=True, eq=False)
class RankedPool(Pool):
    """The nodes of an evidence graph that are kept after pruning, with the scores of the ranking."""

    trace: Trace
    """The description of this pool for the trace of its question. `evidence` is JSON: each node with its segment,
    uri and scores. If `RerankConfig.edges` is True, `edges` has the strongest edges
    """


def traced(pool: Pool) -> Trace:
    """Describe a pool for the trace. If the pool was not ranked, the trace gets only its segments and scores.

    Args:
        pool: A ranked pool, or a pool as a search returned it.

    Returns:
        The description, for the trace of an `Answer`. The engine writes its values as JSON.
    """
    return pool.trace if isinstance(pool, RankedPool) else {"evidence": PassageList(pool, scored=True)}


def segment_ids(index: Index, segments: Int64) -> list[str]:
    """Return the ids of segments for a trace. An id has 16 hexadecimal digits.

    Args:
        index: The index.
        segments: int64[n], positions in the corpus.

    Returns:
        The ids, in the order of `segments`.
    """
    # One text of all ids is quicker to make than each id by itself.
    ids = _joined_ids(index, segments)
    return [ids[at : at + _ID] for at in range(0, len(ids), _NEXT)]


def _joined_ids(index: Index, segments: Int64) -> str:
    """Return the ids of segments as one text. An id has `_ID` characters, and the next id begins `_NEXT`
    characters after it. With `"` before and after it, the text is the inside of a JSON array.
    """
    return index.corpus.ids[segments].astype(">u8").tobytes().hex("|", 8).replace("|", '","')


def _id(ids: str, at: int) -> str:
    return ids[_NEXT * at : _NEXT * at + _ID]


def pool_ids(pool: Pool) -> PassageList:
    """Describe a pool for the trace by the ids of its segments, in the order of the pool.

    Args:
        pool: A pool of the index that the question searches.

    Returns:
        The list, for the trace of an `Answer`. The engine writes it as one id for each passage.
    """
    return PassageList(pool, scored=False)


def write_lists(index: Index, lists: Sequence[PassageList]) -> None:
    """Write lists of passages in JSON types: set their `segments`.

    Args:
        index: The index of the pools.
        lists: The lists, for example of many questions.
    """
    offsets, passages, scores = stack_pools([one.pool for one in lists])
    ids, rounded = _joined_ids(index, index.passages[passages]), _rounded(scores)
    for one, (begin, end) in zip(lists, pairwise(offsets.tolist()), strict=True):
        if one.scored:
            one.segments = [
                {"segment": _id(ids, at), "score": score}
                for at, score in zip(range(begin, end), rounded[begin:end], strict=True)
            ]
        elif begin < end:
            one.segments = orjson.Fragment(f'["{ids[_NEXT * begin : _NEXT * (end - 1) + _ID]}"]')


def traces(
    index: Index, offsets: Int64, passages: Int32, scores: Mapping[str, Float32], with_edges: bool
) -> list[Trace]:
    """Describe the evidence graphs of these pools for traces. `scores` maps each name of a score, such as
    `semantic`, to the scores of all passages.

    If `with_edges` is True, a description also has the strongest edges.
    """
    segments, corpus = index.passages[passages], index.corpus
    corpus.check_names(segments)
    nodes = ops.list_segments(corpus.columns, offsets, segments, scores)
    made: list[Trace] = [{"evidence": orjson.Fragment(evidence)} for evidence in nodes]
    if with_edges:
        ids, starts = _joined_ids(index, segments), offsets.tolist()
        edges = _strongest_edges(index, offsets, passages)
        for trace, first, of_pool in zip(made, starts, edges, strict=False):
            trace["edges"] = [
                {"segments": [_id(ids, first + a), _id(ids, first + b)], "weight": weight, "terms": terms}
                for a, b, weight, terms in of_pool
            ]
    return made


def _rounded(numbers: Float32) -> list[float]:
    """Round numbers for a trace."""
    rounded: list[float] = np.round(numbers.astype(np.float64), _DIGITS).tolist()
    return rounded


def _strongest_edges(
    index: Index, offsets: Int64, passages: Int32
) -> list[list[tuple[int, int, float, list[str]]]]:
    """Return the strongest edges of each pool's graph, the strongest first. Of equally strong edges, those of
    the earlier nodes come first.

    An edge is (node, node, weight, the shared terms that add most to the weight).
    """
    x = index.rows(passages)
    # An edge that is among a pool's strongest is also among the strongest of its first node.
    graph = ops.evidence_graph(x, offsets, passages, top_k=EDGES)
    first = np.repeat(np.arange(len(passages)), np.diff(graph.indptr))
    pool = np.searchsorted(offsets, first, side="right") - 1
    second = graph.indices + offsets[pool]
    once = np.flatnonzero(first < second)
    # The sort is stable, so equal weights keep the order of the nodes.
    once = once[np.lexsort((-graph.weights[once], pool[once]))]
    once = once[_rank(pool[once], len(offsets)) < EDGES]
    edge, terms = strongest_shared_terms(x, passages[first[once]], passages[second[once]])
    names, counts = iter(index.terms.names(terms)), np.bincount(edge, minlength=len(once)).tolist()
    places = np.stack([first[once], second[once]], axis=1) - offsets[pool[once], None]
    edges = [
        (a, b, weight, list(islice(names, count)))
        for (a, b), weight, count in zip(places.tolist(), _rounded(graph.weights[once]), counts, strict=True)
    ]
    ends = np.searchsorted(pool[once], np.arange(len(offsets))).tolist()
    return [edges[begin:end] for begin, end in pairwise(ends)]


def strongest_shared_terms(X: csr_array, first: Int32, second: Int32) -> tuple[Int64, Int32]:
    """For each pair of passages, find the shared terms that add most to the weight of their edge.

    Returns two arrays with one entry for each of these terms: the number of its pair, and the term. The
    entries are ordered by pair. Within a pair, the strongest term comes first.
    """
    (ends, one), (other_ends, two) = places_of(X.indptr, first), places_of(X.indptr, second)
    numbers, terms = np.arange(len(first)), X.indices[one]
    # The entries of both passages as (pair, term). Two equal entries are a shared term. `multiply` of SciPy takes
    # three times as long.
    keys = (np.repeat(numbers, np.diff(ends)) << 32) + terms
    entries = np.concatenate([keys, (np.repeat(numbers, np.diff(other_ends)) << 32) + X.indices[two]])
    order = np.argsort(entries, kind="stable")
    shared = np.flatnonzero(entries[order[1:]] == entries[order[:-1]])
    here, there = order[shared], order[shared + 1] - len(keys)
    pair, shares = keys[here] >> 32, X.data[one[here]] + X.data[two[there]]
    # Weights are positive float32, so their bits are in the order of the numbers. One sort of integers takes an
    # eighth of the time of `lexsort`. It is stable: equal shares keep the order of the terms.
    order = np.argsort((pair << 32) - shares.view(np.int32), kind="stable")
    order = order[_rank(pair, len(first)) < TERMS]
    return pair[order], terms[here[order]]


def _rank(groups: Int64, count: int) -> Int64:
    """Return the position of each item within its group. `groups` has the group of each item: ascending
    numbers below `count`.
    """
    ranks: Int64 = np.arange(len(groups)) - np.searchsorted(groups, np.arange(count))[groups]
    return ranks
