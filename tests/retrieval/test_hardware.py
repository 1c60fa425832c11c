"""Encoding and searching on a device: the same code on the CPU, against the plain way; and on a GPU where there is
one."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfast
import pyfast.retrieval.vectors.vector_search as vector_search
from pyfast.errors import DeviceError, InputError, ModelNotFoundError
from pyfast.llm.protocol import ServerCall, calls_counted, count_calls
from pyfast.retrieval import Pool
from pyfast.retrieval.vectors.embeddings import Bert, Embedder, can_read, on_gpu
from pyfast.retrieval.vectors.hardware import search_device
from pyfast.retrieval.vectors.passage_vectors import Tokens, TokenStore
from pyfast.retrieval.vectors.vector_search import DeviceVectors, Vectors

torch = pytest.importorskip("torch")
CPU = pyfast.Hardware("cpu")
TEXTS = ["Apollo 11 landed on the Moon", "a", "", "Wer hat das Telefon erfunden?", "word " * 300, "月面着陸"]
TEXTS += [f"Titan is moon number {i} of Saturn" + " or so" * (i % 7) for i in range(20)]
needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    try:
        return Embedder(hardware=CPU)
    except ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def expected(embedder: Embedder) -> Any:
    return embedder.encode(TEXTS)


def test_large_batches_of_all_lengths(embedder: Embedder, expected: Any) -> None:
    """What a GPU gets: pieces of the texts, each in a few batches with texts of all lengths."""
    pieces = [embedder._model.tokens(TEXTS[start : start + 9]) for start in range(0, len(TEXTS), 9)]
    np.testing.assert_allclose(embedder._vectors(pieces, on_gpu), expected, atol=2e-6)
    assert [len(places) for places, _ in on_gpu([500] * 300)] == [128, 128, 44]


def plain_attention(query: Any, key: Any, value: Any, cuts: Any, _: Any, longest: int, __: int) -> Any:
    """Attention within each text, by its formula. torch's own for texts of different lengths needs a GPU."""
    seen = torch.empty_like(query)
    for begin, end in pairwise(cuts.tolist()):
        assert end - begin <= longest
        q, k, v = (each[begin:end].transpose(0, 1) for each in (query, key, value))
        seen[begin:end] = (torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v).transpose(0, 1)
    return seen


def test_attention_over_all_lengths_at_once(embedder: Embedder, expected: Any) -> None:
    if not can_read(embedder.folder):
        pytest.skip("a model of another kind")
    model = Bert(embedder.folder, "cpu", "float32")
    model._varlen = plain_attention
    found = model.vectors(sorted(model.tokens(TEXTS), key=len)).numpy()
    order = sorted(range(len(TEXTS)), key=[len(tokens) for tokens in model.tokens(TEXTS)].__getitem__)
    np.testing.assert_allclose(found, expected[order], atol=2e-6)


@pytest.mark.parametrize(("precision", "cosine"), [("float16", 0.9999), ("bfloat16", 0.999)])
def test_16_bits(embedder: Embedder, expected: Any, precision: str, cosine: float) -> None:
    short = [0, 1, 3, 5]
    found = Embedder(hardware=pyfast.Hardware("cpu", precision)).encode([TEXTS[i] for i in short])  # type: ignore[arg-type]
    assert found.dtype == np.float32
    assert np.einsum("td,td->t", found, expected[short]).min() > cosine


def unit_vectors(count: int, dimensions: int, seed: int) -> Any:
    made = np.random.default_rng(seed).standard_normal((count, dimensions), dtype=np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("count", "queries", "k"), [(3000, 70, 10), (100, 5, 200), (31, 3, 1), (700, 40, 100), (5, 0, 3)]
)
@pytest.mark.parametrize("products", [1 << 12, 1 << 28])
def test_the_nearest(monkeypatch: pytest.MonkeyPatch, count: int, queries: int, k: int, products: int) -> None:
    """In tiles and in one, with vectors that are equal, and where there are fewer than are wanted."""
    monkeypatch.setattr(vector_search, "_PRODUCTS", products)
    matrix = unit_vectors(count, 24, 1)
    matrix[3 : min(count // 9, 60)] = matrix[2]
    asked = unit_vectors(queries, 24, 2)
    asked[: queries // 2] = matrix[: queries // 2]
    places, cosines = DeviceVectors(matrix, CPU).search(asked, k)
    found, known = Vectors(matrix).search(asked, k)
    np.testing.assert_array_equal(places, found)
    np.testing.assert_allclose(cosines, known, atol=1e-6)
    halves = DeviceVectors(matrix, pyfast.Hardware("cpu", "float16")).search(asked, k)
    np.testing.assert_allclose(halves[1], known, atol=1e-3)


@pytest.fixture(scope="module")
def folder(embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hardware") / "index"
    documents = [{"id": f"d{i}", "title": "", "text": text} for i, text in enumerate(TEXTS) if len(text) > 1]
    pyfast.build_index(documents, path, vectors="dense", hardware=CPU)
    return path


@pytest.mark.skipif(torch.cuda.device_count() > 60, reason="a machine with very many GPUs")
def test_no_other_device_takes_the_place_of_a_missing_one(folder: Path, tmp_path: Path) -> None:
    there_is_none = pyfast.Hardware("cuda:60")
    with pytest.raises(DeviceError, match=r"device cuda:60: torch finds .* use --device cpu"):
        pyfast.open_index(folder, "dense", hardware=there_is_none)
    with pytest.raises(DeviceError, match="cuda:60"):
        pyfast.build_index([{"id": "a", "text": "b"}], tmp_path / "index", hardware=there_is_none)
    assert not (tmp_path / "index").exists()


def test_an_index_keeps_its_hardware(folder: Path) -> None:
    index = pyfast.open_index(folder, "dense", hardware=CPU)
    assert index.opened_with[3] == index.at(index.commit).hardware == index.newest().hardware == CPU
    assert index.within(["d0", "d3"]).hardware == CPU
    assert search_device(pyfast.Hardware()) == "cpu"


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", ""])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(InputError, match="device: expected auto, cpu, cuda or cuda:NUMBER"):
        pyfast.Hardware(device)


def test_options_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text('[hardware]\ndevice = "cpu"\nprecision = "bfloat16"\n')
    assert pyfast.read_options(tmp_path / "o.toml")["hardware"] == pyfast.Hardware("cpu", "bfloat16")


class Busy:
    """A retriever that says that a GPU worked for it."""

    fingerprint = "busy"

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        count_calls([ServerCall("search on cuda", len(queries), 0, 0.25)])
        return [Pool(np.zeros(1, np.int32), np.ones(1, np.float32)) for _ in queries]


def test_a_run_says_how_long_a_gpu_worked(folder: Path, tmp_path: Path) -> None:
    index = pyfast.open_index(folder, lambda index: Busy())
    run = pyfast.answer(
        ["Which moon?", "Which planet?"], index=index, system="rag", llm="instant", run=tmp_path / "run"
    )
    searches = next(stage.calls for stage in run.status.stages if stage.name == "search on cuda")
    assert run.status.gpu_seconds == {"search on cuda": 0.25 * searches}
    assert 0 < run.status.working < 60


@needs_a_gpu
class TestOnAGpu:
    @pytest.mark.parametrize(("precision", "bound"), [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2)])
    def test_vectors(self, embedder: Embedder, expected: Any, precision: Any, bound: float) -> None:
        with calls_counted() as calls:
            found = Embedder(hardware=pyfast.Hardware("cuda", precision)).encode(TEXTS * 200)
        np.testing.assert_allclose(found, np.tile(expected, (200, 1)), atol=bound)
        assert [(call.name, call.texts) for call in calls] == [("encode on cuda", len(set(TEXTS)))]
        assert calls[0].seconds > 0

    def test_the_nearest(self) -> None:
        matrix, asked = unit_vectors(50_000, 64, 1), unit_vectors(300, 64, 2)
        places, cosines = DeviceVectors(matrix, pyfast.Hardware("cuda")).search(asked, 20)
        found, known = Vectors(matrix).search(asked, 20)
        np.testing.assert_array_equal(places, found)
        np.testing.assert_allclose(cosines, known, atol=1e-6)

    def test_late_interaction(self) -> None:
        rng = np.random.default_rng(3)
        lengths = rng.integers(0, 30, 200)
        codes = rng.integers(-127, 128, (int(lengths.sum()), 32), np.int8)
        scales = rng.random(len(codes), dtype=np.float32)
        store = TokenStore.of(Tokens(codes, scales, np.append(0, np.cumsum(lengths))))
        store = TokenStore.join([store, store[np.arange(50)]])
        queries = [unit_vectors(count, 32, count) for count in (1, 8, 20)]
        passages = [rng.choice(250, 100, replace=False).astype(np.int32) for _ in queries]
        for found, known in zip(
            store.scores(queries, passages, "cuda"), store.scores(queries, passages), strict=True
        ):
            np.testing.assert_array_equal(found, known)

    def test_a_run_uses_it(self, folder: Path, tmp_path: Path) -> None:
        index = pyfast.open_index(folder, "hybrid", hardware=pyfast.Hardware("cuda", "float16"))
        run = pyfast.answer(
            ["Which moon of Saturn?"], index=index, system="rag", llm="instant", run=tmp_path / "run"
        )
        assert run.status.gpu_seconds.keys() == {"encode on cuda", "search on cuda"}
