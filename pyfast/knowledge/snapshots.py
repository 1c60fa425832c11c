"""The snapshots of an index's knowledge. A snapshot is one version of the knowledge.

A snapshot never changes. To change the knowledge, pyfast builds a complete new snapshot in another folder,
with checksums of its files, and makes it current by one rename. Even if the process is killed or the power fails,
the current snapshot is therefore either the old one or the new one, and always complete. The previous snapshot
stays for processes that have it open. A run has its own hard links to the files of its snapshot.

A `Writer` adds extracts to the database of a new snapshot. While a snapshot is being made, its vectors are written
to a cache file, so that only the last few are lost if the process is killed.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import orjson

from pyfast.errors import IndexFormatError, RunError
from pyfast.knowledge.extracts import Extract
from pyfast.knowledge.names import name_key, relation_name, tidy
from pyfast.knowledge.store import FILE, SEARCHED, Knowledge, open_for_writing, signed
from pyfast.ops.arrays import Float32
from pyfast.retrieval import Index
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.retrieval.index.manifest import read_manifest, write_manifest
from pyfast.retrieval.vectors import vector_search
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.retrieval.vectors.vector_search import hashes
from pyfast.utils.files import built_aside, link_folder, make_folder, only_writer, sync_to_disk, write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.sqlite_files import fault

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
    """Adds extracts to a database. The same extracts, added in the same order, always produce the same rows."""

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
        """Return the id of the row with these contents, or None if there is none. The writer remembers its own
        rows, and finds older ones with a query."""
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
        """Add extracts of chunks that are not in the database. A successful extract also replaces a chunk whose
        extraction failed. All other extracts are skipped."""
        for extract in extracts:
            existing = self._database.execute(
                "SELECT id, failed FROM chunks WHERE digest = ?", (extract.digest,)
            ).fetchone()
            if existing is not None and (existing[1] is None or extract.failed is not None):
                continue
            self._database.execute("DELETE FROM chunks WHERE digest = ?", (extract.digest,))
            row: tuple[object, ...] = (extract.digest, extract.method, extract.failed)
            added = self._database.execute("INSERT INTO chunks (digest, method, failed) VALUES (?, ?, ?)", row)
            chunk = added.lastrowid
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
            self._insert(table, (number, *(columns or what)))
        return number


def remove_other_chunks(database: sqlite3.Connection, digests: Iterable[str], methods: Sequence[str]) -> None:
    """Remove the chunks that one of `methods` extracted, except those whose checksums are in `digests`. Also
    remove the triples, entities, relations and keys that are in no remaining chunk."""
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
    """Compute the digest of the database: the sum of the digests (checksums) of all rows. Because it is a sum,
    only the digests of changed rows are needed to update it."""
    rows = (_of_row(table, row) for table in _TABLES for row in database.execute(f"SELECT * FROM {table}"))
    return changed_digest("0", lambda: sum(rows))


def change_of_contents(database: sqlite3.Connection) -> Callable[[], int]:
    """Compute how the digest of a database changes, with triggers in the database: the digest of each inserted row
    is added to a sum, and that of each deleted row is subtracted.

    Returns a function that returns the current sum, for `changed_digest`.
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


CURRENT, CACHE = "current", "embeddings.cache"
Encode = Callable[[Sequence[str]], Float32]
Write = Callable[[sqlite3.Connection], None]
"""A function that changes the database of a new snapshot"""
_NOTES = ("corpus", "chunk_tokens", "extractions")
"""Entries of a snapshot's manifest. `corpus`: the version of the index's documents at the last extraction.
`chunk_tokens`: the maximum size of the chunks that an LLM has read; None if no LLM has read any.
`extractions`: the descriptions of extractions from `extraction.describe_extraction`
"""


def has_knowledge(index: Index) -> bool:
    """Find out whether an index has a knowledge graph.

    Args:
        index: The index.

    Returns:
        True if the index has a snapshot, for example from `pyfast knowledge build`.
    """
    return (index.folder / KNOWLEDGE / CURRENT).is_file()


def open_knowledge(index: Index, embedder: Embedder | None = None) -> Knowledge:
    """Open the current snapshot of the knowledge of an index.

    Args:
        index: The index.
        embedder: The embedding model that encodes queries. None: the store cannot search.

    Returns:
        The knowledge.

    Raises:
        IndexFormatError: The index has no knowledge, or its current snapshot is damaged.
    """
    home = index.folder / KNOWLEDGE
    return _open(home, current_number(home), embedder)


def repair(index: Index) -> None:
    """If the current snapshot is damaged, make the newest undamaged snapshot the current one, and log a
    warning.

    Newer, damaged snapshots are renamed. Raises `IndexFormatError` if all snapshots are damaged.
    """
    home = index.folder / KNOWLEDGE
    if not has_knowledge(index):
        return
    with only_writer(home, lambda: None):
        try:
            read_manifest(home / str(current_number(home)), "knowledge")
            return
        except IndexFormatError as error:
            damage = error
        snapshots = snapshot_numbers(home)[::-1]
        for place, number in enumerate(snapshots):
            with contextlib.suppress(IndexFormatError):
                read_manifest(home / str(number), "knowledge")
                set_current(home, number)
                for broken in snapshots[:place]:
                    aside = home / f"{broken}.damaged"
                    shutil.rmtree(aside, ignore_errors=True)
                    (home / str(broken)).rename(aside)
                LOG.warning("%s; continuing with snapshot %d, and extracting again what it lacks", damage, number)
                return
        raise IndexFormatError(f"{damage}; all other snapshots are damaged too; remove {home} to start again")


def pin_snapshot(store: Knowledge, folder: Path) -> Knowledge:
    """Make hard links to the files of a snapshot in `folder`, which is inside a run's folder, and open the
    snapshot from these links. The files stay there even if the knowledge of the index changes."""
    if folder.is_dir() and folder.samefile(store.folder):
        return store
    with built_aside(folder) as aside:
        link_folder(store.folder, aside)
    return Knowledge.open(folder, store.embedder)


def make_snapshot(
    index: Index,
    embedder: Embedder,
    write: Write,
    notes: Mapping[str, Any] | None = None,
    stop: threading.Event | None = None,
) -> Knowledge:
    """Make the next snapshot, make it the current one, and open it. `write` is a function that changes a copy
    of the current snapshot's database. `notes` are new values for entries of the manifest (see `_NOTES`).

    If `write` and `notes` change nothing, no snapshot is made, and the current one is opened. Vectors are computed
    only for new texts, and vectors from an interrupted call are reused. Only one process at a time makes a
    snapshot, and a second process waits.

    Raises `RunError` if the database cannot be written, for example because the disk is full, or if `stop` is set
    while vectors are computed.
    """
    home = index.folder / KNOWLEDGE
    make_folder(home)
    with only_writer(home, lambda: None):
        number = current_number(home) if (home / CURRENT).is_file() else 0
        base = _open(home, number) if number else None
        for rest in (*home.glob("*.building"), *home.glob("*.removed")):  # A killed process may have left these.
            shutil.rmtree(rest)
        before = {} if base is None else {name: base.manifest[name] for name in _NOTES if name in base.manifest}
        now = {"corpus": index.manifest["corpus"], "chunk_tokens": None, **before, **(notes or {})}
        aside = home / f"{number + 1}.building"
        shutil.rmtree(home / str(number + 1), ignore_errors=True)
        aside.mkdir()
        try:
            contents = _write_database(aside, base, embedder, write)
            if base is not None and base.fingerprint == contents and now == before:
                shutil.rmtree(aside)
                return Knowledge.open(base.folder, embedder)
            encode = cached_encoder(home / CACHE, embedder, stop)
            made = _write_rest(aside, base, embedder, encode, {"contents": contents, **now})
            aside.rename(home / str(number + 1))
            sync_to_disk(home)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if isinstance(error, sqlite3.Error):
                raise RunError(f"{home}: {fault(error)}; the knowledge graph is unchanged") from None
            raise
        set_current(home, number + 1)
        # The previous snapshot stays, for processes that have it open.
        olds = [old for old in snapshot_numbers(home) if old < number]
        asides = [(home / str(old)).rename(home / f"{old}.removed") for old in olds]
        if asides:  # Even after a power cut, no snapshot is incomplete.
            sync_to_disk(home)
        for aside in asides:
            shutil.rmtree(aside)
        (home / CACHE).unlink(missing_ok=True)
        made.folder, made.embedder = home / str(number + 1), embedder
        return made


def make_apart(folder: Path, index: Index, embedder: Embedder, write: Write) -> Knowledge:
    """Make a snapshot of an index's knowledge in `folder`, which must be new or empty, and open it. The index does
    not change. `write` is a function that fills the snapshot's database. A cache file is beside the folder
    meanwhile."""
    folder.mkdir(exist_ok=True)
    cache = folder.with_name(CACHE)
    contents = _write_database(folder, None, embedder, write)
    facts = {"contents": contents, "corpus": index.manifest["corpus"], "chunk_tokens": None}
    _write_rest(folder, None, embedder, cached_encoder(cache, embedder), facts)
    cache.unlink()
    return Knowledge.open(folder, embedder)


def _write_database(aside: Path, base: Knowledge | None, embedder: Embedder, write: Write) -> str:
    """Write the database of a new snapshot. Returns a checksum of its content, followed by the embedding model's
    fingerprint."""
    if base is not None:
        shutil.copyfile(base.folder / FILE, aside / FILE)
    with contextlib.closing(open_for_writing(aside / FILE)) as connection:
        change = None if base is None else change_of_contents(connection)
        connection.execute("BEGIN")
        write(connection)
        connection.execute("COMMIT")
        if base is None or change is None:
            return f"{contents_digest(connection)}-{embedder.fingerprint}"
        return f"{changed_digest(base.fingerprint.partition('-')[0], change)}-{embedder.fingerprint}"


def _write_rest(
    aside: Path, base: Knowledge | None, embedder: Embedder, encode: Encode, facts: Mapping[str, Any]
) -> Knowledge:
    """Write the vectors and the manifest of a new snapshot, whose database is already in the folder `aside`.

    Known vectors come from `base`, the previous snapshot, and `encode` computes the others. Returns the snapshot,
    opened without an embedding model.
    """
    fresh = Knowledge(aside, {})
    before = base if base is not None and base.manifest["embedder"] == embedder.fingerprint else None
    for name in SEARCHED:
        if before is None:
            vector_search.save(aside, name, vector_search.make(encode(fresh.texts(name))))
            continue
        known = vector_search.load(before.folder, name)
        kept = vector_search.places_among(fresh.marks(name), before.marks(name))
        new = encode(fresh.texts(name, np.flatnonzero(kept < 0).tolist()))
        vector_search.save(aside, name, vector_search.change(known, kept, new), before.folder, known)
    own = {"embedder": embedder.fingerprint, **facts}
    fresh.manifest = write_manifest(aside, own, "knowledge", None if before is None else before.folder)
    return fresh


def _open(home: Path, number: int, embedder: Embedder | None = None) -> Knowledge:
    try:
        return Knowledge.open(home / str(number), embedder)
    except IndexFormatError as error:
        raise IndexFormatError(f"{error} (`pyfast knowledge build {home.parent}`)") from None


def set_current(home: Path, number: int) -> None:
    """Make the snapshot with this number the current snapshot."""
    for rest in home.glob(f"{CURRENT}.new-*"):  # A killed process may have left these.
        rest.unlink()
    write_atomically(home / CURRENT, f"{number}\n", durable=True)


def snapshot_numbers(home: Path) -> list[int]:
    """Return the numbers of all snapshots, ascending."""
    return sorted(int(folder.name) for folder in home.iterdir() if folder.name.isdigit())


def current_number(home: Path) -> int:
    """Return the number of the current snapshot. Raises `IndexFormatError` if it cannot be read."""
    try:
        return int((home / CURRENT).read_text())
    except FileNotFoundError:
        raise IndexFormatError(
            f"{home.parent} has no knowledge graph; make one with `pyfast knowledge build {home.parent}`"
        ) from None
    except ValueError:
        raise IndexFormatError(
            f"{home / CURRENT} is damaged; rebuild the knowledge graph (`pyfast knowledge build {home.parent}`)"
        ) from None


BLOCK = 512  # texts between two writes: a kill loses at most these
_CHECK = 16  # bytes of a checksum
_EVERY = 10.0  # seconds between two lines of progress


def cached_encoder(path: Path, embedder: Embedder, stop: threading.Event | None = None) -> Encode:
    """Return a function like `embedder.encode` that takes known vectors from a cache file, computes all other
    vectors, and appends them to the file.

    Each row of the file contains the hash of a text, the text's vector, and a checksum over hash, vector and
    model. If a row is incomplete, damaged or made with another model, this row and all later rows are deleted, and
    their vectors are computed again. Only one process at a time may use the file. Once `stop` is set, the function
    raises `RunError` instead of computing more vectors.
    """
    model = blake2b(embedder.fingerprint.encode()).digest()

    def encode(texts: Sequence[str]) -> Float32:
        names = hashes(texts)
        dtype = np.dtype(
            [("name", names.dtype), ("vector", np.float32, embedder.dimensions), ("check", f"V{_CHECK}")]
        )
        cached = _whole(path, dtype, model)
        held = {name: place for place, name in enumerate(cached["name"].tolist())}
        rows = np.empty(len(texts), dtype)
        rows["name"] = names
        places = np.array([held.get(name, -1) for name in names.tolist()], np.int64)
        rows["vector"][places >= 0] = cached["vector"][places[places >= 0]]
        missing = np.flatnonzero(places < 0).tolist()
        missing.sort(key=lambda i: len(texts[i]))  # Texts of about the same length share a batch.
        began = told = monotonic()
        for first in range(0, len(missing), BLOCK):
            if stop is not None and stop.is_set():
                raise RunError("stopped; the next build reuses the vectors that are already computed")
            now = monotonic()
            if first and now - told >= _EVERY:
                told, left = now, (now - began) * (len(missing) - first) / first
                LOG.info("%d of %d vectors; about %s left", first, len(missing), timedelta(seconds=round(left)))
            block = missing[first : first + BLOCK]
            rows["vector"][block] = embedder.encode([texts[i] for i in block])
            with path.open("ab") as file:
                file.writelines(_checked(row.tobytes(), model) for row in rows[block])
        return np.ascontiguousarray(rows["vector"])

    return encode


def _whole(path: Path, dtype: np.dtype[Any], model: bytes) -> Any:
    """Return the rows of the file before the first damaged row. The rest of the file is deleted."""
    count = 0
    with path.open("a+b") as file:
        file.seek(0)
        while (row := file.read(dtype.itemsize)) and row == _checked(row, model):
            count += 1
        file.truncate(count * dtype.itemsize)
    return np.memmap(path, dtype, "r", shape=count) if count else np.empty(0, dtype)


def _checked(row: bytes, model: bytes) -> bytes:
    """Compute the checksum of a row, write it into the last bytes of the row, and return the row.

    If the result equals `row`, this row is not damaged.
    """
    contents = row[:-_CHECK]
    return contents + blake2b(contents, digest_size=_CHECK, key=model).digest()
