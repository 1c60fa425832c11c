"""What the runs of an experiment share: the summaries that a system reads, and the graph that rules extract."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import Session
from word_vectors import WordVectors

import pyfast
import pyfast.api.experiments.cells
import pyfast.api.knowledge
import pyfast.api.summaries
from pyfast.api.knowledge import open_knowledge
from pyfast.engine import Event, Watch
from pyfast.engine.status import read_status
from pyfast.errors import InputError, RunError
from pyfast.knowledge import build, session
from pyfast.llm.instant import Instant
from pyfast.ops.arrays import Float32
from pyfast.utils.text_forms import counted

TREES: dict[str, Any] = {
    "sets": ["towns"],
    "summaries": True,
    "documents": "all",
    "rows": [{"name": "raptor", "system": "raptor"}, {"name": "rag", "system": "rag"}],
}
GRAPHS: dict[str, Any] = {
    "sets": ["towns"],
    "documents": "all",
    "rows": [{"name": "one", "system": "mtqa"}, {"name": "two", "system": "mtqa", "settings": {"units": 5}}],
    "seeds": [0, 1],
}


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pyfast.api.summaries, pyfast.api.knowledge, session):
        monkeypatch.setattr(module, "Embedder", WordVectors)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "towns"
    folder.mkdir(parents=True)
    kinds = ("harbour", "orchard", "quarry")
    texts = [
        (f"d{k}", f"Town {k} lies in North {k}. It has a {kinds[k % 3]} of {kinds[k % 3]}s.") for k in range(40)
    ]
    lines = [json.dumps({"kind": "text", "id": name, "title": "", "text": text}) for name, text in texts]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    asked = [
        {"id": f"q{k}", "question": f"Where is Town {k}?", "answers": [f"North {k}"], "documents": [f"d{k}"]}
        for k in range(3)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
    return tmp_path / "data"


class Other(Instant):
    """Another model, by its fingerprint."""

    fingerprint = "other"


def notes(out: Path) -> list[str]:
    """The lines below the tables about summaries."""
    lines = (out / "tables.md").read_text().splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- Summaries")]


def test_summaries_are_written_once_and_read_only_by_who_reads_them(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "E"
    pyfast.experiment({**TREES, "seeds": [0, 1]}, data, out, llm="instant")
    tree = out / "indexes" / "towns-instant-summaries"
    layers = [read_status(one) for one in sorted((tree / "summaries").iterdir())]
    written, calls = sum(one.states["answered"] for one in layers), sum(one.llm_calls for one in layers)
    spent = sum(one.prompt_tokens + one.completion_tokens for one in layers)
    assert written > 1 and spent > 100
    assert notes(out) == [
        f"Summaries of towns: {written} in {counted(len(layers), 'layer')}, by the model of this table (instant),"
        f" with {calls} LLM calls and {spent:,} tokens."
    ]
    for row, folder in (("raptor", tree), ("rag", out / "indexes" / "towns")):
        for seed in (0, 1):
            run = (out / "runs" / "towns" / row / "instant" / f"seed-{seed}" / "run.toml").read_text()
            assert f'"{folder}"' in run, run
    before = {one: one.read_bytes() for one in tree.rglob("*.jsonl")}
    pyfast.experiment({**TREES, "seeds": [0, 1]}, data, out, llm="instant")
    assert before and {one: one.read_bytes() for one in tree.rglob("*.jsonl")} == before
    assert [sum(one.llm_calls for one in map(read_status, (tree / "summaries").iterdir()))] == [calls]


def test_a_stopped_experiment_goes_on_with_its_summaries(data: Path, tmp_path: Path) -> None:
    stop = threading.Event()

    def hear(event: Event) -> None:
        if event.kind == "starting":
            stop.set()

    with pytest.raises(RunError, match="summaries of layer 1 left"):
        pyfast.experiment(TREES, data, tmp_path / "E", llm="instant", concurrency=1, watch=Watch(hear, stop=stop))
    assert not (tmp_path / "E" / "runs").exists()
    pyfast.experiment(TREES, data, tmp_path / "E", llm="instant")
    pyfast.experiment(TREES, data, tmp_path / "again", llm="instant")
    assert notes(tmp_path / "E") == notes(tmp_path / "again")


def test_a_changed_model_does_not_read_what_another_wrote(data: Path, tmp_path: Path) -> None:
    """Neither its summaries nor its knowledge graph, even before the first run."""
    graphs = {**GRAPHS, "rows": [{"name": "one", "system": "mtqa"}], "seeds": [0], "knowledge": "llm"}
    for number, (plan, what) in enumerate(((TREES, "summaries"), (graphs, "knowledge graph"))):
        out = tmp_path / f"E{number}"

        def go(model: str, plan: dict[str, Any] = plan, out: Path = out, **options: Any) -> None:
            pyfast.experiment(
                {**plan, "models": {"m": {"llm": model}}}, data, out, options=pyfast.RunOptions(**options)
            )

        go("instant")
        with pytest.raises(InputError, match=f"the model of the {what} has changed since"):
            go("test_shared_indexes:Other")
        go("test_shared_indexes:Other", restart=True)
        go("test_shared_indexes:Other")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"summaries": False}, "the plan does not ask for them"),
        ({"documents": "own"}, "each question searches its own documents"),
    ],
)
def test_where_summaries_are_not_read_none_are_written(
    change: dict[str, Any], why: str, data: Path, tmp_path: Path
) -> None:
    pyfast.experiment({**TREES, **change}, data, tmp_path / "E", llm="instant")
    assert notes(tmp_path / "E") == [f"Summaries of towns: none, because {why}."]
    assert {one.name for one in (tmp_path / "E" / "indexes").iterdir()} == {"towns", "made_of.json"}
    pyfast.experiment({**TREES, **change, "rows": TREES["rows"][1:]}, data, tmp_path / "rag", llm="instant")
    assert notes(tmp_path / "rag") == []


def test_rules_extract_the_graph_once_and_say_how_far_they_are(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, events = Counter[str](), list[Event]()
    for module in (build, session):
        by_rules = module.extract_by_rules

        def count(*given: Any, name: str = module.__name__, by_rules: Any = by_rules) -> Any:
            read[name] += 1
            return by_rules(*given)

        monkeypatch.setattr(module, "extract_by_rules", count)
    monkeypatch.setattr(build, "_TELL_S", 0)
    for _ in range(2):
        pyfast.experiment(GRAPHS, data, tmp_path / "E", llm="instant", watch=Watch(events.append))
    assert read == {"pyfast.knowledge.build": 1}
    first = [(event.kind, event.done, event.total) for event in events[:42]]
    assert first == [("progress", 0, 40), *(("progress", k, 40) for k in range(1, 41)), ("progress", 40, 40)]
    assert len(open_knowledge(tmp_path / "E" / "indexes" / "towns")) > 0

    stop = threading.Event()
    stop.set()
    with pytest.raises(RunError, match="stopped"):
        pyfast.experiment(GRAPHS, data, tmp_path / "F", llm="instant", watch=Watch(stop=stop))


class SlowVectors(WordVectors):
    def encode(self, texts: Sequence[str]) -> Float32:
        time.sleep(60)
        return super().encode(texts)


def slow_vectors() -> None:
    pyfast.api.knowledge.Embedder = SlowVectors  # type: ignore[misc,assignment]


def word_vectors() -> None:
    pyfast.api.knowledge.Embedder = session.Embedder = WordVectors  # type: ignore[misc,assignment]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_a_command_that_computes_vectors(data: Path, tmp_path: Path, sent: signal.Signals) -> None:
    out, plan = tmp_path / "E", tmp_path / "plan.toml"
    plan.write_text('sets = ["towns"]\nrows = [{name = "one", system = "mtqa"}]\n')
    arguments = ("experiment", plan, "--data", data, "--out", out, "--llm", "instant")
    stopped = Session(out, *arguments, command=None, prepare=slow_vectors)
    stopped.until(lambda: any(out.glob("indexes/towns/knowledge/*.building/*")))
    time.sleep(0.3)  # It is computing vectors.
    stopped.send(sent)
    assert stopped.ended(10) == 130, stopped.told
    assert stopped.told.splitlines()[-1] == f"pyfast: stopped; the same command resumes {out}"
    assert "questions in progress" not in stopped.told and not any(out.glob("indexes/towns/knowledge/*.building"))
    again = Session(out, *arguments, command=None, prepare=word_vectors)
    assert again.ended() == 0 and (out / "tables.md").is_file(), again.told


def test_a_stop_ends_the_computation_of_vectors(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, encoded = threading.Event(), list[int]()

    class Stopping(WordVectors):
        def encode(self, texts: Sequence[str]) -> Float32:
            stop.set()
            encoded.append(len(texts))
            return super().encode(texts)

    monkeypatch.setattr(pyfast.api.knowledge, "Embedder", Stopping)
    with pytest.raises(RunError, match="stopped"):
        pyfast.experiment(GRAPHS, data, tmp_path / "E", llm="instant", watch=Watch(stop=stop))
    assert len(encoded) == 1
    pyfast.experiment(GRAPHS, data, tmp_path / "E", llm="instant")
    assert len(open_knowledge(tmp_path / "E" / "indexes" / "towns")) > 0
