"""Temperature and seed arrive and are recorded; limits and samples grow; the code that answers depend on."""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from grouped import grouped

import pyfast
from pyfast.engine.configuration import code_digest
from pyfast.errors import InputError
from pyfast.llm import Completion, Request, open_llm


class Listening:
    """Answers at once, and keeps what it was asked."""

    fingerprint = "listening"
    context_window = 32_768

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        return Completion('{"answer": "x"}', "stop", 10, 5)


def recorded(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "run.toml").read_text())


QUESTIONS = [{"id": f"q{i}", "question": f"Question {i}?"} for i in range(40)]


def test_temperature_and_seed_are_sent_and_recorded(tmp_path: Path) -> None:
    llm = Listening()
    given = {"llm": llm, "system": "direct", "run": tmp_path / "run"}
    pyfast.answer(QUESTIONS[:2], sampling=pyfast.Sampling(temperature=0.7, seed=3), **given)  # type: ignore[arg-type]
    assert {request.temperature for request in llm.asked} == {0.7}
    (seed,) = {request.seed for request in llm.asked}
    assert recorded(tmp_path / "run")["sampling"] == {"temperature": 0.7, "seed": 3}
    with pytest.raises(InputError, match=r"sampling\.seed was 3 and is now 4"):
        pyfast.answer(QUESTIONS[:2], sampling=pyfast.Sampling(temperature=0.7, seed=4), **given)  # type: ignore[arg-type]
    other = Listening()
    pyfast.answer(QUESTIONS[:1], llm=other, system="direct", sampling=pyfast.Sampling(temperature=0.7, seed=4))
    assert other.asked[0].seed not in (seed, 0)
    greedy = Listening()
    pyfast.answer(QUESTIONS[:1], llm=greedy, system="direct", run=tmp_path / "greedy")
    assert (greedy.asked[0].temperature, greedy.asked[0].seed) == (0.0, 0)
    assert "sampling" not in recorded(tmp_path / "greedy")
    for wrong in ({"temperature": -1.0}, {"seed": -1}, {"temperature": float("nan")}):
        with pytest.raises(InputError, match="at least 0"):
            pyfast.answer(QUESTIONS[:1], llm=llm, system="direct", **grouped(**wrong))


@pytest.mark.parametrize("key", ["seed", "temperature", "max_tokens", "messages", "model", "stream"])
def test_extra_does_not_hide_what_pyfast_sets(key: str) -> None:
    with pytest.raises(InputError, match=f"extra: pyfast sets {key} itself"):
        open_llm("openai:m@http://127.0.0.1:1", extra={key: 1})
    open_llm("openai:m@http://127.0.0.1:1", extra={"top_p": 0.9})


def test_a_run_grows_with_its_limit(tmp_path: Path) -> None:
    """Only what is new is asked; what was started with other questions is refused; fewer are refused."""
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    llm = Listening()

    def go(limit: int, source: Path = file) -> pyfast.Run:
        return pyfast.answer(source, llm=llm, system="direct", run=tmp_path / "run", limit=limit)

    go(10)
    assert go(25).status.questions == 25 and len(llm.asked) == 25
    assert go(40).status.states == {"answered": 40} and len(llm.asked) == 40
    assert [record.id for record in pyfast.Run(tmp_path / "run").records] == [q["id"] for q in QUESTIONS]
    assert go(40).status.ended == 40 and len(llm.asked) == 40  # nothing is left to do
    with pytest.raises(InputError, match=r"questions\.count was 40 and is now 30"):
        go(30)
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({**q, "question": "Other?"}) + "\n" for q in [*QUESTIONS, {"id": "z"}]))
    with pytest.raises(InputError, match=r"the questions of .*other\.jsonl are not those of .*questions\.jsonl"):
        go(41, other)
    assert pyfast.verify(tmp_path / "run").summary


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: [*rows[:3], {**rows[3], "question": "Who?"}, *rows[4:]], "'{3}' has changed"),
        (lambda rows: [*rows[:2], *rows[3:]], "'{2}' is missing"),
        (lambda rows: [*rows[:2], {"id": "z", "question": "Who?"}, *rows[2:]], "'z' is new"),
        (lambda rows: [*rows[:2], *rows[3:1:-1], *rows[4:]], "'{3}' has moved"),
    ],
)
def test_the_first_question_that_differs_is_named(
    kind: str, change: Callable[[list[Any]], list[Any]], told: str, tmp_path: Path
) -> None:
    file, run = tmp_path / "asked.jsonl", tmp_path / "run"

    def go(rows: list[Any], run: Path = run, **options: Any) -> pyfast.Run:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = file if kind == "file" else rows
        return pyfast.answer(given, llm="instant", system="direct", run=run, options=pyfast.RunOptions(**options))

    rows = [{**one, "documents": ["d"]} for one in QUESTIONS[:9]]
    for documents in ("own", "all"):
        go(rows, restart=documents == "all", documents=documents)
        told = told.format(*(one["id"] for one in rows))
        with pytest.raises(
            InputError, match=f"; the question {told}. Use .* another folder .with --reuse {run}, "
        ):
            go(change(rows), documents=documents)
    again = go(change(rows), tmp_path / "new", reuse=[run])
    assert again.session is not None and again.session.reused >= 8


def test_a_killed_growth_is_resumed(tmp_path: Path) -> None:
    """The journal knows of more questions and run.toml does not: both sizes are this run."""
    llm = Listening()

    def go(limit: int) -> pyfast.Run:
        return pyfast.answer(QUESTIONS, llm=llm, system="direct", run=tmp_path / "run", limit=limit)

    go(5)
    before = (tmp_path / "run" / "run.toml").read_bytes()
    go(8)
    (tmp_path / "run" / "run.toml").write_bytes(before)
    assert go(12).status.states == {"answered": 12} and len(llm.asked) == 12


@pytest.mark.parametrize("table", ["run", "sessions"])
def test_a_damaged_journal_does_not_keep_a_run_from_growing(table: str, tmp_path: Path) -> None:
    """Its replies are reused, even if the journal knows two numbers of questions."""
    llm = Listening()
    for limit in (5, 8, 12):
        pyfast.answer(QUESTIONS, llm=llm, system="direct", run=tmp_path / "run", limit=limit)
        assert len(llm.asked) == limit
        journal = tmp_path / "run" / "journal.sqlite"
        content = journal.read_bytes()
        assert content.count(f"CREATE TABLE {table} ".encode()) == 1
        journal.write_bytes(
            content.replace(f"CREATE TABLE {table} ".encode(), b"CREATE TABLE %s " % (b"x" * len(table)))
        )
        (tmp_path / "run" / "answers.jsonl").unlink()


def test_samples_are_uniform_nested_and_repeatable(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    gold = [{**question, "answers": ["x"]} for question in QUESTIONS]
    file.write_text("".join(json.dumps(question) + "\n" for question in gold))
    llm = Listening()

    def go(sample: int, run: str = "run") -> list[str]:
        done = pyfast.answer(
            file, llm=llm, system="direct", run=tmp_path / run, options=pyfast.RunOptions(sample=sample)
        )
        return [record.id for record in done.records]

    ten = go(10)
    assert len(set(ten)) == 10 and ten != [question["id"] for question in QUESTIONS[:10]]
    assert go(20)[:10] == ten and len(llm.asked) == 20  # the run has grown
    assert go(10, "again") == ten
    assert pyfast.evaluate(tmp_path / "run").rows[0]["em"].value == 1  # the gold is that of the file
    taken = Counter[str]()
    for prefix in range(200):
        many = [{"id": f"{prefix}-{i}", "question": "?"} for i in range(10)]
        done = pyfast.answer(many, llm="instant", system="direct", options=pyfast.RunOptions(sample=3))
        taken.update(record.id.partition("-")[2] for record in done.records)
    assert len(taken) == 10 and all(30 <= count <= 95 for count in taken.values())  # 60 expected, 6.5 deviation


def test_the_code_that_answers_depend_on(tmp_path: Path) -> None:
    for name in ("engine/context.py", "systems/rag.py", "evaluation/judge.py", "commands/judge.py", "cli.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")

    def digest() -> str:
        code_digest.cache_clear()
        return code_digest(tmp_path)

    before = digest()
    for name in ("commands/judge.py", "evaluation/judge.py", "__main__.py"):
        (tmp_path / name).write_text("x = 2\n")
    assert digest() == before
    (tmp_path / "systems" / "rag.py").write_text("x = 2\n")
    assert digest() != before
    code_digest.cache_clear()
    left_out = import_module("pyfast.engine.configuration")._ABOVE
    assert left_out <= {path.name for path in Path(pyfast.__file__).parent.iterdir()}


def test_other_code_is_resumed_knowingly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Listening()

    def go(limit: int, **given: Any) -> pyfast.Run:
        given = grouped(**given)
        return pyfast.answer(QUESTIONS, llm=llm, system="direct", run=tmp_path / "run", limit=limit, **given)

    go(5)
    first = recorded(tmp_path / "run")["code"]
    monkeypatch.setattr(import_module("pyfast.engine.configuration"), "code_digest", lambda: "other")
    with pytest.raises(InputError, match="--accept-code"):
        go(8)
    assert go(8, accept_code=True).status.states == {"answered": 8} and len(llm.asked) == 8
    now = recorded(tmp_path / "run")
    assert now["code"] == first and now["places"]["accepted_code"].endswith(" other")
    with pytest.raises(InputError, match="--accept-code"):
        go(9)


OWN = """
from pydantic import BaseModel
from pyfast.engine import Answer, Prompt
from pyfast.systems import Settings, System

class Reply(BaseModel):
    answer: str

ASK = Prompt("ask", "Reply in JSON.", "Question: $question", Reply, 20)

async def answer(question, ctx, settings):
    return Answer((await ctx.generate(ASK, question=question.text)).answer)

SYSTEM = System("own", answer, Settings, (ASK,), needs_index=False)
"""


def test_a_run_of_ones_own_system_resumes_with_other_code_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    llm, module = Listening(), tmp_path / "edited_system.py"

    def go(limit: int, **given: Any) -> pyfast.Run:
        system, given = "edited_system:SYSTEM", grouped(**given)
        return pyfast.answer(QUESTIONS, llm=llm, system=system, run=tmp_path / "run", limit=limit, **given)

    module.write_text(OWN)
    go(2)
    first = recorded(tmp_path / "run")["system"]["code"]
    module.write_text(f"{OWN}# edited")
    monkeypatch.delitem(sys.modules, "edited_system")
    with pytest.raises(InputError, match="--accept-code"):
        go(4)
    assert go(4, accept_code=True).status.states == {"answered": 4}
    now = recorded(tmp_path / "run")
    assert now["system"]["code"] == first and now["places"]["accepted_code"].startswith("system ")
