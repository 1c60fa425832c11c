"""graph_convqa: whole conversations through a real, tiny model; its switches; what has no room; resumes."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from runs import Watched, answer_all, answers, go, records
from tiny import tiny_model

from pyfast.engine import Question, Record
from pyfast.errors import CallError, InputError
from pyfast.llm import Request, open_llm
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.graph_convqa.graph import query_of
from pyfast.systems.graph_convqa.system import Settings

SYSTEM = load_system("graph_convqa")
TEXT = {"graph": "off", "memory": "off", "k": "6"}


def talk(name: str, *turns: str) -> list[Question]:
    return [
        Question(f"{name}-{number}", text, name, (f"gold {number}", "another name"))
        for number, text in enumerate(turns, start=1)
    ]


TITAN = talk(
    "titan", "Who discovered Titan?", "When?", "Which planet does it circle?", "Which probe landed there?"
)
APOLLO = talk("apollo", "Who commanded Apollo 11?", "Where did it land?")
NOTHING = talk("nothing", "Xyzzy?", "Plugh?")
ALL = TITAN + APOLLO + NOTHING


def ask(index: Index, llm: Any, questions: list[Question], **settings: str) -> list[dict[str, Any]]:
    found: list[Record] = []
    system = SYSTEM.ask(SYSTEM.configure({**TEXT, **settings}))
    asyncio.run(answer_all(iter(questions), system, index, llm, found.append, 4))
    return [record.as_json() for record in found]


def last_line(request: Request) -> str:
    """A reply that tells what it was asked for, on its first line."""
    return "said: " + request.messages[-1].content.splitlines()[-2] + "\nand more"


def test_history_is_what_was_said_or_what_is_right(small: Index) -> None:
    own = ask(small, Watched(last_line), TITAN)
    gold = ask(small, Watched(last_line), TITAN, history="gold")
    said = [record["answer"] for record in own]
    assert said == [f"said: Question: {turn.text}" for turn in TITAN]  # the first line of what the model says
    history: tuple[tuple[str, str], ...] = ()
    right: tuple[tuple[str, str], ...] = ()
    for turn, mine, theirs in zip(TITAN, own, gold, strict=True):
        assert mine["trace"]["query"] == query_of(history, turn.text)
        assert theirs["trace"]["query"] == query_of(right, turn.text)
        history = (*history, (turn.text, mine["answer"]))
        right = (*right, (turn.text, turn.answers[0]))


def test_a_turn_that_fails_has_no_answer_in_the_next(small: Index) -> None:
    def reply(request: Request) -> Any:
        return CallError("no luck") if "Answer: \n" not in request.messages[-1].content else "x"

    first, second, *_ = ask(small, Watched(reply), TITAN)
    assert (first["state"], second["state"]) == ("failed", "answered")
    assert second["trace"]["query"] == "Who discovered Titan? When?"


def test_the_prompt_holds_the_evidence_best_first(small: Index) -> None:
    seen: list[str] = []

    def reply(request: Request) -> str:
        seen.append(request.messages[-1].content)
        return "x"

    (record,) = ask(small, Watched(reply), TITAN[:1])
    lines = seen[0].split("Facts:\n")[1].split("The conversation")[0].splitlines()
    pieces = record["evidence"]
    assert len(lines) == len(pieces) == 6
    for line, piece in zip(lines, pieces, strict=True):
        assert piece["snippet"].split()[-1] in line
    assert [piece["score"] for piece in pieces] == sorted((piece["score"] for piece in pieces), reverse=True)
    assert "Titan" in record["trace"]["entities"] and record["trace"]["items_dropped"] == 0


def test_random_memory_brings_back_what_was_used(small: Index) -> None:
    with_memory = ask(small, Watched(last_line), TITAN, memory="random", history="gold")
    without = ask(small, Watched(last_line), TITAN, history="gold")
    assert with_memory[0] == without[0]
    before = {piece["segment"] for piece in with_memory[0]["evidence"]}
    kept = [piece["segment"] for piece in without[1]["evidence"]][:4]
    now = [piece["segment"] for piece in with_memory[1]["evidence"]]
    assert now[:4] == kept and len(set(now)) == 6
    assert set(now[4:]) <= before | {piece["segment"] for piece in without[1]["evidence"]}
    assert set(now[4:]) & before


def test_the_window_holds_what_it_holds(small: Index) -> None:
    llm = Watched(last_line, context_window=300)
    long = talk("long", *(f"What is fact number {i} about Titan and its probe?" for i in range(30)))
    found = ask(small, llm, long, history="gold", k="20")
    assert [record["state"] for record in found] == ["answered"] * 30
    assert found[0]["trace"]["items_dropped"] > 0 and found[0]["trace"]["turns_dropped"] == 0
    assert found[29]["trace"]["turns_dropped"] > 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "graph=on needs trained=FOLDER"),
        ({"trained": "/nowhere"}, "graph=on needs trained=FOLDER"),
        ({"graph": "off", "memory": "perhaps"}, "memory"),
        ({"graph": "off", "history": "none"}, "history"),
        ({"graph": "off", "memory": "on", "embedder": "./nowhere"}, "nowhere"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError if "embedder" not in given else Exception, match=message):
        SYSTEM.configure(given)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a training leaves it, of a tiny model."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("trained")
    tiny_model(folder / "model")
    import torch

    from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, save_encoder

    torch.manual_seed(5)
    save_encoder(GraphEncoder(Shape(32)), folder)
    return folder


def test_whole_conversations_through_the_graph(small: Index, trained: Path, tmp_path: Path) -> None:
    """Every end of a run is a beginning: from any number of answers, and with an empty list of evidence."""
    settings = SYSTEM.configure({"trained": str(trained), "memory": "random", "k": "6"})
    llm = Counted(open_llm(f"transformers:{trained / 'model'}"))
    for concurrency in (1, 8):
        go(tmp_path / str(concurrency), SYSTEM.ask(settings), llm, ALL, small, concurrency=concurrency)
    assert answers(tmp_path / "1") == answers(tmp_path / "8")
    found = {record["id"]: record for record in records(tmp_path / "1")}
    assert list(found) == [turn.id for turn in ALL]
    assert all(record["state"] in ("answered", "abstained") for record in found.values()), found
    titan, nothing = found["titan-2"]["trace"], found["nothing-1"]
    assert titan["nodes"] > 50 and titan["edges"] > titan["nodes"] and titan["items_dropped"] == 0
    assert nothing["evidence"] == [] and nothing["trace"]["nodes"] == nothing["trace"]["edges"] == 0
    assert found["titan-2"]["usage"]["prompt_tokens"] > titan["nodes"]
    llm.calls = 0
    whole = answers(tmp_path / "1").splitlines(keepends=True)
    for lines in (0, 3):
        shutil.copytree(tmp_path / "1", tmp_path / f"killed-{lines}")
        (tmp_path / f"killed-{lines}" / "answers.jsonl").write_bytes(b"".join(whole[:lines]))
        go(tmp_path / f"killed-{lines}", SYSTEM.ask(settings), llm, ALL, small)
        assert answers(tmp_path / f"killed-{lines}") == b"".join(whole)
    assert llm.calls == 0  # embeddings come out the same, bit for bit: the journal has all of them


class Counted:
    """A backend, and how often it was asked."""

    def __init__(self, backend: Any) -> None:
        self._backend, self.calls = backend, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def complete(self, request: Request) -> Any:
        self.calls += 1
        return await self._backend.complete(request)


def test_a_graph_beyond_the_window_and_a_long_conversation(small: Index, trained: Path) -> None:
    """Nodes are dropped by rank of evidence, the oldest turns before that; the record says both; all ends well."""
    llm = open_llm(f"transformers:{trained / 'model'}", context_window=400)
    long = talk("long", *(f"What is fact number {i} about Titan and its probe?" for i in range(14)))
    settings = {"trained": str(trained), "graph": "on", "history": "gold", "k": "40"}
    asyncio.run(llm.start())
    found = ask(small, llm, long, **settings)
    assert [record["state"] for record in found if record["state"] == "failed"] == []
    for record in found:
        assert record["usage"]["prompt_tokens"] <= 400 - 32
        assert record["trace"]["items_dropped"] > 0 and record["trace"]["nodes"] > 0
    assert found[13]["trace"]["turns_dropped"] > 2
    (few,) = ask(small, llm, TITAN[:1], **{**settings, "nodes": "5"})
    assert few["trace"]["nodes"] == 5 and few["trace"]["items_dropped"] == len(few["evidence"]) - 1
    asyncio.run(llm.close())


def test_the_ledger_has_the_graphs_time(small: Index, trained: Path, tmp_path: Path) -> None:
    from pyfast.engine import read_status

    settings = SYSTEM.configure({"trained": str(trained), "memory": "off", "k": "6"})
    llm = open_llm(f"transformers:{trained / 'model'}")
    go(tmp_path, SYSTEM.ask(settings), llm, APOLLO, small)
    stages = {stage.name: stage for stage in read_status(tmp_path).stages}
    assert list(stages) == [
        "find_evidence_items",
        "linearise",
        "build_graph",
        "encode_graph",
        "answer",
        "journal",
        "cite",
    ]
    assert all(stage.calls == 2 and stage.running_ms > 0 for stage in stages.values())


def test_a_run_knows_its_weights(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "other")
    before = Settings(trained=str(tmp_path / "other"), memory="off").model_dump(mode="json")
    path = tmp_path / "other" / "encoder.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    after = Settings(trained=str(tmp_path / "other"), memory="off").model_dump(mode="json")
    assert before["weights"] != after["weights"] and {**before, "weights": ""} == {**after, "weights": ""}
