"""The folder of a run: run.toml, journal.sqlite, answers.jsonl. What is in it is enough to go on after any end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from pyfast.engine.configuration import (
    CONFIGURATION,
    Configuration,
    differences,
    read_configuration,
    write_configuration,
)
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
from pyfast.engine.outages import Waiting
from pyfast.engine.questions import Question
from pyfast.engine.record import Record
from pyfast.errors import InputError, RunError
from pyfast.files import free_name, write_atomically

JOURNAL, ANSWERS = "journal.sqlite", "answers.jsonl"
OUTAGE = "outage.json"  # there while the run waits for its LLM


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
        if code := [value for value in changed if value.startswith("code.")]:
            raise InputError(
                f"{path}: was begun by other code: {'; '.join(code)}. It can be read, evaluated and judged,"
                " but only that code goes on with it; give another folder, or --restart"
            )
        raise InputError(
            f"{path}: was begun with something else: {'; '.join(changed)}. Give what it was begun with, or another"
            " folder, or --restart"
        )


def set_aside(path: Path) -> Path | None:
    """Rename a run's folder, so that a new one can begin; its new name. Raises `InputError` if it is in use."""
    if not (path / CONFIGURATION).exists():
        return None
    path = path.resolve()  # "." has no name
    with locked(path):
        aside = free_name(path, "old")
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


@dataclass(slots=True)
class _Group:
    """What is written together."""

    completions: list[bytes] = field(default_factory=list)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """Those who wait for their completion to be stored"""
    ended: list[bytes] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)


class RunFolder:
    """An open run folder; one process has it at a time.

    Completions and ended questions are committed in groups, and answers written behind them: what comes in one
    turn of the event loop is one transaction, and what comes while it is written makes the next. A thread of its
    own does it, for SQLite gives the interpreter's lock away, and the loop would have to wait to get it back.
    """

    def __init__(self, path: Path, described: Configuration, sync: Sync = "normal") -> None:
        """Open or begin a run. Raises `InputError` where another process has it or it was begun otherwise."""
        self._path = path
        with contextlib.ExitStack() as opened:
            path.mkdir(parents=True, exist_ok=True)
            self._answers = opened.enter_context(locked(path))
            check_run(path, described)
            if not _has_begun(path):  # perhaps the journal of another configuration, in which nothing was asked
                for suffix in ("", "-wal", "-shm"):
                    (path / (JOURNAL + suffix)).unlink(missing_ok=True)
            is_new = not (path / CONFIGURATION).exists()
            write_configuration(path / CONFIGURATION, described)
            self.journal = Journal(path / JOURNAL, sync)
            opened.callback(self.journal.close)
            self.journal.start_session()
            _make_private(path, is_new)
            self._writer = ThreadPoolExecutor(1, "pyfast-journal")
            opened.callback(self._writer.shutdown)
            self._opened = opened.pop_all()
        self.replaying = not self.journal.is_empty()
        """Whether questions may have completions in the journal"""
        self._group = _Group()
        self._armed = False
        self._gathered = self._group
        """What is being written, if anything is"""
        self._writing: Future[None] | None = None
        self._broken: BaseException | None = None

    def note_outage(self, waiting: Waiting | None) -> None:
        """Have those who look at the run told what it waits for; None: it goes on."""
        path = self._path / OUTAGE
        with contextlib.suppress(OSError):  # nothing depends on it
            if waiting is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, orjson.dumps(waiting).decode())

    def forget_failures(self, only_of_transport: bool = False) -> None:
        """Have the questions that failed tried again."""
        first, end = min(self.journal.failed(only_of_transport), default=-1), 0
        self._answers.seek(0)
        for number, line in enumerate(self._answers):
            if number == first or not _record(line):
                self._answers.truncate(end)  # the answers behind come again from the journal
                break
            end += len(line)
        self.journal.forget_failures(only_of_transport)

    def answered(self, questions: Iterable[Question]) -> int:
        """How many of the questions, from the first on, have their answers written.

        What follows in the file is cut off: a torn line, or answers of later questions that were written when the
        run was stopped. They come again, in their order, from the journal. So do the answers of a conversation
        that is not at its end: what its next turn builds on is then at hand.
        """
        done, end = 0, 0
        whole = 0, 0
        conversation = None
        self._answers.seek(0)
        for question in questions:
            if question.conversation is None or question.conversation != conversation:
                whole, conversation = (done, end), question.conversation
            line = self._answers.readline()
            if _record(line).get("id") != question.id:
                break
            done, end = done + 1, end + len(line)
        else:
            whole = done, end
        done, end = whole
        self._answers.truncate(end)
        if sum(self.journal.counts(done).values()) < done:
            self._note_again(done)
        self._answers.seek(end)
        return done

    def _note_again(self, done: int) -> None:
        """Have the journal, which was damaged or is behind after a power cut, know of all that is answered."""
        self._answers.seek(0)
        rows = []
        for number, line in zip(range(done), self._answers, strict=False):
            record = _record(line)
            ledger = {**record["usage"], "stages": {}}
            rows.append(row_of_question(number, record["id"], record["state"], record.get("reason"), ledger))
            if len(rows) == 1000 or number == done - 1:
                self.journal.commit([], rows)
                rows = []

    async def store_completion(self, number: int, key: Key, outcome: Outcome) -> None:
        """Return when a completion is committed. Raises `CallError` if it cannot be stored, and `RunError`."""
        row = completion_row(number, key, outcome)
        self._arm()
        stored = asyncio.get_running_loop().create_future()
        self._group.completions.append(row)
        self._group.waiting.append(stored)
        await stored

    def end(self, number: int, record: Record, ledger: Ledger) -> None:
        """Have it noted that a question has ended."""
        self._arm()
        self._group.ended.append(row_of_question(number, record.id, record.state, record.reason, ledger))

    def write(self, record: Record) -> None:
        """Have an answer written; called in the order of the questions."""
        self._arm()
        self._group.lines.append(record.line())

    def flush(self) -> None:
        """Return when everything is written. Raises `RunError`."""
        while self._writing is not None or self._armed:
            if self._writing is None:
                self._start()
            else:
                wait([self._writing])
                self._written(self._writing)
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Give the folder back. Raises `RunError` where the answers cannot be brought to the disk."""
        try:
            with self._opened:
                os.fsync(self._answers.fileno())
        except OSError as error:
            raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None

    def _arm(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._armed:
            self._armed = True
            if self._writing is None:
                asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        if not self._armed or self._writing is not None:  # `flush` was here
            return
        self._armed = False
        loop = asyncio.get_running_loop()
        self._gathered, self._group = self._group, _Group()
        self._writing = self._writer.submit(self._commit, self._gathered)
        self._writing.add_done_callback(lambda written: loop.call_soon_threadsafe(self._written, written))

    def _written(self, written: Future[None]) -> None:
        if written is not self._writing:
            return
        self._writing = None
        self._broken = written.exception()
        for stored in self._gathered.waiting + (self._group.waiting if self._broken else []):
            if stored.done():  # its coroutine was cancelled
                continue
            if self._broken is None:
                stored.set_result(None)
            else:
                stored.set_exception(self._broken)
        if self._broken is not None:
            self._armed = False
        elif self._armed:
            self._start()

    def _commit(self, group: _Group) -> None:
        if group.completions or group.ended:
            self.journal.commit(group.completions, group.ended)
        try:
            self._answers.write(b"".join(group.lines))
            self._answers.flush()
        except OSError as error:
            raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """The answers' file of a run, locked for this process: the kernel gives the lock back whatever ends it.

    Raises `InputError` where another process works on the run.
    """
    file = os.open(path / ANSWERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _make_private(path: Path, is_new: bool) -> None:
    """Let nobody but its owner read a run; who opens the folder of one to others finds it open."""
    with contextlib.suppress(OSError):  # another's folder, or a file system without modes
        for file in (path / CONFIGURATION, path / ANSWERS, *path.glob(f"{JOURNAL}*")):
            if file.is_file() and not file.is_symlink():
                file.chmod(0o600)
        if is_new:
            path.chmod(0o700)


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
        if isinstance(record, dict) and record.keys() >= {"id", "state", "usage"} and line.endswith(b"\n"):
            return record
    return {}
