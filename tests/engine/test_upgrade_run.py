"""A run of the format before is read as it is, and can be made one of today's."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomli_w
from runs import DESCRIBED, Watched, answers, ask_about, go, moody, records, traces, winding

from pyfast import Run, evaluate
from pyfast.api.upgrading import upgrade
from pyfast.engine import RunFolder, check_run, read_status
from pyfast.engine.configuration import (
    check_format,
    differences,
    read_configuration,
    read_with_format,
    write_configuration,
)
from pyfast.engine.run_folder import locked
from pyfast.engine.upgrade import upgrade_run
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems import load_system

OLD: dict[str, dict[str, Any]] = {
    "n2n": {
        "rank": "graph_rank", "alpha": 0.5, "hop_k": 20, "hop_least": 2, "hop_most": 3,
        "final_least": 4, "final_most": 5,
    },
    "hseq": {"least_steps": 2, "steps": 4},
    "graph_convqa": {"units": 7, "k": 3},
    "mtqa": {"units": 7, "rows": 3},
}  # fmt: skip
NEW: dict[str, dict[str, Any]] = {
    "n2n": {
        "ranking": "graph_rank", "alpha": 0.5, "hop_k": 20, "hop_min": 2, "hop_max": 3,
        "final_min": 4, "final_max": 5,
    },
    "hseq": {"min_steps": 2, "steps": 4},
    "graph_convqa": {"passages": 7, "k": 3},
    "mtqa": {"units": 7, "rows": 3},
}  # fmt: skip


def system(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, **{f"set_{setting}": value for setting, value in settings.items()}}


SCHEMA = """
CREATE TABLE old (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, ledger TEXT NOT NULL);
INSERT INTO old SELECT number, id, state, reason, ledger FROM questions;
DROP TABLE questions;
ALTER TABLE old RENAME TO questions;
DROP TABLE run;
"""


def as_format_2(folder: Path) -> None:
    """Traces among the answers, no digests, and each batch of a stage told; run.toml is the caller's."""
    found = records(folder)
    (folder / "traces.jsonl.zst").unlink()
    (folder / "answers.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in found))
    with contextlib.closing(sqlite3.connect(folder / "journal.sqlite", isolation_level=None)) as database:
        database.executescript(SCHEMA)
        for number, ledger in database.execute("SELECT number, ledger FROM questions").fetchall():
            told = orjson.loads(ledger)
            for name, (calls, queued, running, batches, *_) in told["stages"].items():
                sizes = [1] * (calls - 1) + [batches - calls + 1]
                told["stages"][name] = {"queued_us": queued, "running_us": running, "batches": sizes}
            database.execute(
                "UPDATE questions SET ledger = ? WHERE number = ?", (orjson.dumps(told).decode(), number)
            )


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A finished run, as the first format had it."""
    folder = tmp_path / "run"
    go(folder, winding, Watched(moody), ask_about(9))
    as_format_2(folder)
    (folder / "run.toml").write_text(tomli_w.dumps({**DESCRIBED, "system": system("n2n", OLD["n2n"])}))
    return folder


@pytest.mark.parametrize("name", OLD)
def test_the_settings_have_todays_names(old: Path, name: str) -> None:
    described = {
        "questions": {"count": 9}, "system": system(name, OLD[name]), "places": {"index": "units"},
        "index": {"corpus": "00", "parameters": '{"forward": {"tf": "1"}, "lexical": {"b": 0.75}}'},
    }  # fmt: skip
    (old / "run.toml").write_text(tomli_w.dumps(described))
    before = records(old)
    assert upgrade_run(old)
    told = tomllib.loads((old / "run.toml").read_text())
    assert told == {
        **described,
        "format": {"version": 3},
        "system": system(name, NEW[name]),
        "index": {"corpus": "00", "parameters": '{"bm25": {"b": 0.75}, "forward": {"tf": "1"}}'},
    }
    assert set(NEW[name]) <= set(load_system(name).settings.model_fields)
    assert records(old) == before
    assert b"trace" not in answers(old) and traces(old).count(b'"trace":') == 9
    assert not upgrade_run(old)
    assert tomllib.loads((old / "run.toml").read_text()) == told


@pytest.mark.parametrize("described", [{}, {"index": {"parameters": "["}}, {"index": {"parameters": 3}}])
def test_a_run_that_tells_little_is_upgraded_too(old: Path, described: dict[str, Any]) -> None:
    (old / "run.toml").write_text(tomli_w.dumps(described))
    assert upgrade_run(old)
    assert read_with_format(old / "run.toml") == (3, described)


def test_both_formats_are_read(old: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text("".join(f'{{"id": "q{i}", "answers": ["a"]}}\n' for i in range(9)))
    found = [(read_status(old), evaluate(old, gold), [record.as_json() for record in Run(old).records])]
    assert upgrade_run(old)
    found.append((read_status(old), evaluate(old, gold), [record.as_json() for record in Run(old).records]))
    assert found[0] == found[1] and found[0][0].ended == 9
    assert all(record["trace"] for record in found[1][2] if record["state"] == "answered")


def test_it_is_gone_on_with_once_it_is_upgraded(tmp_path: Path) -> None:
    """Where the code is the same, as here; a torn line comes again, from the journal."""
    go(tmp_path / "whole", winding, Watched(moody), ask_about(9))
    shutil.copytree(tmp_path / "whole", tmp_path / "old")
    as_format_2(tmp_path / "old")
    (tmp_path / "old" / "run.toml").write_text(tomli_w.dumps({"format": {"version": 2}, **DESCRIBED}))
    content = answers(tmp_path / "old")
    (tmp_path / "old" / "answers.jsonl").write_bytes(content[:-20])
    for attempt in (check_run, RunFolder):
        with pytest.raises(
            InputError, match=r"run of format 2: `pyfast upgrade .+` converts it to the current format"
        ):
            attempt(tmp_path / "old", DESCRIBED)
    assert answers(tmp_path / "old") == content[:-20]
    assert upgrade_run(tmp_path / "old")
    assert go(tmp_path / "old", winding, llm := Watched(moody), ask_about(9)).states.total() == 1
    assert llm.given == 0
    assert [kind(tmp_path / "old") for kind in (answers, traces)] == [
        kind(tmp_path / "whole") for kind in (answers, traces)
    ]
    assert read_status(tmp_path / "old").altered == 0


@pytest.mark.parametrize("step", ["the journal", "the traces", "the answers"])
def test_an_upgrade_that_is_killed_is_finished_by_the_next(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    shutil.copytree(old, tmp_path / "other")
    assert upgrade_run(tmp_path / "other")
    before, kept = records(old), (old / "run.toml").read_bytes()
    stays = {
        "the journal": ["answers.jsonl", "traces.jsonl.zst"],
        "the traces": ["answers.jsonl"],
        "the answers": [],
    }
    files = {name: (old / name).read_bytes() for name in stays[step] if (old / name).exists()}
    assert upgrade_run(old)
    (old / "run.toml").write_bytes(kept)
    for name in stays[step]:
        (old / name).unlink()
        if name in files:
            (old / name).write_bytes(files[name])
    assert records(old) == before
    assert upgrade_run(old) and records(old) == before
    assert answers(old) == answers(tmp_path / "other") and traces(old) == traces(tmp_path / "other")
    assert read_status(old) == read_status(tmp_path / "other")


def test_answers_that_are_damaged_are_not_upgraded(old: Path) -> None:
    lines = answers(old).splitlines(keepends=True)
    (old / "answers.jsonl").write_bytes(b"".join([*lines[:3], b'{"usage": 5}\n', *lines[4:]]))
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    with pytest.raises(InputError, match=r"answers\.jsonl, line 4: not a record"):
        upgrade_run(old)
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


def test_the_format_is_none_of_the_differences(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    write_configuration(path, DESCRIBED)
    assert tomllib.loads(path.read_text()) == {"format": {"version": 3}, **DESCRIBED}
    assert read_configuration(path) == DESCRIBED and differences(read_configuration(path), DESCRIBED) == []
    path.write_text(tomli_w.dumps(DESCRIBED))
    assert read_with_format(path) == (1, DESCRIBED)


def test_a_newer_format_is_refused_in_one_line(old: Path, tmp_path: Path) -> None:
    (old / "run.toml").write_text(tomli_w.dumps({"format": {"version": 4}, **DESCRIBED}))
    (tmp_path / "gold.jsonl").write_text('{"id": "q0", "answers": ["a"]}\n')
    for does in (
        lambda: read_status(old),
        lambda: evaluate(old, tmp_path / "gold.jsonl"),
        lambda: check_format(old),
        lambda: check_run(old, DESCRIBED),
        lambda: RunFolder(old, DESCRIBED),
        lambda: upgrade_run(old),
        lambda: upgrade(old),
    ):
        with pytest.raises(InputError, match=r": run of format 4, .+ up to 3: use a newer pyfast") as error:
            does()  # type: ignore[no-untyped-call]
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "told", ["format = 2\n", "[format]\n", '[format]\nversion = "2"\n', "[format]\nversion = 0"]
)
def test_a_broken_format_is_damage(old: Path, told: str) -> None:
    (old / "run.toml").write_text(told)
    with pytest.raises(InputError, match="--restart"):
        read_configuration(old / "run.toml")


def test_a_run_in_work_is_refused(old: Path) -> None:
    with locked(old):
        code = "import sys; from pathlib import Path; from pyfast.engine.upgrade import upgrade_run;"
        code += "upgrade_run(Path(sys.argv[1]))"
        done = subprocess.run([sys.executable, "-c", code, str(old)], capture_output=True, text=True)
    assert done.returncode and "another process is working on this run" in done.stderr
    assert upgrade_run(old)


def test_a_run_of_other_code_is_not_gone_on_with(old: Path) -> None:
    described = {**DESCRIBED, "code": {"version": "0.1.0", "digest": "new"}}
    (old / "run.toml").write_text(
        tomli_w.dumps({**described, "code": {"version": "0.1.0", "digest": "old"}, "system": {"set_rank": "x"}})
    )
    for upgraded in (False, True):
        assert not upgraded or upgrade_run(old)
        with pytest.raises(
            InputError,
            match=r"started by other code: code\.digest was old, is new\. You can read, evaluate and judge it",
        ):
            check_run(old, described)


def test_the_folder_tells_what_it_is(old: Path, small: Index, tmp_path: Path) -> None:
    assert upgrade(old) == f"{old}: run of format 3, upgraded"
    assert upgrade(old) == f"{old}: run of format 3 already"
    assert upgrade(small.folder) == f"{small.folder}: index of format 7 already"
    for path in (tmp_path, tmp_path / "nothing", old / "run.toml"):
        with pytest.raises(InputError, match="neither an index nor a run folder"):
            upgrade(path)
