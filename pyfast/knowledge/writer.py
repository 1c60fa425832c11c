"""Writing into the database of a snapshot that is being made: extracts in, stale chunks out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import orjson

from pyfast.knowledge.database import signed
from pyfast.knowledge.extracts import Extract
from pyfast.knowledge.names import name_key, relation_name, tidy

_ROW_ORDER = {
    **dict.fromkeys(("chunks", "entities", "relations", "keys", "triples"), "id"),
    "statements": "triple, segment, chunk",
    "statement_keys": "key, triple, chunk",
    "mentions": "entity, segment, chunk",
    "themes": "key, segment, chunk",
}


class Writer:
    """Adds extracts to a database, in the order given: the same extracts make the same rows."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._ids: dict[str, dict[Any, int]] = {
            "relations": self._known("name", "relations"),
            "keys": self._known("text", "keys"),
            "entities": self._known("name", "entities"),
            "triples": self._known("head, relation, tail, time", "triples"),
        }
        self._next = {table: max(known.values(), default=0) + 1 for table, known in self._ids.items()}

    def _known(self, columns: str, table: str) -> dict[Any, int]:
        rows = self._database.execute(f"SELECT id, {columns} FROM {table} ORDER BY id")
        return {row[0] if len(row) == 1 else tuple(row): number for number, *row in rows}

    @cached_property
    def _by_key(self) -> dict[str, int]:
        rows = self._database.execute("SELECT key, min(id) FROM entities GROUP BY key")
        return dict(rows.fetchall())

    def add(self, extracts: Iterable[Extract]) -> None:
        """Add what is not there yet; a chunk that had failed is replaced."""
        for extract in extracts:
            found = self._database.execute(
                "SELECT id, failed FROM chunks WHERE digest = ?", (extract.digest,)
            ).fetchone()
            if found is not None and (found[1] is None or extract.failed is not None):
                continue
            chunk = self._chunk(extract)
            for mention in extract.mentions:
                place = (self._entity(mention.entity, extract.exact), signed(mention.segment), chunk)
                self._insert("mentions", (*place, mention.kind, mention.description))
            for statement in extract.statements:
                triple = (
                    self._entity(statement.head, extract.exact),
                    self._id("relations", relation_name(statement.relation)),
                    self._entity(statement.tail, extract.exact),
                    statement.time,
                )
                number = self._id("triples", triple, *triple)
                row = (number, signed(statement.segment), chunk, statement.description, statement.strength)
                self._insert("statements", row)
                for key in (relation_name(statement.relation), *statement.keys):
                    self._insert("statement_keys", (self._id("keys", key), number, chunk))
            for theme in extract.themes:
                self._insert("themes", (self._id("keys", theme.key), signed(theme.segment), chunk))

    def _chunk(self, extract: Extract) -> int:
        self._database.execute("DELETE FROM chunks WHERE digest = ?", (extract.digest,))
        row = (extract.digest, extract.method, extract.failed)
        added = self._database.execute("INSERT INTO chunks (digest, method, failed) VALUES (?, ?, ?)", row)
        return int(added.lastrowid or 0)

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        self._database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * len(row))})", row)

    def _entity(self, name: str, exact: bool) -> int:
        name = name if exact else tidy(name)
        known = self._ids["entities"].get(name)
        if known is not None:
            return known
        key = name_key(name)
        if not exact and key in self._by_key:
            return self._by_key[key]
        number = self._id("entities", name, name, key)
        self._by_key.setdefault(key, number)
        return number

    def _id(self, table: str, what: Any, *columns: object) -> int:
        number = self._ids[table].get(what)
        if number is None:
            number = self._ids[table][what] = self._next[table]
            self._next[table] += 1
            row = (number, *(columns or (what,)))
            self._database.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
        return number


def remove_other_chunks(database: sqlite3.Connection, digests: Iterable[str], methods: Sequence[str]) -> None:
    """Remove the chunks extracted by these methods that are not among `digests`, and what nothing else says."""
    database.execute("CREATE TEMP TABLE kept (digest TEXT PRIMARY KEY)")
    database.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ((digest,) for digest in digests))
    these = ",".join("?" * len(methods))
    database.execute(
        f"DELETE FROM chunks WHERE method IN ({these}) AND digest NOT IN (SELECT digest FROM kept)", methods
    )
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
    """Of every row."""
    digest = blake2b(digest_size=16)
    for table, order in _ROW_ORDER.items():
        for row in database.execute(f"SELECT * FROM {table} ORDER BY {order}"):
            digest.update(orjson.dumps(row))
    return digest.hexdigest()
