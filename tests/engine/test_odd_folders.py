"""Whatever stands in a run's folder, a look at it ends with a result or one clear line: see run_fuzzer.py."""

import contextlib
import json
import logging
import os
import sqlite3
import time
from pathlib import Path
from zlib import crc32

import orjson
import pytest
from run_fuzzer import fuzz
from runs import Watched, answers, ask_about, direct, go, records

from pyfast import Run
from pyfast.engine import read_status
from pyfast.engine.journal.journal import Journal
from pyfast.engine.journal.journal_reader import used_by
from pyfast.errors import CallError, InputError
from pyfast.llm import Request

ODD_LEDGERS = ["{}", "5", "[]", "null", '"x"', "{", "", '{"llm_calls": "x"}', '{"stages": {"a": [1]}}', b"\xff"]
_WHOLE = {"llm_calls": 1, "prompt_tokens": 9, "completion_tokens": 5, "seconds": 1.0, "stages": {}}
ODD_LEDGERS += [
    json.dumps(_WHOLE | odd)
    for odd in (
        {"stages": []},
        {"stages": {"a": [1, 2, 3, 4, "answer", 7]}},
        {"stages": {"a": [1, 2, 3, "4", "answer", 7, 7]}},
        {"stages": {"a": [1, 2, 3, 4, 5, 7, 7]}},
        {"stages": {"a": {"batches": 1}}},
        {"prompt_tokens": -9},
        {"prompt_tokens": 9.5},
        {"llm_calls": True},
        {"completion_tokens": "5"},
        {"completion_tokens": [5]},
        {"fall_backs": ["plan"]},
        {"left_out": {"plan": "1"}},
        {"seconds": "1"},
        {"seconds": -1},
    )
]


def test_a_slice_of_the_fuzzer(tmp_path: Path) -> None:
    seen = fuzz(tmp_path, seconds=5, seed=17)
    assert seen["rounds"] >= 3 and seen["status: done"]


@pytest.mark.slow(suite="crashes")
def test_minutes_of_the_fuzzer(tmp_path: Path) -> None:
    seed = int(os.environ.get("PYFAST_TEST_SEED") or time.time_ns())
    seen = fuzz(tmp_path, seconds=float(os.environ.get("PYFAST_FUZZ_SECONDS") or 120), seed=seed)
    assert {"go on: done", "go on: InputError", "verify: done", "evaluate: InputError"} <= seen.keys()


@pytest.mark.parametrize("ledger", ODD_LEDGERS)
def test_an_odd_ledger_is_left_out(tmp_path: Path, ledger: object, caplog: pytest.LogCaptureFixture) -> None:
    go(tmp_path, direct, Watched(), ask_about(9))
    whole = read_status(tmp_path)
    database = sqlite3.connect(tmp_path / "journal.sqlite")
    database.execute("UPDATE questions SET ledger = ? WHERE number = 4", (ledger,))
    database.commit()
    database.close()
    with caplog.at_level(logging.WARNING, "pyfast"):
        found = read_status(tmp_path)
    assert (found.states, found.ended) == (whole.states, 9)
    assert whole.llm_calls - found.llm_calls == 1
    assert whole.prompt_tokens * 8 == found.prompt_tokens * 9
    assert list(used_by(tmp_path)) == [f"q{number}" for number in range(9) if number != 4]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/journal.sqlite is damaged; questions with unknown state or costs, which are not counted: 1"
    ]


def test_an_unknown_state_is_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    go(tmp_path, direct, Watched(), ask_about(9))
    whole, kept = read_status(tmp_path), answers(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database, database:
        database.execute("UPDATE questions SET state = 'ansgered' WHERE number = 4")
    with caplog.at_level(logging.WARNING, "pyfast"):
        assert read_status(tmp_path).states == {"answered": 8}
    assert "questions with unknown state or costs, which are not counted: 1" in caplog.text
    again = Watched()
    go(tmp_path, direct, again, ask_about(9))
    assert read_status(tmp_path).states == whole.states and answers(tmp_path) == kept and not again.asked


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("retries", [False, True])
def test_a_done_run_survives_damaged_replies(tmp_path: Path, fails: bool, retries: bool) -> None:
    """Who looks whether calls of failed questions can be tried again reads the replies."""

    def reply(request: Request) -> object:
        if fails and "question 4" in request.messages[-1].content:
            return CallError("too long")
        return {"answer": "so"}

    go(tmp_path, direct, Watched(reply), ask_about(9))
    kept = answers(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'completions'").fetchall()
        ((size,),) = database.execute("PRAGMA page_size").fetchall()
    with (tmp_path / "journal.sqlite").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    again = Watched(reply)
    go(tmp_path, direct, again, ask_about(9), retry_failed=retries)
    # The answers after a question that is tried again are written again, and their replies are lost.
    assert answers(tmp_path) == kept and again.given == (5 if fails and retries else 0)
    assert read_status(tmp_path).states == {"answered": 9 - fails} | ({"failed": 1} if fails else {})


@pytest.mark.parametrize(
    "tail",
    [
        [None, "t", "stop", 1, 0, 1, 7, 7],
        [None, 5, "stop", 1, 0, 1],
        [None, "t", "stop", "1", 0, 1],
        [[], "t"],
        [None],
    ],
    ids=str,
)
def test_a_completion_of_another_shape_is_none(tmp_path: Path, tail: list[object]) -> None:
    """Though its checksum holds."""
    Journal(tmp_path / "j").close()
    entry = [0, "ab", 0, *tail]
    database = sqlite3.connect(tmp_path / "j")
    sealed = orjson.dumps([*entry, crc32(orjson.dumps(entry))]).decode()
    database.execute("INSERT INTO completions VALUES (0, ?)", (sealed,))
    database.commit()
    database.close()
    journal = Journal(tmp_path / "j")
    assert journal.past(0)[0] == {}
    journal.close()


ODD_FIELDS = [("evidence", evidence) for evidence in (5, None, {"uri": "x"}, ["x"], [5])]
ODD_FIELDS += [(name, text) for name in ("answer", "reason") for text in (False, 0, [], {})]


@pytest.mark.parametrize(("name", "value"), ODD_FIELDS)
def test_an_odd_field_of_an_answer_is_one_line(tmp_path: Path, name: str, value: object) -> None:
    go(tmp_path, direct, Watched(), ask_about(3))
    lines = [orjson.dumps({**record, name: value}) + b"\n" for record in records(tmp_path)]
    whole = answers(tmp_path)
    (tmp_path / "answers.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"line 1: this line is not a run.s record"):
        Run(tmp_path).records[0]
    go(tmp_path, direct, Watched(), ask_about(3))
    assert answers(tmp_path) == whole


def test_answers_that_are_gone_are_one_line(tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(), ask_about(3))
    (tmp_path / "answers.jsonl").unlink()
    with pytest.raises(InputError, match=r"answers\.jsonl cannot be read: "):
        len(Run(tmp_path).records)
