"""The ops on a GPU, for arrays of CuPy or torch. The functions of `pyfast.ops` call them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

import pyfast._native as native
from pyfast.errors import ArrayError, DeviceError
from pyfast.ops.backend import Gpu, call_gpu

Bounds = tuple[int, int, int]
"""(the size of the largest pool, the sum of the squared sizes of all pools, the number of entries of X in all
pools)"""
Lists = tuple[Any, Any]
"""A ragged list of lists: (offsets, values)"""


Forward = tuple[Any, bool, Any, bool, Any, int]
"""The arrays of the forward index X on the GPU, as native ops expect them: indptr, whether it is int64 rather than
int32, indices, whether they are int64, data, and the number of terms"""


def forward(gpu: Gpu, x: Any) -> Forward:
    """Convert X, a CuPy csr_matrix or a sparse CSR tensor of torch, to the arrays that native ops expect. Each
    call copies term ids that are neither int32 nor int64, and weights that are not float32.
    """
    if hasattr(x, "crow_indices"):
        indptr, indices, data = x.crow_indices(), x.col_indices(), x.values()
    elif getattr(x, "format", None) == "csr" and hasattr(x.data, "__cuda_array_interface__"):
        indptr, indices, data = x.indptr, x.indices, x.data
    else:
        raise ArrayError(f"X: expected a CSR matrix on the GPU, from CuPy or torch, got {type(x).__name__}")
    wide = [str(each.dtype).endswith("int64") for each in (indptr, indices)]
    indptr = gpu.array("X.indptr", indptr, "int64" if wide[0] else "int32")
    indices = gpu.array("X.indices", indices, "int64" if wide[1] else "int32")
    return indptr, wide[0], indices, wide[1], gpu.array("X.data", data, "float32"), int(x.shape[1])


def bounds(gpu: Gpu, x: Forward, pools: Lists) -> Bounds:
    """Compute the `Bounds` of the pools, from which the size of the op's workspace follows. Waits until the
    stream has finished. Documents that are not in X, and malformed rows, do not count.

    Raises:
        ArrayError: The offsets are malformed.
    """
    found = gpu.zeros(4, "int64")  # The fourth number is the status word.
    address, _ = gpu.memory(found)
    queue = gpu.stream(), address + 24, (0, 0)
    call_gpu(native.cuda.pool_bounds, X=gpu.places(x), pools=gpu.places(pools), bounds=(address, 3), queue=queue)
    largest, pairs, entries, status = (int(number) for number in gpu.numpy(found))
    call_gpu(native.cuda.raise_faults, status=status)
    return largest, pairs, entries


def evidence_graph(
    X: Any,
    pool_offsets: Any,
    doc_ids: Any,
    weight: Any = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask_terms: Any = None,
    idf: str = "corpus",
    max_pool: int | None = None,
    max_terms: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Compute the evidence graph of each pool. Returns (pool_offsets, indptr, indices, weights).

    If `max_pool` and `max_terms` are given, the op never waits for the GPU in an `errors_at_end` block, and can be
    captured in a CUDA graph. `indices` and `weights` then have room for `max_pool` edges of each node, and only
    the first `indptr[-1]` are used.

    Args:
        X, pool_offsets, doc_ids, weight, threshold, top_k, mask_terms, idf: As in `pyfast.ops.evidence_graph`.
        max_pool: The maximum number of documents in a pool.
        max_terms: The maximum number of entries in X for all documents of a pool together.
    """
    if not isinstance(weight, str) or idf != "corpus":
        raise ArrayError("on a GPU, weight must be 'sum', 'dot' or 'min', and idf must be 'corpus'")
    if (max_pool is None) != (max_terms is None) or min(max_pool or 0, max_terms or 0) < 0:
        raise ArrayError("max_pool, max_terms: give both (at least 0) or neither")
    gpu = Gpu(doc_ids, pool_offsets)
    with gpu.current():
        mask = None if mask_terms is None else _lists(gpu, "mask_terms", mask_terms, "int32")
        x, pools = _pools(gpu, X, pool_offsets, doc_ids)
        nodes, count = len(pools[1]), len(pools[0]) - 1
        known = (
            (max_pool, count * max_pool**2, count * max_terms)
            if max_pool is not None and max_terms is not None
            else bounds(gpu, x, pools)
        )
        indptr = gpu.empty(nodes + 1, "int64")
        workspace = call_gpu(
            native.cuda.evidence_graph_workspace, pool_count=count, node_count=nodes, bounds=known
        )
        with gpu.queue(workspace) as queue:
            same: dict[str, Any] = {"pools": gpu.places(pools), "indptr": gpu.memory(indptr), "queue": queue}
            same |= {"weight": weight, "threshold": threshold, "top_k": top_k, "bounds": known}
            call_gpu(native.cuda.evidence_graph_count, X=gpu.places(x), mask_terms=gpu.places(mask), **same)
            size = nodes * known[0]
            if max_pool is None:
                edges = int(indptr[-1])
                size = edges if 0 <= edges <= known[1] else 0  # If a fault was found, this number is arbitrary.
            indices, weights = gpu.empty(size, "int32"), gpu.empty(size, "float32")
            there: dict[str, Any] = {"indices": gpu.memory(indices), "weights": gpu.memory(weights)}
            call_gpu(native.cuda.evidence_graph_fill, **there, **same)
        return pools[0], indptr, indices, weights


def weighted_degree(X: Any, pool_offsets: Any, doc_ids: Any, weight: Any, idf: str) -> Any:
    """Compute the weighted degree of each node."""
    if weight not in ("sum", "dot") or idf != "corpus":
        raise ArrayError("on a GPU, weighted_degree needs weight='sum' or 'dot', and idf='corpus'")
    gpu = Gpu(doc_ids, pool_offsets)
    with gpu.current():
        x, pools = _pools(gpu, X, pool_offsets, doc_ids)
        degree = gpu.empty(len(pools[1]), "float32")
        space = call_gpu(native.cuda.weighted_degree_workspace, node_count=len(degree))
        gpu.run(native.cuda.weighted_degree, space, X=x, pools=pools, weight=weight, degree=degree)
        return degree


def degree_rank(
    X: Any, pool_offsets: Any, doc_ids: Any, semantic: Any, weight: str = "sum", alpha: float = 0.85
) -> tuple[Any, Any]:
    """Compute (degree, score) in one kernel. `degree` is the result of `weighted_degree`. `score` is the
    result of `graph_rank` for the scores `semantic` and this degree."""
    gpu = Gpu(doc_ids, pool_offsets)
    with gpu.current():
        x, pools = _pools(gpu, X, pool_offsets, doc_ids)
        degree, score = (gpu.empty(len(pools[1]), "float32") for _ in range(2))
        space = call_gpu(native.cuda.weighted_degree_workspace, node_count=len(degree))
        how = {"semantic": gpu.array("semantic", semantic, "float32"), "weight": weight, "alpha": alpha}
        gpu.run(native.cuda.degree_rank, space, X=x, pools=pools, **how, degree=degree, score=score)
        return degree, score


def graph_rank(semantic: Any, structural: Any, pool_offsets: Any, alpha: float) -> Any:
    """Compute the GraphRank score of each node."""
    gpu = Gpu(semantic, structural, pool_offsets)
    with gpu.current():
        sem, struct = gpu.array("semantic", semantic, "float32"), gpu.array("structural", structural, "float32")
        offsets = gpu.array("pool_offsets", pool_offsets, "int64")
        score = gpu.empty(len(sem), "float32")
        gpu.run(
            native.cuda.graph_rank, semantic=sem, structural=struct, pool_offsets=offsets, alpha=alpha, score=score
        )
        return score


def pagerank(graph: Any, damping: float, shares: Any, tolerance: float, max_iterations: int) -> tuple[Any, Any]:
    """Compute each node's rank (an array on the GPU) and whether each pool converged (an array on the CPU).

    To find out which pools converged, the function waits until the stream has finished. If `max_iterations` is
    large enough for `tolerance`, every pool is certain to converge, so the function does not wait, and the second
    array is empty.
    """
    dtypes = {"pool_offsets": "int64", "indptr": "int64", "indices": "int32", "weights": "float32"}
    given = {name: getattr(graph, name) for name in dtypes}
    gpu = Gpu(*given.values())
    with gpu.current():
        g = tuple(gpu.array(f"g.{name}", given[name], dtype) for name, dtype in dtypes.items())
        nodes = max(len(g[1]) - 1, 0)
        restart = gpu.empty(0, "float32") if shares is None else gpu.array("personalization", shares, "float32")
        if shares is not None and len(restart) != nodes:
            raise ArrayError(f"personalization: expected {nodes} numbers, got {len(restart)}")
        rank = gpu.empty(nodes, "float32")
        # The first step changes the ranks by at most 2 in sum, and each later step by `damping` times as much.
        surely = tolerance > 0 and 2 * damping**max_iterations <= tolerance
        converged = gpu.empty(0 if surely else max(len(g[0]) - 1, 0), "uint8")
        if not surely:
            converged[...] = 1
        space = call_gpu(native.cuda.pagerank_workspace, node_count=nodes, edge_count=len(g[2]))
        steps = {"damping": damping, "tolerance": tolerance, "max_iterations": max_iterations}
        gpu.run(native.cuda.pagerank, space, g=g, personalization=restart, **steps, rank=rank, converged=converged)
        return rank, np.ones(0, np.uint8) if surely else gpu.numpy(converged)


Stream = tuple[int, Any, Any, Any]
"""An `ops.Stream`: (the number of segments of the corpus, its `order`, `tombstones` and `live`)"""
Cursors = tuple[Any, Lists, Lists]
"""(places, selected segments, priors)"""


def _stream(gpu: Gpu, stream: Stream, cursors: Cursors) -> tuple[Stream, Cursors]:
    size, order, mask, live = stream
    place, selected, priors = cursors
    places = gpu.array("order", order, "int64"), gpu.array("tombstones", mask, "uint8")
    there = (size, *places, gpu.array("tombstones", live, "int64"))
    lists = _lists(gpu, "selected", selected), _lists(gpu, "priors", priors)
    return there, (gpu.array("place", place, "int64"), *lists)


def window(stream: Stream, cursors: Cursors, width: int) -> Lists:
    """Compute the window of each cursor. Returns (offsets, segments)."""
    gpu = Gpu(stream[1])
    with gpu.current():
        stream, cursors = _stream(gpu, stream, cursors)
        width = min(width, len(stream[1]) + len(cursors[2][1]))
        count = len(cursors[0])
        offsets, segments = gpu.empty(count + 1, "int64"), gpu.empty(count * max(width, 0), "int64")
        places, at = gpu.places(stream), gpu.places(cursors)
        space = call_gpu(native.cuda.window_workspace, stream=places, cursors=at, width=width)
        gpu.run(
            native.cuda.window, space, stream=places, cursors=at, width=width, offsets=offsets, segments=segments
        )
        return offsets, segments[: int(offsets[-1])]


def refresh(stream: Stream, cursors: Cursors, chosen: Lists, past: int) -> tuple[Any, Lists]:
    """Compute the cursors after a step. Returns (place, selected): the new places of the cursors, and the
    segments that each question has selected so far, as (offsets, segments).

    `chosen` and `past` are as in `ops.Stream.refresh`.
    """
    gpu = Gpu(stream[1])
    with gpu.current():
        stream, cursors = _stream(gpu, stream, cursors)
        chosen = _lists(gpu, "chosen", chosen)
        count = len(cursors[0])
        place, offsets = gpu.empty(count, "int64"), gpu.empty(count + 1, "int64")
        segments = gpu.empty(len(cursors[1][1]) + len(chosen[1]), "int64")
        at, choices = gpu.places(cursors), gpu.places(chosen)
        space = call_gpu(native.cuda.refresh_workspace, cursors=at, chosen=choices)
        made = {"place": place, "offsets": offsets, "segments": segments}
        gpu.run(native.cuda.refresh, space, stream=stream, cursors=at, chosen=choices, past=past, **made)
        return place, (offsets, segments[: int(offsets[-1])])


def maxsim(
    queries: Any, query_offsets: Any, tokens: Any, token_offsets: Any, pairs: Any, scales: Any, precision: str
) -> Any:
    """Compute the late-interaction score of each pair (query, document)."""
    gpu = Gpu(queries, tokens)
    with gpu.current():
        for name, value in (("queries", queries), ("tokens", tokens), ("pairs", pairs)):
            if len(getattr(value, "shape", ())) != 2:
                raise ArrayError(f"{name}: expected a two-dimensional array")
        rows = {"queries": gpu.array("queries", queries.reshape(-1), "float32")}
        dimensions = int(queries.shape[1])
        if int(tokens.shape[1]) != dimensions or int(pairs.shape[1]) != 2:
            raise ArrayError("tokens, pairs: expected [tokens, dimensions] and [N, 2]")
        rows["tokens"] = gpu.array("tokens", tokens.reshape(-1), "float32" if scales is None else "int8")
        rows["scales"] = None if scales is None else gpu.array("scales", scales, "float32")
        lists = {"query_offsets": query_offsets, "token_offsets": token_offsets, "pairs": pairs.reshape(-1)}
        lists = {name: gpu.array(name, value, "int64") for name, value in lists.items()}
        scores, count = gpu.empty(len(lists["pairs"]) // 2, "float32"), len(rows["queries"]) // max(dimensions, 1)
        space = call_gpu(native.cuda.maxsim_workspace, query_tokens=count, dimensions=dimensions)
        how = {"dimensions": dimensions, "precision": precision}
        gpu.run(native.cuda.maxsim, space, **rows, **lists, **how, scores=scores)
        return scores


def upload(library: str, *arrays: Any) -> list[Any]:
    """Copy NumPy arrays to the current GPU. The copies are arrays of the library, "cupy" or "torch"."""
    try:
        module = import_module(library)
    except ImportError as error:
        raise DeviceError(f"library: {library!r} cannot be imported: {error}") from None
    if library == "torch":
        return [module.tensor(each, device="cuda") for each in arrays]
    return [module.asarray(each) for each in arrays]


def _pools(gpu: Gpu, X: Any, pool_offsets: Any, doc_ids: Any) -> tuple[Forward, Lists]:
    offsets = gpu.array("pool_offsets", pool_offsets, "int64")
    if not len(offsets):
        raise ArrayError("pool_offsets: must start at 0 and contain one number more than there are pools")
    return forward(gpu, X), (offsets, gpu.array("doc_ids", doc_ids, "int32"))


def _lists(gpu: Gpu, name: str, lists: Any, dtype: str = "int64") -> Lists:
    if not isinstance(lists, tuple) or len(lists) != 2:
        raise ArrayError(f"{name}: expected a pair (offsets, values)")
    return gpu.array(name, lists[0], "int64"), gpu.array(name, lists[1], dtype)
