"""RAPTOR beside loops written from its paper, and the index with its tree: clusters, layers, kills, changes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted
from scripted import Scripted, run
from typer.testing import CliRunner
from word_vectors import WordVectors

import pyfast.api.summaries
from pyfast.api.summaries import summarize_index
from pyfast.commands.cli import app
from pyfast.corpus import TextDocument
from pyfast.engine import Question
from pyfast.errors import CallError, InputError
from pyfast.llm import Request
from pyfast.retrieval import Index, build_index
from pyfast.systems.rivals import raptor
from pyfast.systems.rivals.summary_tree import SUMMARIZE, clusters_of, mixture_of, soft_clusters
from pyfast.utils.options import RunOptions

scripted.KINDS[SUMMARIZE.system] = SUMMARIZE.name
FIELDS = {"astronomy": "orbit", "music": "chorus", "shipping": "harbour", "cooking": "oven"}
NAMES = ("alpha", "beta", "gamma", "delta", "eta", "rho")
TOPICS = [f"{field} {field[:4]}{name}" for field in FIELDS for name in NAMES]
QUESTIONS = ["Which shipbeta river is in the harbour?", "What of musi, the chorus and musirho?", "oven cookalpha"]


def common(text: str) -> str:
    """The words that a text has most often."""
    words = Counter(word for word in text.split() if word.isalpha())
    return "In short: " + " ".join(word for word, _ in words.most_common(8))


def summary(request: Request) -> dict[str, Any]:
    return {"summary": common(request.messages[1].content.removeprefix("Texts:\n"))}


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyfast.api.summaries, "Embedder", WordVectors)


def documents(count: int = 288) -> list[TextDocument]:
    found = []
    for at in range(count):
        field, topic = TOPICS[at % len(TOPICS)].split()
        text = f"{at} on {field} {field} {FIELDS[field]}: {topic} {topic}river {topic}stone {topic}bridge {at}"
        found.append(TextDocument(f"d{at}", "", text))
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(documents(), tmp_path_factory.mktemp("plain") / "IDX")


@pytest.fixture
def tree(plain: Index, tmp_path: Path) -> Index:
    return summarize_index(plain, Scripted(summarize=summary), out=tmp_path / "TREE")


class Nodes:
    """The tree as its documents say it: of each node its text, its children and its layer."""

    def __init__(self, tree: Index) -> None:
        corpus = tree.corpus
        self.texts = {f"{corpus.ids[at]:016x}": tree.text(row) for row, at in enumerate(tree.passages.tolist())}
        self.children: dict[str, list[str]] = {}
        self.layers: dict[str, int] = {}
        name = {tree.uri(row): f"{corpus.ids[at]:016x}" for row, at in enumerate(tree.passages.tolist())}
        for row, at in enumerate(tree.passages.tolist()):
            if tree.uri(row).startswith("summary/"):
                about = corpus.metadata(at)
                self.layers[f"{corpus.ids[at]:016x}"] = about["layer"]
                self.children[f"{corpus.ids[at]:016x}"] = [name.get(one, one) for one in about["children"]]


def test_the_tree_has_every_passage_below_it_and_each_layer_is_smaller(tree: Index, plain: Index) -> None:
    nodes = Nodes(tree)
    leaves = set(nodes.texts) - set(nodes.layers)
    assert {nodes.texts[leaf] for leaf in leaves} == {plain.text(row) for row in range(len(plain.passages))}
    highest = max(nodes.layers.values())
    assert highest > 1
    sizes = [len(leaves), *(list(nodes.layers.values()).count(layer) for layer in range(1, highest + 1))]
    assert all(above < below for below, above in pairwise(sizes))
    for layer in range(1, highest + 1):
        below = leaves if layer == 1 else {node for node, one in nodes.layers.items() if one == layer - 1}
        held = {child for node, one in nodes.layers.items() if one == layer for child in nodes.children[node]}
        assert held == below
    for node, children in nodes.children.items():
        assert nodes.texts[node] == common("\n\n".join(nodes.texts[child] for child in children))


def test_the_given_index_stays_as_it_is_and_the_runs_are_kept(plain: Index, tree: Index) -> None:
    assert Index(plain.folder).commit == plain.commit and not (plain.folder / "summaries").exists()
    configuration = (tree.folder / "summaries" / "1" / "run.toml").read_text()
    assert 'fingerprint = "scripted"' in configuration
    without = tree.fitting("source!=summary/*")
    assert [without.text(row) for row in range(len(without.passages))] == [
        plain.text(row) for row in range(len(plain.passages))
    ]


def test_a_mixture_is_that_of_scikit_learn() -> None:
    mixture = pytest.importorskip("sklearn.mixture")
    drawn = np.random.default_rng(1)
    points = np.concatenate([drawn.normal(at, 0.5 + at / 3, (60, 4)) for at in range(4)])
    for count in (1, 2, 4, 7):
        shares, bic = mixture_of(points, count)
        least = 0.05 * points.var(axis=0).mean()
        peer = mixture.GaussianMixture(count, covariance_type="diag", reg_covar=least)
        peer.weights_ = shares.mean(axis=0)
        peer.means_ = shares.T @ points / shares.sum(axis=0)[:, None]
        spread = ((points[:, None] - peer.means_) ** 2 * shares[:, :, None]).sum(axis=0) / shares.sum(axis=0)[
            :, None
        ]
        peer.covariances_ = spread + least
        peer.precisions_cholesky_ = 1 / np.sqrt(peer.covariances_)
        # `shares` are of the round before the one that these parameters are of.
        np.testing.assert_allclose(peer.predict_proba(points), shares, atol=0.06)
        assert abs(peer.bic(points) - bic) < 2 * len(points) * 2e-3


def test_planted_groups_are_found() -> None:
    drawn = np.random.default_rng(3)
    centres = drawn.normal(size=(6, 64))
    planted = drawn.integers(0, 6, 240)
    vectors = (centres[planted] + 0.1 * drawn.normal(size=(240, 64))).astype(np.float32)
    found = soft_clusters(vectors)
    assert {tuple(np.flatnonzero(planted == group)) for group in range(6)} == {tuple(one) for one in found}


@pytest.mark.parametrize("seed", range(4))
def test_no_cluster_is_longer_than_the_llm_reads_and_each_node_is_in_one(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    vectors = drawn.normal(size=(90, 24)).astype(np.float32)
    if seed == 3:
        vectors[:] = vectors[0]  # nothing tells them apart
    sizes = drawn.integers(10, 400, 90)
    found = clusters_of(vectors, sizes, 1000)
    assert set(np.concatenate(found).tolist()) == set(range(90))
    assert all(sizes[members].sum() <= 1000 for members in found)
    assert len({members.tobytes() for members in found}) == len(found)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(("k", "tokens"), [(20, 2000), (3, 2000), (20, 100)])
def test_collapsed_it_reads_the_best_of_all_layers(tree: Index, question: str, k: int, tokens: int) -> None:
    llm = Scripted(answer={"answer": "7"})
    (record,) = run(tree, llm, [question], "raptor", k=str(k), tokens=str(tokens))
    nodes = Nodes(tree)
    (pool,) = tree.search([question], k)
    left, expected = 3 * tokens, []
    for passage in pool.passages.tolist():
        text = tree.text(passage)
        if expected and len(text) > left:
            break
        left -= len(text)
        expected.append(text)
    shown = llm.users("answer")[0].partition("Evidence:\n")[2].rpartition("\n\nQuestion: ")[0].split("\n")
    assert [line.partition(" ")[2] for line in shown] == expected
    of_text = {text: nodes.layers.get(node, 0) for node, text in nodes.texts.items()}
    assert record.trace["layers"] == [of_text[text] for text in expected]
    assert llm.kinds == ["answer"] and record.answer == "7" and len(record.evidence) == len(expected)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("width", "start", "depth"), [(1, 100, 100), (3, 100, 100), (3, 1, 100), (4, 0, 3), (2, 100, 2)]
)
def test_traversal_goes_down_from_layer_to_layer(
    tree: Index, question: str, width: int, start: int, depth: int
) -> None:
    llm = Scripted(answer={"answer": "7"})
    way = {"width": str(width), "start": str(start), "depth": str(depth)}
    (record,) = run(tree, llm, [question], "raptor", retrieval="traversal", **way)
    nodes = Nodes(tree)
    (pool,) = tree.search([question], len(tree.passages))
    order = [tree.text(passage) for passage in pool.passages.tolist()]
    first = min(start, max(nodes.layers.values()))
    layer, expected = [node for node in nodes.texts if nodes.layers.get(node, 0) == first], list[str]()
    for _ in range(depth):
        places = {node: order.index(nodes.texts[node]) for node in layer if nodes.texts[node] in order}
        best = [*sorted(places, key=places.__getitem__), *(node for node in layer if node not in places)][:width]
        expected += [nodes.texts[node] for node in best]
        layer = list(dict.fromkeys(child for node in best for child in nodes.children.get(node, ())))
    shown = llm.users("answer")[0].partition("Evidence:\n")[2].rpartition("\n\nQuestion: ")[0].split("\n")
    assert [line.partition(" ")[2] for line in shown] == list(dict.fromkeys(expected))
    assert record.trace["layers"] == sorted(record.trace["layers"], reverse=True)


def test_without_summaries_it_reads_passages_and_says_so(plain: Index, caplog: pytest.LogCaptureFixture) -> None:
    raptor._say_without.cache_clear()
    llm = Scripted(answer={"answer": "7"})
    (record,) = run(Index(plain.folder), llm, QUESTIONS[:1], "raptor")
    assert set(record.trace["layers"]) == {0}
    assert [it.message for it in caplog.records if "has no summaries" in it.message]


def test_a_question_s_own_documents_are_read_alone(tree: Index, caplog: pytest.LogCaptureFixture) -> None:
    raptor._say_without.cache_clear()
    llm = Scripted(answer={"answer": "7"})
    for retrieval in ("collapsed", "traversal"):
        question = Question("a", QUESTIONS[0], documents=("d37", "d13"))
        (record,) = run(tree, llm, [question], "raptor", retrieval=retrieval)
        assert {one["uri"] for one in record.evidence} == {"d37", "d13"}
    assert caplog.text.count("raptor reads no summaries") == 1


def test_built_again_it_asks_only_for_what_changed(plain: Index, tmp_path: Path) -> None:
    first, again, changed = (Scripted(summarize=summary) for _ in range(3))
    before = summarize_index(plain, first, out=tmp_path / "TREE")
    with pytest.raises(InputError, match="already exists"):
        summarize_index(plain, again, out=tmp_path / "TREE")
    after = summarize_index(plain, again, out=tmp_path / "TREE", overwrite=True)
    assert again.calls == [] and Nodes(after).texts == Nodes(before).texts
    other = build_index(documents(287), tmp_path / "OTHER")
    summarize_index(other, changed, out=tmp_path / "TREE", overwrite=True)
    assert 0 < len(changed.calls) < len(first.calls)
    fresh = Scripted(summarize=summary)
    summarize_index(other, fresh, out=tmp_path / "TREE", overwrite=True, options=RunOptions(restart=True))
    assert len(fresh.calls) >= len(changed.calls) > 0
    with pytest.raises(InputError, match="already has summaries"):
        summarize_index(Index(tmp_path / "TREE"), Scripted(summarize=summary), out=tmp_path / "TWICE", layers=1)


def test_the_command_makes_the_same_index(plain: Index, tmp_path: Path) -> None:
    by_command, by_function = tmp_path / "COMMAND", tmp_path / "FUNCTION"
    command = ["corpus", "summarize", str(plain.folder), "--out", str(by_command), "--llm", "instant"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    made = summarize_index(plain, "instant", out=by_function)
    assert Nodes(Index(by_command)).texts == Nodes(made).texts
    assert result.stdout == f"{by_command}: {made.corpus.documents} documents and summaries\n"
    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, InputError) and "already exists" in str(again.exception)
    assert CliRunner().invoke(app, [*command, "--overwrite"], catch_exceptions=False).exit_code == 0


def test_a_summary_that_fails_is_left_out(plain: Index, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def some(request: Request) -> Any:
        return "?" if any("shipbeta" in one.content for one in request.messages) else summary(request)

    tree = summarize_index(plain, Scripted(summarize=some), out=tmp_path / "TREE")
    assert not any("shipbeta" in text for node, text in Nodes(tree).texts.items() if node in Nodes(tree).layers)
    assert [it.message for it in caplog.records if "summaries failed" in it.message]
    with pytest.raises(CallError, match=r"all \d+ summaries of layer 1 failed"):
        summarize_index(plain, Scripted(summarize="?"), out=tmp_path / "NONE")
    assert not (tmp_path / "NONE").exists()


def test_an_index_without_room_for_a_layer_has_none(tmp_path: Path) -> None:
    few = build_index(documents(8), tmp_path / "FEW")
    llm = Scripted(summarize=summary)
    assert len(summarize_index(few, llm, out=tmp_path / "TREE").passages) == 8 and llm.calls == []


KILLED = """
import sys, time
sys.path[:0] = {path!r}
import pyfast.api.summaries, test_raptor
from scripted import Scripted
from word_vectors import WordVectors
pyfast.api.summaries.Embedder = WordVectors
def slow(request):
    with open({told!r}, "a") as told:
        told.write("called\\n")
    time.sleep(0.05)
    return test_raptor.summary(request)
pyfast.api.summaries.summarize_index({index!r}, Scripted(summarize=slow), out={out!r}, concurrency=1)
"""


def calls(told: Path) -> int:
    return told.read_text().count("\n") if told.exists() else 0


@pytest.mark.guarantee("G1")
def test_killed_again_and_again_it_resumes(plain: Index, tree: Index, tmp_path: Path) -> None:
    told, out, kills = tmp_path / "told", tmp_path / "KILLED", 0
    here = Path(__file__).parent
    code = KILLED.format(path=[str(here), str(here.parent)], told=str(told), index=str(plain.folder), out=str(out))
    while not out.exists():
        process = subprocess.Popen([sys.executable, "-c", code])
        before = calls(told)
        while process.poll() is None and (kills > 2 or calls(told) < before + 5):
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        assert process.wait() in (0, -signal.SIGKILL)
    assert kills == 3 and calls(told) <= len(Nodes(tree).layers) + kills
    assert Nodes(Index(out)).texts == Nodes(tree).texts


def test_another_corpus_is_not_taken_for_the_one_that_was_begun(plain: Index, tmp_path: Path) -> None:
    with pytest.raises(CallError):
        summarize_index(plain, Scripted(summarize="?"), out=tmp_path / "TREE")
    other = build_index(documents(60), tmp_path / "OTHER")
    with pytest.raises(InputError, match="was started with other documents"):
        summarize_index(other, Scripted(summarize=summary), out=tmp_path / "TREE")
    options = RunOptions(restart=True)
    made = summarize_index(other, Scripted(summarize=summary), out=tmp_path / "TREE", options=options)
    assert json.loads((tmp_path / "TREE/manifest.json").read_text()) and made.corpus.documents > 60
