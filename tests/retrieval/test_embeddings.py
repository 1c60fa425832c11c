"""Vectors of a real model, against sentence-transformers' own way of making them."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.retrieval.vectors.embeddings import Bert, Embedder, can_read, cut, find_embedder
from pyfast.utils.options import Hardware

CPU = Hardware("cpu")
TEXTS = ["Apollo 11 landed on the Moon", "a", "", "Wer hat das Telefon erfunden?", "word " * 600, "月面着陸"] * 3


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    pytest.importorskip("sentence_transformers")
    try:
        return Embedder(hardware=CPU)
    except ModelNotFoundError as error:
        pytest.skip(str(error))


def test_as_sentence_transformers_makes_them(embedder: Embedder) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(embedder.folder), device="cpu")
    expected = peer.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(embedder.encode(TEXTS), expected, atol=2e-6)


def test_a_vector_does_not_depend_on_its_company(embedder: Embedder, examples: Path) -> None:
    lines = [line for path in sorted(examples.rglob("*.md")) for line in path.read_text().splitlines() if line][
        :40
    ]
    together = embedder.encode(lines)
    shuffled = np.random.default_rng(3).permutation(len(lines))
    np.testing.assert_array_equal(embedder.encode([lines[i] for i in shuffled]), together[shuffled])
    for i in shuffled[:5]:
        np.testing.assert_array_equal(embedder.encode([lines[i]])[0], together[i])


@pytest.mark.parametrize("sizes", [(1, 1), (16, 16)])
def test_nor_where_shapes_matter(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    """On a processor that computes other bits in batches of other sizes, and on a GPU."""
    other = Embedder(hardware=CPU)
    batches = partial(cut, sizes=lambda length: sizes, mixed=False)
    monkeypatch.setattr(other, "_batches", batches)
    together = other.encode(TEXTS)
    np.testing.assert_allclose(together, embedder.encode(TEXTS), atol=2e-6)
    again = Embedder(hardware=CPU)
    monkeypatch.setattr(again, "_batches", batches)
    for text, vector in list(zip(TEXTS, together, strict=True))[:3]:
        np.testing.assert_array_equal(again.encode([text])[0], vector)


def test_torch_computes_a_batch_with_one_thread(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches run at once instead; others in the process keep their number of threads."""
    import torch

    used, before, vectors = list[int](), torch.get_num_threads(), Bert.vectors

    def noted(self: Bert, tokens: Any) -> Any:
        used.append(torch.get_num_threads())
        return vectors(self, tokens)

    monkeypatch.setattr(Bert, "vectors", noted)
    torch.set_num_threads(3)
    try:
        encoded = Embedder(hardware=CPU).encode(TEXTS)
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert set(used) == {1}
    np.testing.assert_array_equal(encoded, embedder.encode(TEXTS))


def test_what_is_remembered_is_what_was_computed(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more is remembered than is wanted; who changes a vector changes it for nobody else."""
    monkeypatch.setattr("pyfast.retrieval.vectors.embeddings._KNOWN", 4)
    texts = [f"text {i}" for i in range(10)]
    first = embedder.encode(texts)
    assert list(embedder._known) == texts[-4:]
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(embedder.encode(texts), kept)


def test_a_static_model(embedder: Embedder, tmp_path: Path) -> None:
    """model2vec's kind: a vector is a sum of those of its tokens."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(embedder.folder / "tokenizer.json"))
    tokenizer.no_padding()
    torch.manual_seed(1)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu").save(str(tmp_path))
    static = Embedder(str(tmp_path), CPU)
    peer = SentenceTransformer(str(tmp_path), device="cpu")
    expected = peer.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(static.encode(TEXTS), expected, atol=2e-6)
    np.testing.assert_array_equal(Embedder(str(tmp_path)).encode(TEXTS[1:2])[0], static.encode(TEXTS)[1])


def test_a_model_of_another_kind_is_its_librarys(embedder: Embedder, tmp_path: Path) -> None:
    """Here the same one, pooled by the maximum, which `Bert` does not compute."""
    from sentence_transformers import SentenceTransformer

    folder = Path(shutil.copytree(embedder.folder, tmp_path / "model"))
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace('mean_tokens": true', 'mean_tokens": false'))
    pooling.write_text(pooling.read_text().replace('max_tokens": false', 'max_tokens": true'))
    assert not can_read(folder) and can_read(embedder.folder)
    other = Embedder(str(folder), CPU)
    peer = SentenceTransformer(str(folder), device="cpu")
    expected = peer.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(other.encode(TEXTS), expected, atol=2e-6)


def test_no_text_is_no_vector(embedder: Embedder) -> None:
    assert embedder.encode([]).shape == (0, embedder.dimensions)


def test_the_fingerprint_is_of_the_weights(embedder: Embedder, tmp_path: Path) -> None:
    for path in embedder.folder.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(embedder.folder)).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / path.relative_to(embedder.folder)).write_bytes(path.read_bytes())
    assert Embedder(str(tmp_path)).fingerprint == embedder.fingerprint
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert Embedder(str(tmp_path)).fingerprint != embedder.fingerprint


def test_what_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFoundError, match=r"neither modules\.json"):
        find_embedder(str(tmp_path))
    with pytest.raises(ModelNotFoundError, match="is not a folder"):
        find_embedder(str(tmp_path / "none"))
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match="nobody/nothing is not available"):
        find_embedder("nobody/nothing")
    with pytest.raises(ModelNotFoundError, match=r"nobody/all\.v1\.5 is not available"):
        find_embedder("nobody/all.v1.5")
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be loaded"):
        Embedder(str(tmp_path)).encode(["text"])
