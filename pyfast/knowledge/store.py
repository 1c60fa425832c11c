"""The store of what is known: a folder of snapshots in the index, one of them current.

A snapshot is never changed. A change makes the next one aside, whole, with the checksums of its files; the file
`current` then names it, in one rename. So whatever ends a process, the store is as it was or as it was to be. The
snapshot before the current one stays for runs that were begun with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge import records, vectors
from pyfast.knowledge.facts import IN_TEXT, Facts, group, wording
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.index import KNOWLEDGE
from pyfast.retrieval.manifest import read_manifest, write_manifest

_CURRENT, _RECORDS = "current", "records.sqlite"
MOST_WORDS = 12  # in a name that is looked for in a text
_WORD_ENDS = re.compile(
    r"(?:^|(?<=\s))[\W_]+|(?:'s\b)?[\W_]+(?=\s|$)"
)  # punctuation around words, and the possessive
SEARCHED = ("facts", "entities", "keys")


class Knowledge:
    """An opened snapshot. Nothing in it changes; all methods may be called from several threads.

    Entities, relations, relation keys and triples are counted from 0, in the order in which they came.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], embedder: Embedder | None = None) -> None:
        """What `open` calls once the manifest is read."""
        self.folder, self.manifest, self.embedder = folder, manifest, embedder
        self._database = sqlite3.connect(_read_only(folder), uri=True, check_same_thread=False)
        self.entities, self._entity_ids = self._named("entities", "name")
        """the name of each entity"""
        self.relations, relation_ids = self._named("relations", "name")
        self.keys, self._key_ids = self._named("keys", "text")
        """the text of each relation key: the relation, and the themes that a model gave it"""
        rows = records.column(self._database, "SELECT id, head, relation, tail FROM triples ORDER BY id")
        self._triple_ids = rows[:, 0]
        self.head: Int32 = np.searchsorted(self._entity_ids, rows[:, 1]).astype(np.int32)
        """[triples]"""
        self.relation: Int32 = np.searchsorted(relation_ids, rows[:, 2]).astype(np.int32)
        """[triples]"""
        self.tail: Int32 = np.searchsorted(self._entity_ids, rows[:, 3]).astype(np.int32)
        """[triples]"""

    @classmethod
    def open(cls, folder: Path, embedder: Embedder | None = None) -> Knowledge:
        """Open the snapshot in `folder`; without an embedding model it is read, but not searched by text.

        Raises `IndexFormatError` for one that is damaged, and `InputError` where its vectors are of another model.
        """
        manifest = read_manifest(folder, "knowledge")
        if embedder is not None and embedder.fingerprint != manifest["embedder"]:
            raise InputError(f"{folder}: its vectors are of another embedding model than the one given")
        return cls(folder, manifest, embedder)

    def __len__(self) -> int:
        """The number of triples."""
        return len(self.head)

    @property
    def fingerprint(self) -> str:
        """Of all that is known, and of the model that its vectors are of."""
        return str(self.manifest["contents"])

    @cached_property
    def facts(self) -> Facts:
        """What is searched for: see `facts.group`."""
        return group(self.head, self.relation, self.tail, len(self.entities))

    @cached_property
    def fact_of(self) -> Int32:
        """[triples] the fact of each that its head and relation make."""
        sizes = np.diff(self.facts.offsets)[~self.facts.backward]  # these come first, and hold each triple once
        made = np.empty(len(self), np.int32)
        made[self.facts.triples[: len(self)]] = np.repeat(np.arange(len(sizes)), sizes)
        return made

    @cached_property
    def _vectors(self) -> dict[str, vectors.Vectors]:
        return {name: vectors.load(self.folder, name) for name in SEARCHED}

    @cached_property
    def adjacency(self) -> csr_array:
        """CSR, entities x entities: what is joined by a triple, in either direction. Values: how many triples."""
        ones = np.ones(2 * len(self), np.int32)
        ends = (np.concatenate([self.head, self.tail]), np.concatenate([self.tail, self.head]))
        return csr_array((ones, ends), shape=(len(self.entities),) * 2)

    def neighbours(self, entities: Int32, hops: int = 1) -> list[Int32]:
        """For each entity those that are 1 to `hops` triples away, ascending, itself left out."""
        start = csr_array(
            (np.ones(len(entities), np.int32), entities, np.arange(len(entities) + 1)),
            shape=(len(entities), len(self.entities)),
        )
        reached = frontier = start
        for _ in range(hops):
            frontier = frontier @ self.adjacency
            frontier.data[:] = 1
            reached = reached + frontier
        reached.sort_indices()
        rows = np.split(reached.indices, reached.indptr[1:-1])
        return [row[row != entity].astype(np.int32) for row, entity in zip(rows, entities, strict=True)]

    @cached_property
    def incident(self) -> tuple[Int64, Int32]:
        """(offsets [entities + 1], triples): the triples of each entity, as head or tail, ascending."""
        triples = np.arange(len(self), dtype=np.int32)
        loops = self.head == self.tail
        entity = np.concatenate([self.head, self.tail[~loops]])
        triple = np.concatenate([triples, triples[~loops]])
        order = np.lexsort((triple, entity))
        return np.searchsorted(entity[order], np.arange(len(self.entities) + 1)), triple[order]

    def search(self, what: str, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """(places [queries, k], cosines) of the nearest "facts", "entities" or "keys" to query vectors."""
        return self._vectors[what].search(queries, k)

    def matrix(self, what: str) -> Float32:
        """float32[texts, dimensions]: the vectors of "facts", "entities" or "keys", mapped."""
        return self._vectors[what].matrix

    def cosines(self, facts: Int32, query: Float32) -> Float32:
        """Of facts to a query's vector."""
        return self._vectors["facts"].cosines(facts, query)

    def named_in(self, text: str) -> list[int]:
        """The entities that a text names, ascending: the longest names, none inside another."""
        words = records.key_of(_WORD_ENDS.sub(" ", text)).split()
        found: set[int] = set()
        at = 0
        while at < len(words):
            for stop in range(min(at + MOST_WORDS, len(words)), at, -1):
                entities = self._by_words.get(" ".join(words[at:stop]))
                if entities:
                    found.update(entities)
                    at = stop - 1
                    break
            at += 1
        return sorted(found)

    @cached_property
    def _by_words(self) -> dict[str, list[int]]:
        keys = (" ".join(records.key_of(_WORD_ENDS.sub(" ", name)).split()) for name in self.entities)
        found: dict[str, list[int]] = {}
        for entity, key in enumerate(keys):
            if key:
                found.setdefault(key, []).append(entity)
        return found

    def knows(self, head: str, relation: str, tail: str) -> bool:
        """Whether the triple is here, in these names or others that mean the same."""
        ends = self.entity(head), self.entity(tail)
        if None in ends:
            return False
        name = records.key_of(records.relation_name(relation))
        joining = self.incident[1][slice(*self.incident[0][ends[0] : ends[0] + 2])]  # type: ignore[operator]
        found = joining[(self.head[joining] == ends[0]) & (self.tail[joining] == ends[1])]
        return any(records.key_of(self.relations[self.relation[triple]]) == name for triple in found)

    def encode(self, texts: Sequence[str]) -> Float32:
        """Vectors of texts. Raises `InputError` where the store was opened without its embedding model."""
        if self.embedder is None:
            raise InputError("the knowledge was opened without an embedding model")
        return self.embedder.encode(texts)

    def entity(self, name: str) -> int | None:
        """The entity of that name, or of one that differs in case or spaces alone."""
        found = self._database.execute(
            "SELECT id FROM entities WHERE name = ? OR key = ? ORDER BY name != ?, id LIMIT 1",
            (name, records.key_of(name), name),
        ).fetchone()
        return None if found is None else int(np.searchsorted(self._entity_ids, found[0]))

    def triple(self, triple: int) -> tuple[str, str, str]:
        """Head, relation and tail, in words."""
        named = self.entities
        return named[self.head[triple]], self.relations[self.relation[triple]], named[self.tail[triple]]

    def times(self, triples: Sequence[int]) -> list[str]:
        """When each triple held; empty where that is not known."""
        query = "SELECT time FROM triples WHERE id = ?"
        return [self._database.execute(query, (int(self._triple_ids[i]),)).fetchone()[0] for i in triples]

    def sources(self, triples: Sequence[int]) -> list[list[int]]:
        """For each triple the ids (uint64, as in the corpus) of the segments that say it, ascending."""
        query = "SELECT DISTINCT segment FROM statements WHERE triple = ? ORDER BY segment"
        return [self._segments(query, int(self._triple_ids[i])) for i in triples]

    def mentions(self, entities: Sequence[int]) -> list[list[int]]:
        """For each entity the ids of the segments that describe it."""
        query = "SELECT DISTINCT segment FROM mentions WHERE entity = ? ORDER BY segment"
        return [self._segments(query, int(self._entity_ids[i])) for i in entities]

    def descriptions(self, entities: Sequence[int]) -> list[list[str]]:
        """For each entity what was said of it, kind first where known, in the order in which it came."""
        query = "SELECT kind, description FROM mentions WHERE entity = ? ORDER BY chunk, segment"
        rows = [self._database.execute(query, (int(self._entity_ids[i]),)).fetchall() for i in entities]
        said = [[": ".join(filter(None, row)) for row in found] for found in rows]
        return [list(dict.fromkeys(filter(None, found))) for found in said]

    def of_key(self, key: int, most: int) -> Int32:
        """The first `most` triples of a relation key."""
        query = "SELECT DISTINCT triple FROM statements WHERE key = ? ORDER BY triple LIMIT ?"
        rows = self._database.execute(query, (int(self._key_ids[key]), most)).fetchall()
        return np.searchsorted(self._triple_ids, [row[0] for row in rows]).astype(np.int32)

    def failed(self) -> list[tuple[str, str]]:
        """(digest, reason) of the chunks that could not be read."""
        return self._database.execute("SELECT digest, failed FROM chunks WHERE failed IS NOT NULL").fetchall()

    def chunks(self) -> set[str]:
        """The digests of the chunks that were read."""
        return {row[0] for row in self._database.execute("SELECT digest FROM chunks WHERE failed IS NULL")}

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a query over the records (see `records.SCHEMA`), as they come."""
        yield from self._database.execute(query, values)

    def wordings(self, what: str) -> list[str]:
        """The texts whose vectors are searched."""
        if what == "entities":
            return self.entities
        if what == "keys":
            return self.keys
        return [self._wording(fact) for fact in range(len(self.facts))]

    def _wording(self, fact: int) -> str:
        triples, backward = self.facts.of(fact), bool(self.facts.backward[fact])
        one, other = (self.tail, self.head) if backward else (self.head, self.tail)
        values = [self.entities[i] for i in other[triples[:IN_TEXT]].tolist()]
        return wording(self.entities[one[triples[0]]], self.relations[self.relation[triples[0]]], values, backward)

    def _named(self, table: str, name: str) -> tuple[list[str], Int64]:
        rows = self._database.execute(f"SELECT id, {name} FROM {table} ORDER BY id").fetchall()
        return [name for _, name in rows], np.array([number for number, _ in rows], np.int64)

    def _segments(self, query: str, number: int) -> list[int]:
        return sorted(row[0] % (1 << 64) for row in self._database.execute(query, (number,)).fetchall())


def has_knowledge(index: Index) -> bool:
    """Whether the index has a store."""
    return (index.folder / KNOWLEDGE / _CURRENT).is_file()


def open_knowledge(index: Index, embedder: Embedder | None = None, begun_with: str | None = None) -> Knowledge:
    """The current snapshot of an index's store; or, for a run that was `begun_with` it, the one before.

    Raises `IndexFormatError` where there is none, or it is damaged.
    """
    home = index.folder / KNOWLEDGE
    number = _current(home)
    store = Knowledge.open(home / str(number), embedder)
    if begun_with not in (None, store.fingerprint) and (home / str(number - 1)).is_dir():
        before = Knowledge.open(home / str(number - 1), embedder)
        return before if before.fingerprint == begun_with else store
    return store


def change(index: Index, embedder: Embedder, write: Callable[[sqlite3.Connection], None]) -> Knowledge:
    """Make the next snapshot: the records after `write`, and the vectors of what they say; then open it.

    All or nothing; where `write` changes nothing, no new snapshot is made. One process at a time.
    """
    home = index.folder / KNOWLEDGE
    home.mkdir(exist_ok=True)
    with _alone(home):
        number = _current(home) if (home / _CURRENT).is_file() else 0
        base = Knowledge.open(home / str(number)) if number else None
        for rest in home.glob("*.building"):  # of a process that was killed
            shutil.rmtree(rest)
        aside = home / f"{number + 1}.building"
        shutil.rmtree(home / str(number + 1), ignore_errors=True)
        aside.mkdir()
        try:
            contents = _write_records(aside, base, embedder, write)
            if base is not None and base.fingerprint == contents:
                shutil.rmtree(aside)
                return Knowledge.open(base.folder, embedder)
            _write_vectors(aside, base, embedder)
            facts = {"contents": contents, "embedder": embedder.fingerprint}
            write_manifest(aside, {**facts, "corpus": index.manifest["corpus"]}, "knowledge")
            aside.rename(home / str(number + 1))
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        _point_at(home, number + 1)
        return Knowledge.open(home / str(number + 1), embedder)


def _write_records(
    aside: Path, base: Knowledge | None, embedder: Embedder, write: Callable[[sqlite3.Connection], None]
) -> str:
    if base is not None:
        shutil.copyfile(base.folder / _RECORDS, aside / _RECORDS)
    with contextlib.closing(records.connect(aside / _RECORDS)) as database:
        database.execute("BEGIN")
        write(database)
        database.execute("COMMIT")
        return f"{records.digest_of(database)}-{embedder.fingerprint}"


def _write_vectors(aside: Path, base: Knowledge | None, embedder: Embedder) -> None:
    fresh = Knowledge(aside, {})
    same = base is not None and base.manifest["embedder"] == embedder.fingerprint
    for name in SEARCHED:
        known = vectors.load(base.folder, name) if base is not None and same else None
        vectors.save(aside, name, vectors.make(fresh.wordings(name), embedder.encode, known))


def _point_at(home: Path, number: int) -> None:
    aside = home / f"{_CURRENT}.new"
    aside.write_text(f"{number}\n")
    aside.rename(home / _CURRENT)
    for folder in home.iterdir():
        if folder.name.isdigit() and int(folder.name) < number - 1:
            shutil.rmtree(folder)


def _current(home: Path) -> int:
    try:
        return int((home / _CURRENT).read_text())
    except FileNotFoundError:
        raise IndexFormatError(
            f"{home.parent}: holds no knowledge; make it with `pyfast knowledge build {home.parent}`"
        ) from None
    except ValueError:
        raise IndexFormatError(f"{home / _CURRENT} is damaged: build the knowledge again") from None


def _read_only(folder: Path) -> str:
    return f"{(folder / _RECORDS).resolve().as_uri()}?mode=ro&immutable=1"


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    file = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
