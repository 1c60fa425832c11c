"""What LLMs were asked is kept in the journal, each message once, and comes back as it was sent."""

import contextlib
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard
from grouped import grouped
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Watched
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import LLMCall
from pyfast.engine.journal.journal import Journal, completion_row, row_of_question
from pyfast.engine.journal.journal_reader import calls_of
from pyfast.engine.journal.prompt_store import Asked
from pyfast.errors import CallError, InputError
from pyfast.llm import Completion, Message, Request
from pyfast.systems.prompts import ANSWER, EXTRACT, PLAN

ASKED = [f"Which planet does moon {i} circle?" for i in range(5)]


class Remembering(Watched):
    """Keeps the requests that it was sent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.sent.append(request)
        return await super().complete(request)


def ask(small: pyfast.Index, folder: Path, llm: Any, **options: Any) -> pyfast.Run:
    options = {"system": "n2n", "concurrency": 1, **options}
    return pyfast.answer(ASKED, index=small, llm=llm, run=folder, **grouped(**options))


def calls(run: pyfast.Run) -> list[LLMCall]:
    return [call for record in run.records for call in run.prompts(record.id)]


def rows(run: pyfast.Run, table: str) -> int:
    assert run.path is not None
    with contextlib.closing(sqlite3.connect(run.path / "journal.sqlite")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def change(run: pyfast.Run, statement: str) -> None:
    assert run.path is not None
    with contextlib.closing(sqlite3.connect(run.path / "journal.sqlite")) as database:
        database.executescript(statement)


@pytest.fixture
def done(small: pyfast.Index, tmp_path: Path) -> pyfast.Run:
    return ask(small, tmp_path / "run", "instant")


def test_they_are_what_was_sent(small: pyfast.Index, tmp_path: Path) -> None:
    llm = Remembering()
    run = ask(small, tmp_path / "run", llm)
    found = calls(run)
    assert [call.messages for call in found] == [request.messages for request in llm.sent]
    assert len(found) > 2 * len(ASKED) and {call.prompt for call in found} == {"plan", "extract", "answer"}
    names = {
        PLAN.system: ("plan", "plan"),
        EXTRACT.system: ("extract", "extract"),
        ANSWER.system: ("answer", "answer"),
    }
    for call in found:
        assert call.messages is not None and (call.prompt, call.role) == names[call.messages[0].content]
        assert call.completion is not None and call.completion.text and call.error is None
    distinct = {(said.role, said.content) for request in llm.sent for said in request.messages}
    assert rows(run, "messages") == len(distinct) < sum(len(request.messages) for request in llm.sent)


def test_an_attempt_shows_what_was_wrong_and_a_failure_why(small: pyfast.Index, tmp_path: Path) -> None:
    def reply(request: Request) -> Any:
        return CallError("no more of this") if len(request.messages) > 2 else "no JSON"

    run = ask(small, tmp_path / "run", Remembering(reply=reply), system="direct")
    first, again = run.prompts(run.records[0].id)
    assert first.completion is not None and first.completion.text == "no JSON"
    assert first.messages is not None and again.messages is not None
    assert again.messages[:2] == first.messages and again.messages[2] == Message("assistant", "no JSON")
    assert (again.completion, again.error) == (None, "no more of this")


def test_a_run_that_goes_on_keeps_those_of_all_its_sessions(small: pyfast.Index, tmp_path: Path) -> None:
    llm = Remembering()
    whole = ask(small, tmp_path / "whole", llm)
    with pytest.raises(pyfast.errors.RunError, match="the run has reached its limit of"):
        ask(small, tmp_path / "run", Remembering(), budget={"run_tokens": 1500})
    before = rows(pyfast.Run(tmp_path / "run"), "completions")
    assert 0 < before < len(llm.sent)
    run = ask(small, tmp_path / "run", Remembering())
    assert calls(run) == calls(whole)


def test_private_data_is_not_kept(small: pyfast.Index, tmp_path: Path) -> None:
    run = ask(small, tmp_path / "run", "instant", keep_prompts=False)
    found = calls(run)
    assert found and all(call.messages is None and call.completion is not None for call in found)
    assert rows(run, "messages") == rows(run, "frames") == rows(run, "prompts") == 0
    with pytest.raises(InputError, match="in memory does not keep prompts"):
        pyfast.answer(["Who?"], llm="instant", system="direct").prompts("0")
    with pytest.raises(InputError, match="no finished question 'nobody'"):
        run.prompts("nobody")


HARM = {
    "a frame that is gone": "DELETE FROM frames WHERE id = 1",
    "a frame of noise": "UPDATE frames SET content = zeroblob(100)",
    "a frame of numbers": f"UPDATE frames SET content = x'{zstandard.compress(b'[[1, 2], [3, 4]]').hex()}'",
    "a message that is another's": "UPDATE messages SET place = 1 - place WHERE place < 2",
    "a prompt of another name": "UPDATE prompts SET entry = replace(entry, 'plan', 'plot')",
    "a prompt that is no JSON": "UPDATE prompts SET entry = 'x'",
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_damage_is_told(done: pyfast.Run, harm: str) -> None:
    assert done.path is not None and pyfast.verify(done.path).passed
    change(done, harm)
    with pytest.raises(InputError, match="stored prompts are damaged"):
        calls(done)
    (wrong,) = [check for check in pyfast.verify(done.path).checks if not check.passed]
    assert wrong.name == "journal.sqlite" and "stored prompts are damaged" in wrong.detail


def test_a_journal_that_was_damaged_gives_back_its_prompts(done: pyfast.Run, small: pyfast.Index) -> None:
    assert done.path is not None
    before = calls(done)
    change(done, "UPDATE questions SET ledger = 'x' WHERE number = 4")
    (done.path / "answers.jsonl").write_bytes(b"".join((done.path / "answers.jsonl").open("rb").readlines()[:3]))
    again = ask(small, done.path, "instant")
    assert list(done.path.glob("journal.sqlite.damaged*")) and calls(again) == before


MESSAGES = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), st.text())


@given(st.lists(st.lists(MESSAGES, max_size=4).map(tuple), min_size=1, max_size=6))
@settings(max_examples=50)
def test_any_messages_come_back(asked: list[tuple[Message, ...]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        with contextlib.closing(Journal(path)) as journal:
            for number, said in enumerate(asked):
                key = (f"default:{number:x}", 0)
                row = completion_row(0, key, Completion("x", "stop"))
                journal.commit([row], [], {key[0]: Asked("any", said)})
            journal.commit([], [row_of_question(0, "q", "answered", None, {})])
        assert [call.messages for call in calls_of(path, "q")] == asked


def test_the_command(done: pyfast.Run, small: pyfast.Index, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(done.path), done.records[0].id, "--prompts"])
    assert shown.exit_code == 0
    for call in done.prompts(done.records[0].id):
        assert call.messages is not None and call.completion is not None
        for text in (*(said.content for said in call.messages), call.completion.text):
            assert all(line in shown.stdout for line in text.splitlines())
    assert "LLM call 1, plan by plan: " in shown.stdout and "  [system]\n" in shown.stdout
    hostile = Remembering(reply=lambda request: '{"answer": "\\u001b[31mred"}\x1b[2J')
    bare = ask(small, tmp_path / "other", hostile, system="direct", keep_prompts=False)
    shown = CliRunner().invoke(app, ["show", str(bare.path), bare.records[1].id, "--prompts"])
    assert "\x1b" not in shown.stdout and "(the prompt was not kept)" in shown.stdout
