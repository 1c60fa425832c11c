"""What the embedded model is taught: nothing of the example set, and nothing that its plan or evidence lacks."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEACH = ROOT / "benchmarks" / "teach"
if not TEACH.is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)


@pytest.fixture(scope="module")
def teach() -> Any:
    sys.path.insert(0, str(TEACH))
    try:
        import make
    finally:
        sys.path.remove(str(TEACH))
    return make


@pytest.fixture(scope="module")
def made(teach: Any) -> list[tuple[str, Any]]:
    """What one invented world teaches."""
    return list(teach.of_world(0, teach.SUBJECTS[0], seed=1))


def test_a_world_teaches_each_prompt_of_the_systems(teach: Any, made: list[tuple[str, Any]]) -> None:
    rows = teach.chosen(made, random.Random(0))
    of_subqrag = {"sub_questions", "rewrite", "from_facts", "from_memory"}
    assert {row["name"] for row in rows} >= {"plan", "extract", "answer", "guide", "select", "head"} | of_subqrag
    for row in rows:
        reply = json.loads(row["reply"])
        if row["name"] == "extract" and reply["entity"]:
            assert reply["entity"] in row["messages"][1].rpartition("Which ")[0]
        if row["name"] == "answer" and reply["answer"] not in ("insufficient evidence", "yes", "no"):
            assert reply["answer"] in row["messages"][1].rpartition("Question: ")[0]


def test_nothing_of_the_example_set_is_taught(teach: Any, made: list[tuple[str, Any]]) -> None:
    runs, names = teach.of_examples()
    rows = teach.chosen(made, random.Random(0))
    assert not any(teach.grams(row["messages"][1] + " " + row["reply"]) & runs for row in rows)
    assert names.search("Who was the commander of Apollo 12?") and not names.search("Who commanded the Ada?")
    for file in sorted((ROOT / "examples" / "corpus" / "passages").glob("*.md"))[:5]:
        text = " ".join(file.read_text("utf-8").split())
        stolen = teach.Example("answer", (("system", "s"), ("user", text)), '{"answer": "x"}', False)
        assert teach.chosen([("world", stolen)], random.Random(0)) == []
    asked = [
        json.loads(line)["question"] for line in (ROOT / "examples" / "questions.jsonl").open(encoding="utf-8")
    ]
    for question in asked:
        if len(teach.WORDS.findall(question)) >= teach.N:
            stolen = teach.Example("plan", (("system", "s"), ("user", f"Question: {question}")), "{}", False)
            assert teach.chosen([("world", stolen)], random.Random(0)) == []


def test_questions_held_out_are_not_taught(teach: Any) -> None:
    if not teach.DATA.is_dir():
        pytest.skip("PYFAST_DATA is not here")
    for name in ("hotpotqa", "2wiki"):
        learn, held = teach.questions(name)
        assert learn and held
        assert not {it["question"].lower() for it in learn} & {it["question"].lower() for it in held}
        assert all(teach.odd(it) for it in learn if it.get("subset") == "migres200")
