"""The ops on this machine's GPU, beside the CPU and beside their peers there: `make gpu-check` runs it.

    python benchmarks/gpu.py               on a GPU, with torch
    python benchmarks/gpu.py --emulated    small shapes over the emulator of tests/cuda: whether this file works

Results are compared before anything is timed. Times are medians between two events around a call from Python,
after a warm-up. All that a call does is in them: of ours the checks, the sizes of the pools, the status word and
the results. The CPU's are of all cores. The limit is the time in which the card copies the bytes that an op must
read and write at least once, at the rate that is measured first. For maxsim it is the time of its products at the
rate of torch's: of float16 for codes, and half that of float32 for floats, because a sum without contraction takes
two instructions for each product. Peers that are not installed are left out; what one of them
fails with is noted beside our time. Writes benchmarks/results/<device>.json. The emulator's times say nothing, and
are not written.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_array

from pyfast import _native, ops
from pyfast.ops.backend import errors_at_end, require_gpu
from pyfast.ops.gpu import degree_rank

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"
EMULATOR = Path(__file__).parents[1] / "tests" / "cuda"
POOLS, DOCUMENTS, TERMS, VOCABULARY = 1_000, 50, 73, 30_000


class Card:
    """A GPU: how arrays get there and back, and how long work takes there."""

    emulated = False

    def __init__(self) -> None:
        require_gpu()
        self.name = torch.cuda.get_device_name()
        there = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        self.rate = 2 * there.numel() / self.median_ms(there.clone)  # bytes read and written, for each millisecond

    def put(self, array: Any) -> Any:
        return torch.tensor(np.asarray(array)).cuda()

    def get(self, array: Any) -> Any:
        return array.cpu().numpy()

    def matrix(self, X: csr_array) -> Any:
        return torch.sparse_csr_tensor(*map(self.put, (X.indptr, X.indices, X.data)), size=X.shape)

    def stream(self, stream: ops.Stream) -> ops.Stream:
        return stream.on_gpu("torch")

    def shapes(self, full: T, small: T) -> T:
        """`small` is for the emulator."""
        return full

    def products_ms(self, products: float, dtype: torch.dtype) -> float:
        """How long torch takes for so many products of a matrix product."""
        n = 4096
        a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        return self.median_ms(lambda: a @ b, 5) * products / n**3

    def median_ms(self, work: Callable[[], Any], repeats: int = 20) -> float:
        for _ in range(3):
            work()
        times = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)


class EmulatedCard(Card):
    """The emulator, behind what stands for CuPy. `native` are the bindings of the ops on a GPU, linked with it."""

    emulated = True

    def __init__(self, native: Any) -> None:
        from emulated_cupy import emulated_cupy

        self.name, self.rate = "the emulator", 1e9
        self.cupy = emulated_cupy(native)
        sys.modules["cupy"] = self.cupy
        _native.cuda = native.cuda

    def put(self, array: Any) -> Any:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> Any:
        return self.cupy.asnumpy(array)

    def matrix(self, X: csr_array) -> Any:
        parts = {name: self.put(getattr(X, name)) for name in ("indptr", "indices", "data")}
        return SimpleNamespace(format="csr", shape=X.shape, **parts)

    def stream(self, stream: ops.Stream) -> ops.Stream:
        return stream.on_gpu("cupy")

    def shapes(self, full: T, small: T) -> T:
        return small

    def products_ms(self, products: float, dtype: torch.dtype) -> float:
        return 0.0

    def median_ms(self, work: Callable[[], Any], repeats: int = 1) -> float:
        return cpu_ms(work, 1)


def cpu_ms(work: Callable[[], Any], repeats: int = 3) -> float:
    work()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


@dataclass(frozen=True)
class Timed:
    op: str
    ms: float
    cpu_ms: float
    limit_ms: float
    peer: str = ""
    peer_ms: float | None = None
    peer_error: str | None = None

    def __str__(self) -> str:
        said = f"{self.op}: {self.ms:.3f} ms, {self.limit_ms / self.ms:.1%} of the limit; CPU {self.cpu_ms:.2f} ms"
        other = self.peer_error or ("" if self.peer_ms is None else f"{self.peer_ms:.3f} ms")
        return said + (other and f"; {self.peer} {other}")


def timed(
    card: Card,
    op: str,
    work: Callable[[], Any],
    *,
    cpu: Callable[[], Any],
    bytes: float = 0,
    limit_ms: float = 0,
    peer: str = "",
    peer_ms: Callable[[], float | None] = lambda: None,
) -> Timed:
    """Our time beside the CPU's and the peer's.

    Args:
        work, cpu: The same call there and here.
        bytes: What the op must read and write at least.
        limit_ms: The time that its arithmetic takes at least, if that is more.
        peer, peer_ms: What it is compared with, and a function that measures it. What the function raises costs
            that one number alone.
    """
    with errors_at_end():
        ms = card.median_ms(work)
    here, limit = cpu_ms(cpu), max(bytes / card.rate, limit_ms)
    try:
        return Timed(op, ms, here, limit, peer, None if card.emulated else peer_ms())
    except Exception as error:  # of whatever kind the peer's are
        return Timed(op, ms, here, limit, peer, peer_error=f"{type(error).__name__}: {error}")


def package(name: str) -> Any:
    """A package, or None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def forward_index(documents: int | None = None) -> csr_array:
    """As many documents as the pools have, terms drawn with a long tail, as in a text."""
    random = np.random.default_rng(0)
    left = POOLS * DOCUMENTS if documents is None else documents
    counts, terms = [], []
    for first in range(0, left, 10_000):
        shape = min(10_000, left - first), 2 * TERMS
        drawn = np.sort((random.pareto(1.1, shape) * 10).astype(np.int64) % VOCABULARY, axis=1)
        new = np.diff(drawn, axis=1, prepend=-1) > 0
        new &= new.cumsum(axis=1) <= TERMS
        counts.append(new.sum(axis=1))
        terms.append(drawn[new].astype(np.int32))
    indptr, indices = np.concatenate([[0], *counts]).cumsum().astype(np.int32), np.concatenate(terms)
    weights = random.random(len(indices), dtype=np.float32)
    return csr_array((weights, indices, indptr), shape=(left, VOCABULARY))


def pool_ops(card: Card) -> Iterator[Timed]:
    full = (1_000, 10), (POOLS, DOCUMENTS), (1_000, 200), (200, 500)
    for pools, documents in card.shapes(full, ((3, 10), (1, 70))):
        yield from of_pools(card, pools, documents)


def of_pools(card: Card, pools: int, documents: int) -> Iterator[Timed]:
    X = forward_index(pools * documents)
    offsets, docs = np.arange(pools + 1) * documents, np.arange(pools * documents, dtype=np.int32)
    semantic = np.random.default_rng(1).random(len(docs), dtype=np.float32)
    there, given, scores = card.matrix(X), (card.put(offsets), card.put(docs)), card.put(semantic)

    degree, score = degree_rank(there, *given, scores)
    expected = ops.weighted_degree(X, offsets, docs)
    np.testing.assert_allclose(card.get(degree), expected, rtol=1e-6)
    ranked = ops.graph_rank(semantic, expected, offsets)
    np.testing.assert_allclose(card.get(score), ranked, rtol=1e-4, atol=1e-6)
    graph, own = ops.evidence_graph(there, *given), ops.evidence_graph(X, offsets, docs)
    np.testing.assert_array_equal(card.get(graph.indices), own.indices)
    np.testing.assert_allclose(card.get(graph.weights), own.weights, rtol=1e-5)
    np.testing.assert_allclose(card.get(ops.pagerank(graph)), ops.pagerank(own), rtol=1e-5)

    nodes, edges = len(docs), len(own.indices)
    rows = X.nnz * 8 + nodes * 8 + pools * 8  # term ids and weights; where rows begin, document ids; pools
    degrees = {"cpu": lambda: ops.weighted_degree(X, offsets, docs), "bytes": rows + nodes * 4}
    shape = f", {pools:,} pools of {documents}"
    yield timed(
        card,
        "degree_rank" + shape,
        lambda: degree_rank(there, *given, scores),
        cpu=lambda: ops.graph_rank(semantic, ops.weighted_degree(X, offsets, docs), offsets),
        bytes=rows + nodes * 12,
    )
    yield timed(card, "weighted_degree" + shape, lambda: ops.weighted_degree(there, *given), **degrees)
    yield timed(
        card,
        "graph_rank" + shape,
        lambda: ops.graph_rank(scores, degree, given[0]),
        cpu=lambda: ops.graph_rank(semantic, expected, offsets),
        bytes=nodes * 12 + pools * 8,
    )
    yield timed(
        card,
        "evidence_graph" + shape,
        lambda: ops.evidence_graph(there, *given),
        cpu=lambda: ops.evidence_graph(X, offsets, docs),
        bytes=rows + edges * 8 + nodes * 8,
        peer="CuPy",
        peer_ms=lambda: cupy_graphs(card, X, np.repeat(np.arange(pools), documents), edges),
    )
    yield timed(
        card,
        "pagerank" + shape,
        lambda: ops.pagerank(graph),
        cpu=lambda: ops.pagerank(own),
        bytes=edges * 8 + nodes * 12 + pools * 8,
        peer="cuGraph",
        peer_ms=lambda: cugraph_ranks(card, graph, documents),
    )


def cupy_graphs(card: Card, X: csr_array, blocks: Any, edges: int) -> float | None:
    """What a user of CuPy writes: two sparse products, of all pools at once in blocks of one matrix."""
    cupy = package("cupy")
    if cupy is None:
        return None
    sparse = import_module("cupyx.scipy.sparse")
    # each pool has columns of its own
    columns = X.indices.astype(np.int64) + np.repeat(blocks, np.diff(X.indptr)) * VOCABULARY
    columns = np.unique(columns, return_inverse=True)[1].astype(np.int32)
    weights = sparse.csr_matrix((cupy.asarray(X.data), cupy.asarray(columns), cupy.asarray(X.indptr)))
    held = weights.copy()
    held.data[:] = 1

    def product() -> Any:
        half = weights @ held.T
        return half + half.T

    found = product().tocoo()
    assert int((found.row != found.col).sum()) == edges
    return card.median_ms(product, 5)


def cugraph_ranks(card: Card, graph: Any, documents: int) -> float | None:
    """cuGraph's PageRank of all pools as one graph: other ranks, because it is one walk, but the same work."""
    cugraph, cudf = package("cugraph"), package("cudf")
    if cugraph is None or cudf is None:
        return None
    counts = graph.indptr[1:] - graph.indptr[:-1]
    rows = torch.repeat_interleave(torch.arange(len(counts), device="cuda"), counts)
    frame = cudf.DataFrame(
        {
            "source": rows.cpu().numpy(),
            "target": (rows // documents * documents + graph.indices).cpu().numpy(),
            "weight": graph.weights.cpu().numpy(),
        }
    )
    whole = cugraph.Graph(directed=True)
    whole.from_cudf_edgelist(frame, source="source", destination="target", edge_attr="weight")
    return card.median_ms(lambda: cugraph.pagerank(whole, tol=1e-8, max_iter=1000))


def stream_ops(card: Card) -> Iterator[Timed]:
    full = (100_000, 1_000), (1_000_000, 1_000), (1_000_000, 10_000)
    for segments, questions in card.shapes(full, ((300, 4),)):
        yield from of_stream(card, segments, questions)


def of_stream(card: Card, segments: int, questions: int, prior: int = 40, width: int = 32) -> Iterator[Timed]:
    """Windows and steps of questions that have a prior and have selected some of it; cursors are on the card."""
    random = np.random.default_rng(0)
    levels = random.integers(0, 9, segments)
    here = ops.hseq_stream(levels, np.full(segments, -1), priority=[2, 5, 3, 1, 0, 4, 6, 8, 7])
    here = here.delete(random.integers(0, segments, segments // 10))
    drawn = (random.integers(0, segments, (questions, 1)) + np.arange(prior)) % segments
    begin = here.cursors(priors=(np.arange(questions + 1) * prior, drawn.ravel()))
    chosen = np.arange(questions + 1) * 8, drawn[:, :8].ravel()
    cursors = here.refresh(begin, chosen)
    there = card.stream(here)
    step = there.refresh(begin, tuple(map(card.put, chosen)))
    on_card = ops.Cursors(step.place, step.selected, tuple(map(card.put, begin.priors)))
    window, expected = there.window(on_card, width), here.window(cursors, width)
    for found, wanted in zip((*window, step.place), (*expected, cursors.place), strict=True):
        np.testing.assert_array_equal(card.get(found), wanted)

    shape, held = f", {segments:,} segments, {questions:,} cursors", questions * (prior + 8) * 8
    yield timed(
        card,
        f"hseq_stream.window of {width}" + shape,
        lambda: there.window(on_card, width),
        cpu=lambda: here.window(cursors, width),
        bytes=held + questions * (width * 16 + 32),
    )
    more = np.arange(questions + 1) * 4, expected[1].reshape(questions, width)[:, :4].ravel()
    lists = tuple(map(card.put, more))
    yield timed(
        card,
        "hseq_stream.refresh" + shape,
        lambda: there.refresh(on_card, lists),
        cpu=lambda: here.refresh(cursors, more),
        bytes=held + questions * (8 * 8 + 2 * 4 * 8 + 48),
    )


def maxsim_ops(card: Card) -> Iterator[Timed]:
    full = (64, 32, 1_000, 128, 128), (1, 32, 1_000, 180, 128), (64, 32, 200, 180, 384)
    for shape in card.shapes(full, ((2, 5, 3, 33, 48),)):
        for coded in (False, True):
            yield of_maxsim(card, *shape, coded)


def of_maxsim(
    card: Card, asked: int, words: int, documents: int, tokens: int, dimensions: int, coded: bool
) -> Timed:
    """Every query against every document."""
    random = np.random.default_rng(0)
    queries = random.standard_normal((asked * words, dimensions), dtype=np.float32)
    vectors = random.standard_normal((documents * tokens, dimensions), dtype=np.float32)
    pairs = np.stack(np.meshgrid(np.arange(asked), np.arange(documents), indexing="ij"), -1).reshape(-1, 2)
    scales = (np.abs(vectors).max(1) / 127).astype(np.float32) if coded else None
    given = vectors if scales is None else np.round(vectors / scales[:, None]).astype(np.int8)
    ends = np.arange(asked + 1) * words, np.arange(documents + 1) * tokens
    here = queries, ends[0], given, ends[1], pairs, scales
    there = [None if each is None else card.put(each) for each in here]
    expected = ops.maxsim(*here)
    np.testing.assert_array_equal(card.get(ops.maxsim(*there)), expected)
    dtype = torch.float16 if coded else torch.float32
    products = queries.size * documents * tokens

    def time_of_torch() -> float:
        """One matrix product, the best of each document, their sum."""
        q, d = (torch.tensor(each).cuda().to(dtype) for each in (queries, vectors))

        def plain() -> Any:
            best = (q @ d.T).view(asked, words, documents, tokens).amax(-1)
            return best.float().sum(1)

        np.testing.assert_allclose(plain().cpu().numpy().ravel(), expected, rtol=0.05)
        return card.median_ms(plain)

    kind, shape = (
        "int8" if coded else "float32",
        f"{asked} queries of {words}, {documents:,} documents of {tokens}",
    )
    return timed(
        card,
        f"maxsim, {kind}, {shape}, {dimensions} dimensions",
        lambda: ops.maxsim(*there),
        cpu=lambda: ops.maxsim(*here),
        bytes=queries.nbytes + given.nbytes + pairs.nbytes + expected.nbytes,
        limit_ms=card.products_ms(products, dtype) * (1 if coded else 2),
        peer=f"torch {str(dtype).removeprefix('torch.')}",
        peer_ms=time_of_torch,
    )


def gatv2_ops(card: Card) -> Iterator[Timed]:
    random = np.random.default_rng(0)
    full = (8_000, 24_000, 2, 288), (20_000, 180_000, 2, 512)
    for n, edges, heads, channels in card.shapes(full, ((40, 150, 2, 17),)):
        sources, targets = random.integers(0, n, edges), np.sort(random.integers(0, n, edges))
        indptr = np.searchsorted(targets, np.arange(n + 1))
        x_src, x_dst = (random.standard_normal((n, heads, channels), dtype=np.float32) for _ in range(2))
        att = random.standard_normal((heads, channels), dtype=np.float32) / np.float32(channels**0.5)
        here = x_src, x_dst, indptr, sources, att
        shape = f"gatv2, n={n:,}, E={edges:,}, {heads}x{channels}"
        if card.emulated:  # the derivatives are torch's, for which nothing stands in
            there = tuple(map(card.put, here))
            np.testing.assert_allclose(card.get(ops.gatv2(*there)), ops.gatv2(*here), rtol=1e-4, atol=1e-5)
            yield timed(card, shape, lambda there=there: ops.gatv2(*there), cpu=lambda here=here: ops.gatv2(*here))
            continue
        for dtype in (torch.float32, torch.bfloat16):
            row = heads * channels * dtype.itemsize
            shares = edges * heads * 4
            # Each edge reads the row of its source, the derivative thrice, and a row by the destination.
            limits = (edges + 2 * n) * row + shares + edges * 8, (4 * edges + 5 * n) * row + shares + edges * 8
            name = f"{shape}, {str(dtype).removeprefix('torch.')}"
            yield from gatv2_times(card, name, here, torch.tensor(targets).cuda(), dtype, limits)


def gatv2_times(
    card: Card, name: str, arrays: tuple[Any, ...], targets: Any, dtype: torch.dtype, bytes: tuple[float, float]
) -> Iterator[Timed]:
    def on(device: str) -> tuple[list[Any], Callable[[], Any]]:
        """The layer, and its forward."""
        x_src, x_dst, indptr, indices, att = (torch.tensor(each, device=device) for each in arrays)
        layer = [each.to(dtype).requires_grad_() for each in (x_src, x_dst, att)]
        return layer, lambda: ops.gatv2(layer[0], layer[1], indptr, indices, layer[2])

    layer, ours = on("cuda")
    here, own = on("cpu")
    sources = torch.tensor(arrays[3]).cuda()

    def plain() -> Any:
        return theirs(layer, sources, targets)

    def time_of_plain(place: int) -> float:
        torch.testing.assert_close(plain().float(), y.float(), rtol=3e-2, atol=3e-2)
        return card.median_ms(ways(plain, layer)[place])

    with torch.no_grad():
        y = ours()
        torch.testing.assert_close(y.cpu().float(), own().float(), rtol=3e-2, atol=3e-2)
    with errors_at_end():  # also for the backward of a forward that was made before it is timed
        for place, ending in enumerate(("", ", backward", ", forward and backward")):
            yield timed(
                card,
                name + ending,
                ways(ours, layer)[place],
                cpu=ways(own, here)[place],
                bytes=(*bytes, sum(bytes))[place],
                peer="PyG",
                peer_ms=lambda place=place: time_of_plain(place),
            )


def ways(forward: Callable[[], Any], layer: list[Any]) -> list[Callable[[], Any]]:
    """Forward, backward alone, and both."""
    y = forward()
    flow = torch.ones_like(y)
    return [
        forward,
        lambda: torch.autograd.grad(y, layer, flow, retain_graph=True),
        lambda: torch.autograd.grad(forward(), layer, flow),
    ]


def theirs(layer: list[Any], sources: Any, targets: Any) -> Any:
    """PyG's layer without its projections."""
    from torch_geometric.utils import scatter, softmax

    x_src, x_dst, att = layer
    met = torch.nn.functional.leaky_relu(x_src[sources] + x_dst[targets], 0.2)
    shares = softmax((met * att).sum(-1), targets, num_nodes=len(x_dst))
    return scatter(shares[..., None] * x_src[sources], targets, 0, len(x_dst), reduce="sum")


OPS = (pool_ops, stream_ops, maxsim_ops, gatv2_ops)


def measure(card: Card) -> Iterator[Timed]:
    return chain.from_iterable(each(card) for each in OPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulated", action="store_true", help="small shapes over the emulator")
    if parser.parse_args().emulated:
        sys.path.append(str(EMULATOR))
        from emulated_module import build_module

        with tempfile.TemporaryDirectory() as folder:
            for each in measure(EmulatedCard(build_module(Path(folder)))):
                print(f"{each.op}: right", flush=True)
        return
    card = Card()
    path = RESULTS / (re.sub(r"[^a-z0-9]+", "-", card.name.lower()).strip("-") + ".json")
    head = {"device": card.name, "torch": torch.__version__, "copied_gb_s": card.rate / 1e6}
    found: list[dict[str, Any]] = []
    print(f"{card.name}, copies at {card.rate / 1e6:,.0f} GB/s", flush=True)
    for each in measure(card):
        found.append(asdict(each))
        print(each, flush=True)
        path.write_text(json.dumps({**head, "ops": found}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
