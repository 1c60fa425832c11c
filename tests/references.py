"""Each native op, slowly: as its definition says, in NumPy and Python. Tests compare the ops with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyfast.ops.arrays import Csr, Float32, Int32
from pyfast.ops.betweenness import EdgeLength
from pyfast.ops.cite import Segments
from pyfast.ops.evidence_graph import EdgeWeight, Idf, term_weights
from pyfast.ops.gatv2 import Array
from pyfast.ops.hseq_stream import Neighbors
from pyfast.utils.text_forms import words

if TYPE_CHECKING:
    from numba.core.ccallback import CFunc


def betweenness_reference(
    weights: npt.ArrayLike,
    length: EdgeLength | npt.ArrayLike = "inverse",
    k: int | None = None,
    seed: int = 0,
) -> npt.NDArray[Any]:
    """Compute the betweenness of one pool in float64, by Brandes's published algorithm on the adjacency matrix.

    `length` is "inverse", "hops", or a matrix with the length of each edge.
    """
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    out = np.zeros(n)
    neighbours = [[w for w in range(n) if edges[v, w] > 0 and w != v] for v in range(n)]
    if isinstance(length, str):
        lengths = np.ones((n, n)) if length == "hops" else 1.0 / np.where(edges > 0, edges, 1.0)
    else:
        lengths = np.asarray(length, dtype=np.float64)
    cost = np.where(edges > 0, lengths, np.inf)
    sources = sources_reference(n, k, seed)
    for s in sources:
        distance = np.full(n, np.inf)
        distance[s] = 0.0
        waiting, order = set(range(n)), []
        while waiting:
            v = min(waiting, key=lambda u: (distance[u], u))
            waiting.remove(v)
            if distance[v] == np.inf:
                break
            order.append(v)
            for w in neighbours[v]:
                distance[w] = min(distance[w], distance[v] + cost[v, w])
        place = {v: at for at, v in enumerate(order)}
        on_path = {
            v: [
                w
                for w in neighbours[v]
                if place[w] > place[v] and distance[v] + cost[v, w] <= distance[w] * (1 + 1e-10)
            ]
            for v in order
        }
        paths = np.zeros(n)
        paths[s] = 1.0
        for v in order:
            paths[on_path[v]] += paths[v]
        dependency = np.zeros(n)
        for v in reversed(order):
            dependency[v] = sum(paths[v] / paths[w] * (1.0 + dependency[w]) for w in on_path[v])
        dependency[s] = 0.0
        out += dependency
    if n <= 2:
        return out
    own = np.isin(np.arange(n), sources) & (len(sources) < n)
    pairs = (np.where(len(sources) < n, len(sources), n - 1) - own) * (n - 2)
    return np.asarray(np.divide(out, pairs, out=np.full(n, np.nan), where=pairs > 0))


def sources_reference(n: int, k: int | None, seed: int) -> list[int]:
    """Draw the k sources of a pool of n nodes. They are the first k nodes of a shuffle with SplitMix64. The
    result is in ascending order."""
    nodes = list(range(n))
    if k is None or k >= n:
        return nodes
    state = seed
    for i in range(k):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        bits = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
        j = i + (bits ^ (bits >> 31)) % (n - i)
        nodes[i], nodes[j] = nodes[j], nodes[i]
    return sorted(nodes[:k])


def bm25_reference(
    counts: npt.NDArray[Any], query: Sequence[int], k: int = 20, k1: float = 1.5, b: float = 0.75
) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Compute (documents, scores) of one query in float64, from a dense matrix of counts, documents x terms."""
    lengths = counts.sum(axis=1)
    norm = k1 * (1 - b + b * lengths / max(lengths.mean(), 1e-300))
    scores = np.zeros(len(counts))
    for term in query:
        tf, df = counts[:, term], np.count_nonzero(counts[:, term])
        idf = np.log(1 + (len(counts) - df + 0.5) / (df + 0.5)) if df else 0.0
        scores += idf * tf / np.where(tf, tf + norm, 1.0)
    best = [int(i) for i in np.argsort(-scores, kind="stable")[:k] if scores[i] > 0]
    return best, scores[best]


def bridge_expand_reference(
    X: Csr, seed: int, question_terms: npt.ArrayLike, k: int = 10
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Compute (documents, similarities) of one seed in float64, by the product of its row with all rows of X."""
    rows = X.astype(np.float64)
    rows.data[np.isin(rows.indices, question_terms)] = 0.0
    similarity = rows @ rows[[seed]].toarray().ravel()
    similarity[seed] = 0.0
    best = np.argsort(-similarity, kind="stable")[:k]
    best = best[similarity[best] > 0]
    return best, similarity[best]


def bridge_rank_reference(
    X: Csr,
    pool: npt.ArrayLike,
    semantic: npt.ArrayLike,
    question_terms: npt.ArrayLike,
    edges: int = 5,
    damping: float = 0.5,
    sharpness: float = 4.0,
    mix: float = 0.75,
) -> npt.NDArray[Any]:
    """Compute the scores of one pool in float64. PageRank is solved as a linear system."""
    sem = np.asarray(semantic, dtype=np.float64)
    sem = (sem - sem.min()) / np.ptp(sem) if np.ptp(sem) > 0 else np.ones_like(sem)
    strongest = evidence_graph_reference(X, pool, "dot", top_k=edges, mask=question_terms)
    weights = np.maximum(strongest, strongest.T) ** 2
    restart = sem**sharpness / (sem**sharpness).sum()
    total = weights.sum(axis=1, keepdims=True)
    walk = np.where(total > 0, weights / np.where(total > 0, total, 1.0), restart)
    rank = np.linalg.solve(np.eye(len(sem)) - damping * walk.T, (1.0 - damping) * restart)
    return np.asarray((1.0 - mix) * sem + mix * rank / rank.max())


def bridge_select_reference(
    passage_terms: Sequence[set[int]],
    semantic: npt.ArrayLike,
    is_table: npt.ArrayLike,
    values: Sequence[Sequence[set[int]]],
    beta: float = 0.2,
) -> npt.NDArray[Any]:
    """Compute the scores of one pool. Node v has the terms passage_terms[v] and the cell values values[v]."""
    s = np.asarray(semantic, dtype=np.float32).copy()
    tables = np.asarray(is_table, dtype=bool)
    p_top: Any = max(np.flatnonzero(~tables), key=lambda v: s[v], default=None)
    t_top: Any = max(np.flatnonzero(tables), key=lambda v: s[v], default=None)
    both = p_top is not None and t_top is not None
    linked = both and any(value and value <= passage_terms[p_top] for value in values[t_top])
    if t_top is not None:
        s[t_top] += np.float32(beta)
    if p_top is not None and not linked:
        s[p_top] += np.float32(beta)
    return s


_DEPTH = np.array([0, 1, 2, 3, 0, 1, 2, 1, 2])
_TABLE, _ROW, _SUBGRAPH, _TRIPLET = 4, 5, 7, 8


def _content(s: Segments, i: int) -> str:
    depth = _DEPTH[s.level[i:]]
    inside = i + np.arange(1, 1 + int(np.append(depth[1:] <= depth[0], True).argmax()))
    children = inside[_DEPTH[s.level[inside]] == depth[0] + 1].tolist()
    if s.level[i] == _TABLE:
        return "\n".join(_content(s, child).replace("\n", " ").replace("\r", " ") for child in children)
    if s.level[i] == _ROW:
        return "\t".join(_content(s, child).replace("\t", " ") for child in children)
    if s.level[i] == _SUBGRAPH or (children and s.level[children[0]] == _SUBGRAPH):
        return "; ".join(_content(s, child) for child in children)
    cuts = [int(s.byte_start[i]), int(s.byte_end[i])]
    if s.level[i] == _TRIPLET:
        k = s.triplets.tolist().index(i)
        cuts[1:1] = [int(s.relation_start[k]), int(s.tail_start[k])]
    return " ".join(s.content[a:b].tobytes().decode() for a, b in pairwise(cuts))


def cite_reference(segments: Segments, i: int, score: float) -> dict[str, Any]:
    """Make the JSON object of segment i, as a dict."""
    first, last = segments.uri_offsets[segments.source[i] :][:2]
    return {
        "segment": f"{segment_id_reference(segments, i):016x}",
        "uri": segments.uris[first:last].tobytes().decode(),
        "offsets": [int(segments.start[i]), int(segments.end[i])],
        "snippet": _content(segments, i),
        "score": round(score, 6),
    }


def segment_id_reference(s: Segments, i: int) -> int:
    """Compute the id of segment i with Python's integers: splitmix64 mixes the hash of the uri, the level,
    and the place in the document. The place is the start and end of the segment, or the ordinal of a
    triplet."""
    first, second = int(s.start[i]), int(s.end[i])
    if s.level[i] in (_SUBGRAPH, _TRIPLET):
        first, second = int(s.ordinal[np.searchsorted(s.triplets, i)]), -1
    value = int(s.hashes[s.source[i]])
    for number in (int(s.level[i]) + 1, first, second):
        value = (value + number * 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        value ^= value >> 31
    return value


def count_words_reference(texts: Iterable[str], separated: bool = False) -> list[Counter[str]]:
    """Count the words of each text. Returns, for each text, a mapping from its words to their counts."""
    return [Counter(filter(None, text.split(" ")) if separated else words(text)) for text in texts]


def eigenvector_reference(weights: npt.ArrayLike) -> npt.NDArray[Any]:
    """Compute the centrality in one pool in float64, by `numpy.linalg.eigh`. The matrix must be symmetric."""
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    values, vectors = np.linalg.eigh(edges)
    first = vectors[:, values > values.max() * (1 - 1e-9)] if values.max() > 0 else np.eye(n)
    x = first @ (first.T @ np.ones(n))  # a vector of ones, projected
    return np.asarray(np.abs(x) / np.linalg.norm(x))


def weigh_reference(X: Csr, pool: npt.ArrayLike) -> csr_array:
    """Compute the term weights of one pool's documents with the pool's own idf (`idf="pool"`), in float64."""
    rows = csr_array(X)[np.asarray(pool, dtype=np.int64)].astype(np.float64)
    df = np.bincount(rows.indices, minlength=rows.shape[1])
    rows.data *= (np.log((1 + rows.shape[0]) / (1 + df)) + 1)[rows.indices]
    norm = np.sqrt(
        np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.data**2, rows.shape[0])
    )
    rows.data /= np.repeat(np.where(norm > 0, norm, 1.0), np.diff(rows.indptr))
    return rows


def evidence_graph_reference(
    X: Csr,
    pool: npt.ArrayLike,
    weight: EdgeWeight | CFunc = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask: npt.ArrayLike = (),
    idf: Idf = "corpus",
) -> npt.NDArray[Any]:
    """Compute the adjacency matrix of one pool, dense and in float64. 0 means no edge."""
    sparse = weigh_reference(X, pool) if idf == "pool" else X[np.asarray(pool, dtype=np.int64)]
    rows = sparse.toarray().astype(np.float64)
    held = csr_array((np.ones(sparse.nnz), sparse.indices, sparse.indptr), shape=sparse.shape).toarray() > 0
    held[:, np.asarray(mask, dtype=np.int64)] = False
    n = len(rows)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            shared = held[i] & held[j]
            a, b = rows[i][shared], rows[j][shared]
            if i != j:
                out[i, j] = term_weights(weight, a, b).sum()
    out[out <= threshold] = 0.0
    if top_k is not None:
        for row in out:
            row[np.argsort(-row, kind="stable")[top_k:]] = 0.0
    return out


def fuse_reference(lists: Sequence[tuple[Int32, Float32]], k: int) -> tuple[Int32, Float32]:
    """Compute the joined list of one group of pools. Each pool is a pair (documents, scores)."""

    def normalised(scores: Float32) -> Float32:
        low, high = scores.min(), scores.max()
        return (scores - low) / (high - low) + np.float32(0) if high > low else np.ones_like(scores)

    lists = [(np.empty(0, np.int32), np.empty(0, np.float32)), *((d, normalised(s)) for d, s in lists if len(d))]
    documents, scores = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    order = np.argsort(-scores, kind="stable")
    _, first = np.unique(documents[order], return_index=True)  # the best position of each document
    kept = order[np.sort(first)[:k]]
    return documents[kept], scores[kept]


def gatv2_reference(
    x_src: npt.ArrayLike,
    x_dst: npt.ArrayLike,
    indptr: npt.ArrayLike,
    indices: npt.ArrayLike,
    att: npt.ArrayLike,
    negative_slope: float = 0.2,
    *,
    self_loops: bool = False,
    dropout: float = 0.0,
    mask: npt.ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Compute (y, attention after dropout) in float64, one destination after the other."""
    source, destination, a = (np.asarray(x, dtype=np.float64) for x in (x_src, x_dst, att))
    starts, sources = np.asarray(indptr), np.asarray(indices)
    stored, n = len(sources), len(destination)
    keep = np.ones((stored + (n if self_loops else 0), len(a)))
    if mask is not None:
        keep = np.asarray(mask) / (1.0 - dropout)
    y, attention = np.zeros_like(destination), np.zeros_like(keep)
    for i in range(n):
        edges = np.arange(starts[i], starts[i + 1])
        if self_loops:
            edges = edges[sources[edges] != i]
        ends = sources[edges]
        if self_loops and i < len(source):
            edges, ends = np.append(edges, stored + i), np.append(ends, i)
        neighbours = source[ends]
        if len(edges):
            summed = neighbours + destination[i]
            scores = (np.where(summed > 0, summed, negative_slope * summed) * a).sum(axis=2)
            shares = np.exp(scores - scores.max(axis=0))
            attention[edges] = keep[edges] * shares / shares.sum(axis=0)
            y[i] = (attention[edges][:, :, None] * neighbours).sum(axis=0)
    return y, attention


def graph_rank_reference(
    semantic: npt.ArrayLike, structural: npt.ArrayLike, alpha: float = 0.85
) -> npt.NDArray[Any]:
    """Compute the scores of one pool in float64."""

    def normalise(scores: npt.ArrayLike) -> npt.NDArray[Any]:
        s = np.asarray(scores, dtype=np.float64)
        return (s - s.min()) / np.ptp(s) if np.ptp(s) > 0 else np.ones_like(s)

    return normalise(semantic) * (1.0 + (1.0 - alpha) * normalise(structural))


def hseq_stream_reference(
    level: npt.ArrayLike,
    priority: Sequence[int],
    deleted: Iterable[int] = (),
    prior: Sequence[int] = (),
) -> Iterable[int]:
    """Compute the stream of one cursor in plain Python."""
    levels = np.asarray(level)
    order = [*prior, *(int(i) for one in priority for i in np.flatnonzero(levels == one))]
    gone = set(deleted)
    return (segment for segment in dict.fromkeys(order) if segment not in gone)


def window_reference(stream: Iterable[int], selected: Iterable[int], width: int) -> list[int]:
    """Compute the window of one cursor, from the result of `hseq_stream_reference`."""
    taken = set(selected)
    return list(islice((segment for segment in stream if segment not in taken), width))


def neighbors_reference(level: npt.ArrayLike, parent: npt.ArrayLike, segment: int, kind: Neighbors) -> list[int]:
    """Compute the neighbours of one segment in NumPy, by one pass over all segments."""
    levels, parents = np.asarray(level), np.asarray(parent)
    above = int(parents[segment])
    siblings = np.flatnonzero(parents == above)
    if kind == "children":
        return [int(i) for i in np.flatnonzero(parents == segment)]
    if kind == "parent":
        return [above] if above >= 0 else []
    if kind == "relation":
        return [int(i) for i in siblings if i != segment and levels[segment] == 8]
    if levels[segment] != 6:
        return []
    if kind == "row":
        return [int(i) for i in siblings if i != segment]
    k = siblings.tolist().index(segment)
    rows = np.flatnonzero(parents == parents[above])
    cells = [np.flatnonzero(parents == row) for row in rows if row != above]
    return [int(row[k]) for row in cells if len(row) > k]


def maxsim_reference(query: npt.NDArray[Any], document: npt.NDArray[Any]) -> float:
    """Compute the score of one pair in float64. Query and document are arrays [tokens, D]."""
    products = np.asarray(query, np.float64) @ np.asarray(document, np.float64).T
    return float(products.max(axis=1, initial=-np.inf).sum())


def narrate_reference(lines: Iterable[str], characters: int) -> str:
    """Write the text of one pool, from the lines of its documents."""
    chosen: list[str] = []
    for number, line in enumerate(lines, start=1):
        numbered = f"[{number}] {line}"
        if len(numbered) > characters:
            return "\n".join(chosen) if chosen else numbered[:characters]
        chosen.append(numbered)
        characters -= len(numbered) + 1
    return "\n".join(chosen)


def pagerank_reference(
    weights: npt.ArrayLike, damping: float = 0.85, personalization: npt.ArrayLike | None = None
) -> npt.NDArray[Any]:
    """Compute the ranks in one pool in float64, as the solution of a linear system."""
    edges = np.asarray(weights, dtype=np.float64)
    n = len(edges)
    restart = np.ones(n) if personalization is None else np.asarray(personalization, dtype=np.float64)
    restart = restart / restart.sum() if restart.sum() > 0 else np.full(n, 1.0 / n)
    total = edges.sum(axis=1, keepdims=True)
    walk = np.where(total > 0, edges / np.where(total > 0, total, 1.0), restart)
    return np.asarray(np.linalg.solve(np.eye(n) - damping * walk.T, (1.0 - damping) * restart))


def prune_reference(
    score: npt.ArrayLike, is_table: npt.ArrayLike, min_nodes: int = 5, max_nodes: int = 10, per_kind: int = 2
) -> list[int]:
    """Choose the nodes of one pool in plain Python."""
    scores = np.asarray(score, dtype=np.float32).astype(np.float64)
    tables = np.asarray(is_table, dtype=bool)
    ranked = sorted(range(len(scores)), key=lambda v: -scores[v])
    secured = [v for kind in (True, False) for v in [u for u in ranked if tables[u] == kind][:per_kind]]
    secured = sorted(secured, key=ranked.index)[:max_nodes]
    good = [v for r, v in enumerate(ranked) if r < min_nodes or scores[v] >= scores.mean()][:max_nodes]
    others = [v for v in good if v not in secured][: max(max_nodes - len(secured), 0)]
    return sorted(secured + others, key=ranked.index)


def select_sentences_reference(
    X: Csr, offsets: Any, cuts: Any, semantic: Any, lengths: Any, dependent: Any, budgets: Any
) -> npt.NDArray[np.bool_]:
    """Choose the sentences of all pools as the docstring of the op says, on sets and dictionaries."""
    dense = [{int(t): float(X[i, t]) for t in X[[i]].indices} for i in range(X.shape[0])]
    all_sentences, all_passages = len(lengths), len(semantic)
    kept = np.zeros(all_sentences, bool)
    for p in range(len(budgets)):
        passages = range(offsets[p], offsets[p + 1])
        of = {s: i for i in passages for s in range(cuts[i], cuts[i + 1])}
        if not of:
            continue
        question = dense[all_sentences + all_passages + p]
        weight = sum(question.values())
        best = max(semantic[i] for i in passages)
        score = {i: max(float(semantic[i]), 0.0) / float(best) if best > 0 else 0.0 for i in passages}
        c = {s: sum(question[t] for t in dense[s] if t in question) / weight if weight else 0.0 for s in of}
        r = {s: c[s] + 0.7 * score[of[s]] for s in of}
        value = {}
        for s, i in of.items():
            strengths = []
            for t, w in dense[s].items():
                elsewhere = [r[o] for o in of if of[o] != i and t in dense[o]]
                if not question.get(t) and elsewhere:
                    strengths.append(w * max(elsewhere))
            shared = sum(sorted(strengths, reverse=True)[:4]) / 4
            title = set(dense[all_sentences + i])
            with_title = [r[o] for o in of if of[o] != i and title and title <= set(dense[o])]
            named = len(title & set(question)) / len(title) if title else 0.0
            total = 2 * c[s] + 1.5 * score[i] + 2 * shared + max(with_title, default=0.0)
            value[s] = (total + (named + c[cuts[i]]) / 2) / max(lengths[s], 1) ** 0.25
        left, is_first = budgets[p], True
        for s in sorted(of, key=lambda s: (-value[s], s)):
            if kept[s] or not (is_first or lengths[s] <= left):
                continue
            kept[s], is_first = True, False
            left -= min(lengths[s], left)
            at = s
            while at - 1 in of and dependent[at] and not kept[at - 1] and of[at - 1] == of[s]:
                if lengths[at - 1] > left:
                    break
                kept[at - 1] = True
                left -= lengths[at - 1]
                at -= 1
    return kept


def weighted_degree_reference(
    X: Csr, pool: npt.ArrayLike, weight: EdgeWeight | CFunc = "sum", idf: Idf = "corpus"
) -> npt.NDArray[Any]:
    """Compute the degrees of one pool: the row sums of the dense adjacency matrix."""
    return np.asarray(evidence_graph_reference(X, pool, weight, idf=idf).sum(axis=1))
