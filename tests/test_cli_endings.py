"""What ends a command at a bad moment, or stands in a bad name, is one line: never a traceback."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from functools import partial
from pathlib import Path

import pytest
from hostile_server import allow, hostile
from processes import Session, pyfast
from runs import Watched, ask_about, direct, go

from pyfast.engine.run_folder import locked

ENDED = {signal.SIGHUP: 129, signal.SIGQUIT: 131}


def ask(folder: Path, number: int, name: str | bytes = "q.jsonl") -> Path:
    path = folder / os.fsdecode(name)
    path.write_text("".join(f'{{"id": "{i}", "question": "Who is {i}?"}}\n' for i in range(number)))
    return path


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["typer", "logging", "pyfast.errors"])
def test_ctrl_c_while_modules_are_loaded(module: str, sent: signal.Signals) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "pyfast", "--version"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.split("|")[-1].strip() == module:
                break
        process.send_signal(sent)
        told, errors = process.communicate(timeout=30)
    said = [line for line in errors.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, told, said) == (130, "", ["pyfast: stopped"])


@pytest.mark.parametrize("sent", ENDED)
def test_a_lost_terminal_ends_a_run_that_can_be_resumed(tmp_path: Path, sent: signal.Signals) -> None:
    questions, folder = ask(tmp_path, 300), tmp_path / "run"
    with hostile("--allow", "200") as url:
        arguments = (questions, "--system", "direct", "--llm", f"openai:m@{url}", "--concurrency", 4)
        session = Session(folder, *arguments)
        session.until(lambda: session.lines() > 50)
        session.send(sent)
        assert session.ended() == ENDED[sent]
        assert session.told == f"pyfast: ended by {sent.name}; the same command resumes {folder}\n"
        assert 50 < session.lines() < 300
        ids = [json.loads(line)["id"] for line in (folder / "answers.jsonl").read_bytes().splitlines()[:-1]]
        assert ids == [str(i) for i in range(len(ids))]
        allow(url, 10**6)
        again = Session(folder, *arguments)
        assert again.ended() == 0 and "continuing" in again.told and again.lines() == 300


def test_under_nohup_it_goes_on(tmp_path: Path) -> None:
    arguments = (ask(tmp_path, 3000), "--system", "direct", "--llm", "instant")
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    session = Session(tmp_path / "run", *arguments, prepare=ignore)
    session.until(lambda: session.lines() > 50)
    session.send(signal.SIGHUP)
    assert session.ended() == 0 and session.lines() == 3000


def test_what_is_markup_elsewhere_is_a_name_here(tmp_path: Path) -> None:
    """On a terminal, where a run shows its progress."""
    name = "[/x]/[bold/:smile:"
    folder = tmp_path / name
    folder.mkdir(parents=True)
    questions = ask(folder, 3)
    llm = f"llamacpp:{folder / 'none.gguf'}"
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "pyfast", "answer", questions, "--run", folder / "run", "--system", "direct"]
    for model, status in (("instant", 0), (llm, 1)):
        run = [*map(str, command), "--llm", model, "--restart"]
        done = subprocess.run(run, stdout=subprocess.PIPE, stderr=terminal, text=True, timeout=60)
        told = os.read(main, 1 << 16).decode()
        assert done.returncode == status and "Traceback" not in told, told
        if status:
            assert f"{name}/none.gguf" in told
    os.close(main)
    os.close(terminal)
    assert pyfast("status", folder / "run", cwd=tmp_path).returncode == 0


def test_the_exit_status_says_whether_all_questions_of_the_run_failed(tmp_path: Path) -> None:
    """Those of all sessions count, and one that finds nothing to do ends with the same status."""

    told = list[str]()

    def answer(llm: str, number: int) -> int:
        given = ("--system", "direct", "--run", tmp_path / "run", "--llm", f"openai:m@{llm}")
        done = pyfast("answer", ask(tmp_path, number), *given, "--budget", "attempts=1")
        assert ("every question failed; the first reason was: " in done.stderr) == (done.returncode == 1)
        told.append(done.stdout + done.stderr)
        return done.returncode

    with hostile("--weights", "wrong=1") as bad, hostile() as good:
        assert [answer(bad, 1), answer(bad, 1), answer(good, 2), answer(bad, 3), answer(bad, 3)] == [1, 1, 0, 0, 0]
        states = [json.loads(line)["state"] for line in (tmp_path / "run" / "answers.jsonl").open()]
        assert states == ["failed", "answered", "failed"]
        assert "3 of 3 questions are finished" in told[-1]
        assert "all questions were already finished (2 failed; --retry-failed tries them again)" in told[-1]
        load = ("--system", "direct", "--clients", 1, "--count", 2, "--llm", f"openai:m@{bad}")
        measured = pyfast("bench", ask(tmp_path, 1), *load)
        assert measured.returncode == 1 and "pyfast: every question failed" in measured.stderr


def test_a_question_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"r\xff\xc3")
    folder.mkdir()
    questions = ask(folder, 3, b"q\xff.jsonl")
    command = ["answer", questions, "--run", folder / "run", "--system", "direct", "--llm", "instant"]
    for said in ("3 questions: 3 answered", "all questions were already finished"):
        done = subprocess.run([sys.executable, "-m", "pyfast", *command], capture_output=True, timeout=60)
        assert done.returncode == 0 and said.encode() in done.stdout, done.stderr
        assert rb"r\udcff\udcc3/run/answers.jsonl" in done.stdout
    assert len((folder / "run" / "answers.jsonl").read_bytes().splitlines()) == 3
    places = tomllib.loads((folder / "run" / "run.toml").read_text())["places"]
    assert places["questions"].endswith(r"q\udcff.jsonl")
    missing = [sys.executable, "-m", "pyfast", "answer", folder / "none", *command[2:]]
    done = subprocess.run(missing, capture_output=True, timeout=60)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"Traceback" not in done.stderr


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """A session that begins tomorrow has no speed yet, and nothing takes less than no time."""
    go(tmp_path / "run", direct, Watched(), ask_about(5))
    database = sqlite3.connect(tmp_path / "run" / "journal.sqlite")
    database.execute("INSERT INTO sessions VALUES (?, 0)", (time.time() + 86_400,))
    database.commit()
    database.close()
    with locked(tmp_path / "run"):
        told = pyfast("status", tmp_path / "run", cwd=tmp_path)
    assert told.returncode == 0 and "running" in told.stdout and "left" not in told.stdout


def test_a_missing_file_is_named_without_a_number(tmp_path: Path) -> None:
    done = pyfast("evaluate-retrieval", "IDX", "questions.csv", cwd=tmp_path)
    assert done.returncode == 1 and "Errno" not in done.stderr and ": No such file or directory" in done.stderr
