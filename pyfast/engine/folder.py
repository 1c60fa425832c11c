"""The folder of a run: run.toml, journal.sqlite, answers.jsonl. What is in it is enough to go on after any end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from pyfast.engine.configuration import Configuration, differences, read_configuration, write_configuration
from pyfast.engine.journal import (
    Journal,
    Key,
    Outcome,
    Sync,
    completion_row,
    open_to_read,
    row_of_question,
)
from pyfast.engine.ledger import Ledger
from pyfast.engine.questions import Question
from pyfast.engine.records import Record
from pyfast.errors import InputError, RunError

CONFIGURATION, JOURNAL, ANSWERS = "run.toml", "journal.sqlite", "answers.jsonl"


def check_run(path: Path, described: Configuration, unknown: Iterable[str] = ()) -> None:
    """Raises `InputError` where `path` cannot become, or go on as, a run so described. Touches nothing.

    `unknown` names the values that cannot be compared yet, such as "llm.context_window".
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: exists and is not a folder; choose another one")
    if not (path / CONFIGURATION).exists():
        if _size(path / ANSWERS):
            raise InputError(f"{path}: holds answers but no {CONFIGURATION}; choose another folder")
        return
    changed = differences(read_configuration(path / CONFIGURATION), described, unknown)
    if changed and _has_begun(path):
        raise InputError(
            f"{path}: was begun with something else: {'; '.join(changed)}. Give what it was begun with, or another"
            " folder, or --restart"
        )


def set_aside(path: Path) -> Path | None:
    """Rename a run's folder, so that a new one can begin; its new name. Raises `InputError` if it is in use."""
    if not (path / CONFIGURATION).exists():
        return None
    path = path.resolve()  # "." has no name
    with _taken(path):
        number = 1
        while (aside := path.with_name(f"{path.name}.old-{number}")).exists():
            number += 1
        path.rename(aside)
    return aside


def is_running(path: Path) -> bool:
    """Whether a process has the run."""
    with contextlib.suppress(OSError), (path / ANSWERS).open("rb") as answers:
        try:
            fcntl.flock(answers, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class RunFolder:
    """An open run folder; one process has it at a time.

    Completions and ended questions are committed in groups, one transaction for each turn of the event loop, and
    answers are written behind them.
    """

    def __init__(self, path: Path, described: Configuration, sync: Sync = "normal") -> None:
        """Open or begin a run. Raises `InputError` where another process has it or it was begun otherwise."""
        self._path = path
        with contextlib.ExitStack() as opened:
            path.mkdir(parents=True, exist_ok=True)
            self._answers = opened.enter_context(_taken(path))
            check_run(path, described)
            if not _has_begun(path):  # perhaps the journal of another configuration, in which nothing was asked
                for suffix in ("", "-wal", "-shm"):
                    (path / (JOURNAL + suffix)).unlink(missing_ok=True)
            write_configuration(path / CONFIGURATION, described)
            self.journal = Journal(path / JOURNAL, sync)
            opened.callback(self.journal.close)
            self.journal.start_session()
            self._opened = opened.pop_all()
        self.replaying = not self.journal.is_empty()
        """Whether questions may have completions in the journal"""
        self._completions: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._ended: list[bytes] = []
        self._lines: list[bytes] = []
        self._armed = False
        self._broken: RunError | None = None

    def forget_failures(self) -> None:
        """Have the questions that failed tried again."""
        end = 0
        self._answers.seek(0)
        for line in self._answers:
            if _record(line).get("state", "failed") == "failed":
                break
            end += len(line)
        self._answers.truncate(end)  # the answers behind come again from the journal
        self.journal.forget_failures()

    def answered(self, questions: Iterable[Question]) -> int:
        """How many of the questions, from the first on, have their answers written.

        What follows in the file is cut off: a torn line, or answers of later questions that were written when the
        run was stopped. They come again, in their order, from the journal.
        """
        done, end = 0, 0
        self._answers.seek(0)
        for line, question in zip(self._answers, questions, strict=False):
            if _record(line).get("id") != question.id:
                break
            done, end = done + 1, end + len(line)
        self._answers.truncate(end)
        self._answers.seek(end)
        return done

    async def keep(self, number: int, key: Key, outcome: Outcome) -> None:
        """Return when a completion is committed. Raises `CallError` if it cannot be stored, and `RunError`."""
        row = completion_row(number, key, outcome)
        self._arm()
        committed = asyncio.get_running_loop().create_future()
        self._completions.append(row)
        self._waiting.append(committed)
        await committed

    def end(self, number: int, record: Record, ledger: Ledger) -> None:
        """Have it noted that a question has ended."""
        self._arm()
        self._ended.append(row_of_question(number, record.id, record.state, record.reason, ledger.as_json()))

    def write(self, record: Record) -> None:
        """Have an answer written; called in the order of the questions."""
        self._arm()
        self._lines.append(record.line())

    def flush(self) -> None:
        """Commit what waits, then write the answers. Raises `RunError`."""
        self._armed = False
        waiting, self._waiting = self._waiting, []
        try:
            if self._broken is None:
                self._commit()
        except RunError as error:
            self._broken = error
        for future in waiting:
            if future.done():  # its coroutine was cancelled
                continue
            if self._broken is None:
                future.set_result(None)
            else:
                future.set_exception(self._broken)
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Give the folder back."""
        with self._opened:
            os.fsync(self._answers.fileno())

    def _arm(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._flush_in_turn)

    def _flush_in_turn(self) -> None:
        if self._armed:  # else it is done, and the folder perhaps closed
            with contextlib.suppress(RunError):  # those who wait have it, and the next to come will
                self.flush()

    def _commit(self) -> None:
        completions, self._completions = self._completions, []
        ended, self._ended = self._ended, []
        lines, self._lines = self._lines, []
        if completions or ended:
            self.journal.commit(completions, ended)
        try:
            self._answers.write(b"".join(lines))
            self._answers.flush()
        except OSError as error:
            raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[IO[bytes]]:
    """The answers' file, locked for this process: the kernel gives the lock back whatever ends it."""
    file = os.open(path / ANSWERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with open(file, "r+b", buffering=1 << 20) as answers:
        for patience in (0.1, 0.1, None):  # `pyfast status` holds it for an instant
            try:
                fcntl.flock(answers, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience is None:
                    raise InputError(f"{path}: another process is working on this run") from None
                time.sleep(patience)
        if not (path / ANSWERS).exists() or not os.path.samestat((path / ANSWERS).stat(), os.fstat(file)):
            raise InputError(f"{path}: another process has set this run aside")
        yield answers


def _has_begun(path: Path) -> bool:
    """Whether anything would be lost with the folder."""
    if _size(path / ANSWERS) or not (path / JOURNAL).exists():
        return _size(path / ANSWERS) > 0
    try:
        with contextlib.closing(open_to_read(path / JOURNAL)) as database:
            return bool(database.execute("SELECT EXISTS (SELECT 1 FROM completions)").fetchone()[0])
    except Exception:
        return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _record(line: bytes) -> dict[str, Any]:
    """The answer on a line; empty for a torn one."""
    with contextlib.suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        if isinstance(record, dict) and line.endswith(b"\n"):
            return record
    return {}
