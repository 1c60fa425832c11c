"""Questions about a corpus as a whole: users, their tasks, what they ask; and what becomes of broken replies."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted import Scripted

import pyfast
from pyfast.api.open_questions import write_questions
from pyfast.engine import read_questions
from pyfast.errors import InputError, RunError
from pyfast.evaluation.open_questions import OPEN_QUESTIONS, OPEN_USERS
from pyfast.llm import Request

USERS = {"users": [{"user": f"user {i}", "tasks": [f"task {i}{j}" for j in (1, 2, 3)]} for i in (1, 2, 3)]}


class Writer(Scripted):
    """Knows the prompts by what they say first."""

    async def complete(self, request: Request) -> Any:
        self.calls.append(("", request))
        kind = {OPEN_USERS.system: "open_users", OPEN_QUESTIONS.system: "open_questions"}
        reply = self.replies[kind[request.messages[0].content]]
        reply = reply(request) if callable(reply) else reply
        return pyfast.llm.Completion(reply if isinstance(reply, str) else json.dumps(reply), "stop")


def asks(request: Request) -> Any:
    """Four questions of each task, but broken ones of one."""
    (task,) = re.findall(r"Task: (.*)", request.messages[1].content)
    return "no" if task == "task 12" else {"questions": [f"{task}, question {k}?" for k in range(4)]}


def test_each_user_has_tasks_and_each_task_questions(small: pyfast.Index, tmp_path: Path) -> None:
    llm = Writer(open_users=USERS, open_questions=asks)
    given = {"run": tmp_path / "run", "users": 2, "tasks": 2, "questions": 3, "llm": llm}
    found = write_questions(small, tmp_path / "asked.jsonl", **given)
    assert [line["id"] for line in found] == [f"{place}-{k}" for place in ("1-1", "2-1", "2-2") for k in (1, 2, 3)]
    assert found[3] == {"id": "2-1-1", "question": "task 21, question 0?", "user": "user 2", "task": "task 21"}
    assert [asked.text for asked in read_questions(tmp_path / "asked.jsonl")] == [it["question"] for it in found]
    said = [request.messages[-1].content for _, request in llm.calls]
    assert "Write 2 users with 2 tasks each." in said[0] and "Write 3 questions." in said[1]
    passages = [small.text(place)[:60] for place in (0, len(small.passages) - 1)]
    assert all(passage in text for passage in passages for text in said[:2])
    calls = len(llm.calls)
    (tmp_path / "asked.jsonl").unlink()
    assert write_questions(small, tmp_path / "asked.jsonl", **given) == found and len(llm.calls) == calls


def test_what_cannot_be_read_is_an_error(small: pyfast.Index, tmp_path: Path) -> None:
    for number, replies in enumerate(({"open_users": "no"}, {"open_users": USERS, "open_questions": "no"})):
        with pytest.raises(RunError, match="contains no questions, because "):
            write_questions(small, tmp_path / "asked", run=tmp_path / str(number), llm=Writer(**replies))
    assert not (tmp_path / "asked").exists()
    with pytest.raises(InputError, match="tasks: expected at most 20, got 21"):
        write_questions(small, tmp_path / "asked", run=tmp_path / "run", tasks=21, llm="instant")


def test_the_command(small: pyfast.Index, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "pyfast", "questions", small.folder, "--out", tmp_path / "asked", "--run"]
    line += [tmp_path / "run", "--llm", "instant", "--users", "1", "--tasks", "1", "--questions", "2"]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    written = (tmp_path / "asked").read_text().splitlines()
    assert f"{len(written)} questions" in told and 1 <= len(written) <= 2
