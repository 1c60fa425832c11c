"""Improve pools (the passages found for a query): join them, rank and prune them by the evidence graph, and apply
N2N-GQA's bridge-aware selector. Describe evidence graphs for the trace of a question: passages with scores, the
strongest edges, and their terms.

The arguments of each function are the index, the items of many questions, and parameters, so that `Context.call`
can join the calls of many questions into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, Literal

import numpy as np
import orjson
from scipy.sparse import csr_array

import pyfast.ops as ops
from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32, Int64, places_of, stack
from pyfast.retrieval.index.index import Index, of_index
from pyfast.retrieval.pools import Pool, Reranker, Retriever, fuse, pair_key, reciprocal_ranks, split, stack_pools
from pyfast.retrieval.terms import cells_of

EDGES = 3
"""The maximum number of edges of each graph in the trace"""
TERMS = 5
"""The maximum number of terms of an edge in the trace"""
_DIGITS = 4

Trace = dict[str, "list[dict[str, Any]] | orjson.Fragment | PassageList"]
"""A part of a trace. A native op writes long lists as JSON. Making a dict for each passage would take as long
as ranking the passages"""


class PassageList:
    """A pool in a trace. When the question ends, the engine writes it as a list of segments.

    The lists of many questions are written together. Writing each by itself takes several times as long.
    """

    __slots__ = ("pool", "scored", "segments")

    def __init__(self, pool: Pool, scored: bool) -> None:
        """`scored`: whether each segment is written as an object with its id and score, not only as its id."""
        self.pool, self.scored = pool, scored
        self.segments: list[dict[str, Any]] | list[str] = []
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
    return index.corpus.ids[segments].astype(">u8").tobytes().hex(" ", 8).split()


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
    ids, rounded = segment_ids(index, index.passages[passages]), _rounded(scores)
    for one, (begin, end) in zip(lists, pairwise(offsets.tolist()), strict=True):
        one.segments = ids[begin:end]
        if one.scored:
            scored = zip(ids[begin:end], rounded[begin:end], strict=True)
            one.segments = [{"segment": segment, "score": score} for segment, score in scored]


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
        ids, starts = segment_ids(index, segments), offsets.tolist()
        edges = _strongest_edges(index, offsets, passages)
        for trace, first, of_pool in zip(made, starts, edges, strict=False):
            trace["edges"] = [
                {"segments": [ids[first + a], ids[first + b]], "weight": weight, "terms": terms}
                for a, b, weight, terms in of_pool
            ]
    return made


def _rounded(numbers: Float32) -> list[float]:
    """Round numbers for a trace."""
    return np.round(numbers.astype(np.float64), _DIGITS).tolist()


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
    names, counts = iter(index.names(terms)), np.bincount(edge, minlength=len(once)).tolist()
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
    return np.arange(len(groups)) - np.searchsorted(groups, np.arange(count))[groups]


Rank = Literal["graph_rank", "bridge_rank"]
Centrality = Literal["degree", "pagerank", "betweenness", "eigenvector"]

# `RerankConfig.expand` adds the nearest NEAREST passages of the best SEEDS passages to a pool.
# benchmarks/recall.py measures it: more seeds, seeds chosen by `bridge_rank`, more neighbours or a longer search
# do not add gold passages to the first 10 or 20.
SEEDS = 3
NEAREST = 5
# The number of passages that a reranker reads, and the length of the list that a search ranks for it.
READ = 30
RANKED = 100
_STORED = 16  # queries whose scores are computed and stored together
_SEEN = 0.01  # scores are at most 1, so a boost of this size changes each of them


@dataclass(frozen=True, slots=True)
class RerankConfig:
    """How a pool is ranked, and how many of its passages the LLM reads."""

    min_nodes: int
    max_nodes: int
    alpha: float = 0.85
    rank: Rank = "graph_rank"
    expand: bool | str = False
    """Which passages of the corpus `bridge_rank` first adds to the pool. False: none. True: passages that
    share terms with the pool's best passages. The name of a retriever, such as `dense`: the passages that
    this retriever finds nearest to the pool's best passages
    """
    centrality: Centrality = "degree"
    """The centrality in the evidence graph that `graph_rank` uses as the structural score of a passage"""
    per_kind: int = 2
    edges: bool = False
    """Whether the trace gets the strongest edges between the nodes that are kept"""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedPool(Pool):
    """A pool to which the bridge-aware selector was applied."""

    linked: bool
    """Whether the best passage and the best table row are linked (phi in equation 3 of N2N-GQA). False if one of
    them is missing"""


@of_index
def rerank_pools(index: Index, items: Sequence[tuple[Pool, str]], how: RerankConfig) -> list[RankedPool]:
    """Rank the nodes of each pool's evidence graph, and keep the best nodes for the context.

    A few native calls serve all pools. With `graph_rank`, the score of a node combines its score from the
    search with its structural score, which is a centrality in the graph. With `bridge_rank`, the op
    `bridge_rank` computes the score of a node. If the index has rerankers, they score the best nodes again.
    Pruning then removes the worst nodes.

    Args:
        index: The index.
        items: Pools, each with its query.
        how: The ranking and the size of the context.

    Returns:
        For each pool, the kept nodes, best first, with their scores.
    """
    (offsets, passages, semantic), scores, structural = _scored(index, items, how.rank, how)
    is_table = index.is_table[passages]
    kept, nodes = ops.prune(scores, is_table, offsets, how.min_nodes, how.max_nodes, how.per_kind)
    places = np.repeat(offsets[:-1], np.diff(kept)) + nodes
    named = {"score": scores, "semantic": semantic, "structural": structural}
    shown = {name: numbers[places] for name, numbers in named.items() if numbers is not None}
    pools = split(kept, passages[places], shown["score"])
    described = traces(index, kept, passages[places], shown, how.edges)
    return [RankedPool(pool.passages, pool.scores, trace) for pool, trace in zip(pools, described, strict=True)]


_Scored = tuple[tuple[Int64, Int32, Float32], Float32, Float32 | None]


def _scored(
    index: Index, items: Sequence[tuple[Pool, str]], rank: Rank | Literal["list"], how: RerankConfig
) -> _Scored:
    """Score the nodes of each pool by a ranking, and then by the rerankers of the index. With `bridge_rank`,
    `how.expand` says which passages to add to a pool first.

    Returns (the pools as in `stack_pools`, the score of each node, its structural score if the ranking uses one).
    """
    queries, structural = [query for _, query in items], None
    offsets, passages, semantic = stack_pools([pool for pool, _ in items])
    if rank == "list":  # The order of the list counts, not its scores.
        scores = -np.arange(len(passages), dtype=np.float32)
    elif rank == "bridge_rank":
        terms = stack(index.terms_of(queries), np.int32)
        if how.expand:
            by = index.retriever_named(how.expand) if isinstance(how.expand, str) else None
            offsets, passages, semantic = expand(index, offsets, passages, semantic, terms, by)
        scores = ops.bridge_rank(index.rows(passages), offsets, passages, semantic, terms)
    else:
        # With alpha 1, structure does not count, so it is left out, also from the trace.
        structural = _structural(index, offsets, passages, how.centrality) if how.alpha < 1 else None
        scores = ops.graph_rank(semantic, semantic if structural is None else structural, offsets, how.alpha)
    if index.rerankers:
        scores = reranked_scores(index, offsets, passages, scores, queries)
    return (offsets, passages, semantic), scores, structural


def _structural(index: Index, offsets: Int64, passages: Int32, centrality: Centrality) -> Float32:
    """Compute the centrality of each node in its pool's evidence graph. The weighted degree comes
    directly from the forward index, without making the graph.
    """
    x = index.rows(passages)
    if centrality == "degree":
        return ops.weighted_degree(x, offsets, passages)
    graph = ops.evidence_graph(x, offsets, passages)
    if centrality == "pagerank":
        return ops.pagerank(graph)
    return ops.betweenness(graph) if centrality == "betweenness" else ops.eigenvector(graph)


def expand(
    index: Index,
    offsets: Int64,
    passages: Int32,
    semantic: Float32,
    terms: tuple[Int64, Int32],
    by: Retriever | None = None,
) -> tuple[Int64, Int32, Float32]:
    """Add to each pool the passages that are most similar to its best passages (`ops.bridge_expand`). Terms
    of the question do not count for the similarity.

    If `by` is a retriever, the passages that it finds nearest to the best passages are added instead.
    `semantic` has the scores of the search. The new passages come last in a pool. They get the lowest score
    of the pool, so that only their edges in the evidence graph can raise them.
    """
    sizes = np.diff(offsets)
    seeds = passages[np.arange(len(passages)) - np.repeat(offsets[:-1], sizes) < SEEDS]
    seed_offsets = np.concatenate([[0], np.cumsum(np.minimum(sizes, SEEDS))])
    if by is None:
        limit = max_entries(len(index.passages))
        found_offsets, nearest, _ = ops.bridge_expand(
            *index.columns(seeds), seed_offsets, seeds, terms, NEAREST, largest_norm=1.0, max_entries=limit
        )
    else:
        found_offsets, nearest, _ = stack_pools(_neighbours(index, by, seeds))
    pools = np.arange(len(offsets) - 1)
    pool = np.concatenate([np.repeat(pools, sizes), np.repeat(pools, np.diff(found_offsets[seed_offsets]))])
    joined = np.concatenate([passages, nearest])
    # Keep each passage of a pool once, at its first place. The pool's own passages come before the added ones.
    _, first = np.unique(pool * len(index.passages) + joined, return_index=True)
    order = first[np.lexsort((first, pool[first]))]
    lowest = np.zeros(len(pools), np.float32)
    some = sizes > 0
    lowest[some] = np.minimum.reduceat(semantic, offsets[:-1][some]) if some.any() else 0.0
    scored = np.concatenate([semantic, lowest[pool[len(passages) :]]])
    return np.searchsorted(pool[order], np.arange(len(offsets))), joined[order], scored[order]


def _neighbours(index: Index, retriever: Retriever, passages: Int32) -> list[Pool]:
    """Find the `NEAREST` passages that are nearest to each passage, without the passage itself.

    A retriever with a method `near(passages, k)` compares the vectors of passages. Any other retriever searches
    for the passage's text.

    """
    distinct, place = np.unique(passages, return_inverse=True)
    if hasattr(retriever, "near"):
        found = retriever.near(distinct, NEAREST + 1)
    else:
        found = retriever.search([index.text(passage) for passage in distinct.tolist()], NEAREST + 1)
    others = []
    for passage, pool in zip(distinct.tolist(), found, strict=True):
        kept = pool.passages != passage
        others.append(Pool(pool.passages[kept], pool.scores[kept]).head(NEAREST))
    return [others[at] for at in place.tolist()]


def max_entries(passages: int) -> int:
    """Return how many entries of the forward index `expand` reads for a seed, in an index with this many passages.

    The more passages have a term, the more entries a search must read before it meets the nearest ones. The result
    is a hundredth of the passages, but at least 250 and at most 2000. With 60,000 passages, fewer than 2000
    entries find as much gold evidence as 2000; with 260,000, 2000 find a little more (`benchmarks/recall.py
    --together 200000 --entries 250,500,1000,2000`).
    """
    return min(max(passages // 100, 250), 2000)


@of_index
def bridge_select(index: Index, pools: Sequence[Pool], beta: float) -> list[SelectedPool]:
    """Apply the bridge-aware selector to pools (algorithm 1 of N2N-GQA).

    Args:
        index: The index.
        pools: The pools.
        beta: The boost. It is added to the score of the best table row. It is also added to the score of the
            best passage of text, unless this passage and the row are linked.

    Returns:
        The pools with their new scores, best first. Each pool says whether its best passage and its best
        table row are linked.
    """
    offsets, passages, semantic = stack_pools(pools)
    is_table = index.is_table[passages]
    x, cells = index.rows(passages), cells_of(index.cells, passages)
    boosted = ops.bridge_select(x, offsets, passages, semantic, is_table, cells, beta)
    ranked = _sorted(offsets, passages, boosted)
    shown = boosted
    if beta < _SEEN:  # The boost is too small to show in the scores.
        shown = ops.bridge_select(x, offsets, passages, semantic, is_table, cells, 1.0)
    selected = []
    for pool, (begin, end) in zip(ranked, pairwise(offsets.tolist()), strict=True):
        has_both = 0 < is_table[begin:end].sum() < end - begin
        linked = has_both and (shown[begin:end] != semantic[begin:end]).sum() == 1  # Only the row's score changed.
        selected.append(SelectedPool(pool.passages, pool.scores, bool(linked)))
    return selected


def reranked_scores(
    index: Index, offsets: Int64, passages: Int32, scores: Float32, queries: Sequence[str]
) -> Float32:
    """Compute new scores for each pool, whose 30 best passages the rerankers of the index score again.

    The pool's list and the list of each reranker are joined by reciprocal ranks, and all lists count equally. The
    passages after the 30 best follow in their old order. A model's scores of texts and of table rows are not
    comparable, so texts change places only with texts, and table rows only with table rows.
    """
    orders = [begin + np.argsort(-scores[begin:end], kind="stable") for begin, end in pairwise(offsets.tolist())]
    heads = [order[:READ] for order in orders]
    lists = [[order] for order in orders]
    for reranker in index.rerankers:
        read = _scores_of(reranker, index, queries, [passages[head] for head in heads])
        for some, head, of_head in zip(lists, heads, read, strict=True):
            some.append(head[np.argsort(-of_head, kind="stable")])
    fused = np.zeros(len(passages), np.float32)
    for some, order in zip(lists, orders, strict=True):
        pool = reciprocal_ranks([places.astype(np.int32) for places in some])
        falling = pool.scores
        while (ties := falling[1:] >= falling[:-1]).any():  # With equal scores, the old order would decide.
            falling[1:][ties] = np.nextafter(falling[:-1][ties], np.float32(0))
        fused[_by_kind(order, pool.passages, index.is_table[passages])] = falling
    return fused


def _scores_of(
    reranker: Reranker, index: Index, queries: Sequence[str], passages: Sequence[Int32]
) -> list[Float32]:
    """Compute the reranker's scores of each query's passages. Scores that the index's cache has are not computed
    again."""
    model, cache = reranker.fingerprint, index.rerank_scores
    keys = [
        [pair_key(model, query, index.text(passage)) for passage in some.tolist()]
        for query, some in zip(queries, passages, strict=True)
    ]
    scores = cache.known(list(chain.from_iterable(keys)))
    missing = [np.flatnonzero([key not in scores for key in some]) for some in keys]
    asked = [number for number, some in enumerate(missing) if len(some)]
    for start in range(0, len(asked), _STORED):
        some = asked[start : start + _STORED]
        wanted = [passages[number][missing[number]] for number in some]
        computed = reranker.score([queries[number] for number in some], wanted)
        fresh: dict[bytes, float] = {}
        for number, of_query in zip(some, computed, strict=True):
            new = [keys[number][place] for place in missing[number]]
            if len(of_query) != len(new) or not np.isfinite(of_query).all():
                raise InputError(f"{model}: expected {len(new)} finite scores, one for each passage")
            fresh |= zip(new, map(float, of_query), strict=True)
        cache.add(fresh)
        scores |= fresh
    return [np.array([scores[key] for key in some], np.float32) for some in keys]


def _by_kind(order: Int64, better: Int32, is_table: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Int64:
    """Order the nodes of a pool as in `better`, but keep the places of texts and table rows as in `order`.

    Where `order` has a text, the result has a text too. The texts follow each other as in `better`, and so do
    the table rows.
    """
    kinds = is_table[order]
    result = order.copy()
    for kind in (0, 1):
        result[kinds == kind] = better[is_table[better] == kind]
    return result


def rerank_lists(index: Index, items: Sequence[tuple[Pool, str]]) -> list[Pool]:
    """Rank each pool again: join its list with the lists of the rerankers of the index.

    Args:
        index: The index.
        items: Pools, each with its query.

    Returns:
        One pool for each item, with the same passages in their new order.
    """
    return order_pools(index, items, "list")


def search(index: Index, queries: Sequence[str], k: int) -> list[Pool]:
    """Find the `k` best passages of the index for each query, by the index's retriever.

    If the index has rerankers, the retriever's list is first expanded (`expand`) and ranked by `bridge_rank`, and
    the rerankers then score its best passages again.

    Args:
        index: The index.
        queries: The queries.
        k: The maximum number of passages for a query.

    Returns:
        One pool for each query, best first.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, search
        >>> len(search(Index(Path("IDX")), ["Who discovered Titan?"], 3)[0])
        3
    """
    if not index.rerankers:
        return index.search(queries, k)
    items = list(zip(index.search(queries, max(k, RANKED)), queries, strict=True))
    return [pool.head(k) for pool in order_pools(index, items, "bridge_rank", expanded=True)]


@of_index
def order_pools(
    index: Index, items: Sequence[tuple[Pool, str]], rank: Rank | Literal["list"], expanded: bool | str = False
) -> list[Pool]:
    """Rank each pool, without pruning. An item is (pool, its query). The ranking `list` keeps the retriever's
    order.

    If `rank` is `bridge_rank`, `expanded` says which passages to add to a pool first. Its values are those of
    `RerankConfig.expand`. At the end, the rerankers of the index score the best passages of each pool again.
    """
    if rank == "list" and not index.rerankers:
        return [pool for pool, _ in items]
    how = RerankConfig(0, 0, expand=expanded)
    (offsets, passages, _), scores, _ = _scored(index, items, rank, how)
    return _sorted(offsets, passages, scores)


def _sorted(offsets: Int64, passages: Int32, scores: Float32) -> list[Pool]:
    """Make pools whose passages are ordered by these scores, best first. Equal scores stay in their order."""
    order = np.lexsort((-scores, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))
    return split(offsets, passages[order], scores[order])


def search_and_fuse(index: Index, items: Sequence[tuple[Sequence[str], Sequence[Pool]]], k: int) -> list[Pool]:
    """Search for the queries of each item. Join the pools of these queries and the item's earlier pools into
    one list of the `k` best passages.

    All items share one search and one call of `fuse`. If scores are equal, passages of earlier pools come first.

    Args:
        index: The index.
        items: Each item has queries, and earlier pools to join with the pools of these queries.
        k: The maximum number of passages of a search, and of a list.

    Returns:
        One pool for each item, best first.
    """
    pools = iter(index.search([query for queries, _ in items for query in queries], k))
    return fuse([[*before, *islice(pools, len(queries))] for queries, before in items], k)
