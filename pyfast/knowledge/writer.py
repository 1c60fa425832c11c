"""Write extracts into the database of a new snapshot, and remove chunks that the index no longer has. An
extract has the triples of one chunk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from pyfast.knowledge.database import signed
from pyfast.knowledge.extracts import Extract
from pyfast.knowledge.names import name_key, relation_name, tidy

_NAMED = {
    "relations": "name = ?",
    "keys": "text = ?",
    "entities": "name = ?",
    "triples": "head = ? AND relation = ? AND tail = ? AND time = ?",
}
"""For each table, the SQL condition that finds a row by its contents"""
_TABLES = (*_NAMED, "chunks", "statements", "statement_keys", "mentions", "themes")
_DIGEST = 16  # bytes of a digest


class Writer:
    """Adds extracts to a database. If the same extracts are added in the same order, the database gets the
    same rows."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._ids: dict[str, dict[Any, int]] = {table: {} for table in _NAMED}
        self._first: dict[str, int | None] = {}  # for each key, the id of the first entity, if it was looked up
        self._last = {
            table: int(database.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])
            for table in _NAMED
        }
        # If the database was empty, every row comes from this writer.
        self._was_empty = not any(self._last.values())

    def _number(self, table: str, what: tuple[Any, ...]) -> int | None:
        """Return the id of the row with these contents, or None if there is none. The writer remembers its
        own rows and finds older rows by a query."""
        number = self._ids[table].get(what)
        if number is None and not self._was_empty:
            row = self._database.execute(f"SELECT id FROM {table} WHERE {_NAMED[table]}", what).fetchone()
            if row is not None:
                number = self._ids[table][what] = row[0]
        return number

    def _first_of(self, key: str) -> int | None:
        if key not in self._first and not self._was_empty:
            row = self._database.execute("SELECT min(id) FROM entities WHERE key = ?", (key,)).fetchone()
            self._first[key] = row[0]
        return self._first.get(key)

    def add(self, extracts: Iterable[Extract]) -> None:
        """Add extracts of chunks that the database does not have. If the database has a chunk whose
        extraction failed, a successful extract replaces it. All other extracts are skipped."""
        for extract in extracts:
            existing = self._database.execute(
                "SELECT id, failed FROM chunks WHERE digest = ?", (extract.digest,)
            ).fetchone()
            if existing is not None and (existing[1] is None or extract.failed is not None):
                continue
            chunk = self._chunk(extract)
            for mention in extract.mentions:
                place = (self._entity(mention.entity, extract.exact), signed(mention.segment), chunk)
                self._insert("mentions", (*place, mention.kind, mention.description))
            for statement in extract.statements:
                triple = (
                    self._entity(statement.head, extract.exact),
                    self._id("relations", (relation_name(statement.relation),)),
                    self._entity(statement.tail, extract.exact),
                    statement.time,
                )
                number = self._id("triples", triple)
                row = (number, signed(statement.segment), chunk, statement.description, statement.strength)
                self._insert("statements", row)
                for key in (relation_name(statement.relation), *statement.keys):
                    self._insert("statement_keys", (self._id("keys", (key,)), number, chunk))
            for theme in extract.themes:
                self._insert("themes", (self._id("keys", (theme.key,)), signed(theme.segment), chunk))

    def _chunk(self, extract: Extract) -> int:
        self._database.execute("DELETE FROM chunks WHERE digest = ?", (extract.digest,))
        row = (extract.digest, extract.method, extract.failed)
        added = self._database.execute("INSERT INTO chunks (digest, method, failed) VALUES (?, ?, ?)", row)
        return int(added.lastrowid or 0)

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        self._database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * len(row))})", row)

    def _entity(self, name: str, exact: bool) -> int:
        name = name if exact else tidy(name)
        known = self._number("entities", (name,))
        if known is not None:
            return known
        key = name_key(name)
        first = self._first_of(key)
        if not exact and first is not None:
            return first
        number = self._id("entities", (name,), name, key)
        if first is None:
            self._first[key] = number
        return number

    def _id(self, table: str, what: tuple[Any, ...], *columns: object) -> int:
        number = self._number(table, what)
        if number is None:
            self._last[table] += 1
            number = self._ids[table][what] = self._last[table]
            row = (number, *(columns or what))
            self._database.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
        return number


def remove_other_chunks(database: sqlite3.Connection, digests: Iterable[str], methods: Sequence[str]) -> None:
    """Remove the chunks that one of `methods` extracted, except the chunks whose checksums are in `digests`. Also
    remove the triples, entities, relations and keys that no remaining chunk has."""
    database.execute("CREATE TEMP TABLE kept (digest TEXT PRIMARY KEY)")
    database.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ((digest,) for digest in digests))
    others = f"method IN ({','.join('?' * len(methods))}) AND digest NOT IN (SELECT digest FROM kept)"
    database.execute(f"DELETE FROM chunks WHERE {others}", methods)
    for table in ("statements", "statement_keys", "mentions", "themes"):
        database.execute(f"DELETE FROM {table} WHERE chunk NOT IN (SELECT id FROM chunks)")
    database.execute("DELETE FROM triples WHERE id NOT IN (SELECT triple FROM statements)")
    used = "SELECT head FROM triples UNION SELECT tail FROM triples UNION SELECT entity FROM mentions"
    database.execute(f"DELETE FROM entities WHERE id NOT IN ({used})")
    database.execute("DELETE FROM relations WHERE id NOT IN (SELECT relation FROM triples)")
    keys = "SELECT key FROM statement_keys UNION SELECT key FROM themes"
    database.execute(f"DELETE FROM keys WHERE id NOT IN ({keys})")
    database.execute("DROP TABLE kept")


def contents_digest(database: sqlite3.Connection) -> str:
    """Compute the digest of the database: the sum of the digests (checksums) of all rows. Because the digest
    is a sum, only the digests of changed rows are needed to update it."""
    rows = (_of_row(table, row) for table in _TABLES for row in database.execute(f"SELECT * FROM {table}"))
    return changed_digest("0", lambda: sum(rows))


def change_of_contents(database: sqlite3.Connection) -> Callable[[], int]:
    """Compute how the digest of a database changes, with triggers in the database. The digest of each
    inserted row is added to a sum, and the digest of each deleted row is subtracted.

    Returns a function without arguments, for `changed_digest`. It returns the current sum.
    """
    changed = 0

    def count(sign: int, table: str, *row: object) -> None:
        nonlocal changed
        changed += sign * _of_row(table, row)

    database.create_function("count_row", -1, count)
    for table in _TABLES:
        columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
        for event, sign, which in (("DELETE", -1, "OLD"), ("INSERT", 1, "NEW")):
            row = ", ".join(f"{which}.{name}" for name in columns)
            trigger = f"TEMP TRIGGER {event}_{table} AFTER {event} ON main.{table}"
            database.execute(f"CREATE {trigger} BEGIN SELECT count_row({sign}, '{table}', {row}); END")
    return lambda: changed


def changed_digest(before: str, change: Callable[[], int]) -> str:
    """Compute the digest of a database after a change. `before` is the digest before the change, and `change`
    comes from `change_of_contents`."""
    return f"{(int(before, 16) + change()) % (1 << 8 * _DIGEST):0{2 * _DIGEST}x}"


def _of_row(table: str, row: Sequence[object]) -> int:
    return int.from_bytes(blake2b(orjson.dumps((table, row)), digest_size=_DIGEST).digest(), "big")
