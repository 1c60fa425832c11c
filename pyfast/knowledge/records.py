"""What a store knows, and from where: entities, relations, triples in SQLite, each statement with its source."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from pyfast.ops.arrays import Int32

# `segment` is a segment's id in the corpus: it follows from uri and offsets, and stays when the index is built
# anew. Ids are signed 64-bit integers to SQLite. A description belongs to its statement or mention, and so to one
# chunk: none can change what another one says.
SCHEMA = """
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, method TEXT NOT NULL, failed TEXT);
CREATE TABLE IF NOT EXISTS entities (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_key ON entities (key);
CREATE TABLE IF NOT EXISTS relations (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS keys (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS triples (
    id INTEGER PRIMARY KEY, head INTEGER NOT NULL, relation INTEGER NOT NULL, tail INTEGER NOT NULL,
    time TEXT NOT NULL, UNIQUE (head, relation, tail, time));
CREATE TABLE IF NOT EXISTS statements (
    triple INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, key INTEGER NOT NULL,
    description TEXT NOT NULL, PRIMARY KEY (triple, segment, chunk)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_relation_key ON statements (key);
CREATE INDEX IF NOT EXISTS statements_by_chunk ON statements (chunk);
CREATE TABLE IF NOT EXISTS mentions (
    entity INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, kind TEXT NOT NULL,
    description TEXT NOT NULL, PRIMARY KEY (entity, segment, chunk)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS mentions_by_chunk ON mentions (chunk);
"""
ORDERED = {
    **dict.fromkeys(("chunks", "entities", "relations", "keys", "triples"), "id"),
    "statements": "triple, segment, chunk",
    "mentions": "entity, segment, chunk",
}
"""What orders the rows of each table"""

# Two letters or digits of one word. Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer names stand in words.
_IN_WORD = re.compile(r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]{2}")


@dataclass(frozen=True, slots=True)
class Statement:
    """That a segment says a triple."""

    head: str
    relation: str
    tail: str
    segment: int
    """id of the segment in the corpus"""
    time: str = ""
    description: str = ""
    keywords: str = ""
    """Themes of the relation, for its key"""


@dataclass(frozen=True, slots=True)
class Mention:
    """That a segment is about an entity."""

    entity: str
    segment: int
    kind: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Extract:
    """What was read from one chunk, or why it could not be."""

    digest: str
    """Of the chunk: what is here already is not added again"""
    method: str
    statements: tuple[Statement, ...] = ()
    mentions: tuple[Mention, ...] = ()
    failed: str | None = None
    exact: bool = False
    """Names are taken as they stand (a knowledge graph's); else an entity known by the same key is meant"""


def tidy(name: str) -> str:
    """A name on one line, with single spaces."""
    return " ".join(name.split())


def key_of(name: str) -> str:
    """What names of one entity have in common: no case, no accents' encodings, no spaces at the ends."""
    return tidy(unicodedata.normalize("NFKC", name)).casefold()


def stands_in(key: str, text: str) -> bool:
    """Whether a name stands in a text, both as `key_of` has them: as whole words, where its script has such."""
    at = text.find(key)
    while at >= 0 and any(_IN_WORD.fullmatch(text, max(end - 1, 0), end + 1) for end in (at, at + len(key))):
        at = text.find(key, at + 1)
    return at >= 0


def shown(name: str) -> str:
    """A name within a line that an LLM reads: it cannot end the line, nor its own place between two `|`."""
    return tidy(name).replace("|", "/")


def relation_name(name: str) -> str:
    """`starred_actors` as a reader says it: `starred actors`."""
    return tidy(name.replace("_", " "))


def connect(path: Path) -> sqlite3.Connection:
    """The records for writing, in a file that nobody else sees yet."""
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
    return database


class Writer:
    """Adds extracts to records, in the order given: the same extracts make the same records."""

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
                row = (self._entity(mention.entity, extract.exact), _signed(mention.segment), chunk)
                self._insert("mentions", (*row, mention.kind, mention.description))
            for said in extract.statements:
                triple = (
                    self._entity(said.head, extract.exact),
                    self._id("relations", relation_name(said.relation)),
                    self._entity(said.tail, extract.exact),
                    said.time,
                )
                key = self._id("keys", ", ".join(filter(None, (relation_name(said.relation), said.keywords))))
                row = (self._id("triples", triple, *triple), _signed(said.segment), chunk)
                self._insert("statements", (*row, key, said.description))

    def _chunk(self, extract: Extract) -> int:
        self._database.execute("DELETE FROM chunks WHERE digest = ?", (extract.digest,))
        row = (extract.digest, extract.method, extract.failed)
        added = self._database.execute("INSERT INTO chunks (digest, method, failed) VALUES (?, ?, ?)", row)
        return int(added.lastrowid or 0)

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        self._database.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?, ?)", row)

    def _entity(self, name: str, exact: bool) -> int:
        name = name if exact else tidy(name)
        known = self._ids["entities"].get(name)
        if known is not None:
            return known
        key = key_of(name)
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


def keep_only(database: sqlite3.Connection, digests: Iterable[str], methods: Sequence[str]) -> None:
    """Forget the chunks read by these methods that are not among `digests`, and what nothing else says."""
    database.execute("CREATE TEMP TABLE kept (digest TEXT PRIMARY KEY)")
    database.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ((digest,) for digest in digests))
    these = ",".join("?" * len(methods))
    database.execute(
        f"DELETE FROM chunks WHERE method IN ({these}) AND digest NOT IN (SELECT digest FROM kept)", methods
    )
    for table in ("statements", "mentions"):
        database.execute(f"DELETE FROM {table} WHERE chunk NOT IN (SELECT id FROM chunks)")
    database.execute("DELETE FROM triples WHERE id NOT IN (SELECT triple FROM statements)")
    used = "SELECT head FROM triples UNION SELECT tail FROM triples UNION SELECT entity FROM mentions"
    database.execute(f"DELETE FROM entities WHERE id NOT IN ({used})")
    database.execute("DELETE FROM relations WHERE id NOT IN (SELECT relation FROM triples)")
    database.execute("DELETE FROM keys WHERE id NOT IN (SELECT key FROM statements)")
    database.execute("DROP TABLE kept")


def digest_of(database: sqlite3.Connection) -> str:
    """Of everything in the records."""
    digest = blake2b(digest_size=16)
    for table, order in ORDERED.items():
        for row in database.execute(f"SELECT * FROM {table} ORDER BY {order}"):
            digest.update(orjson.dumps(row))
    return digest.hexdigest()


def column(database: sqlite3.Connection, query: str) -> Int32:
    """The rows of a query over integers, as int32[rows, columns]."""
    rows = database.execute(query).fetchall()
    return np.array(rows, np.int32) if rows else np.empty((0, query.count(",") + 1), np.int32)


def _signed(segment: int) -> int:
    return segment - (1 << 64) if segment >= 1 << 63 else segment
