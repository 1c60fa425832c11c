"""pyfast.ops of arrays on a GPU, against those of arrays on the CPU: with CuPy and torch where there is a device,
and everywhere with the kernels over the emulator, behind what stands for CuPy.

With PYFAST_REQUIRE_GPU=1, as `make gpu-check` has it, they fail where they would be skipped.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from array_libraries import Library, emulated_library, library_of, on_a_gpu
from builds import ROOT
from emulated_cupy import emulated_cupy
from emulated_module import build_module
from gatv2_problems import Layer, random_layer
from native_signatures import native_signatures, stub_signatures
from pool_problems import random_problem
from test_maxsim import codes_of, every_pair, vectors

from pyfast import _native, ops
from pyfast.errors import ArrayError, DeviceError
from pyfast.ops.backend import GPU_OPS, Gpu, errors_at_end
from pyfast.ops.gpu import degree_rank, evidence_graph

PROBLEM = random_problem([0, 1, 2, 31, 33, 64, 130], per_row=12)
PROBLEMS = {"many": PROBLEM, "long rows": random_problem([2, 30, 1], terms=3000, per_row=250)}
LAYER = random_layer(40, 40, 150, 2, 17)


@pytest.fixture(scope="session")
def emulated_native(objects: Any, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The bindings of the ops on a GPU, linked with the emulator."""
    parts = [*objects("plain", "core"), *objects("plain", "ops")]
    return build_module(tmp_path_factory.mktemp("module"), parts)


@pytest.fixture(params=[pytest.param("emulated", marks=pytest.mark.slow(suite="bindings")), "cupy", "torch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    if request.param == "emulated":
        native = request.getfixturevalue("emulated_native")
        cupy = emulated_cupy(native)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(_native, "cuda", native.cuda, raising=False)
        return emulated_library(cupy)
    return library_of(request.param)


@pytest.mark.slow(suite="bindings")
def test_the_benchmark(emulated_native: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are compared with the CPU's, over the emulator as on a GPU."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(_native, "cuda", None, raising=False)
    benchmark = importlib.import_module("gpu")
    timed = benchmark.measure(benchmark.EmulatedCard(emulated_native))
    assert {each.op.split(",")[0].split(".")[0] for each in timed} == {*GPU_OPS, "degree_rank"}


@pytest.mark.slow(suite="bindings")
def test_the_stub_has_the_parameters_of_the_gpu_ops(emulated_native: ModuleType) -> None:
    assert stub_signatures("cuda") == native_signatures(emulated_native.cuda)


@pytest.mark.parametrize("name", PROBLEMS)
def test_degrees_and_ranks(library: Library, name: str) -> None:
    q = PROBLEMS[name]
    there = library.pools(q)
    for weight in ("sum", "dot"):
        degree = library.get(ops.weighted_degree(*there, weight=weight))
        np.testing.assert_allclose(degree, ops.weighted_degree(q.X, q.offsets, q.docs, weight=weight), rtol=2e-7)
    structural = ops.weighted_degree(q.X, q.offsets, q.docs)
    score = ops.graph_rank(library.put(q.semantic), library.put(structural), there[1], alpha=0.5)
    np.testing.assert_array_equal(library.get(score), ops.graph_rank(q.semantic, structural, q.offsets, alpha=0.5))
    fused = degree_rank(*there, library.put(q.semantic), alpha=0.5)
    np.testing.assert_allclose(library.get(fused[1]), library.get(score), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    "options", [{}, {"top_k": 3}, {"threshold": 0.5}, {"weight": "min"}, {"weight": "dot"}], ids=str
)
def test_graphs_and_their_ranks(library: Library, options: dict[str, Any], name: str) -> None:
    q = PROBLEMS[name]
    X, offsets, docs = library.pools(q)
    mask = tuple(library.put(part) for part in q.question_terms)
    graph = ops.evidence_graph(X, offsets, docs, mask_terms=mask, **options)
    expected = ops.evidence_graph(q.X, q.offsets, q.docs, mask_terms=q.question_terms, **options)
    for name in ("pool_offsets", "indptr", "indices"):
        np.testing.assert_array_equal(library.get(getattr(graph, name)), getattr(expected, name))
    np.testing.assert_allclose(library.get(graph.weights), expected.weights, rtol=1e-5)
    for shares in (None, q.semantic):
        rank = ops.pagerank(graph, personalization=None if shares is None else library.put(shares))
        np.testing.assert_allclose(library.get(rank), ops.pagerank(expected, personalization=shares), rtol=1e-5)


@pytest.mark.parametrize("first", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("coded", [False, True])
def test_late_interaction(library: Library, coded: bool, first: int) -> None:
    def put(value: Any) -> Any:
        """Where `value` begins `first` elements behind an allocation."""
        moved = library.put(np.concatenate([np.zeros(first, value.dtype), value.reshape(-1)]))
        return moved[first:].reshape(value.shape)

    queries, query_offsets = vectors([3, 0, 90], 48, 1)
    documents, token_offsets = vectors([33, 1, 0, 300], 48, 2)
    tokens, scales, every = np.concatenate(documents), None, every_pair(queries, documents)
    if coded:
        tokens, scales = codes_of(tokens)
    for pairs in (every, every[::-1].copy(), every[[3, 3, 8, 0, 11, 2]]):
        given = np.concatenate(queries), query_offsets, tokens, token_offsets, pairs, scales
        there = ops.maxsim(*(None if each is None else put(each) for each in given))
        np.testing.assert_array_equal(library.get(there), ops.maxsim(*given))


def test_late_interaction_in_bf16(library: Library) -> None:
    queries, query_offsets = vectors([32, 20], 128, 1)
    documents, token_offsets = vectors([100, 3], 128, 2)
    given = np.concatenate(queries), query_offsets, np.concatenate(documents), token_offsets
    pairs, there = every_pair(queries, documents), [library.put(each) for each in given]
    found = library.get(ops.maxsim(*there, library.put(pairs), precision="bf16"))
    # By its docstring a token's product may be off by 1/127; most are off by much less, and to either side.
    np.testing.assert_allclose(found, ops.maxsim(*given, pairs), atol=0.02)
    for precision, scales in (("bf16", library.put(np.ones(103, np.float32))), ("float16", None)):
        tokens = there[2] if scales is None else library.put(np.ones((103, 128), np.int8))
        with pytest.raises(ArrayError, match="precision: "):
            ops.maxsim(*there[:2], tokens, there[3], library.put(pairs), scales, precision=precision)


def test_streams(library: Library) -> None:
    random = np.random.default_rng(0)
    levels = random.integers(0, 9, 400)
    here = ops.hseq_stream(levels, np.full(400, -1), priority=[2, 5, 3], tombstones=random.random(400) < 0.5)
    there = here.on_gpu(library.name)  # type: ignore[arg-type]
    priors = np.array([0, 0, 7, 47]), np.concatenate([random.choice(400, k, replace=False) for k in (7, 40)])
    ours = theirs = here.cursors(priors=priors)
    for past in (0, 5, 0):
        expected = here.window(ours, 33)
        for found, wanted in zip(there.window(theirs, 33), expected, strict=True):
            np.testing.assert_array_equal(library.get(found), wanted)
        chosen = np.array([0, 3, 5, 9]), np.array([*expected[1][[0, 2, 0]], 5, 5, 7, 8, 9, 9])
        ours, theirs = here.refresh(ours, chosen, past), there.refresh(theirs, chosen, past)
        np.testing.assert_array_equal(library.get(theirs.place), ours.place)
        for found, wanted in zip(theirs.selected, ours.selected, strict=True):
            np.testing.assert_array_equal(library.get(found), wanted)


@pytest.mark.parametrize("options", [{}, {"self_loops": True}, {"dropout": 0.4, "seed": 3}], ids=str)
def test_gatv2(library: Library, options: dict[str, Any]) -> None:
    layer = Layer(*(library.put(each) for each in LAYER))
    y, attention = ops.gatv2(*layer, return_attention=True, **options)
    expected = ops.gatv2(*LAYER, return_attention=True, **options)
    np.testing.assert_allclose(library.get(y), expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(library.get(attention), expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_derivatives_of_gatv2(dtype: str) -> None:
    torch = on_a_gpu("torch")
    found = []
    for device in ("cpu", "cuda"):
        x_src, x_dst, att = (
            torch.tensor(each, device=device).to(getattr(torch, dtype)).requires_grad_()
            for each in (LAYER.x_src, LAYER.x_dst, LAYER.att)
        )
        graph = torch.tensor(LAYER.indptr, device=device), torch.tensor(LAYER.indices, device=device)
        y = ops.gatv2(x_src, x_dst, *graph, att, dropout=0.3, seed=5)
        (y.float() ** 2).sum().backward()
        found.append([each.grad.float().cpu() for each in (x_src, x_dst, att)])
    near = 1e-4 if dtype == "float32" else 5e-2
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=near, atol=near * float(ours.abs().max()))


TOKENS = vectors([3, 0, 20], 48, 1), vectors([33, 1, 0, 70], 48, 2)
RANDOM = np.random.default_rng(0)
LEVELS = RANDOM.integers(0, 9, 400)
STREAM = ops.hseq_stream(LEVELS, np.full(400, -1), priority=[2, 5, 3], tombstones=RANDOM.random(400) < 0.5)
CURSORS = STREAM.cursors(priors=(np.array([0, 0, 7, 47]), RANDOM.permutation(400)[:47]))
GRAPH = ops.evidence_graph(PROBLEM.X, PROBLEM.offsets, PROBLEM.docs)
Put = Callable[[Any], Any]


def _pools(library: Library, put: Put, weights: Any) -> tuple[Any, Any, Any]:
    return library.matrix(PROBLEM.X, weights), put(PROBLEM.offsets), put(PROBLEM.docs)


def _tokens(put: Put, queries: Any) -> Any:
    (_, query_offsets), (documents, token_offsets) = TOKENS
    pairs = every_pair(TOKENS[0][0], documents)
    tokens, scales = codes_of(np.concatenate(documents))
    return ops.maxsim(queries, *map(put, (query_offsets, tokens, token_offsets, pairs, scales)))


def _windows(put: Put, segments: Any) -> Any:
    arrays = {name: put(getattr(STREAM, name)) for name in ("order", "tombstones")}
    stream = replace(STREAM, live=put(STREAM.live.view(np.int64)), **arrays)
    selected, priors = tuple(map(put, CURSORS.selected)), (put(CURSORS.priors[0]), segments)
    return stream.window(replace(CURSORS, place=put(CURSORS.place), selected=selected, priors=priors), 33)


# An array of each op, and the op of this array on the GPU, its other arrays put there by the function.
OF_ARRAYS: dict[str, tuple[Any, Callable[[Library, Put, Any], Any]]] = {
    "weighted_degree": (PROBLEM.X.data, lambda of, put, given: ops.weighted_degree(*_pools(of, put, given))),
    "degree_rank": (
        PROBLEM.semantic,
        lambda of, put, given: degree_rank(*_pools(of, put, put(PROBLEM.X.data)), given)[1],
    ),
    "graph_rank": (
        PROBLEM.semantic,
        lambda of, put, given: ops.graph_rank(given, put(PROBLEM.semantic % 0.3), put(PROBLEM.offsets)),
    ),
    "evidence_graph": (PROBLEM.X.data, lambda of, put, given: ops.evidence_graph(*_pools(of, put, given)).weights),
    "pagerank": (
        GRAPH.weights,
        lambda of, put, given: ops.pagerank(
            ops.EvidenceGraph(*map(put, (GRAPH.pool_offsets, GRAPH.indptr, GRAPH.indices)), given)
        ),
    ),
    "maxsim": (np.concatenate(TOKENS[0][0]), lambda of, put, given: _tokens(put, given)),
    "hseq_stream": (CURSORS.priors[1], lambda of, put, given: _windows(put, given)[1]),
    "gatv2": (LAYER.x_src, lambda of, put, given: ops.gatv2(given, *map(put, LAYER[1:]))),
}


def test_every_op_is_among_them() -> None:
    assert {*OF_ARRAYS} == {*GPU_OPS, "degree_rank"}


def check_stream(library: Library, op: str) -> None:
    """Where an array is filled, on a stream that is busy until then; on another stream it is empty.

    All other arrays are on the GPU before: a copy from the CPU would wait until the stream is no longer busy.
    """
    array, run = OF_ARRAYS[op]
    there: list[Any] = []

    def put(value: Any) -> Any:
        there.append(library.put(value))
        return there[-1]

    expected = library.get(run(replace(library, put=put), put, library.put(array)))
    given, late, others = library.put(np.zeros_like(array)), library.put(array), iter(there)

    def again(_: Any) -> Any:
        return next(others)

    with library.side_stream():
        given[...] = late
        found = library.get(run(replace(library, put=again), again, given))
    np.testing.assert_array_equal(found, expected)


def check_gaps(library: Library, op: str) -> None:
    array, run = OF_ARRAYS[op]
    expected = library.get(run(library, library.put, library.put(array)))
    found = library.get(run(library, library.strided, library.strided(array)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", OF_ARRAYS)
def test_work_goes_on_the_current_stream(library: Library, op: str) -> None:
    check_stream(library, op)


@pytest.mark.parametrize("op", OF_ARRAYS)
def test_arrays_with_gaps(library: Library, op: str) -> None:
    check_gaps(library, op)


def _as_it_is(gpu: Gpu, name: str, array: Any, dtype: str) -> Any:
    same = str(array.dtype).removeprefix("torch.") == dtype
    return array if same else CAST(gpu, name, array, dtype)


CAST = Gpu.cast
# What is wrong with it, and which of the checks sees that, for every op.
PLANTED: dict[str, tuple[str, Callable[..., Any], Callable[[Library, str], None]]] = {
    "always the default stream": ("stream", lambda gpu: 0, check_stream),
    "the GPU is not made the current one": ("current", lambda gpu: nullcontext(), check_stream),
    "arrays stay as they are": ("cast", _as_it_is, check_gaps),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_planted_in_python_is_seen(library: Library, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, planted, check = PLANTED[fault]
    if name == "current" and not library.emulated:
        pytest.skip("the only GPU is always the current one")
    monkeypatch.setattr(Gpu, name, planted)
    if name == "cast" and library.emulated:
        monkeypatch.setattr(sys.modules["cupy"], "ascontiguousarray", lambda value: value)
    unseen = set()
    for op in OF_ARRAYS:
        with suppress(AssertionError, ArrayError, DeviceError):
            check(library, op)
            unseen.add(op)
    # On a GPU, an op that waits for a result of its own finds the stream no longer busy; and gatv2 does not cast.
    hidden = {"cast": {"gatv2"}, "stream": {*OF_ARRAYS} - {"graph_rank"}}[name] if not library.emulated else set()
    assert unseen <= hidden


def test_arrays_of_one_library_on_the_stream_of_another() -> None:
    """CuPy told to use torch's stream; and arrays of both, which go where torch's do."""
    torch, cupy = on_a_gpu("torch"), on_a_gpu("cupy")
    structural, offsets = PROBLEM.semantic % np.float32(0.3), PROBLEM.offsets
    expected = ops.graph_rank(PROBLEM.semantic, structural, offsets)
    late, other, ends = torch.tensor(PROBLEM.semantic).cuda(), cupy.asarray(structural), cupy.asarray(offsets)
    cupy.cuda.get_current_stream().synchronize()
    for of_cupy in (True, False):
        scores = torch.zeros_like(late)
        with library_of("torch").side_stream():
            scores[...] = late
            stream = torch.cuda.current_stream()
            if of_cupy:
                with cupy.cuda.ExternalStream(stream.cuda_stream):
                    found = cupy.asnumpy(ops.graph_rank(cupy.asarray(scores), other, ends))
            else:
                found = ops.graph_rank(scores, other, ends).cpu().numpy()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("late", ["x_src", "grad"])
def test_derivatives_of_gatv2_on_the_current_stream(late: str) -> None:
    """Also of features and gradients that are not contiguous: a sum's gradient is one number for all."""
    torch = on_a_gpu("torch")
    arrays = [torch.tensor(each).cuda() for each in LAYER]
    x_src = arrays[0].transpose(1, 2).contiguous().transpose(1, 2)
    grad = arrays[1][:, :1, :1].expand(arrays[1].shape)
    features = [each.requires_grad_() for each in (x_src, arrays[1], arrays[4])]

    def gradients(flow: Any) -> list[Any]:
        y = ops.gatv2(features[0], features[1], arrays[2], arrays[3], features[2])
        return [each.cpu() for each in torch.autograd.grad(y, features, flow)]

    expected = gradients(grad)
    filled = {"x_src": x_src, "grad": grad}[late].detach().clone()
    place = torch.zeros_like(filled)
    if late == "x_src":
        features[0] = place.requires_grad_()
    with library_of("torch").side_stream():
        with torch.no_grad():
            place[...] = filled
        found = gradients(place if late == "grad" else grad)
    for ours, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0)


def test_what_is_malformed_is_raised(library: Library) -> None:
    X, offsets, docs = library.pools(PROBLEM)
    outside = library.put(np.full(len(PROBLEM.docs), PROBLEM.X.shape[0]))
    for op in (ops.weighted_degree, ops.evidence_graph):
        with pytest.raises(ArrayError, match="doc_ids: a document is outside"):
            op(X, offsets, outside)
        with pytest.raises(ArrayError, match="offsets: "):
            op(X, library.put(PROBLEM.offsets[::-1].copy()), docs)
        with pytest.raises(ArrayError, match="X: expected a CSR matrix on the GPU"):
            op(PROBLEM.X, offsets, docs)
    with pytest.raises(ArrayError, match=r"does not support|'sum' or 'dot'"):
        ops.weighted_degree(X, offsets, docs, weight="min")
    with pytest.raises(ArrayError, match=r"expected arrays|needs arrays"):
        ops.weighted_degree(PROBLEM.X, PROBLEM.offsets, PROBLEM.docs, backend="cuda")


def test_errors_may_wait(library: Library) -> None:
    scores = library.put(np.full(len(PROBLEM.docs), np.nan, np.float32))
    reached = False
    with pytest.raises(ArrayError, match="scores: "), errors_at_end():
        ops.graph_rank(scores, scores, library.put(PROBLEM.offsets))
        reached = True
    assert reached


def test_what_waits_for_nothing() -> None:
    """With the sizes given, ops of pools wait for nothing, and a CUDA graph can have them."""
    torch = on_a_gpu("torch")
    q = PROBLEM
    offsets, docs, semantic, *parts = (
        torch.tensor(each).cuda() for each in (q.offsets, q.docs, q.semantic, q.X.indptr, q.X.indices, q.X.data)
    )
    X = torch.sparse_csr_tensor(*parts, size=q.X.shape)
    most = int(np.diff(q.offsets).max()), int(np.diff(q.X.indptr)[q.docs].sum())

    def run() -> list[Any]:
        degree, score = degree_rank(X, offsets, docs, semantic)
        graph = ops.EvidenceGraph(*evidence_graph(X, offsets, docs, max_pool=most[0], max_terms=most[1]))
        return [degree, score, graph.indptr, ops.pagerank(graph)]

    structural = ops.weighted_degree(q.X, q.offsets, q.docs)
    own = ops.evidence_graph(q.X, q.offsets, q.docs)
    expected = structural, ops.graph_rank(q.semantic, structural, q.offsets), own.indptr, ops.pagerank(own)
    captured = torch.cuda.CUDAGraph()
    with errors_at_end():
        run()
        torch.cuda.set_sync_debug_mode("error")
        try:
            run()
            with torch.cuda.graph(captured):
                results = run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        captured.replay()
        for found, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=1e-5, atol=1e-6)
