"""A run knows its own files: those of another run, changed ones and a folder that is gone are noticed."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import pytest
from hostile_server import allow, hostile
from processes import Session
from runs import DESCRIBED, Watched, answers, ask_about, direct, go, moody, records, traces, winding

import pyfast
from pyfast.engine import RunFolder, check_run, read_status
from pyfast.errors import InputError, RunError
from pyfast.retrieval import Index

OTHER = {"questions": {"count": 9, "digest": "9f"}, "llm": {"fingerprint": "another model"}}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-shm", "-wal"))}


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("foreign", ["journal.sqlite", "run.toml"])
def test_a_journal_of_another_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    """The questions are the same, and so are the requests: only the model is another."""
    go(tmp_path / "run", direct, Watched(), ask_about(9))
    monkeypatch.setattr("runs.DESCRIBED", OTHER)
    go(tmp_path / "other", direct, Watched(lambda request: {"answer": "of another"}), ask_about(9))
    shutil.copy(tmp_path / "other" / foreign, tmp_path / "run" / foreign)
    described = DESCRIBED if foreign == "journal.sqlite" else OTHER
    (tmp_path / "run" / "answers.jsonl").write_bytes(b"")
    before = files(tmp_path / "run")
    for attempt in (check_run, RunFolder):
        with pytest.raises(InputError, match=r"journal\.sqlite does not match run\.toml") as error:
            attempt(tmp_path / "run", described)
        assert "\n" not in str(error.value)
    for look in (read_status, pyfast.Run):
        with pytest.raises(InputError, match="does not match"):
            look(tmp_path / "run")
    assert files(tmp_path / "run") == before


def test_a_journal_that_does_not_tell_its_run_is_refused(tmp_path: Path) -> None:
    """As those of the format before."""
    go(tmp_path, direct, Watched(), ask_about(3))
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        database.execute("DROP TABLE run")
    with pytest.raises(InputError, match="does not match"):
        RunFolder(tmp_path, DESCRIBED)


def test_places_may_change(tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(), ask_about(3))
    moved = {**DESCRIBED, "places": {"questions": "elsewhere", "llm": "instant"}}
    RunFolder(tmp_path, moved).close()
    assert read_status(tmp_path).ended == 3


def edited(name: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda record: {**record, name: value}


EDITS = {
    "another answer": edited("answer", "Jupiter"),
    "another state": edited("state", "abstained"),
    "no state": edited("state", "done"),
    "another usage": edited("usage", {"llm_calls": 9, "prompt_tokens": 9, "completion_tokens": 9}),
    "a usage that is none": edited("usage", 5),
    "a usage of text": edited("usage", {"llm_calls": "9", "prompt_tokens": 9, "completion_tokens": 9}),
    "more evidence": edited("evidence", [{"uri": "x"}]),
    "a key more": edited("x", None),
    "keys in another order": lambda record: dict(reversed(record.items())),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("whole", [True, False], ids=["done", "stopped"])
def test_an_edited_line_is_noticed_and_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, edit: Callable[[dict[str, Any]], dict[str, Any]], whole: bool
) -> None:
    go(tmp_path, winding, Watched(moody), ask_about(9))
    before, beside = answers(tmp_path), traces(tmp_path)
    lines = before.splitlines(keepends=True)
    lines[4] = json.dumps(edit(json.loads(lines[4])), separators=(",", ":")).encode() + b"\n"
    (tmp_path / "answers.jsonl").write_bytes(b"".join(lines if whole else lines[:6]))
    assert read_status(tmp_path).altered == (1 if whole else 4)  # Three lines that the journal knows are missing.
    command = processes.pyfast("status", tmp_path)
    lines_of = "1 line missing" if whole else "4 lines missing"
    assert command.returncode == 0 and lines_of in command.stdout and "missing or changed" in command.stdout
    go(tmp_path, winding, llm := Watched(moody), ask_about(9))
    assert (answers(tmp_path), traces(tmp_path), llm.given) == (before, beside, 0)
    assert "answers.jsonl: line 5 was changed" in caplog.text
    assert read_status(tmp_path).altered == 0


@pytest.mark.parametrize("usage", ["5", "null", "[]", '{"llm_calls": 1}', '{"llm_calls": "1"}'])
def test_a_usage_that_is_none_is_one_line(tmp_path: Path, usage: str) -> None:
    """Also where the journal is gone, so that nothing tells what stood there."""
    go(tmp_path, direct, Watched(), ask_about(3))
    lines = answers(tmp_path).splitlines(keepends=True)
    lines[1] = lines[1][: lines[1].index(b'"usage":')] + f'"usage":{usage}}}\n'.encode()
    (tmp_path / "answers.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"answers\.jsonl, line 2: this line is not a run.s record") as error:
        list(pyfast.Run(tmp_path).records)
    assert "\n" not in str(error.value)
    (tmp_path / "journal.sqlite").unlink()
    go(tmp_path, direct, llm := Watched(), ask_about(3))
    assert llm.given == 2 and len(records(tmp_path)) == 3


def test_an_intact_run_is_not_altered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is one whose last line is torn, or whose lines were written in the wrong order as it was stopped."""
    go(tmp_path, winding, Watched(moody), ask_about(9))
    whole = answers(tmp_path)
    for content in (whole, whole[:-9], whole[:0], b"".join(whole.splitlines(keepends=True)[i] for i in (0, 1, 4))):
        (tmp_path / "answers.jsonl").write_bytes(content)
        go(tmp_path, winding, Watched(moody), ask_about(9))
        assert answers(tmp_path) == whole and read_status(tmp_path).altered == 0
    assert "was changed" not in caplog.text


@pytest.mark.parametrize("how", ["moved", "deleted", "journal replaced", "answers moved", "another in its place"])
def test_a_folder_that_goes_away_ends_the_run(tmp_path: Path, how: str) -> None:
    """Before, it ended with `20 answered`. What was done is where the folder went, and can be resumed."""
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def lose(given: int) -> None:
        if given != 20:
            return
        if how == "deleted":
            shutil.rmtree(folder)
        elif how == "journal replaced":
            (folder / "journal.sqlite").rename(tmp_path / "journal")
            (folder / "journal.sqlite").write_bytes(b"")
        elif how == "answers moved":
            (folder / "answers.jsonl").rename(tmp_path / "answers")
        else:
            folder.rename(elsewhere)
            if how == "another in its place":
                go_elsewhere()

    def go_elsewhere() -> None:
        shutil.copytree(elsewhere, folder)

    with pytest.raises(RunError, match=r"was deleted or moved during the run") as error:
        go(folder, winding, Watched(moody, lose), ask_about(9), concurrency=2)
    assert "\n" not in str(error.value)
    if how == "moved":
        whole = Watched(moody)
        go(tmp_path / "whole", winding, whole, ask_about(9))
        go(elsewhere, winding, llm := Watched(moody), ask_about(9))
        assert answers(elsewhere) == answers(tmp_path / "whole") and llm.given <= whole.given - 18
        assert not folder.exists()


def test_the_command_says_so(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(f'{{"id": "{i}", "question": "Who is {i}?"}}\n' for i in range(300)))
    with hostile("--allow", "100") as url:
        session = Session(tmp_path / "run", questions, "--system", "direct", "--llm", f"openai:m@{url}")
        session.until(lambda: session.lines() > 10)
        (tmp_path / "run").rename(tmp_path / "moved")
        allow(url, 10**6)
        assert session.ended() == 1
    assert session.told.count("\n") == 1 and "deleted or moved during the run" in session.told
    written = (tmp_path / "moved" / "answers.jsonl").read_bytes().count(b"\n")
    assert 10 < written < 300 and read_status(tmp_path / "moved").ended >= written


def test_answers_stay_short(small: Index, examples: Path, tmp_path: Path) -> None:
    """Of n2n as it is by default; they were 3.7 kB."""
    run = pyfast.answer(examples / "questions.jsonl", index=small, llm="instant", system="n2n", run=tmp_path)
    lines = answers(tmp_path).splitlines()
    assert sum(map(len, lines)) / len(lines) < 1_500
    record = run.records[3]
    assert list(json.loads(lines[3])) == ["id", "state", "answer", "evidence", "usage"]
    assert [set(item) for item in json.loads(lines[3])["evidence"]] == [{"segment", "uri"}] * len(record.evidence)
    assert record.trace["hops"] and all(item.snippet and item.score is not None for item in record.evidence)
