"""The ops on this machine's GPU, beside their peers there and beside the CPU: `make gpu-check` runs it.

    python benchmarks/gpu.py

Results are compared before anything is timed. Times are medians between two events around a call from Python,
after a warm-up. All that a call does is in them: of ours the checks, the sizes of the pools (for which it waits),
the status word and the results; so they are above what cuda_report.py predicts of the kernels alone. Peers that
are not installed are left out; what one of them fails with is noted beside our time. Writes
benchmarks/results/<device>.json.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.ops.backend import errors_at_end, require_gpu
from pyfast.ops.gpu import degree_rank

RESULTS = Path(__file__).parent / "results"
POOLS, DOCUMENTS, TERMS, VOCABULARY = 1_000, 50, 73, 30_000


def median_ms(work: Callable[[], Any], repeats: int = 20) -> float:
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


@dataclass(frozen=True)
class Timed:
    op: str
    ms: float
    peer_ms: float | None = None
    peer_error: str | None = None


def timed(op: str, work: Callable[[], Any], other: Callable[[], float | None] = lambda: None) -> Timed:
    """Our time beside the peer's, which `other` measures; what it raises costs that one number alone."""
    with errors_at_end():
        ms = median_ms(work)
    try:
        return Timed(op, ms, other())
    except Exception as error:  # of whatever kind the peer's are
        return Timed(op, ms, peer_error=f"{type(error).__name__}: {error}")


def peer(name: str) -> Any:
    """A package, or None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def forward_index() -> csr_array:
    """As many documents as the pools have, terms drawn with a long tail, as in a text."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(POOLS * DOCUMENTS):
        drawn = (random.pareto(1.1, 2 * TERMS) * 10).astype(np.int64) % VOCABULARY
        rows.append(np.unique(drawn)[:TERMS])
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.concatenate(rows).astype(np.int32)
    weights = random.random(len(indices), dtype=np.float32)
    return csr_array((weights, indices, indptr), shape=(len(rows), VOCABULARY))


def pool_ops() -> Iterator[Timed]:
    X = forward_index()
    offsets, docs = np.arange(POOLS + 1) * DOCUMENTS, np.arange(POOLS * DOCUMENTS, dtype=np.int32)
    semantic = np.random.default_rng(1).random(len(docs), dtype=np.float32)
    there = torch.sparse_csr_tensor(
        torch.tensor(X.indptr, dtype=torch.int32), torch.tensor(X.indices), torch.tensor(X.data), size=X.shape
    ).cuda()
    given = torch.tensor(offsets).cuda(), torch.tensor(docs).cuda()

    degree, score = degree_rank(there, *given, torch.tensor(semantic).cuda())
    expected = ops.weighted_degree(X, offsets, docs)
    np.testing.assert_allclose(degree.cpu(), expected, rtol=1e-6)
    np.testing.assert_allclose(score.cpu(), ops.graph_rank(semantic, expected, offsets), rtol=1e-4, atol=1e-6)
    graph, own = ops.evidence_graph(there, *given), ops.evidence_graph(X, offsets, docs)
    np.testing.assert_array_equal(graph.indices.cpu(), own.indices)
    np.testing.assert_allclose(graph.weights.cpu(), own.weights, rtol=1e-5)
    np.testing.assert_allclose(ops.pagerank(graph).cpu(), ops.pagerank(own), rtol=1e-5)

    scores = torch.tensor(semantic).cuda()
    yield timed("degree_rank", lambda: degree_rank(there, *given, scores))
    yield timed("weighted_degree", lambda: ops.weighted_degree(there, *given))
    yield timed("graph_rank", lambda: ops.graph_rank(scores, degree, given[0]))
    yield timed("evidence_graph", lambda: ops.evidence_graph(there, *given), lambda: cupy_graphs(X, graph))
    yield timed("pagerank", lambda: ops.pagerank(graph), lambda: cugraph_ranks(graph))


def cupy_graphs(X: csr_array, graph: Any) -> float | None:
    """What a user of CuPy writes: two sparse products, of all pools at once in blocks of one matrix."""
    cupy = peer("cupy")
    if cupy is None:
        return None
    sparse = import_module("cupyx.scipy.sparse")
    blocks = np.repeat(np.arange(POOLS), DOCUMENTS)  # each pool has columns of its own
    entries = np.diff(X.indptr)
    columns = X.indices.astype(np.int64) + np.repeat(blocks, entries) * VOCABULARY
    columns = np.unique(columns, return_inverse=True)[1].astype(np.int32)
    weights = sparse.csr_matrix((cupy.asarray(X.data), cupy.asarray(columns), cupy.asarray(X.indptr)))
    held = weights.copy()
    held.data[:] = 1

    def product() -> Any:
        half = weights @ held.T
        return half + half.T

    found = product().tocoo()
    assert int((found.row != found.col).sum()) == len(graph.indices)
    return median_ms(product)


def cugraph_ranks(graph: Any) -> float | None:
    """cuGraph's PageRank of all pools as one graph: other ranks, because it is one walk, but the same work."""
    cugraph, cudf = peer("cugraph"), peer("cudf")
    if cugraph is None or cudf is None:
        return None
    counts = graph.indptr[1:] - graph.indptr[:-1]
    rows = torch.repeat_interleave(torch.arange(len(counts), device="cuda"), counts)
    frame = cudf.DataFrame(
        {
            "source": rows.cpu().numpy(),
            "target": (rows // DOCUMENTS * DOCUMENTS + graph.indices).cpu().numpy(),
            "weight": graph.weights.cpu().numpy(),
        }
    )
    whole = cugraph.Graph(directed=True)
    whole.from_cudf_edgelist(frame, source="source", destination="target", edge_attr="weight")
    return median_ms(lambda: cugraph.pagerank(whole, tol=1e-8, max_iter=1000))


def gatv2_ops() -> Iterator[Timed]:
    random = torch.Generator(device="cuda").manual_seed(0)
    for n, edges, heads, channels in ((8_000, 24_000, 2, 288), (20_000, 180_000, 2, 512)):
        sources = torch.randint(n, (edges,), generator=random, device="cuda")
        targets = torch.randint(n, (edges,), generator=random, device="cuda").sort().values
        indptr = torch.searchsorted(targets, torch.arange(n + 1, device="cuda"))
        x_src, x_dst = (torch.randn(n, heads, channels, generator=random, device="cuda") for _ in range(2))
        att = torch.randn(heads, channels, generator=random, device="cuda") / channels**0.5
        for dtype in (torch.float32, torch.bfloat16):
            layer = [each.to(dtype).requires_grad_() for each in (x_src, x_dst, att)]
            name = f"gatv2, n={n:,}, E={edges:,}, {heads}x{channels}, {str(dtype).removeprefix('torch.')}"
            yield from gatv2_times(name, layer, indptr, sources, targets)


def gatv2_times(name: str, layer: list[Any], indptr: Any, sources: Any, targets: Any) -> Iterator[Timed]:
    def ours() -> Any:
        return ops.gatv2(layer[0], layer[1], indptr, sources, layer[2])

    def plain() -> Any:
        return theirs(layer, sources, targets)

    def time_of_plain(place: int) -> float:
        torch.testing.assert_close(plain().float(), y.float(), rtol=3e-2, atol=3e-2)
        return median_ms(ways(plain, layer)[place])

    with torch.no_grad():
        y, here = ours(), [each.cpu() for each in (*layer, indptr, sources)]
        expected = ops.gatv2(here[0], here[1], here[3], here[4], here[2])
    torch.testing.assert_close(y.cpu().float(), expected.float(), rtol=3e-2, atol=3e-2)
    with errors_at_end():  # also for the backward of a forward that was made before it is timed
        for place, ending in enumerate(("", ", backward", ", forward and backward")):
            yield timed(name + ending, ways(ours, layer)[place], lambda place=place: time_of_plain(place))


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


def main() -> None:
    require_gpu()
    device = torch.cuda.get_device_name()
    path = RESULTS / (re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json")
    found: list[dict[str, Any]] = []
    for each in chain(pool_ops(), gatv2_ops()):
        found.append(asdict(each))
        other = each.peer_error or ("" if each.peer_ms is None else f"{each.peer_ms:.3f} ms")
        print(f"{each.op}: {each.ms:.3f} ms" + (other and f", the peer {other}"), flush=True)
        path.write_text(json.dumps({"device": device, "torch": torch.__version__, "ops": found}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
