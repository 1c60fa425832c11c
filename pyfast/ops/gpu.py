"""The ops on a GPU, for arrays of CuPy or torch. The functions of `pyfast.ops` call them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import pyfast._native as native
from pyfast.errors import ArrayError, DeviceError
from pyfast.ops.backend import Gpu, Memory, call_gpu

Bounds = tuple[int, int, int]
"""(the size of the largest pool, the sum of the squared sizes of all pools, the largest number of entries of
X in a pool)"""


@dataclass(frozen=True, slots=True)
class Forward:
    """The arrays of the forward index X on the GPU, in the form that native ops need."""

    indptr: Any
    indices: Any
    data: Any
    arguments: tuple[Memory, bool, Memory, Memory, int]


def forward(gpu: Gpu, x: Any) -> Forward:
    """Convert X to the form that native ops need. X is a csr_matrix of CuPy or a sparse CSR tensor of torch.
    Each call copies term ids that are not int32, and weights that are not float32.
    """
    if hasattr(x, "crow_indices"):
        parts = x.crow_indices(), x.col_indices(), x.values()
    elif getattr(x, "format", None) == "csr" and hasattr(x.data, "__cuda_array_interface__"):
        parts = x.indptr, x.indices, x.data
    else:
        raise ArrayError(f"X: expected a CSR matrix on the GPU, of CuPy's or torch's, got {type(x).__name__}")
    wide = str(parts[0].dtype).endswith("int64")
    indptr = gpu.array("X.indptr", parts[0], "int64" if wide else "int32")
    indices, data = gpu.array("X.indices", parts[1], "int32"), gpu.array("X.data", parts[2], "float32")
    places = gpu.memory(indptr), wide, gpu.memory(indices), gpu.memory(data), int(x.shape[1])
    return Forward(indptr, indices, data, places)


def bounds(gpu: Gpu, x: Forward, offsets: Any, documents: Any) -> Bounds:
    """Compute the `Bounds` of the pools, from which the size of the op's workspace follows. Waits until the
    stream has finished.

    If a document is not in X, or if X is malformed, the third of these numbers is arbitrary.

    Raises:
        ArrayError: The offsets are malformed.
    """
    here = gpu.numpy(offsets)
    if here[0] != 0 or here[-1] != len(documents) or (here[1:] < here[:-1]).any():
        raise ArrayError("pool_offsets: do not start at 0, decrease, or do not end with the documents")
    sizes = np.diff(here)
    largest = int(sizes.max(initial=0))
    pairs = int((sizes.astype(np.float64) ** 2).sum())
    if not len(documents) or len(x.indptr) < 2:
        return largest, pairs, 0
    ids = gpu.cast("doc_ids", documents, "int64").clip(0, len(x.indptr) - 2)
    ends = gpu.zeros(len(documents) + 1, "int64")
    ends[1:] = (x.indptr[ids + 1] - x.indptr[ids]).clip(0, len(x.indices)).cumsum(0)
    return largest, pairs, max(int((ends[offsets[1:]] - ends[offsets[:-1]]).max()), 0)


def evidence_graph(
    X: Any,
    pool_offsets: Any,
    doc_ids: Any,
    weight: Any,
    threshold: float,
    top_k: int | None,
    mask_terms: Any,
    idf: str,
) -> tuple[Any, Any, Any, Any]:
    """Compute the evidence graph of each pool. Returns (pool_offsets, indptr, indices, weights)."""
    if not isinstance(weight, str) or idf != "corpus":
        raise ArrayError("weight, idf: a GPU has 'sum', 'dot' and 'min', and idf='corpus'")
    gpu = Gpu(doc_ids, pool_offsets)
    with gpu.current():
        x, offsets, documents, mask = _pools(gpu, X, pool_offsets, doc_ids, mask_terms)
        pools = gpu.memory(offsets), gpu.memory(documents)
        masked = None if mask is None else (gpu.memory(mask[0]), gpu.memory(mask[1]))
        known = bounds(gpu, x, offsets, documents)
        indptr = gpu.zeros(len(documents) + 1, "int64")
        workspace = call_gpu(
            native.cuda.evidence_graph_workspace,
            pool_count=len(offsets) - 1,
            node_count=len(documents),
            bounds=known,
        )
        with gpu.queue(workspace) as queue:
            call_gpu(
                native.cuda.evidence_graph_count,
                X=x.arguments,
                pools=pools,
                mask_terms=masked,
                weight=weight,
                threshold=threshold,
                top_k=top_k,
                bounds=known,
                indptr=gpu.memory(indptr),
                queue=queue,
            )
            edges = int(indptr[-1])
            size = edges if 0 <= edges <= known[1] else 0  # If the kernel found a fault, this number is arbitrary.
            indices, weights = gpu.empty(size, "int32"), gpu.empty(size, "float32")
            call_gpu(
                native.cuda.evidence_graph_fill,
                pools=pools,
                weight=weight,
                threshold=threshold,
                top_k=top_k,
                bounds=known,
                indptr=gpu.memory(indptr),
                indices=gpu.memory(indices),
                weights=gpu.memory(weights),
                queue=queue,
            )
        return offsets, indptr, indices, weights


def weighted_degree(X: Any, pool_offsets: Any, doc_ids: Any, weight: Any, idf: str) -> Any:
    """Compute the weighted degree of each node."""
    if weight not in ("sum", "dot") or idf != "corpus":
        raise ArrayError("weight, idf: a GPU has the degrees of 'sum' and 'dot', and idf='corpus'")
    gpu = Gpu(doc_ids, pool_offsets)
    with gpu.current():
        x, offsets, documents, _ = _pools(gpu, X, pool_offsets, doc_ids)
        known = bounds(gpu, x, offsets, documents)
        degree = gpu.empty(len(documents), "float32")
        pools = gpu.memory(offsets), gpu.memory(documents)
        with gpu.queue(_degree_workspace(offsets, known)) as queue:
            call_gpu(
                native.cuda.weighted_degree,
                X=x.arguments,
                pools=pools,
                weight=weight,
                bounds=known,
                degree=gpu.memory(degree),
                queue=queue,
            )
        return degree


def degree_rank(
    X: Any, pool_offsets: Any, doc_ids: Any, semantic: Any, weight: str = "sum", alpha: float = 0.85
) -> tuple[Any, Any]:
    """Compute (degree, score) in one kernel. `degree` is the result of `weighted_degree`. `score` is the
    result of `graph_rank` for the scores `semantic` and this degree."""
    gpu = Gpu(doc_ids, pool_offsets)
    with gpu.current():
        x, offsets, documents, _ = _pools(gpu, X, pool_offsets, doc_ids)
        known = bounds(gpu, x, offsets, documents)
        scores = gpu.array("semantic", semantic, "float32")
        degree, score = gpu.empty(len(documents), "float32"), gpu.empty(len(documents), "float32")
        pools = gpu.memory(offsets), gpu.memory(documents)
        with gpu.queue(_degree_workspace(offsets, known)) as queue:
            call_gpu(
                native.cuda.degree_rank,
                X=x.arguments,
                pools=pools,
                semantic=gpu.memory(scores),
                weight=weight,
                alpha=alpha,
                bounds=known,
                degree=gpu.memory(degree),
                score=gpu.memory(score),
                queue=queue,
            )
        return degree, score


def _degree_workspace(offsets: Any, known: Bounds) -> int:
    return call_gpu(native.cuda.weighted_degree_workspace, pool_count=len(offsets) - 1, bounds=known)


def graph_rank(semantic: Any, structural: Any, pool_offsets: Any, alpha: float) -> Any:
    """Compute the GraphRank score of each node."""
    gpu = Gpu(semantic, structural, pool_offsets)
    with gpu.current():
        sem, struct = gpu.array("semantic", semantic, "float32"), gpu.array("structural", structural, "float32")
        offsets = gpu.array("pool_offsets", pool_offsets, "int64")
        score = gpu.empty(len(sem), "float32")
        with gpu.queue(0) as queue:
            call_gpu(
                native.cuda.graph_rank,
                semantic=gpu.memory(sem),
                structural=gpu.memory(struct),
                pool_offsets=gpu.memory(offsets),
                alpha=alpha,
                score=gpu.memory(score),
                queue=queue,
            )
        return score


def pagerank(
    graph: tuple[Any, Any, Any, Any], damping: float, shares: Any, tolerance: float, max_iterations: int
) -> tuple[Any, Any]:
    """Compute the rank of each node (on the GPU), and whether each pool converged (on the CPU).

    To find out which pools converged, the function waits until the stream has finished. If `max_iterations`
    is large enough for `tolerance`, every pool surely converges. The function then does not wait, and the
    second array is empty.
    """
    gpu = Gpu(*graph)
    with gpu.current():
        kinds = ("pool_offsets", "int64"), ("indptr", "int64"), ("indices", "int32"), ("weights", "float32")
        arrays = [gpu.array(f"g.{name}", value, dtype) for (name, dtype), value in zip(kinds, graph, strict=True)]
        nodes = max(len(arrays[1]) - 1, 0)
        given = gpu.empty(0, "float32") if shares is None else gpu.array("personalization", shares, "float32")
        if shares is not None and len(given) != nodes:
            raise ArrayError(f"personalization: expected {nodes} numbers, got {len(given)}")
        rank = gpu.empty(nodes, "float32")
        converged = gpu.empty(max(len(arrays[0]) - 1, 0), "uint8")
        converged[...] = 1
        pool_offsets, indptr, indices, weights = (gpu.memory(each) for each in arrays)
        workspace = call_gpu(native.cuda.pagerank_workspace, node_count=nodes, edge_count=len(arrays[2]))
        with gpu.queue(workspace) as queue:
            call_gpu(
                native.cuda.pagerank,
                g=(pool_offsets, indptr, indices, weights),
                personalization=gpu.memory(given),
                damping=damping,
                tolerance=tolerance,
                max_iterations=max_iterations,
                rank=gpu.memory(rank),
                converged=gpu.memory(converged),
                queue=queue,
            )
        # The first step changes the ranks by at most 2 in sum, and each later step by `damping` times as much.
        surely = tolerance > 0 and 2 * damping**max_iterations <= tolerance
        return rank, np.ones(0, np.uint8) if surely else gpu.numpy(converged)


Lists = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses of the arrays of an `ops.Stream` and its cursors, on the GPU. `held` has the arrays, so
    that their memory is not freed.
    """

    stream: tuple[int, Memory, Memory, Memory]
    cursors: tuple[Memory, tuple[Memory, Memory], tuple[Memory, Memory]]
    count: int
    selected: int
    held: list[Any]


def _places(gpu: Gpu, size: int, order: Any, mask: Any, live: Any, cursors: tuple[Any, Lists, Lists]) -> Places:
    place, selected, priors = cursors
    fixed = [
        gpu.array("order", order, "int64"),
        gpu.array("tombstones", mask, "uint8"),
        gpu.array("tombstones", live, "int64"),
    ]
    held = [gpu.array("place", place, "int64")]
    for name, lists in (("selected", selected), ("priors", priors)):
        held += [gpu.array(name, part, "int64") for part in lists]
    at = [gpu.memory(each) for each in held]
    stream = size, gpu.memory(fixed[0]), gpu.memory(fixed[1]), gpu.memory(fixed[2])
    batch = at[0], (at[1], at[2]), (at[3], at[4])
    return Places(stream, batch, len(held[0]), len(held[2]), fixed + held)


def window(size: int, order: Any, mask: Any, live: Any, cursors: tuple[Any, Lists, Lists], width: int) -> Lists:
    """Compute the window of each cursor. Returns (offsets, segments).

    `size` is the number of segments of the corpus. `order`, `mask` (the tombstones) and `live` are arrays of
    the stream. `cursors` is (places, selected segments, priors).
    """
    gpu = Gpu(order)
    with gpu.current():
        places = _places(gpu, size, order, mask, live, cursors)
        width = min(width, len(order) + places.cursors[2][1][1])
        offsets = gpu.empty(places.count + 1, "int64")
        segments = gpu.empty(places.count * max(width, 0), "int64")
        workspace = call_gpu(
            native.cuda.window_workspace, stream=places.stream, cursors=places.cursors, width=width
        )
        with gpu.queue(workspace) as queue:
            call_gpu(
                native.cuda.window,
                stream=places.stream,
                cursors=places.cursors,
                width=width,
                offsets=gpu.memory(offsets),
                segments=gpu.memory(segments),
                queue=queue,
            )
        return offsets, segments[: int(offsets[-1])]


def refresh(
    size: int, order: Any, mask: Any, live: Any, cursors: tuple[Any, Lists, Lists], chosen: Lists, past: int
) -> tuple[Any, Lists]:
    """Compute the cursors after a step. Returns (place, selected): the new places of the cursors, and the
    segments that each question has selected so far, as (offsets, segments).

    `chosen` and `past` are as in `ops.Stream.refresh`, and all other arguments as in `window`.
    """
    gpu = Gpu(order)
    with gpu.current():
        places = _places(gpu, size, order, mask, live, cursors)
        picked = [gpu.array("chosen", part, "int64") for part in chosen]
        choices = gpu.memory(picked[0]), gpu.memory(picked[1])
        place, offsets = gpu.empty(places.count, "int64"), gpu.empty(places.count + 1, "int64")
        segments = gpu.empty(places.selected + len(picked[1]), "int64")
        workspace = call_gpu(native.cuda.refresh_workspace, cursors=places.cursors, chosen=choices)
        with gpu.queue(workspace) as queue:
            call_gpu(
                native.cuda.refresh,
                stream=places.stream,
                cursors=places.cursors,
                chosen=choices,
                past=past,
                place=gpu.memory(place),
                offsets=gpu.memory(offsets),
                segments=gpu.memory(segments),
                queue=queue,
            )
        return place, (offsets, segments[: int(offsets[-1])])


def maxsim(
    queries: Any, query_offsets: Any, tokens: Any, token_offsets: Any, pairs: Any, scales: Any | None
) -> Any:
    """Compute the late-interaction score of each pair (query, document)."""
    gpu = Gpu(queries, tokens)
    with gpu.current():
        for name, value in (("queries", queries), ("tokens", tokens), ("pairs", pairs)):
            if len(getattr(value, "shape", ())) != 2:
                raise ArrayError(f"{name}: expected an array of two dimensions")
        asked = gpu.array("queries", queries.reshape(-1), "float32")
        dimensions = int(queries.shape[1])
        if int(tokens.shape[1]) != dimensions or int(pairs.shape[1]) != 2:
            raise ArrayError("tokens, pairs: expected [tokens, dimensions] and [N, 2]")
        vectors = gpu.array("tokens", tokens.reshape(-1), "float32" if scales is None else "int8")
        scaled = None if scales is None else gpu.array("scales", scales, "float32")
        begins = gpu.array("query_offsets", query_offsets, "int64")
        ends = gpu.array("token_offsets", token_offsets, "int64")
        compared = gpu.array("pairs", pairs.reshape(-1), "int64")
        scores = gpu.empty(len(compared) // 2, "float32")
        count = len(asked) // max(dimensions, 1)
        workspace = call_gpu(native.cuda.maxsim_workspace, query_tokens=count, dimensions=dimensions)
        with gpu.queue(workspace) as queue:
            call_gpu(
                native.cuda.maxsim,
                queries=gpu.memory(asked),
                query_offsets=gpu.memory(begins),
                tokens=gpu.memory(vectors),
                scales=None if scaled is None else gpu.memory(scaled),
                token_offsets=gpu.memory(ends),
                pairs=gpu.memory(compared),
                dimensions=dimensions,
                scores=gpu.memory(scores),
                queue=queue,
            )
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


def _pools(
    gpu: Gpu, X: Any, pool_offsets: Any, doc_ids: Any, mask_terms: Any = None
) -> tuple[Forward, Any, Any, tuple[Any, Any] | None]:
    offsets = gpu.array("pool_offsets", pool_offsets, "int64")
    if not len(offsets):
        raise ArrayError("pool_offsets: must have one number more than there are lists, and start at 0")
    mask = None
    if mask_terms is not None:
        if not isinstance(mask_terms, tuple) or len(mask_terms) != 2:
            raise ArrayError("mask_terms: expected a pair (offsets, values)")
        mask = gpu.array("mask_terms", mask_terms[0], "int64"), gpu.array("mask_terms", mask_terms[1], "int32")
    return forward(gpu, X), offsets, gpu.array("doc_ids", doc_ids, "int32"), mask
