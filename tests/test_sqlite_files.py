"""A SQLite file of somebody else's holds no process, and nothing in it acts."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from processes import pyfast
from runs import DESCRIBED, Watched, ask_about, direct, go

from pyfast import Run
from pyfast.engine import RunFolder, read_status
from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge import Knowledge, Session
from pyfast.knowledge.store import FILE
from pyfast.retrieval.index.manifest import write_manifest
from pyfast.utils.sqlite_files import fault, open_database

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
FOREVER = f"SELECT i, i, i, i, i FROM ({ENDLESS})"
# What a file may hold that acts when it is read or written.
HOSTILE = {
    "view": f"ALTER TABLE questions RENAME TO q; CREATE VIEW questions AS {FOREVER}",
    "trigger": f"CREATE TRIGGER t AFTER INSERT ON sessions BEGIN INSERT INTO questions {FOREVER}; END",
    "generated": "ALTER TABLE completions ADD COLUMN more AS (hex(zeroblob(400000000)))",
    "check": "CREATE TABLE more (a CHECK (length(hex(zeroblob(a))) > 1))",
    "expression": "CREATE INDEX slow ON completions (upper(entry))",
    "virtual": "CREATE VIRTUAL TABLE more USING fts5(a)",
}


def change(path: Path, script: str) -> None:
    database = sqlite3.connect(path)
    database.executescript(script)
    database.commit()
    database.close()


def digraph(path: Path, table: str) -> None:
    """Have the table's root lead to a page that leads to a page, by hundreds of ways each: more rows than time."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = DELETE")
    (root,) = database.execute(f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.execute("CREATE TABLE filler (a)")
    database.execute("INSERT INTO filler VALUES (zeroblob(100000))")
    database.commit()
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.close()
    content = bytearray(path.read_bytes())
    leaf = bytes(content[(root - 1) * size : root * size])
    places = [root, pages, pages - 1, pages - 2, pages - 3]
    for place, below in pairwise(places):
        count = (size - 12) // 8
        cells = bytearray(size)
        start = size - 6 * count
        cells[:8] = bytes([5, 0, 0, *count.to_bytes(2, "big"), *start.to_bytes(2, "big"), 0])
        cells[8:12] = below.to_bytes(4, "big")
        for i in range(count):
            cells[12 + 2 * i : 14 + 2 * i] = (start + 6 * i).to_bytes(2, "big")
            cells[start + 6 * i : start + 6 * i + 5] = below.to_bytes(4, "big") + b"\x01"
        content[(place - 1) * size : place * size] = cells
    content[(places[-1] - 1) * size : places[-1] * size] = leaf
    path.write_bytes(content)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that is done."""
    go(tmp_path / "run", direct, Watched(), ask_about(3))
    return tmp_path / "run"


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_what_acts_is_refused(run: Path, script: str) -> None:
    journal, answers = run / "journal.sqlite", (run / "answers.jsonl").read_bytes()
    change(journal, script)
    began = time.monotonic()
    for look in (read_status, Run, lambda folder: RunFolder(folder, DESCRIBED)):
        with pytest.raises(InputError, match=r"journal\.sqlite.*which pyfast did not write") as error:
            look(run)
        assert "\n" not in str(error.value)
    assert time.monotonic() - began < 5
    assert (run / "answers.jsonl").read_bytes() == answers and journal.exists()  # nothing was set aside


def test_what_acts_is_refused_in_a_damaged_file_too(run: Path) -> None:
    journal = run / "journal.sqlite"
    change(journal, "PRAGMA journal_mode = DELETE;" + HOSTILE["view"])
    journal.write_bytes(journal.read_bytes()[:-4096])
    with pytest.raises(InputError, match="which pyfast did not write"):
        RunFolder(run, DESCRIBED)


def test_ours_are_accepted(run: Path, known: Session) -> None:
    open_database(run / "journal.sqlite", "ro").close()
    go(run, direct, Watched(), ask_about(3))  # it has an index now
    open_database(run / "journal.sqlite", "ro").close()
    open_database(known.store.folder / FILE, "ro&immutable=1").close()


def hostile_knowledge(known: Session, folder: Path, harm: Callable[[Path], None]) -> Path:
    """A snapshot whose checksums are those of a hostile file."""
    folder.mkdir()
    for file in known.store.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    harm(folder / FILE)
    (folder / "manifest.json").unlink()
    own = ("format", "format_version", "files", "blake2b")
    facts = {name: fact for name, fact in known.store.manifest.items() if name not in own}
    write_manifest(folder, facts, "knowledge")
    return folder


def test_hostile_knowledge_is_refused(known: Session, tmp_path: Path) -> None:
    view = f"ALTER TABLE triples RENAME TO t; CREATE VIEW triples AS {FOREVER}"
    folder = hostile_knowledge(known, tmp_path / "a", lambda file: change(file, view))
    with pytest.raises(IndexFormatError, match="which pyfast did not write"):
        Knowledge.open(folder)


def test_pages_that_lead_in_all_directions_come_to_an_end(run: Path) -> None:
    digraph(run / "journal.sqlite", "questions")
    began = time.monotonic()
    with pytest.raises(InputError, match="cannot be read to its end"):
        read_status(run)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_look(tmp_path: Path, number: signal.Signals) -> None:
    """A statement that takes for ever, in the thread that has to hear the signal."""
    script = f"""
import pathlib, signal, sqlite3, sys
from pyfast.utils.sqlite_files import fault, open_database
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
database = open_database(pathlib.Path({str(tmp_path / "new")!r}))
print("started", flush=True)
while True:  # a machine may be so busy that the signal comes after the statement was given up
    try:
        database.execute("SELECT count(i) FROM ({ENDLESS})")
    except sqlite3.Error as error:
        try:
            fault(error)
        except KeyboardInterrupt:
            sys.exit(130)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            time.sleep(0.3)  # it is in the statement now
            os.kill(process.pid, number)
            assert process.wait(20) == 130
        finally:
            process.kill()


def test_threads_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Who waits for SQLite does not hold Python's lock, which the check of the steps needs."""
    script = f"""
import pathlib, threading
from pyfast.utils import sqlite_files
sqlite_files._STEPS = 1
database = sqlite_files.open_database(pathlib.Path({str(tmp_path / "new")!r}), check_same_thread=False)
database.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2), (3)")
def read():
    for k in range(200):
        assert len(database.execute("SELECT a FROM t WHERE a > ?", (k % 2,)).fetchall()) == 3 - k % 2
        assert sum(a for (a,) in database.execute("SELECT a FROM t WHERE a > ?", (0,))) == 6
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_an_error_that_sqlite_forgot_is_told_all_the_same() -> None:
    assert fault(sqlite3.OperationalError("not an error")) == "a write failed; is the disk full?"
    assert fault(sqlite3.OperationalError("disk I/O error")) == "disk I/O error"


def test_a_statement_without_end_is_given_up(tmp_path: Path) -> None:
    database = open_database(tmp_path / "new")
    with pytest.raises(sqlite3.OperationalError) as error:
        database.execute(f"SELECT count(i) FROM ({ENDLESS})")
    assert fault(error.value) == "damaged: the file cannot be read to its end"
    assert database.execute("SELECT 1").fetchone() == (1,)  # the next one starts again


def test_the_command_says_it_on_one_line(run: Path) -> None:
    change(run / "journal.sqlite", HOSTILE["view"])
    told = pyfast("status", run, cwd=run)
    assert told.returncode == 1 and told.stdout == ""
    assert told.stderr.startswith("pyfast: ") and told.stderr.count("\n") == 1


def test_damage_that_is_no_text_is_one_line(run: Path) -> None:
    """SQLite quotes it in its message, which Python cannot read."""
    journal = run / "journal.sqlite"
    change(journal, "PRAGMA journal_mode = DELETE")
    content = journal.read_bytes()
    damaged = content.replace(b"CREATE TABLE sessions (", b"CREATE TABLE sessions \xf9")
    assert damaged != content
    journal.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged: the schema is not text"):
        read_status(run)
    go(run, direct, Watched(), ask_about(3))  # it is set aside
    assert read_status(run).ended == 3
