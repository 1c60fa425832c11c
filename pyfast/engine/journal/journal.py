"""The journal of a run: the LLM's replies and the usage (ledger) of each question, in SQLite.

The database is in SQLite's WAL mode, so that a killed process loses no committed row. With `sync` "normal", a
power cut can lose the last commits (a few megabytes), but never the whole database. With "full", a power cut loses
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from zlib import crc32

import orjson

from pyfast.engine.journal.ledger import Ledger
from pyfast.engine.journal.prompt_store import PROMPTS_SCHEMA, TAKE_PROMPTS, Asked, DamagedError, add_prompts
from pyfast.engine.record import STATES
from pyfast.errors import AnswerError, CallError, InputError, RunError, TransportError
from pyfast.llm import Completion
from pyfast.llm.protocol import BatchLog, LoggedBatch
from pyfast.utils.files import free_name
from pyfast.utils.options import Sync
from pyfast.utils.sqlite_files import fault, open_database, text_of

Outcome = Completion | CallError
T = TypeVar("T")
Key = tuple[str, int]
"""The key of a completion: a string `ROLE:DIGEST` with the role and the digest of its request, and the number of
earlier identical requests of the question"""

# `entry` and `ledger` are JSON, so that one statement inserts a whole group. With one statement per row, SQLite
# would release and reacquire the GIL for each row, and wait each time. `line` and `trace` are the digests of the
# question's lines in answers.jsonl and traces.jsonl.zst, or NULL if unknown. `reused` contains the replies of
# earlier runs, each with its key and the id of its question ("": unknown). A row without a request contains the
# folder of such a run instead of a question id.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS completions (question INTEGER NOT NULL, entry TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS questions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, ledger TEXT NOT NULL,
    line TEXT, trace TEXT);
CREATE TABLE IF NOT EXISTS sessions (started REAL NOT NULL, finished_before INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS halts (questions TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reused (
    request TEXT NOT NULL, nth INTEGER NOT NULL, question TEXT NOT NULL, entry TEXT NOT NULL,
    PRIMARY KEY (request, nth, question)) WITHOUT ROWID;
""" + PROMPTS_SCHEMA + """
CREATE TABLE IF NOT EXISTS batches (key TEXT PRIMARY KEY, llm TEXT NOT NULL, id TEXT, made REAL NOT NULL);
CREATE TABLE IF NOT EXISTS batch_calls (batch TEXT NOT NULL, place INTEGER NOT NULL, request TEXT NOT NULL);
"""  # fmt: skip
_INDEXED = "index", "by_question", "completions", "CREATE INDEX by_question ON completions (question)"
# Damage to rows that SQLite itself does not notice
_BROKEN = {
    "completions": "NOT json_valid(entry)",
    "questions": f"NOT json_valid(ledger) OR state NOT IN {STATES}",
}
_COLUMNS = """
SELECT it.name, count(*) FROM sqlite_schema AS it, pragma_table_info(it.name) WHERE it.type = 'table'
GROUP BY it.name ORDER BY it.rowid
"""
# Errors of the machine, such as a full disk or missing permissions: the journal itself may be intact.
_OF_THE_MACHINE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,  # Ctrl-C
}
# Opening a finished run does not check its rows, so a row may not be JSON.
_LOST = f"CASE WHEN json_valid(entry) THEN entry ->> 3 END = '{TransportError.__name__}'"
_ERRORS: dict[str, type[CallError]] = {kind.__name__: kind for kind in (AnswerError, TransportError)}
_AMONG = "question IN (SELECT value FROM json_each(?))"
# This marks replies that come from an earlier run or another question, so that this question did not pay for them.
_IS_REUSED = "json_type(entry, '$[#-3]') IS 'true'"
# The name of a completion's call in a Batch API, as `call_name` returns it
_CALL = "question || ':' || (entry ->> 1) || ':' || (entry ->> 2)"
_REUSABLE = """
SELECT 0, entry FROM reused WHERE request = ?1 AND nth = ?2 AND (question = ?3 OR NOT ?4)
ORDER BY question != ?3, question LIMIT 1
"""
# An index of the replies by request, for this process alone. In the file, it would be an index on an expression,
# and pyfast rejects such files.
_BY_REQUEST = "CREATE TEMP TABLE by_request (request TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID"
_GO_ON = """
INSERT OR REPLACE INTO by_request
SELECT entry ->> 1, rowid FROM completions WHERE rowid > ? AND entry ->> 3 IS NULL ORDER BY rowid
"""
_REPLY_TO = """
SELECT question, entry FROM completions WHERE rowid = (SELECT at FROM by_request WHERE request = ?)
"""
_KEEP = "INSERT INTO completions SELECT value ->> 0, value FROM json_each(?)"
# A question can end twice: before a kill, and when it is replayed. The costs come from the first time, and the
# contents of the answers file from the second.
_FINISH = """
INSERT INTO questions
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value -> 4, value ->> 5, value ->> 6 FROM json_each(?)
WHERE true ON CONFLICT (number) DO UPDATE
SET state = excluded.state, reason = excluded.reason, line = excluded.line, trace = excluded.trace
"""

_MOVE = """
UPDATE completions SET question = ?2, entry = coalesce(moved(entry, question, ?2 - ?1), entry) WHERE question = ?1
"""
_REPLIES = """
SELECT question, coalesce(id, ''), entry FROM completions LEFT JOIN questions ON number = question
"""
_TAKE_COMPLETIONS = """
INSERT INTO main.completions
SELECT number, entry FROM (
    SELECT question + ?1 AS number, moved(entry, question, ?1) AS entry FROM other.completions
    WHERE question BETWEEN ?2 AND ?3 ORDER BY rowid LIMIT -1)  -- so that each is moved once
WHERE entry IS NOT NULL
"""
_TAKE_QUESTIONS = """
INSERT INTO main.questions
SELECT number + ?1, id, state, reason, ledger, line, trace FROM other.questions
WHERE number BETWEEN ?2 AND ?3 ORDER BY number
"""


def call_name(number: int, key: Key) -> str:
    """Return the name by which a resumed run finds a call in a batch, from the number of its question and the key
    of its completion."""
    return f"{number}:{key[0]}:{key[1]}"


def completion_row(number: int, key: Key, outcome: Outcome, elapsed: float = 0.0, reused: bool = False) -> bytes:
    """Create the row of an LLM call from its completion or error. `elapsed` is the number of seconds from the
    start of the question to the end of the call. `reused`: the completion comes from an earlier run or another
    question. Raises `CallError` if the completion cannot be stored."""
    if isinstance(outcome, CallError):
        fields: tuple[object, ...] = (type(outcome).__name__, str(outcome))
    else:
        tokens = (outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens)
        reasoning = (outcome.reasoning_tokens,) if outcome.reasoning_tokens else ()  # Most replies have none.
        fields = (None, outcome.text, outcome.finish_reason, *tokens, *reasoning, *((True,) if reused else ()))
    try:
        entry = orjson.dumps((number, *key, *fields, round(elapsed, 6)))
    except orjson.JSONEncodeError as error:
        raise CallError(f"the LLM's reply is not valid text: {error}") from None
    return b"%b,%d]" % (entry[:-1], crc32(entry))


def sound(entry: str, number: int) -> bool:
    """Return whether the row of a completion matches its checksum, and so is unchanged."""
    return read_outcome(entry, number) is not None


_MOST_SECONDS = 1e9  # Times are computed in microseconds, which must not overflow.


def read_outcome(entry: str, number: int) -> tuple[Key, Outcome] | None:
    """Read the row of an LLM call, and return its key and its completion or error, or None if the row is damaged
    (it does not match its checksum)."""
    read = _read(entry, number)
    return None if read is None else read[:2]


def _read(entry: str, number: int) -> tuple[Key, Outcome, bool, float] | None:
    """Read the same as `read_outcome`, and all else that `completion_row` was given."""
    seconds, reused = 0.0, False
    try:
        *fields, check = orjson.loads(entry)
        if check != crc32(orjson.dumps(fields)) or fields[0] != number:
            return None
        _, digest, nth, error, text, *rest = fields
        if rest and isinstance(rest[-1], float):  # the seconds, which rows of earlier versions do not have
            seconds = rest.pop()
        if rest and rest[-1] is True:
            reused = rest.pop()
        outcome = Completion(text, *rest) if error is None else _ERRORS.get(error, CallError)(text)
    except (ValueError, TypeError, LookupError):
        return None
    texts, counts = [digest, text], [nth]
    if isinstance(outcome, Completion):
        texts.append(outcome.finish_reason)
        counts += outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens, outcome.reasoning_tokens
    sound = {*map(type, texts)} == {str} and {*map(type, counts)} == {int} and 0 <= seconds < _MOST_SECONDS
    return ((digest, nth), outcome, reused, seconds) if sound else None


def _moved(entry: str, number: int, shift: int) -> str | None:
    """Return the row of a completion of question `number` as a row of question `number + shift`, or None if the
    row has changed since it was written."""
    head, last = entry.find(","), entry.rfind(",")
    if entry[1:head] != str(number) or entry[last + 1 : -1] != str(crc32(f"{entry[:last]}]".encode())):
        return None
    moved = f"[{number + shift}{entry[head:last]}"
    return f"{moved},{crc32(f'{moved}]'.encode())}]"


class Journal:
    """An open journal. Only one process at a time can open it. Any method can raise `RunError`."""

    def __init__(self, path: Path, sync: Sync = "normal", runs: Sequence[str] = (), checked: bool = True) -> None:
        """Open or create the file. If it is damaged, recover the rows that can still be read.

        Args:
            path: The file.
            sync: `normal` or `full`, as explained at the top of this file.
            runs: The digests of the run that the journal belongs to. If the run has got more questions, they
                include the digest with fewer questions, so that the run can be resumed if the process is killed
                before run.toml contains the new number.
            checked: Whether to check all rows. False: check only the tables that a session of a finished run uses,
                which reads no completions.
        """
        self._path = path
        self._indexed = False
        self._indexed_until = -1
        """The last row of `completions` that is indexed by request. -1: there is no such index yet"""
        self.salvaged: Path | None = None
        """The new path of the damaged file, or None if the file was intact"""
        with self._explained():
            if path.exists() and not _whole(path, () if checked else ("run", "questions", "sessions")):
                self.salvaged = _set_aside(path)
            self._database = open_database(path, isolation_level=None, check_same_thread=False)
            self._database.text_factory = text_of
            self._database.create_function("moved", 3, _moved, deterministic=True)
            self._database.execute("PRAGMA journal_mode = WAL")
            # The tables and the run's digest are created together, and synced to the disk: a journal without a
            # digest could belong to another run.
            self._database.execute("PRAGMA synchronous = full")
            self._database.executescript(f"BEGIN;{_SCHEMA}")
            with self._ended_together():
                if self.salvaged is not None:
                    self._rescue(self.salvaged, runs)
                known = "INSERT INTO run SELECT ?1 WHERE ?1 NOT IN (SELECT digest FROM run)"
                self._database.executemany(known, [(run,) for run in runs])
            self._database.execute(f"PRAGMA synchronous = {sync}")
            self._reuses = bool(self._database.execute("SELECT 1 FROM reused LIMIT 1").fetchall())
        self.file = path.stat() if path.exists() else None
        """The status (`os.stat_result`) of the opened file, with which the run notices if another file is at this
        path later"""

    def commit(
        self,
        completions: Sequence[bytes],
        questions: Sequence[bytes],
        asked: Mapping[str, Asked] | None = None,
        moved: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Write rows of completions and questions in one transaction. If the run stores prompts, the requests in
        `asked` are written too. `moved` contains the old and the new number of each question to be renumbered."""
        # A single statement is a transaction in itself.
        several = asked or moved or (completions and questions)
        together = self._transaction() if several else contextlib.nullcontext()
        with self._explained(), together:
            if asked:
                add_prompts(self._database, asked)
            for statement, rows in ((_KEEP, completions), (_FINISH, questions)):
                if rows:
                    self._database.execute(statement, ((b"[" + b",".join(rows) + b"]").decode(),))
            if moved:
                self._index_by_question()
                self._database.executemany(_MOVE, moved)

    def note_stop(self, questions: Sequence[str]) -> list[str]:
        """Note the ids of the questions that were in progress when the LLM ended the run. Returns those that were
        also in progress at the last stop."""
        ids = [question.encode(errors="replace").decode() for question in questions]
        before = self._rows("SELECT questions FROM halts ORDER BY rowid DESC LIMIT 1")
        self._rows("INSERT INTO halts VALUES (?)", (orjson.dumps(ids).decode(),))
        earlier = set(orjson.loads(before[0][0])) if before else set()
        return [id for id in ids if id in earlier]

    def past(self, number: int) -> tuple[dict[Key, Outcome], set[Key], float]:
        """Return the stored completions and failed calls of a question by key, the keys of those that come from an
        earlier run or another question, and the seconds that earlier sessions worked on the question, until its
        last call. Damaged rows are left out."""
        self._index_by_question()
        rows = self._rows("SELECT entry FROM completions WHERE question = ?", (number,))
        read = [one for (entry,) in rows if (one := _read(entry, number)) is not None]
        outcomes, reused = (
            {key: outcome for key, outcome, _, _ in read},
            {key for key, _, reused, _ in read if reused},
        )
        return outcomes, reused, max((seconds for *_, seconds in read), default=0.0)

    def reply_to(self, request: str) -> Completion | None:
        """Return the last reply to a request of any question, or None if there is none. `request` is the string in
        a key."""
        if self._indexed_until < 0:
            self._rows(_BY_REQUEST)
        ((last,),) = self._rows("SELECT coalesce(max(rowid), 0) FROM completions")
        if last > self._indexed_until:
            self._rows(_GO_ON, (self._indexed_until,))
            self._indexed_until = last
        return self._reply(_REPLY_TO, (request,))

    def copy_replies(self, run: Path, roles: Collection[str]) -> tuple[int, int]:
        """Copy the replies of another run, so that `reusable` finds them. Failed calls are not copied.

        Args:
            run: The folder of the other run, which stays unchanged.
            roles: The roles of the prompts whose replies are copied.

        Returns:
            The number of copied replies, and the number of damaged rows that were left out.

        Raises:
            InputError: The other journal cannot be read.
        """
        damaged = 0

        def replies() -> Iterator[tuple[str, int, str, str]]:
            nonlocal damaged
            with reading(run / self._path.name) as database:
                for number, id, entry in database.execute(_REPLIES):
                    read = read_outcome(entry, number)
                    damaged += read is None
                    if read is not None and isinstance(read[1], Completion):
                        (request, nth), _ = read
                        if request.partition(":")[0] in roles and (moved := _moved(entry, number, -number)):
                            yield request, nth, id, moved

        def copy(database: sqlite3.Connection) -> int:
            database.execute("INSERT INTO reused VALUES ('', 0, ?, '')", (_name(run),))
            return database.executemany("INSERT OR IGNORE INTO reused VALUES (?, ?, ?, ?)", replies()).rowcount

        self._reuses = True
        return max(self.change(copy), 0), damaged

    def reusable(self, key: Key, id: str, sampled: bool) -> Completion | None:
        """Return the reply that an earlier run received to a request, or None. `key` is the request's key, and
        `id` the id of the question. A reply to a `sampled` request (at a temperature above 0) serves only the
        question with the same id, because two questions need two samples."""
        if not self._reuses:
            return None
        return self._reply(_REUSABLE, (*key, id, sampled))

    def failed(self, only_of_transport: bool = False) -> list[int]:
        """Return the numbers of the questions that failed.

        With `only_of_transport`, return only questions with a call that failed in transit.
        """
        failed = [number for (number,) in self._rows("SELECT number FROM questions WHERE state = 'failed'")]
        if not only_of_transport or not failed:  # Most runs have no failures, so they skip the search.
            return failed
        lost = f"SELECT DISTINCT question FROM completions WHERE {_LOST} AND {_AMONG}"
        return [number for (number,) in self._rows(lost, (orjson.dumps(failed).decode(),))]

    def forget(self, failed: Sequence[int], only_of_transport: bool = False) -> None:
        """Delete the failed questions with the numbers `failed`, so that the run tries them again.

        Their completions and failed calls are deleted too. Questions that have not ended keep their completions,
        but lose their failed calls.

        With `only_of_transport`, all completions stay, and only calls that failed in transit are deleted.
        """
        unended = "question NOT IN (SELECT number FROM questions)"
        if only_of_transport:
            gone = f"({_AMONG} OR {unended}) AND {_LOST}"
        else:
            gone = f"{_AMONG} OR {unended} AND entry ->> 3 IS NOT NULL"
        numbers = (orjson.dumps(failed).decode(),)
        with self._explained(), self._transaction():
            execute = self._database.execute
            if not only_of_transport:  # A Batch API's result for these calls must not be used again.
                asked = f"SELECT {_CALL} FROM completions WHERE {gone}"
                execute(f"DELETE FROM batch_calls WHERE request IN ({asked})", numbers)
                # The reply of an earlier run may be the reason for the failure.
                keys = f"SELECT entry ->> 1 FROM completions WHERE {gone}"
                execute(f"DELETE FROM reused WHERE request IN ({keys})", numbers)
            execute(f"DELETE FROM completions WHERE {gone}", numbers)
            execute("DELETE FROM questions WHERE number IN (SELECT value FROM json_each(?))", numbers)

    def counts(self, first: int = 1 << 62) -> dict[str, int]:
        """Return how many of the questions before number `first` ended in each state."""
        return dict(self._rows("SELECT state, count(*) FROM questions WHERE number < ? GROUP BY state", (first,)))

    def digests(self, of: Literal["line", "trace"]) -> dict[int, str]:
        """Call the function `digests` with this journal."""
        with self._explained():
            return digests(self._database, of)

    def tokens(self) -> int:
        """Count the tokens of all prompts and completions, without the replies of earlier runs. A reply that
        several questions share counts once."""
        paid = f"json_valid(entry) THEN entry ->> 3 IS NULL AND NOT {_IS_REUSED}"
        total = f"sum(CASE WHEN CASE WHEN {paid} END THEN (entry ->> 6) + (entry ->> 8) END)"
        return int(self._rows(f"SELECT coalesce({total}, 0) FROM completions")[0][0])

    def last_question(self) -> int:
        """Return the highest question number among all recorded LLM calls, or -1 if there are none."""
        return int(self._rows("SELECT coalesce(max(question), -1) FROM completions")[0][0])

    def is_empty(self) -> bool:
        """Return whether no LLM call is recorded yet."""
        return not self._rows("SELECT 1 FROM completions LIMIT 1")

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call `work` with the database in a separate transaction, which is synced to the disk, and return its
        result."""
        with self._explained():
            (level,) = self._database.execute("PRAGMA synchronous").fetchone()
            self._database.execute("PRAGMA synchronous = full")
            try:
                with self._transaction():
                    return work(self._database)
            finally:
                self._database.execute(f"PRAGMA synchronous = {level}")

    def take_in(self, other: Path, first: int, last: int, shift: int) -> None:
        """Copy questions, calls and prompts from another run's journal, in one transaction that is synced to the
        disk.

        The copies replace this journal's rows for these questions. Damaged rows of the other journal are left out.

        Args:
            other: The other journal.
            first: The first question to copy, by its number in the other journal.
            last: The last question to copy, by its number in the other journal.
            shift: A question's number in this journal minus its number in the other journal.
        """
        here, there = (first + shift, last + shift), (shift, first, last)
        self._index_by_question()

        def take(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM main.completions WHERE question BETWEEN ? AND ?", here)
            database.execute("DELETE FROM main.questions WHERE number BETWEEN ? AND ?", here)
            database.execute(_TAKE_COMPLETIONS, there)
            database.execute(_TAKE_QUESTIONS, there)
            for statement in TAKE_PROMPTS:
                database.execute(statement)

        open_to_read(other).close()  # Reject a file with triggers or views, which SQLite would execute.
        with self._explained():
            self._database.execute("ATTACH ? AS other", (f"{other.resolve().as_uri()}?mode=ro",))
            try:
                self.change(take)
            finally:
                self._database.execute("DETACH other")

    def start_session(self) -> None:
        """Record that a session (one process's work on the run) starts."""
        finished = sum(self.counts().values())
        self._rows("INSERT INTO sessions VALUES (?, ?)", (time.time(), finished))

    def close(self) -> None:
        """Close the file. All commits are kept."""
        self._database.close()

    def _rescue(self, damaged: Path, runs: Sequence[str]) -> None:
        """Copy the rows that can still be read from a damaged journal, unless it belongs to another run."""
        try:
            database = _reader(damaged, damaged=True)
        except sqlite3.DatabaseError:  # Nothing can be read.
            return
        with contextlib.closing(database) as old:
            for table, places in self._database.execute(_COLUMNS).fetchall():
                into = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * places)})"
                rows: list[tuple[object, ...]] = []
                with contextlib.suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                    for row in old.execute(f"SELECT * FROM {table}"):
                        if row[0] is not None:  # SQLite would give it a number of its own.
                            rows.append(row)
                if table == "run":
                    if runs and rows and {*rows}.isdisjoint((run,) for run in runs):
                        return
                    continue
                for row in rows:
                    # The row may have a different shape.
                    with contextlib.suppress(sqlite3.IntegrityError, sqlite3.ProgrammingError):
                        self._database.execute(into, row)
        for table, broken in _BROKEN.items():
            self._database.execute(f"DELETE FROM {table} WHERE {broken}")

    def _reply(self, statement: str, parameters: Sequence[object]) -> Completion | None:
        """Return the reply in the first row of a statement's result, a question number and an entry."""
        read = next((read_outcome(entry, number) for number, entry in self._rows(statement, parameters)), None)
        return read[1] if read is not None and isinstance(read[1], Completion) else None

    def _index_by_question(self) -> None:
        """Index the completions by question. Most runs never search for the completions of a question."""
        if not self._indexed:
            self._rows(_INDEXED[-1].replace("INDEX", "INDEX IF NOT EXISTS"))
            self._indexed = True

    def _rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Execute one statement, and return its rows."""
        with self._explained():
            return self._database.execute(statement, parameters).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        with self._ended_together():
            yield

    @contextlib.contextmanager
    def _ended_together(self) -> Iterator[None]:
        """Commit everything that the `with` block writes in the open transaction, or nothing if it fails."""
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back already.
                self._database.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: {fault(error)}") from None


def _whole(path: Path, tables: Sequence[str]) -> bool:
    """Return whether a journal file is usable, and the rows of `tables` (empty: all tables) are intact.

    Raises `sqlite3.Error` if the machine caused an error (such as a full disk), and not the file.
    """
    try:
        with contextlib.closing(open_database(path)) as database:
            for check in [f"integrity_check({name})" for name in tables or (1,)]:
                if database.execute(f"PRAGMA {check}").fetchone() != ("ok",):
                    return False
            database.executescript(f"{_SCHEMA}DELETE FROM sessions WHERE 0")  # Fails if nothing can be written.
            # A definition with one flipped bit may still be valid, but of a table with another name or column.
            if not _wanted() <= _definitions(database) <= _wanted() | {_INDEXED}:
                return False
            broken = "SELECT EXISTS (SELECT 1 FROM {} WHERE {})"
            rows = {name: broken for name, broken in _BROKEN.items() if name in (tables or _BROKEN)}
            return not any(database.execute(broken.format(*row)).fetchone()[0] for row in rows.items())
    except sqlite3.DatabaseError as error:
        # Python's own errors, about strings that are not UTF-8, have no code.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_MACHINE:
            raise
        return False
    except UnicodeDecodeError:  # SQLite quotes the damaged bytes in its message.
        return False


def _definitions(database: sqlite3.Connection) -> set[tuple[str | None, ...]]:
    return {*database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")}


@cache
def _wanted() -> set[tuple[str | None, ...]]:
    """Return the table definitions of a new journal."""
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        made.executescript(_SCHEMA)
        return _definitions(made)


def _set_aside(path: Path) -> Path:
    aside = free_name(path, "damaged")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a journal for reading, even while a run writes to it. Raises `InputError` if it cannot be read."""
    try:
        database = _reader(path)
        database.execute("SELECT 1 FROM sessions LIMIT 1")
        return database
    except sqlite3.Error as error:
        raise InputError(f"{path}: {fault(error)}") from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a journal for a `with` block, as `open_to_read` does. Raises `InputError` if it cannot be opened, or if
    the block finds it damaged."""
    try:
        with contextlib.closing(open_to_read(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise InputError(f"{path}: {fault(error)}") from None
    except DamagedError as error:
        raise InputError(f"{path}: {error}") from None


def digests(database: sqlite3.Connection, of: Literal["line", "trace"]) -> dict[int, str]:
    """Return the digest of each question's line in answers.jsonl, or of its trace, by question number. Questions
    without a digest are left out. Raises `sqlite3.Error`."""
    return dict(database.execute(f"SELECT number, {of} FROM questions WHERE {of} IS NOT NULL"))


def runs_of(path: Path) -> set[str] | None:
    """Return the configuration digests that identify the run to which a journal belongs.

    A run that was resumed with more questions has one digest for each number of questions. The result is empty if
    the journal names no run, and None if it cannot be read.
    """
    with contextlib.suppress(InputError), reading(path) as database:
        return runs_in(database)
    return None


def runs_in(database: sqlite3.Connection) -> set[str] | None:
    """Do the same as `runs_of` for an open journal."""
    try:
        if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'run'").fetchall():
            return set()
        return {str(digest) for (digest,) in database.execute("SELECT digest FROM run")}
    except sqlite3.Error as error:
        fault(error)  # Ctrl-C may have stopped the statement.
        return None


def runs_to_copy(path: Path, runs: Sequence[Path]) -> Sequence[Path]:
    """Return those of the runs whose replies a journal does not contain yet (see `Journal.copy_replies`)."""
    if not runs:
        return ()
    with contextlib.suppress(InputError), reading(path) as database:
        copied = {name for (name,) in database.execute("SELECT question FROM reused WHERE request = ''")}
        return [run for run in runs if _name(run) not in copied]
    return runs


def has_calls(path: Path) -> bool:
    """Return whether a journal contains completions or submitted batches. The result is True if the journal cannot
    be read, and False if its creation was interrupted, so that tables are missing.
    """
    try:
        with contextlib.closing(_reader(path)) as database:
            made = _definitions(database)
            return not made <= _wanted() | {_INDEXED} or any(
                database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
                for table in {name for _, name, *_ in made} & {"completions", "batches"}
            )
    except Exception:
        return True


def _name(run: Path) -> str:
    return str(run.resolve()).encode(errors="backslashreplace").decode()


def _reader(path: Path, damaged: bool = False) -> sqlite3.Connection:
    database = open_database(path, "ro", damaged=damaged)
    database.text_factory = text_of
    return database


def row_of_question(
    number: int,
    id: str,
    state: str,
    reason: str | None,
    ledger: Ledger | dict[str, Any],
    line: str | None = None,
    trace: str | None = None,
) -> bytes:
    """Create the row of a question that has ended. `line` and `trace` are the digests of its lines in
    answers.jsonl and in the traces."""
    row = ledger.as_row() if isinstance(ledger, Ledger) else ledger
    return orjson.dumps((number, id, state, reason, row, line, trace))


class JournalledBatches(BatchLog):
    """Stores the batches of LLM calls that a run submits to a Batch API in the run's open journal. Any method can
    raise `RunError`."""

    def __init__(self, journal: Callable[[], Journal], writer: Executor) -> None:
        """`journal` is a function that returns the open journal, and `writer` the thread that writes it."""
        self._journal = journal
        self._writer = writer

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """Return an LLM's stored batches, oldest first, each with only the calls that have no reply in the journal
        yet."""
        return await self._do(lambda database: _load(database, llm))

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Store a new batch. This method must be called before the batch is submitted."""
        await self._write(
            ("INSERT INTO batches VALUES (?, ?, ?, ?)", [(batch.key, llm, batch.id, batch.made)]),
            ("INSERT INTO batch_calls VALUES (?, ?, ?)", [(batch.key, *call) for call in batch.calls.items()]),
        )

    async def identify(self, key: str, id: str) -> None:
        """Store the provider's id of a batch."""
        await self._write(("UPDATE batches SET id = ? WHERE key = ?", [(id, key)]))

    async def remove(self, key: str) -> None:
        """Remove a batch, so that its calls can be submitted again."""
        calls = "DELETE FROM batch_calls WHERE batch = ?", [(key,)]
        await self._write(calls, ("DELETE FROM batches WHERE key = ?", [(key,)]))

    async def _write(self, *changes: tuple[str, Sequence[tuple[object, ...]]]) -> None:
        await self._do(lambda database: [database.executemany(*change) for change in changes])

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, lambda: self._journal().change(work))


def _load(database: sqlite3.Connection, llm: str) -> list[LoggedBatch]:
    stored = {call for (call,) in database.execute(f"SELECT {_CALL} FROM completions")}
    batches = []
    rows = database.execute("SELECT key, id, made FROM batches WHERE llm = ? ORDER BY made, rowid", (llm,))
    for key, id, made in rows.fetchall():
        calls = database.execute("SELECT place, request FROM batch_calls WHERE batch = ? ORDER BY place", (key,))
        batches.append(LoggedBatch(key, id, made, {place: call for place, call in calls if call not in stored}))
    return batches
