"""A run, an index and its knowledge graph can be read where nothing can be written."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from knowing import know

import pyfast
from pyfast.retrieval import Index

# A root without these capabilities is refused what the permissions refuse. A mount needs a namespace of its own.
CLOSED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else ["env"]
MOUNTED = ["unshare", "-rm", "sh", "-c", 'mount --bind -o ro . . && cd "$PWD" && exec "$@"', "sh"]
READ = """
import sys, pyfast, pyfast.api.knowledge
run = pyfast.Run("run")
print(run.status.ended, run.records[3].answer, run.prompts("q3")[0].completion is not None)
pyfast.report(["run"], sys.argv[1])
for folder in ("run", "index"):
    print(pyfast.verify(folder).summary)
print(len(pyfast.api.knowledge.open_knowledge("index")) > 0)
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Path:
    """A folder with a finished run, and an index with a knowledge graph."""
    folder = tmp_path_factory.mktemp("read only")
    know(Index(pyfast.build_index(examples / "corpus", folder / "index").folder))
    asked = [{"id": f"q{i}", "question": f"Which planet does {i} circle?"} for i in range(9)]
    pyfast.answer(asked, index=folder / "index", llm="instant", system="rag", run=folder / "run")
    return folder


@pytest.fixture
def place(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "place"))


def close(place: Path, mode: str = "a-w") -> None:
    subprocess.run(["chmod", "-R", mode, place], check=True)


def told(how: list[str], place: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """What Python says in `place`, where `how` keeps it from writing."""
    if how is CLOSED:
        close(place)
    try:
        tried = subprocess.run([*how, "touch", "run/new"], cwd=place, capture_output=True, text=True)
        if "Permission denied" not in tried.stderr and "Read-only file system" not in tried.stderr:
            pytest.skip(f"{how[0]} does not stop writing here: {tried.stderr.strip() or 'the file was written'}")
        given = [*how, sys.executable, *map(str, command)]
        return subprocess.run(given, cwd=place, capture_output=True, text=True)
    finally:
        close(place, "u+w")


@pytest.mark.parametrize("how", [CLOSED, MOUNTED], ids=["permissions", "mount"])
def test_what_is_done_can_be_read(how: list[str], place: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    read = told(how, place, "-c", READ, tmp_path / "report")
    answer = pyfast.Run(place / "run").records[3].answer
    assert read.returncode == 0, read.stderr
    assert read.stdout.splitlines() == [
        f"9 {answer} True",
        "run: run, 5 checks: undamaged",
        "index: index, 3 checks: undamaged",
        "True",
    ]
    assert (tmp_path / "report" / "index.html").exists()
    assert {path: path.read_bytes() for path in place.rglob("*") if path in before} == before


@pytest.mark.parametrize("how", [CLOSED, MOUNTED], ids=["permissions", "mount"])
@pytest.mark.parametrize("with_index", [True, False])
def test_changes_that_wait_beside_the_journal_are_read_or_named(
    how: list[str], with_index: bool, place: Path
) -> None:
    """As after a kill. SQLite reads them with their index (-shm), and cannot make the index there."""
    run, journal = place / "run", place / "run" / "journal.sqlite"
    database = sqlite3.connect(journal)
    database.execute("UPDATE questions SET state = 'failed' WHERE number = 3")
    database.commit()
    kept = {name: (run / name).read_bytes() for name in (journal.name, "journal.sqlite-wal", "journal.sqlite-shm")}
    database.close()
    for name, content in kept.items():
        if with_index or not name.endswith("-shm"):
            (run / name).write_bytes(content)
    status = told(how, place, "-m", "pyfast", "status", "run")
    verified = told(how, place, "-m", "pyfast", "verify", "run")
    if with_index:
        assert status.returncode == verified.returncode == 0 and " 1 failed" in status.stdout
        return
    why = (
        "run/journal.sqlite: journal.sqlite-wal cannot be merged on a read-only disk; copy the folder"
        " to another disk"
    )
    assert (status.returncode, status.stderr) == (1, f"pyfast: {why}\n")
    assert verified.returncode == 2 and f"????  journal.sqlite: {why}\n" in verified.stdout
    names = "journal.sqlite, answers.jsonl, traces.jsonl.zst"
    assert verified.stdout.endswith(f"run: run, 5 checks: could not be checked: {names}\n")


UNREADABLE = {
    "run/run.toml": ["run.toml"],
    "run/questions.jsonl": ["questions.jsonl"],
    "run/journal.sqlite": ["journal.sqlite", "answers.jsonl", "traces.jsonl.zst"],
    "run/answers.jsonl": ["answers.jsonl", "traces.jsonl.zst"],
    "run/traces.jsonl.zst": ["traces.jsonl.zst"],
    "index/manifest.json": ["index", "documents"],
    "index/parts/1/terms/text.bin": ["index", "documents"],
    "index/knowledge/1/triples.sqlite": ["knowledge"],
}


@pytest.mark.parametrize(("name", "names"), UNREADABLE.items(), ids=UNREADABLE)
def test_what_verify_cannot_read_is_not_damaged(name: str, names: list[str], place: Path) -> None:
    (place / name).chmod(0)
    folder = name.split("/")[0]
    verified = told(CLOSED, place, "-m", "pyfast", "verify", folder)
    assert verified.returncode == 2 and verified.stderr == ""
    assert verified.stdout.endswith(f": could not be checked: {', '.join(names)}\n")
    lines = [line for line in verified.stdout.splitlines() if not line.startswith("ok  ")][:-1]
    assert len(lines) == len(names) and all(line.startswith("????  ") for line in lines)
    assert all(line.endswith(f"Permission denied: '{name}'") for line in lines)


def test_damage_counts_more_than_what_verify_cannot_read(place: Path) -> None:
    (place / "run" / "traces.jsonl.zst").chmod(0)
    (place / "run" / "answers.jsonl").write_text("{}\n")
    verified = told(CLOSED, place, "-m", "pyfast", "verify", "run")
    assert verified.returncode == 1
    assert verified.stdout.endswith("damaged: answers.jsonl; could not be checked: traces.jsonl.zst\n")
