"""The SQLite file of a snapshot. It has the entities, relations and triples, and for each triple and
description the segment from which it comes.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from pyfast.ops.arrays import Int32
from pyfast.sqlite_files import open_database

FILE = "triples.sqlite"

# `segment` is a segment's id in the corpus. The id follows from uri and offsets, so it stays when the index is
# built again. SQLite stores ids as signed 64-bit integers. A description belongs to its statement or mention, and
# so to one chunk: no chunk can change what another one says.
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
    triple INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, description TEXT NOT NULL,
    strength INTEGER NOT NULL, PRIMARY KEY (triple, segment, chunk)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS statements_by_chunk ON statements (chunk);
CREATE TABLE IF NOT EXISTS statement_keys (
    key INTEGER NOT NULL, triple INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (key, triple, chunk)
    ) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS statement_keys_by_chunk ON statement_keys (chunk, triple);
CREATE TABLE IF NOT EXISTS themes (
    key INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (key, segment, chunk)
    ) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS themes_by_chunk ON themes (chunk);
CREATE TABLE IF NOT EXISTS mentions (
    entity INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, kind TEXT NOT NULL,
    description TEXT NOT NULL, PRIMARY KEY (entity, segment, chunk)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS mentions_by_chunk ON mentions (chunk);
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open the database of a snapshot that is being made, for writing.

    If the process ends early, the file stays incomplete. The next change of the store then deletes the folder
    of this snapshot.
    """
    database = open_database(path, isolation_level=None)
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
    return database


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open the database of a snapshot for reading by several threads."""
    return open_database(path, "ro&immutable=1", check_same_thread=False)


def integer_rows(database: sqlite3.Connection, query: str) -> Int32:
    """Run an SQL query whose result has only integers. Returns int32[rows, columns]."""
    rows = database.execute(query).fetchall()
    return np.array(rows, np.int32) if rows else np.empty((0, query.count(",") + 1), np.int32)


def signed(segment: int) -> int:
    """Convert a segment id (uint64) to SQLite's signed integer."""
    return segment - (1 << 64) if segment >= 1 << 63 else segment


def unsigned(segment: int) -> int:
    """Convert SQLite's signed integer to a segment id (uint64)."""
    return segment % (1 << 64)
