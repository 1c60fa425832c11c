"""The ops on a device that the tests execute on the CPU, with the arguments of pyfast.ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from emulated import MOST_BLOCKS, Argument, Array, Driver, InOut, Out, Scratch
from scipy.sparse import csr_array

from pyfast.ops import EvidenceGraph
from pyfast.ops.hseq_stream import Cursors, Stream

WEIGHTS = {"sum": 0, "dot": 1, "min": 2}
FAULTS = (
    *("offsets", "documents", "rows", "weights", "masked", "bounds", "scores", "edges", "edge_weights"),
    *("segments", "places", "tombstones", "sources", "pairs"),
)


class Device(Protocol):
    @property
    def driver(self) -> Driver: ...

    def call(self, name: str, *arguments: Argument) -> list[Array]: ...


class Malformed(Exception):
    """The op left faults in the status word; holds their names."""


def few_blocks(name: str) -> int:
    """The size of the small grids. One kernel of the derivative does not loop: it adds up few numbers."""
    return MOST_BLOCKS if name.startswith("gatv2_backward") else 2


class TwoWays:
    """A driver of which each call is made twice: threads and blocks in order, then not, over other poison, and in
    small grids where kernels loop over what is left.

    The two must agree in every bit: a result depends neither on what comes first nor on memory that nobody wrote.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def call(self, name: str, *arguments: Argument) -> list[Array]:
        results = self.driver.call(name, *arguments)
        again = self.driver.call(name, *arguments, seed=7, poison=0x5A, most_blocks=few_blocks(name))
        for first, second in zip(results, again, strict=True):
            written = _differ(first, second)
            assert not written.any(), f"{name}: depends on order, or on memory that was not written, at {written}"
        return results


class InTurns:
    """A driver of which every other call has small grids, where kernels loop over what is left."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._few = False

    def call(self, name: str, *arguments: Argument) -> list[Array]:
        self._few = not self._few
        return self.driver.call(name, *arguments, most_blocks=few_blocks(name) if self._few else MOST_BLOCKS)


def _differ(first: Array, second: Array) -> Array:
    """Where bits differ, but for bytes that neither way has written."""
    a, b = first.ravel().view(np.uint8), second.ravel().view(np.uint8)
    return np.flatnonzero((a != b) & ~((a == 0xFF) & (b == 0x5A)))


def _call(device: Device, name: str, workspace: int, *arguments: Argument) -> list[Array]:
    *results, status = device.call(name, *arguments, InOut(np.zeros(1, np.int32)), Scratch(workspace))
    if status[0]:
        raise Malformed(" ".join(name for bit, name in enumerate(FAULTS) if status[0] >> bit & 1))
    return results


def _size(device: Device, name: str, *arguments: Argument) -> int:
    return int(device.driver.call(f"{name}_workspace", *arguments, Out((1,), np.uint64))[-1][0])


def _forward(X: csr_array) -> list[Argument]:
    wide = X.indptr.dtype == np.int64
    return [
        int(wide),
        X.indptr,
        int(wide),
        X.indices.astype(X.indptr.dtype),
        X.data.astype(np.float32),
        X.shape[1],
    ]


def _ragged(offsets: Array, values: Array, dtype: type = np.int32) -> list[Argument]:
    return [np.asarray(offsets, np.int64), np.asarray(values, dtype)]


def bounds(X: csr_array, offsets: Array, docs: Array) -> list[Argument]:
    """Documents, pairs and entries, as pyfast::cuda::Bounds has them; no larger than need be."""
    sizes = np.diff(offsets)
    return [int(max(sizes, default=0)), int(np.sum(sizes**2)), int(np.diff(X.indptr)[docs].sum())]


def pool_bounds(device: Device, X: csr_array, offsets: Array, docs: Array) -> list[int]:
    """The same, as the device finds them."""
    found = _call(device, "pool_bounds", 0, *_forward(X), *_ragged(offsets, docs), Out((3,), np.int64))[0]
    return [int(number) for number in found]


def weighted_degree(device: Device, X: csr_array, offsets: Array, docs: Array, weight: str = "sum") -> Array:
    workspace = _size(device, "weighted_degree", len(docs))
    pools = [*_forward(X), *_ragged(offsets, docs), WEIGHTS[weight]]
    return _call(device, "weighted_degree", workspace, *pools, Out((len(docs),), np.float32))[0]


def degree_rank(
    device: Device, X: csr_array, offsets: Array, docs: Array, semantic: Array, weight: str, alpha: float
) -> tuple[Array, Array]:
    """Weighted degree and graph_rank in one."""
    workspace = _size(device, "weighted_degree", len(docs))
    pools = [*_forward(X), *_ragged(offsets, docs), semantic, WEIGHTS[weight], alpha]
    out = Out((len(docs),), np.float32)
    degree, score = _call(device, "degree_rank", workspace, *pools, out, out)
    return degree, score


def graph_rank(device: Device, semantic: Array, structural: Array, offsets: Array, alpha: float) -> Array:
    arguments = [semantic, structural, np.asarray(offsets, np.int64), alpha]
    return _call(device, "graph_rank", 0, *arguments, Out((len(semantic),), np.float32))[0]


def evidence_graph(
    device: Device,
    X: csr_array,
    offsets: Array,
    docs: Array,
    weight: str = "sum",
    threshold: float = 0.0,
    top_k: int | None = None,
    mask_terms: tuple[Array, Array] | None = None,
) -> EvidenceGraph:
    known = bounds(X, offsets, docs)
    workspace = _size(device, "evidence_graph", len(offsets) - 1, len(docs), *known)
    mask = _ragged(*mask_terms) if mask_terms is not None else [np.zeros(0, np.int64), np.zeros(0, np.int32)]
    options = [WEIGHTS[weight], threshold, top_k or 0, *known]
    pairs = int(np.sum(np.diff(offsets) ** 2))
    indptr, indices, weights = _call(
        device,
        "evidence_graph",
        workspace,
        *[*_forward(X), *_ragged(offsets, docs), *mask, *options],
        *[Out((len(docs) + 1,), np.int64), Out((pairs,), np.int32), Out((pairs,), np.float32)],
    )
    return EvidenceGraph(np.asarray(offsets, np.int64), indptr, indices[: indptr[-1]], weights[: indptr[-1]])


def pagerank(
    device: Device, g: EvidenceGraph, damping: float = 0.85, personalization: Array | None = None
) -> Array:
    return pagerank_within(device, g, damping, personalization, 1000)[0]


def pagerank_within(
    device: Device, g: EvidenceGraph, damping: float, personalization: Array | None, max_iterations: int
) -> tuple[Array, Array]:
    """The ranks, and of each pool whether it converged."""
    nodes, edges = len(g.indptr) - 1, len(g.indices)
    workspace = _size(device, "pagerank", nodes, edges)
    shares = np.zeros(0, np.float32) if personalization is None else personalization
    graph = [g.pool_offsets, g.indptr, g.indices, g.weights]
    out = Out((nodes,), np.float32), Out((max(len(g.pool_offsets) - 1, 0),), np.uint8)
    rank, converged = _call(device, "pagerank", workspace, *graph, shares, damping, max_iterations, *out)
    return rank, converged


def maxsim(
    device: Device,
    queries: Array,
    query_offsets: Array,
    tokens: Array,
    token_offsets: Array,
    pairs: Array,
    scales: Array | None = None,
    precision: str = "float32",
) -> Array:
    """As ops.maxsim; int8 tokens come with scales."""
    workspace = _size(device, "maxsim", *queries.shape)
    name = "maxsim_codes" if scales is not None else "maxsim" if precision == "float32" else "maxsim_bfloat16"
    documents = [tokens.ravel(), np.zeros(0, np.float32) if scales is None else scales]
    offsets = [np.asarray(each, np.int64) for each in (query_offsets, token_offsets)]
    arguments = [queries.ravel(), offsets[0], *documents, offsets[1], pairs.astype(np.int64).ravel()]
    out = Out((len(pairs),), np.float32)
    return _call(device, name, workspace, *arguments, queries.shape[1], out)[0]


def scan(device: Device, numbers: Array) -> Array:
    """The running sums."""
    workspace = _size(device, "scan", len(numbers))
    return _call(device, "scan", workspace, InOut(numbers))[0]


def _stream(stream: Stream) -> list[Argument]:
    return [len(stream), stream.order, stream.starts, stream.tombstones, stream.live]


def _cursors(cursors: Cursors) -> list[Argument]:
    lists = (*_ragged(*cursors.selected, np.int64), *_ragged(*cursors.priors, np.int64))
    return [np.asarray(cursors.place, np.int64), *lists]


def window(device: Device, stream: Stream, cursors: Cursors, width: int) -> tuple[Array, Array]:
    arguments = [*_stream(stream), *_cursors(cursors), width]
    workspace = _size(device, "window", *arguments)
    room = len(cursors) * min(width, len(stream.order) + len(cursors.priors[1]))
    out = (Out((len(cursors) + 1,), np.int64), Out((room,), np.int64))
    offsets, segments = _call(device, "window", workspace, *arguments, *out)
    return offsets, segments[: offsets[-1]]


def refresh(device: Device, stream: Stream, cursors: Cursors, chosen: tuple[Array, Array], past: int) -> Cursors:
    lists = _ragged(*chosen, np.int64)
    workspace = _size(device, "refresh", *_cursors(cursors), *lists)
    n, most = len(cursors), len(cursors.selected[1]) + len(chosen[1])
    out = (Out((n,), np.int64), Out((n + 1,), np.int64), Out((most,), np.int64))
    arguments = [*_stream(stream), *_cursors(cursors), *lists, past]
    place, offsets, segments = _call(device, "refresh", workspace, *arguments, *out)
    return Cursors(place, (offsets, segments[: offsets[-1]]), cursors.priors)


@dataclass(frozen=True)
class Attention:
    """A layer of gatv2 and its options; features are float32, or uint16: the bits of bfloat16."""

    x_src: Array
    x_dst: Array
    indptr: Array
    indices: Array
    att: Array
    slope: float = 0.2
    loops: bool = False
    dropout: float = 0.0
    seed: int = 0
    mask: Array | None = None

    @property
    def kind(self) -> str:
        return "bfloat16" if self.x_src.dtype == np.uint16 else "float32"

    @property
    def edges(self) -> int:
        return len(self.indices) + self.loops * len(self.x_dst)

    def arguments(self) -> list[Argument]:
        wide = self.indices.dtype == np.int64
        layer = [self.indptr, int(wide), self.indices, self.x_src, self.x_dst, self.att, *self.att.shape]
        mask = np.zeros(0, np.uint8) if self.mask is None else self.mask.astype(np.uint8)
        return [*layer, self.slope, int(self.loops), self.dropout, self.seed, int(self.mask is not None), mask]


def gatv2(device: Device, layer: Attention) -> tuple[Array, Array]:
    """y, and the attention [edges, heads]: negative where it is dropped."""
    out = (Out(layer.x_dst.shape, layer.x_dst.dtype), Out((layer.edges, len(layer.att)), np.float32))
    y, attention = _call(device, f"gatv2_{layer.kind}", 0, *layer.arguments(), *out)
    return y, attention


def gatv2_backward(device: Device, layer: Attention, attention: Array, grad: Array) -> list[Array]:
    """The gradients by x_src, x_dst and att."""
    name = f"gatv2_backward_{layer.kind}"
    out = [Out(x.shape, x.dtype) for x in (layer.x_src, layer.x_dst, layer.att)]
    workspace = _size(device, name, *layer.arguments(), *out)
    return _call(device, name, workspace, *layer.arguments(), attention, grad, *out)
