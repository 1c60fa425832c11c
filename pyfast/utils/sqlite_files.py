"""Open SQLite files safely, even if other people made them: such a file cannot run code or block the process.

Views and triggers in a file can change what a statement does, so pyfast accepts only files that contain nothing
but tables and indexes. The pages of a file can form cycles, so pyfast stops a statement that takes more steps than
a valid file of the same size needs. pyfast also checks for signals from time to time while a statement runs.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pyfast.errors import InputError

_STEPS = 100_000  # steps of SQLite's virtual machine between two checks: about a millisecond
_ANY_FILE = 100_000_000  # the number of steps that a statement on any file may take: a few seconds
_A_BYTE = 50  # additional steps for each byte of the file; a check of the whole file takes fewer than ten
_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
# Definitions of anything but tables of plain columns and indexes of columns.
_ACTS = re.compile(r"\b(AS|CHECK|GENERATED|TRIGGER|VIEW|VIRTUAL)\b|\bINDEX\b.*\(.*\(", re.IGNORECASE | re.DOTALL)
_this_thread = threading.local()
text_of = partial(str, encoding="utf-8", errors="replace")
"""A `text_factory` that reads damaged text too"""


def open_database(path: Path, mode: str = "rwc", *, damaged: bool = False, **options: Any) -> sqlite3.Connection:
    """Open an SQLite file with `sqlite3.connect` and `options`, and check it.

    Args:
        path: The file.
        mode: `rwc`: read and write, and create a missing file. `ro`: read, even while another process writes, or
            on a read-only disk. `ro&immutable=1`: read while nobody writes.
        damaged: Whether to read a damaged file as far as possible.
        **options: Passed to `sqlite3.connect`.

    Returns:
        The connection. Its statements can take only a limited number of steps.

    Raises:
        InputError: The file has a view, a trigger, or anything else that pyfast does not write.
        sqlite3.Error: The file cannot be opened, or is not a database.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     database = open_database(Path(folder, "new.sqlite"))
        ...     database.execute("SELECT 1").fetchone()
        (1,)
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, factory=_Watched, **options)
    try:
        database.watch(path)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        if damaged:
            # Without this, nothing could be read from a file that was cut off.
            database.execute("PRAGMA writable_schema = ON")
        _refuse_what_acts(database, path)
    except BaseException as error:
        database.close()
        if mode != "ro" or getattr(error, "sqlite_errorcode", 0) & 0xFF not in _CANNOT_WRITE:
            raise
    else:
        return database
    # To read a database in WAL mode, SQLite creates files beside it, which are needed only if they hold changes.
    for other in (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")):
        if other.exists() and other.stat().st_size:
            unread = sqlite3.OperationalError(
                f"{other.name} cannot be merged on a read-only disk; copy the folder to another disk"
            )
            unread.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise unread
    return open_database(path, "ro&immutable=1", damaged=damaged, **options)


def fault(error: sqlite3.Error) -> str:
    """Turn an error of SQLite into a message.

    Raises `KeyboardInterrupt` if Ctrl-C stopped the statement, which SQLite also reports as an error.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_ERROR:  # pyfast's statements fit all files that it writes.
        return f"damaged or incomplete: {error}"
    if code != sqlite3.SQLITE_INTERRUPT:
        # The rollback that followed has overwritten the first error, usually that of a full disk.
        return "a write failed; is the disk full?" if str(error) == "not an error" else str(error)
    given_up, _this_thread.gave_up = getattr(_this_thread, "gave_up", False), False
    if given_up:
        return "damaged: the file cannot be read to its end"
    raise KeyboardInterrupt from None


class _Watched(sqlite3.Connection):
    """A connection whose statements may take only a limited number of steps of SQLite's virtual machine.

    Threads take turns. Otherwise, two of them could wait for each other for ever: one holds SQLite's lock and
    waits for Python's to check the steps, while the other holds Python's and waits for SQLite's.
    """

    def watch(self, path: Path) -> None:
        self._path = path
        self._steps = 0
        self.turn = threading.RLock()
        self.set_progress_handler(self._must_stop, _STEPS)

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        try:
            with self.turn:
                self._steps = 0
                return super().cursor(_Cursor).execute(*statement)
        except UnicodeDecodeError:  # SQLite quotes the damaged bytes in its message.
            error = sqlite3.DatabaseError("damaged: the schema is not text")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error from None

    def executemany(self, *statement: Any) -> sqlite3.Cursor:
        with self.turn:
            return super().cursor(_Cursor).executemany(*statement)

    def executescript(self, statements: str) -> sqlite3.Cursor:
        with self.turn:
            return super().executescript(statements)

    def _must_stop(self) -> bool:
        """Return True if the statement has taken too many steps, so that SQLite stops it. Python runs signal
        handlers before this call, and an exception in a handler stops the statement too."""
        self._steps += _STEPS
        gave_up = self._steps > _ANY_FILE and self._steps > _ANY_FILE + _A_BYTE * _size(self._path)
        _this_thread.gave_up = gave_up
        return gave_up


def _in_turn(name: str) -> Any:
    """Return a method of `sqlite3.Cursor` that runs while it is its thread's turn."""
    read = getattr(sqlite3.Cursor, name)

    def method(cursor: _Cursor, *given: Any) -> Any:
        with cursor.connection.turn:
            return read(cursor, *given)

    return method


class _Cursor(sqlite3.Cursor):
    """A cursor that reads rows while it is its thread's turn."""

    connection: _Watched
    __next__, fetchone, fetchmany, fetchall = map(_in_turn, ("__next__", "fetchone", "fetchmany", "fetchall"))


def _size(path: Path) -> int:
    parts = (path, path.with_name(f"{path.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _refuse_what_acts(database: sqlite3.Connection, path: Path) -> None:
    database.text_factory = text_of
    schema = database.execute("SELECT name, sql FROM sqlite_schema").fetchall()
    database.text_factory = str
    for name, text in schema:
        # SQLite reads the definition from this text, not from the column `type`.
        if text is not None and _acts(str(text)):
            raise InputError(
                f"{path} contains {str(name)[:60]!r}, a trigger, a view or the like, which pyfast did not write"
                " and which could change other data; remove the file, or restore the one that pyfast wrote"
            )


@lru_cache
def _acts(definition: str) -> bool:
    """Return whether a definition is one of `_ACTS`. Most files have the same ones, so the results are kept."""
    return _ACTS.search(definition) is not None
