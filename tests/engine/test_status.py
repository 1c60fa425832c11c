"""The status of a run: what its ledger rows add up to, also while it is written."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import processes
import pytest
from runs import DESCRIBED, Watched, ask_about, go, moody, records, winding

from pyfast.engine import Answer, Context, Question, RunFolder, Status, read_status
from pyfast.engine.record import reply_begins
from pyfast.errors import CallError, InputError
from pyfast.retrieval import Index
from pyfast.systems import load_system


def by_hand(folder: Path) -> dict[str, Any]:
    """The same from the rows, slowly."""
    database = sqlite3.connect(folder / "journal.sqlite")
    rows = database.execute("SELECT state, reason, ledger FROM questions ORDER BY number").fetchall()
    database.close()
    ledgers = [json.loads(ledger) for _, _, ledger in rows]
    stages: dict[str, list[list[int]]] = defaultdict(list)
    for ledger in ledgers:
        for name, stage in ledger["stages"].items():
            stages[name].append(stage)
    return {
        "states": Counter(state for state, _, _ in rows),
        "failures": Counter(reason.partition("; the reply")[0] for state, reason, _ in rows if state == "failed"),
        **{
            name: sum(ledger[name] for ledger in ledgers)
            for name in ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")
        },
        "stages": {
            name: (
                calls := sum(stage[0] for stage in seen),
                mean(stage[1] for stage in seen) / 1000,
                mean(stage[2] for stage in seen) / 1000,
                sum(stage[3] for stage in seen) / max(calls, 1),
            )
            for name, seen in stages.items()
        },
    }


def check(folder: Path) -> Status:
    found, expected = read_status(folder), by_hand(folder)
    assert found.states == expected["states"] and found.ended == sum(expected["states"].values())
    counts = [count for _, count in expected["failures"].most_common(10)]
    assert [count for _, count in found.failures] == counts  # which of those that are as common is nobody's matter
    assert dict(found.failures).items() <= expected["failures"].items()
    for name in ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens"):
        assert getattr(found, name) == expected[name]
    stages = {stage.name: (stage.calls, stage.queued_ms, stage.running_ms, stage.batch) for stage in found.stages}
    assert stages.keys() == expected["stages"].keys()
    for name, figures in stages.items():
        assert figures == pytest.approx(expected["stages"][name])
    return found


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("name", ["winding", "n2n"])
def test_it_adds_up(small: Index, tmp_path: Path, name: str) -> None:
    n2n = load_system("n2n")
    ask, reply = (winding, moody) if name == "winding" else (n2n.ask(n2n.configure({})), None)
    go(tmp_path, ask, Watched(reply), ask_about(40), small, concurrency=7)
    found = check(tmp_path)
    assert found.states == Counter(record["state"] for record in records(tmp_path))
    assert found.questions == DESCRIBED["questions"]["count"]
    assert (found.running, found.seconds_left) == (False, None)
    assert found.llm_calls == sum(record["usage"]["llm_calls"] for record in records(tmp_path))
    assert found.prompt_tokens == sum(record["usage"]["prompt_tokens"] for record in records(tmp_path))
    if name == "n2n":
        assert [stage.name for stage in found.stages][:3] == ["plan", "journal", "search_and_fuse"]


def test_a_run_that_goes_on_still_adds_up(tmp_path: Path) -> None:
    def copy(given: int) -> None:
        if given == 50:
            shutil.copytree(tmp_path / "run", tmp_path / "killed")

    go(tmp_path / "run", winding, Watched(moody, copy), ask_about(20), concurrency=4)
    before = check(tmp_path / "killed")
    assert 0 < before.ended < 20
    go(tmp_path / "killed", winding, Watched(moody), ask_about(20), concurrency=4)
    found = check(tmp_path / "killed")
    assert found.ended == 20 and found.llm_calls == read_status(tmp_path / "run").llm_calls
    assert sum(stage.calls for stage in found.stages if stage.role) == found.llm_calls  # replayed ones too


def test_the_time_left_is_told_while_it_runs(tmp_path: Path) -> None:
    """DESCRIBED has nine questions; three are answered before, three more in this session's first second."""
    go(tmp_path, winding, Watched(), ask_about(3))
    seen: list[Status] = []

    async def system(question: Question, ctx: Context) -> Answer:
        answer = await winding(question, ctx)
        if question.id == "q6":
            await asyncio.sleep(1)
            seen.append(check(tmp_path))
        return answer

    began = time.time()
    go(tmp_path, system, Watched(), ask_about(7), concurrency=1)
    (found,) = seen
    assert found.running and found.ended == 6
    assert found.seconds_left is not None
    assert 1.0 <= found.seconds_left <= time.time() - began  # three took a second and a bit; three are left
    assert read_status(tmp_path).seconds_left is None


def test_failures_are_counted_without_the_replies(tmp_path: Path) -> None:
    """Each question fails with another reply, for the same reason."""

    async def fails(question: Question, ctx: Context) -> Answer:
        raise CallError(f"answer: malformed answer: too short{reply_begins(question.id)}")

    summary = go(tmp_path, fails, Watched(), ask_about(5))
    assert read_status(tmp_path).failures == [("answer: malformed answer: too short", 5)]
    assert {record["reason"][-4:] for record in records(tmp_path)} == {f'"q{n}"' for n in range(5)}
    assert summary.failures == {"answer: malformed answer: too short": 5}


BAD = {
    "no folder": [],
    "an empty folder": [""],
    "answers alone": ["answers.jsonl"],
    "a run.toml without a journal": ["run.toml"],
    "a broken run.toml": ["run.toml broken"],
    "a foreign run.toml": ["run.toml foreign"],
    "a journal that is none": ["run.toml", "journal.sqlite broken"],
    "a journal without tables": ["run.toml", "journal.sqlite"],
}
CONTENTS = {"run.toml": "format_version = 1\n[questions]\ncount = 3\n"}
CONTENTS |= {"run.toml broken": "[", "run.toml foreign": "format_version = 1\n[tool]\na = 1\n"}


@pytest.mark.parametrize("files", BAD.values(), ids=BAD)
def test_what_is_no_run_is_one_clear_error(tmp_path: Path, files: list[str]) -> None:
    folder = tmp_path / "run"
    for name in files:
        folder.mkdir(exist_ok=True)
        if name:
            (folder / name.split()[0]).write_text(CONTENTS.get(name, "x" * 999 if "broken" in name else ""))
    before = sorted(folder.iterdir()) if files else []
    with pytest.raises(InputError) as error:
        read_status(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
    assert before == (sorted(folder.iterdir()) if files else [])


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, DESCRIBED)
    found = check(tmp_path)
    assert (found.running, found.ended, found.seconds_left, found.stages) == (True, 0, None, [])
    folder.close()


def test_it_can_be_asked_for_during_a_run(tmp_path: Path) -> None:
    """`pyfast status`, again and again, harms neither itself nor the run."""
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(f'{{"id": "{i}", "question": "Who is {i}?"}}\n' for i in range(3_000)))
    pyfast = [sys.executable, "-m", "pyfast.commands.cli"]
    command = [*pyfast, "answer", str(questions), "--system", "direct", "--llm", "instant"]
    command += ["--run", str(tmp_path / "r")]
    told = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 120
        while run.poll() is None and time.monotonic() < deadline:
            if (tmp_path / "r" / "run.toml").exists():
                status = processes.pyfast("status", tmp_path / "r")
                told.append(status.stdout.partition("\n")[0] or status.stderr)
            else:
                time.sleep(0.02)
        output, errors = run.communicate(timeout=120)
    assert run.returncode == 0 and errors == "" and "3000 answered" in output
    assert told and all(" of 3000 questions ended: " in line or "no such table" in line for line in told), told
    assert read_status(tmp_path / "r").states == {"answered": 3_000}
    assert len(records(tmp_path / "r")) == 3_000


def test_a_reason_may_hold_anything(tmp_path: Path) -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        raise ValueError(["[bold]", "\x00", "\x1b[31m", "a\nb", "é" * 5000, "\udc80"][int(question.id[1:])])

    go(tmp_path, system, Watched(), ask_about(6))
    assert read_status(tmp_path).states == {"failed": 6}
    done = processes.pyfast("status", tmp_path)
    assert done.returncode == 0 and done.stderr == "" and "[bold]" in done.stdout and "\x1b" not in done.stdout


def test_a_poison_answer_fails_alone(tmp_path: Path) -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        text, trace = {"q1": ("\udc80", {}), "q2": ("fine", {"x": 2**70})}.get(question.id, ("fine", {}))
        return Answer(text, trace=trace)

    go(tmp_path, system, Watched(), ask_about(4))
    assert [record["state"] for record in records(tmp_path)] == ["answered", "failed", "failed", "answered"]
