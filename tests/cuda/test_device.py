"""pyfast.ops of arrays on a GPU, against those of arrays on the CPU: with CuPy and torch where there is a device,
and everywhere with the kernels over the emulator, behind what stands for CuPy.

With PYFAST_REQUIRE_GPU=1, as `make gpu-check` has it, they fail where they would be skipped.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pybind11
import pytest
from builds import ROOT, compile_all, run
from emulated_cupy import emulated_cupy
from gatv2_problems import Layer, random_layer
from native_signatures import native_signatures, stub_signatures
from pool_problems import Problem, random_problem
from scipy.sparse import csr_array
from test_maxsim import codes_of, every_pair, vectors

from pyfast import _native, ops
from pyfast.errors import ArrayError
from pyfast.ops.backend import errors_at_end, gpu_problem
from pyfast.ops.gpu import degree_rank, evidence_graph

PROBLEM = random_problem([0, 1, 2, 31, 33, 64, 130], per_row=12)
PROBLEMS = {"many": PROBLEM, "long rows": random_problem([2, 30, 1], terms=3000, per_row=250)}
LAYER = random_layer(40, 40, 150, 2, 17)


@dataclass(frozen=True)
class Library:
    """A library of arrays on a GPU: how they get there and back."""

    name: str
    put: Callable[[Any], Any]
    get: Callable[[Any], Any]

    def forward(self, X: csr_array) -> Any:
        parts = self.put(X.indptr), self.put(X.indices), self.put(X.data)
        if self.name == "torch":
            return sys.modules["torch"].sparse_csr_tensor(*parts, size=X.shape)
        return SimpleNamespace(format="csr", indptr=parts[0], indices=parts[1], data=parts[2], shape=X.shape)

    def pools(self, q: Problem) -> tuple[Any, Any, Any]:
        return self.forward(q.X), self.put(q.offsets), self.put(q.docs)


@pytest.fixture(scope="session")
def emulated_native(objects: Any, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The bindings of the ops on a GPU, linked with the emulator."""
    folder = tmp_path_factory.mktemp("module")
    includes = [pybind11.get_include(), sysconfig.get_path("include"), ROOT / "bindings", ROOT / "bindings/cuda"]
    flags = ["-fvisibility=hidden", *(word for folder in includes for word in ("-I", str(folder)))]
    sources = [*(ROOT / "bindings/cuda").glob("*.cpp"), Path(__file__).parent / "driver" / "module.cpp"]
    made = compile_all([(source, flags) for source in sources], folder)
    path = folder / f"emulated_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    run("g++", "-shared", *made, *objects("plain", "core"), *objects("plain", "ops"), "-o", path)
    spec = importlib.util.spec_from_file_location("emulated_native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_a_gpu(name: str) -> ModuleType:
    """The library, where there is a GPU for it."""
    without = pytest.fail if os.environ.get("PYFAST_REQUIRE_GPU") else pytest.skip
    if problem := gpu_problem():
        without(problem)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        without(f"{name}: {error}")


@pytest.fixture(params=[pytest.param("emulated", marks=pytest.mark.slow(suite="bindings")), "cupy", "torch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    if request.param == "emulated":
        native = request.getfixturevalue("emulated_native")
        cupy = emulated_cupy(native)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(_native, "cuda", native.cuda, raising=False)
        return Library("cupy", cupy.asarray, cupy.asnumpy)
    module = on_a_gpu(request.param)
    if request.param == "cupy":
        return Library("cupy", module.asarray, module.asnumpy)
    return Library(
        "torch", lambda value: module.tensor(np.asarray(value)).cuda(), lambda value: value.cpu().numpy()
    )


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


@pytest.mark.parametrize("coded", [False, True])
def test_late_interaction(library: Library, coded: bool) -> None:
    queries, query_offsets = vectors([3, 0, 20], 48, 1)
    documents, token_offsets = vectors([33, 1, 0, 70], 48, 2)
    pairs, tokens, scales = every_pair(queries, documents), np.concatenate(documents), None
    if coded:
        tokens, scales = codes_of(tokens)
    given = np.concatenate(queries), query_offsets, tokens, token_offsets, pairs, scales
    there = ops.maxsim(*(None if each is None else library.put(each) for each in given))
    np.testing.assert_array_equal(library.get(there), ops.maxsim(*given))


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
    with pytest.raises(ArrayError, match=r"closed form|'sum' and 'dot'"):
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
