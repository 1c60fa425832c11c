"""`pyfast view`: over a real socket, in its own process, while another process answers."""

import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_server import hostile
from processes import Session

import pyfast
from pyfast.reports.bundle import RunData
from pyfast.retrieval import Index

ADDRESS = re.compile(r"(http://\S+)\s")


@contextmanager
def viewed(*arguments: str) -> Iterator[str]:
    """The address of a view in a process of its own, which ends by Ctrl-C with status 0."""
    process = Session(Path(), "view", *arguments, command=None)
    try:
        process.until(lambda: ADDRESS.search(process.told) is not None)
        found = ADDRESS.search(process.told)
        assert found, process.told
        yield found[1]
        process.send(signal.SIGINT)
        assert process.ended(20) == 0
    finally:
        process.kill()


def fetched(address: str, host: str | None = None) -> bytes:
    request = urllib.request.Request(address, headers={} if host is None else {"Host": host})
    with urllib.request.urlopen(request, timeout=20) as response:
        content: bytes = response.read()
        return content


def manifest(address: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(fetched(f"{address}manifest.json"))
    return read


def status(address: str, host: str | None = None) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetched(address, host)
    return refused.value.code


def test_it_follows_a_run_that_goes_on(small: Index, tmp_path: Path) -> None:
    questions, run = tmp_path / "questions.jsonl", tmp_path / "run"
    lines = ({"id": f"q{i}", "question": f"What is moon {i}?", "answers": ["x"]} for i in range(60))
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with hostile("--weights", "good=1", "--allow", "20") as url:  # the other requests wait
        command = [questions, "--index", small.folder, "--system", "rag", "--llm", f"openai:m@{url}"]
        answering = Session(run, *command, "--concurrency", 4)
        try:
            answering.until((run / "answers.jsonl").exists)
            with viewed(str(run), "--gold", str(questions)) as address:
                assert counted(address, 20)["live"]
                fetched(f"{url}/allow/60")
                counted(address, 60)
                assert answering.ended(30) == 0
                while manifest(address)["live"]:
                    time.sleep(0.2)
        finally:
            answering.kill()


def test_a_run_that_has_only_just_begun(small: Index, tmp_path: Path) -> None:
    """From the moment when others can take the folder for a run, it shows that it has started."""
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": f"q{i}", "question": "What?"}) + "\n" for i in range(9)))
    with hostile("--weights", "good=1", "--allow", "0") as url:  # all requests wait
        for number in range(3):
            run = tmp_path / f"run-{number}"
            command = [questions, "--index", small.folder, "--system", "rag", "--llm", f"openai:m@{url}"]
            answering = Session(run, *command)
            try:
                answering.until((run / "run.toml").exists)
                data = RunData(run, tmp_path / f"data-{number}")
                part = data.update()
                assert (part["questions"], part["running"], part["lists"]) == (9, True, [])
            finally:
                answering.kill()


def counted(address: str, questions: int) -> dict[str, Any]:
    """The manifest once so many questions are there; they never become fewer."""
    seen = 0
    while True:
        now = manifest(address)
        count = sum(one["questions"] for one in now["runs"][0]["lists"])
        assert seen <= count <= questions
        if count == questions:
            return now
        seen = count
        time.sleep(0.2)


def test_who_may_ask_for_what(small: Index, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pyfast.answer(["What is Titan?"], index=small, llm="instant", system="rag", run=run)
    with viewed(str(run)) as address:
        assert b"<main" in fetched(address)
        assert status(address, "evil.example:80") == 421
        assert status(f"{address}data/") == 404
        assert status(f"{address}../../../../etc/passwd") == 404
        assert status(f"{address}%2e%2e/%2e%2e/etc/passwd") == 404
        with urllib.request.urlopen(f"{address}app.js") as response:
            assert response.headers["X-Frame-Options"] == "DENY"
            assert response.headers["Content-Type"].startswith("text/javascript")
