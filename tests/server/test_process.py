"""`pyfast serve` as a process: what it prints, and how it ends."""

import json
import signal
import urllib.error
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hostile_server import hostile
from http_server import TITAN, process
from processes import Session
from processes import pyfast as run

import pyfast


def ask(url: str) -> Any:
    body = json.dumps({"model": "direct", "messages": TITAN}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_what_it_has_begun(number: signal.Signals, tmp_path: Path) -> None:
    with (
        hostile("--weights", "good=1", "--delay-ms", "800") as llm,
        process(tmp_path, "--llm", f"openai:m@{llm}", "--system", "direct") as (session, url),
        ThreadPoolExecutor() as threads,
    ):
        asking = threads.submit(ask, url)
        while "pyfast_questions_admitted 1.0" not in urllib.request.urlopen(url + "/metrics").read().decode():
            assert not asking.done()
        session.send(number)
        assert asking.result()["choices"][0]["finish_reason"] == "stop"
        assert session.ended() == 0, session.told
        assert "stopping: waiting at most 30 s for questions in progress (1)" in session.told
        assert "questions that were cut off: 0" in session.told
        with pytest.raises(OSError):
            ask(url)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with (
        hostile("--weights", "good=1", "--delay-ms", "60000") as llm,
        process(tmp_path, "--llm", f"openai:m@{llm}", "--system", "direct") as (session, url),
        ThreadPoolExecutor() as threads,
    ):
        asking = threads.submit(ask, url)
        while "pyfast_questions_admitted 1.0" not in urllib.request.urlopen(url + "/metrics").read().decode():
            assert not asking.done()
        session.send(signal.SIGTERM)
        session.until(lambda: refuses(url))
        session.send(signal.SIGTERM)
        assert session.ended(20) == 130, session.told
        assert "questions that were cut off: 1" in session.told
        told_that_it_stops(asking, session)


def told_that_it_stops(asking: Future[Any], session: Session) -> None:
    """The client gets an error in OpenAI's form, and the log has one line for its request, and no traceback."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        asking.result()
    fault = json.load(refused.value)["error"]
    assert (refused.value.code, fault["code"], fault["type"]) == (503, "stopping", "server_error")
    assert "the server is stopping" in fault["message"] and refused.value.headers["Retry-After"]
    assert session.told.count("/v1/chat/completions") == 1 and "Traceback" not in session.told, session.told


@pytest.mark.parametrize("streams", [False, True])
def test_a_question_longer_than_the_grace(streams: bool, tmp_path: Path) -> None:
    given = ("--system", "direct", "--grace", 1)
    with (
        hostile("--weights", "good=1", "--delay-ms", "60000") as llm,
        process(tmp_path, "--llm", f"openai:m@{llm}", *given) as (session, url),
        ThreadPoolExecutor() as threads,
    ):
        asking = threads.submit(stream if streams else ask, url)
        while "pyfast_questions_admitted 1.0" not in urllib.request.urlopen(url + "/metrics").read().decode():
            assert not asking.done()
        session.send(signal.SIGTERM)
        assert session.ended(20) == 0, session.told
        assert "stopping: waiting at most 1 s for questions in progress (1)" in session.told
        assert "questions that were cut off: 1" in session.told and "ERROR" not in session.told
        if streams:
            assert json.loads(asking.result()[-1].removeprefix("data: "))["error"]["code"] == "stopping"
            assert "Traceback" not in session.told, session.told
        else:
            told_that_it_stops(asking, session)


def stream(url: str) -> list[str]:
    """The events of a stream, until the server ends it."""
    body = json.dumps({"model": "direct", "messages": TITAN, "stream": True}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return [line for line in response.read().decode().split("\n\n") if line]


def refuses(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/health", timeout=5)
    except OSError:
        return True
    return False


def test_several_indexes_and_settings(small: pyfast.Index, tmp_path: Path) -> None:
    given = ("--index", f"a={small.folder}", "--index", small.folder, "--llm", "instant")
    chosen = ("--system", "rag", "--system", "direct", "--set", "rag.k=3")
    with process(tmp_path, *given, *chosen) as (_, url):
        models = json.load(urllib.request.urlopen(url + "/v1/models"))["data"]
    name = small.folder.name
    assert [model["id"] for model in models] == [
        *("rag", "direct", "rag@a", "direct@a", f"rag@{name}", f"direct@{name}")
    ]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--host", "0.0.0.0"), "set PYFAST_API_KEYS"),
        (("--limit", "speed=1"), "unknown limit speed"),
        (("--set", "rag.k=3"), "add this system with --system"),
        (("--set", "k=3"), "expected SYSTEM.NAME=VALUE"),
        (("--index", "a=x", "--index", "a=y"), "given twice"),
    ],
)
def test_what_does_not_fit_is_one_line(arguments: tuple[str, ...], fault: str, tmp_path: Path) -> None:
    done = run("serve", "--llm", "instant", *arguments, cwd=tmp_path)
    assert done.returncode == 1 and fault in done.stderr and done.stderr.count("\n") == 1
