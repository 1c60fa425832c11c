"""The record of a question that failed has the evidence and the trace that there were until then."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from runs import Watched, answer_all, go
from word_vectors import WordVectors

import pyfast
from pyfast.corpus import TextDocument
from pyfast.engine import Answer, Budget, Context, Question, Record
from pyfast.errors import CallError
from pyfast.knowledge import Session, add_extracts
from pyfast.llm import Completion, Request
from pyfast.retrieval import build_index
from pyfast.systems import load_system, names

QUESTION = "Who discovered the moon that Huygens landed on?"
SETTINGS: dict[str, dict[str, Any]] = {
    "hseq": {"steps": 2},
    "graph_convqa": {"graph": False, "memory": "random"},
    "mtqa": {"rows": 2, "columns": 2},
    "ratt": {"nodes": 2, "layers": 2},
    "tot": {"candidates": 2, "evaluations": 2},
    "cascade": {"sure": 0},
}


WITHOUT_EVIDENCE = ("direct", "cot", "self_consistency", "adaptive_rag", "slimplm")
"""adaptive_rag and slimplm here: the LLM says that the question needs none"""


class Refusing(Watched):
    """Refuses the call of this number."""

    def __init__(self, refused: int | None = None) -> None:
        super().__init__()
        self.refused = refused

    async def complete(self, request: Request) -> Completion:
        completion = await super().complete(request)
        if self.given - 1 == self.refused:
            raise CallError("refused")
        return completion


def answered(name: str, known: Session, llm: Refusing, **budget: Any) -> Record:
    system = load_system(name)
    session = known if system.opens is not None and name != "graph_convqa" else None
    ask = system.ask(system.configure(SETTINGS.get(name, {})), session)
    found: list[Record] = []
    limits = Budget(**budget)
    asyncio.run(answer_all(iter([Question("q", QUESTION)]), ask, known.index, llm, found.append, budget=limits))
    return found[0]


@pytest.mark.parametrize("name", names())
def test_it_has_what_was_found_until_then(name: str, known: Session) -> None:
    whole = Refusing()
    done = answered(name, known, whole)
    assert done.state == "answered"
    last = answered(name, known, Refusing(whole.given - 1))
    assert (last.state, last.reason, last.answer) == ("failed", "refused", None)
    assert bool(last.evidence) == bool(done.evidence) == (name not in WITHOUT_EVIDENCE)
    assert set(last.trace) <= set(done.trace) and (
        last.trace or name in ("direct", "cot", "self_consistency", "rag")
    )
    if name not in ("mtqa", "subqrag"):  # whose last call also makes evidence, or tells which of it counts
        assert [piece.snippet for piece in last.evidence] == [piece.snippet for piece in done.evidence]
    first = answered(name, known, Refusing(0))
    assert first.state == "failed" and len(first.details()) <= len(last.details())


def test_one_whose_steps_are_used_up_has_it_too(known: Session) -> None:
    record = answered("rag", known, Refusing(), steps=1)
    assert record.reason is not None and "limit of 1 step" in record.reason and len(record.evidence) == 10


def test_what_cannot_be_written_fails_nobody_else(tmp_path: Path, small: pyfast.Index) -> None:
    async def ask(question: Question, ctx: Context) -> Answer:
        ctx.so_far(lambda: Answer(None, trace={"odd": object()}) if question.id == "q1" else Answer(None, b"[]"))
        raise ValueError("poison")

    go(tmp_path, ask, Watched(), [Question(f"q{i}", "?") for i in range(3)], small)
    reasons = [orjson.loads(line)["reason"] for line in (tmp_path / "answers.jsonl").read_bytes().splitlines()]
    assert reasons[0] == reasons[2] == "ValueError: poison"
    assert reasons[1].startswith("ValueError: poison; the partial results cannot be written: ")


@pytest.mark.parametrize("name", [name for name in names() if load_system(name).opens and name != "graph_convqa"])
def test_an_empty_graph_is_no_error(name: str, tmp_path: Path) -> None:
    """An LLM may have found no triple in any text."""
    index = build_index([TextDocument("a", "Moon", "the moon is far away")], tmp_path / "index")
    session = Session(index, add_extracts(index, WordVectors(), []))
    record = answered(name, session, Refusing())
    assert record.state == "answered", record.reason
