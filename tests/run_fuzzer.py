"""A fuzzer over run folders: whatever stands in one, each look at it ends with a result or with one clear line.

    python tests/run_fuzzer.py SECONDS [SEED]

Each round takes a run that is done, or was killed, and changes a few things in it: bytes, lengths, fields and
types of JSON, TOML and SQLite, with the checksums made to hold again, so that the damage gets past them. Then
everything that reads a run reads it, and the run goes on. Only `PyfastError`s of one line may come out, in less
than `SLOW_S`; and `OSError`s, where a file is a folder.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import orjson
import tomli_w
import zstandard
from grouped import grouped

import pyfast
from pyfast.engine.configuration import configuration_digest, read_configuration
from pyfast.engine.record import digest
from pyfast.engine.traces import read_traces
from pyfast.errors import PyfastError

SLOW_S = 60
QUESTIONS = 12
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 5, 2**31, 2**53, 2**63 - 1, -(2**63), 1.5, 1e308, -0.0),
    *("", "x", "\x00", "\x1b[31m", "[/x]", "é" * 300, "a\nb", "9" * 4000),
    *(
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"id": 5},
        [1, "a", None],
        {"stages": 5},
        {"stages": {"a": {"batches": 5}}},
    ),
]


def odd(chance: random.Random) -> Any:
    return chance.choice(ODD)


def changed(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """The same JSON with one thing in it changed."""
    if not isinstance(value, dict | list) or not value or depth > 4 or chance.random() < 0.25:
        return odd(chance)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        what = chance.random()
        if what < 0.15:
            return [*value[:place], *value[place + 1 :]]
        if what < 0.3:
            return [*value, odd(chance)]
        return [*value[:place], changed(value[place], chance, depth + 1), *value[place + 1 :]]
    name = chance.choice(list(value))
    what = chance.random()
    if what < 0.15:
        return {key: it for key, it in value.items() if key != name}
    if what < 0.3:
        return {**value, chance.choice(["", "x", "id", "turns", "stages", "version"]): odd(chance)}
    return {**value, name: changed(value[name], chance, depth + 1)}


def bytes_of(path: Path, chance: random.Random) -> None:
    """Some bytes are others, or more, or fewer."""
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 3, 30])):
        place = chance.randrange(len(content) + 1)
        what = chance.random()
        if what < 0.5 and place < len(content):
            content[place] = chance.randrange(256)
        elif what < 0.65:
            del content[place:]
        elif what < 0.8:
            del content[place : place + chance.randrange(100)]
        else:
            content[place:place] = chance.randbytes(chance.randrange(50)) * chance.choice([1, 1, 200])
    path.write_bytes(content)


def lines_of(path: Path, chance: random.Random) -> None:
    """A line is changed as JSON, or there twice, or elsewhere."""
    traces = path.suffix == ".zst"
    lines = list(read_traces(path)) if traces else path.read_bytes().splitlines(keepends=True)
    if not lines:
        return
    number = chance.randrange(len(lines))
    what = chance.random()
    if what < 0.7:
        with contextlib.suppress(ValueError):
            lines[number] = orjson.dumps(changed(orjson.loads(lines[number]), chance)) + b"\n"
    elif what < 0.8:
        lines.insert(chance.randrange(len(lines)), lines[number])
    elif what < 0.9:
        lines.pop(number)
    else:
        chance.shuffle(lines)
    content = b"".join(lines)
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(content) if traces else content)
    column = "trace" if traces else "line"
    if path.name != "questions.jsonl" and chance.random() < 0.7:  # and the journal says so too
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(path.parent / "journal.sqlite")) as it,
        ):
            rows = [(digest(line), number) for number, line in enumerate(lines)]
            it.executemany(f"UPDATE questions SET {column} = ? WHERE number = ?", rows)
            it.commit()


def configuration_of(path: Path, chance: random.Random) -> None:
    """A value of run.toml is another one; perhaps the journal belongs to it."""
    with contextlib.suppress(PyfastError, TypeError, ValueError, AttributeError, sqlite3.Error):
        described = read_configuration(path)
        told = changed({"format_version": chance.choice([1, 1, 2]), **described}, chance)
        path.write_text(tomli_w.dumps(told))
        if chance.random() < 0.7:
            with contextlib.closing(sqlite3.connect(path.parent / "journal.sqlite")) as it:
                it.execute("UPDATE run SET digest = ?", (configuration_digest(read_configuration(path)),))
                it.commit()


def sealed(entry: list[Any]) -> str:
    """A completion's entry with a checksum that holds."""
    body = orjson.dumps(entry)
    return orjson.dumps([*entry, crc32(body)]).decode()


def rows_of(path: Path, chance: random.Random) -> None:
    """Rows, values and definitions of the journal."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as it:
        it.text_factory = bytes
        table = chance.choice(["completions", "questions", "questions", "sessions", "run"])
        what = chance.random()
        if table == "completions" and what < 0.6:
            rows = it.execute("SELECT rowid, entry FROM completions").fetchall()
            row, entry = chance.choice(rows)
            value = changed(orjson.loads(entry)[:-1], chance)
            told = sealed(value) if isinstance(value, list) else orjson.dumps(value).decode()
            it.execute("UPDATE completions SET entry = ? WHERE rowid = ?", (told, row))
        elif table == "questions" and what < 0.5:
            number, ledger = chance.choice(it.execute("SELECT number, ledger FROM questions").fetchall())
            told = orjson.dumps(changed(orjson.loads(ledger), chance)).decode()
            it.execute("UPDATE questions SET ledger = ? WHERE number = ?", (told, number))
        elif what < 0.85:
            columns = [column[1].decode() for column in it.execute(f"PRAGMA table_info({table})")]
            value = chance.choice(
                [*(x for x in ODD if not isinstance(x, list | dict)), b"\xff\x00", "answered", "failed"]
            )
            some = chance.choice(["1", "rowid % 3 = 1", "rowid = 1"])
            it.execute(f"UPDATE OR IGNORE {table} SET {chance.choice(columns)} = ? WHERE {some}", (value,))
        elif what < 0.9:
            it.execute(f"DELETE FROM {table} WHERE rowid % 2 = 0")
        else:
            it.execute(
                chance.choice(
                    [
                        f"DROP TABLE {table}",
                        f"ALTER TABLE {table} ADD COLUMN more",
                        f"ALTER TABLE {table} RENAME TO other",
                        f"CREATE VIEW v AS SELECT * FROM {table}",
                        "CREATE TRIGGER t AFTER INSERT ON sessions BEGIN DELETE FROM completions; END",
                        f"CREATE TABLE copy AS SELECT * FROM {table}",
                        "PRAGMA user_version = 77",
                        "PRAGMA journal_mode = DELETE",
                        "CREATE INDEX odd ON questions (state)",
                    ]
                )
            )
        it.commit()


def names_of(folder: Path, chance: random.Random) -> None:
    """A file is gone, empty, a folder, a link, or another one's."""
    path = chance.choice(sorted(folder.iterdir()))
    other = chance.choice(sorted(folder.iterdir()))
    if not path.is_file() or not other.is_file():
        return
    content = other.read_bytes()
    path.unlink()
    what = chance.randrange(5)
    if what == 1:
        path.write_bytes(b"")
    elif what == 2:
        path.mkdir()
    elif what == 3:
        path.symlink_to(folder / "elsewhere")
    elif what == 4:
        path.write_bytes(content)


HARMS: dict[str, Callable[[Path, random.Random], None]] = {
    "run.toml": configuration_of,
    "answers.jsonl": lines_of,
    "traces.jsonl.zst": lines_of,
    "questions.jsonl": lines_of,
    "journal.sqlite": rows_of,
}


def harm(folder: Path, chance: random.Random) -> None:
    """Change one thing in the folder."""
    what = chance.random()
    path = folder / chance.choice(list(HARMS))
    if what < 0.05:
        names_of(folder, chance)
    elif path.is_file() and not path.is_symlink():
        # What was harmed before may not be what the next harm looks for.
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, PyfastError):
            (bytes_of if what < 0.3 else HARMS[path.name])(path, chance)


def looks(folder: Path, questions: list[str]) -> dict[str, Callable[[], object]]:
    """All that reads a run; the last ones resume it."""

    def records() -> None:
        for record in pyfast.Run(folder).records:
            record.evidence, record.trace, record.as_json()

    def go_on(**options: Any) -> Callable[[], object]:
        return lambda: pyfast.answer(
            questions, index=INDEX[0], llm="instant", system="rag", run=folder, concurrency=4, **grouped(**options)
        )

    gold = [{"id": str(number), "answers": ["x"]} for number in range(1, QUESTIONS + 1)]
    return {
        "status": lambda: repr(pyfast.Run(folder)) + str(pyfast.Run(folder).status),
        "verify": lambda: pyfast.verify(folder).summary,
        "evaluate": lambda: pyfast.evaluate(folder, gold),
        "records": records,
        "go on": go_on(),
        "retry": go_on(retry_failed=True),
        "status again": lambda: str(pyfast.Run(folder).status),
        "records again": records,
    }


INDEX: list[pyfast.Index] = []


def seeds(folder: Path) -> tuple[list[Path], list[str]]:
    """Runs to begin with: done, and half done; and their questions."""
    titan = {"id": "titan", "title": "Titan", "text": "Titan is a moon of Saturn.\n\nHuygens discovered it."}
    INDEX[:] = [pyfast.build_index([titan], folder / "index")]
    questions = [f"Who discovered moon {i} of Saturn?" for i in range(QUESTIONS)]
    done, half = folder / "done", folder / "half"
    pyfast.answer(questions, index=INDEX[0], llm="instant", system="rag", run=done)
    shutil.copytree(done, half)
    lines = (half / "answers.jsonl").read_bytes().splitlines(keepends=True)
    (half / "answers.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:9])
    with contextlib.closing(sqlite3.connect(half / "journal.sqlite")) as it:
        it.execute("DELETE FROM questions WHERE number > 6")
        it.execute("DELETE FROM completions WHERE question > 8")
        it.commit()
    return [done, half], questions


def fuzz(place: Path, seconds: float, seed: int, rounds: int = 1 << 30) -> Counter[str]:
    """How often each look ended how. Raises `AssertionError`, naming the rounds, for ends that may not be."""
    runs, questions = seeds(place)
    seen: Counter[str] = Counter()
    faults: dict[str, str] = {}
    end = time.monotonic() + seconds
    for number in range(rounds):
        if time.monotonic() > end:
            break
        chance = random.Random(f"{seed} {number}")
        folder = place / "run"
        shutil.copytree(chance.choice(runs), folder)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            harm(folder, chance)
        for name, look in looks(folder, questions).items():
            began = time.monotonic()
            try:
                look()
                seen[f"{name}: done"] += 1
            except PyfastError as error:
                seen[f"{name}: {type(error).__name__}"] += 1
                if not str(error) or "\n" in str(error):
                    faults.setdefault(f"{name}: lines", f"round {number}, {name}: {error!r}")
            except OSError as error:  # a file that is a folder: the command line prints it as one line too
                seen[f"{name}: {type(error).__name__}"] += 1
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                shown = f"round {number}, {name}: {traceback.format_exc()}"
                faults.setdefault(f"{type(error).__name__} {where.filename} {where.lineno}", shown)
            if (took := time.monotonic() - began) > SLOW_S:
                faults.setdefault(f"{name}: slow", f"round {number}, {name}: took {took:.0f} s")
        for left in place.glob("run*"):
            shutil.rmtree(left)
        seen["rounds"] += 1
    if faults:
        raise AssertionError("\n".join([f"seed {seed}", *faults.values()]))
    return seen


if __name__ == "__main__":
    logging.getLogger("pyfast").setLevel(logging.CRITICAL)
    with TemporaryDirectory() as made:
        found = fuzz(Path(made), float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns())
        print(*(f"{count:8} {name}" for name, count in sorted(found.items())), sep="\n")
