"""An opened snapshot of the knowledge graph. The triples are in memory, descriptions and sources are read
from SQLite, and searches compare vectors. The SQLite file contains the entities, relations and triples, and for
each triple and description the segment from which it comes.

A search finds facts, which are groups of triples: all triples with the same head and relation, or with the same
relation and tail.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import orjson
from scipy.sparse import csr_array

from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge.names import name_key, named_in, relation_name, words_of
from pyfast.ops.arrays import Float32, Int32, Int64, places_of
from pyfast.retrieval.index.manifest import read_manifest
from pyfast.retrieval.vectors import vector_search
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.utils.extras import explained
from pyfast.utils.log import LOG
from pyfast.utils.sqlite_files import fault, open_database

FILE = "triples.sqlite"

# `segment` is a segment's id in the corpus. The id is computed from uri and offsets, so it stays when the index is
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

    If the process ends early, the file stays incomplete, and the next change of the store deletes this snapshot's
    folder.
    """
    database = open_database(path, isolation_level=None)
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
    return database


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open the database of a snapshot for reading by several threads."""
    return open_database(path, "ro&immutable=1", check_same_thread=False)


def integer_rows(database: sqlite3.Connection, query: str) -> Int32:
    """Run an SQL query that returns only integers, and return them as int32[rows, columns]."""
    cursor = database.execute(query)
    return np.array(cursor.fetchall(), np.int32).reshape(-1, len(cursor.description))


def signed(segment: int) -> int:
    """Convert a segment id (uint64) to SQLite's signed integer."""
    return segment - (1 << 64) if segment >= 1 << 63 else segment


IN_TEXT = 3
"""The number of a fact's values in the text from which its vector is computed. The values are the tails of triples
that share the head, or the heads of triples that share the tail. With more values, the vector would say too little
about the entity that the triples share"""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The facts of a knowledge graph. All triples with the same head and relation together form one fact. Several
    triples with the same relation and tail form another one.

    A question is often about several triples, such as all twenty films of an actor. A search for the five
    nearest triples would find only five of these films, but a search for facts finds them all together.
    """

    offsets: Int64
    """[facts + 1]: the position in `triples` at which each fact starts"""
    triples: Int32
    """the numbers of the triples of each fact, fact by fact"""
    by_tail: npt.NDArray[np.bool_]
    """[facts] True if the triples of a fact share the tail, False if they share the head"""
    about_offsets: Int64
    """[entities + 1]: the position in `about` at which the facts of each entity start"""
    about: Int32
    """The numbers of the facts about each entity, entity by entity. Together, these facts contain all triples of
    the entity"""

    def __len__(self) -> int:
        return len(self.by_tail)

    def of(self, fact: int) -> Int32:
        """Return the numbers of the triples of a fact."""
        return self.triples[self.offsets[fact] : self.offsets[fact + 1]]

    def with_any_of(self, triples: Int32) -> Int64:
        """Return the numbers of the facts that contain at least one of these triples, ascending."""
        held = np.flatnonzero(np.isin(self.triples, triples))
        return np.unique(np.searchsorted(self.offsets, held, side="right") - 1)

    def around(self, entities: Int32) -> tuple[Int32, Int64]:
        """Return (facts, positions): the facts about each of the `entities`, and for each fact the position of its
        entity in `entities`. For the entities [7, 3], facts about entity 3 have position 1."""
        offsets, at = places_of(self.about_offsets, entities)
        return self.about[at], np.repeat(np.arange(len(entities)), np.diff(offsets))


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The segments from which triples or entities come."""

    offsets: Int64
    """[owners + 1]: the position in `segments` at which the segments of each triple or entity start"""
    segments: npt.NDArray[np.uint64]
    """The ids of the segments of each triple or entity, ascending"""

    @property
    def owners(self) -> Int64:
        """[segments] the number of the triple or entity to which each segment belongs"""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def of(self, owners: Sequence[int]) -> list[list[int]]:
        """Return the segment ids of each of these triples or entities."""
        offsets, at = places_of(self.offsets, np.asarray(owners, np.int64))
        ids = self.segments[at].tolist()
        return [ids[begin:end] for begin, end in pairwise(offsets.tolist())]


def group_facts(head: Int32, relation: Int32, tail: Int32, entities: int) -> Facts:
    """Group triples into facts: by head and relation, and also by relation and tail.

    Within a fact, triples keep their order. `entities` is the number of entities.
    """
    forward, forward_ends = _runs(head, relation)
    backward, backward_ends = _runs(tail, relation)
    sizes = np.diff(backward_ends)
    several = np.repeat(sizes > 1, sizes)
    lengths = np.concatenate([np.diff(forward_ends), sizes[sizes > 1]])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    triples = np.concatenate([forward, backward[several]]).astype(np.int32)
    is_backward = np.arange(len(lengths)) >= len(forward_ends) - 1
    first = triples[offsets[:-1]]
    fact_of = np.empty(len(head), np.int64)  # the fact of the triple's head and relation
    fact_of[forward] = np.repeat(np.arange(len(forward_ends) - 1), np.diff(forward_ends))
    alone = backward[~several]
    entity = np.concatenate([np.where(is_backward, tail[first], head[first]), tail[alone]])
    fact = np.concatenate([np.arange(len(lengths)), fact_of[alone]])
    pairs = np.unique(np.stack([entity, fact], axis=1), axis=0)
    about_offsets = np.searchsorted(pairs[:, 0], np.arange(entities + 1))
    return Facts(offsets, triples, is_backward, about_offsets, pairs[:, 1].astype(np.int32))


def _runs(entity: Int32, relation: Int32) -> tuple[Int64, Int64]:
    """Group triples by entity and relation. Returns two arrays: the numbers of the triples, group by group, and
    the position at which each group starts, followed by the number of all triples."""
    order = np.lexsort((relation, entity))
    changes = (np.diff(entity[order]) != 0) | (np.diff(relation[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1]) if len(order) else np.empty(0, np.int64)
    return order, np.concatenate([starts, [len(order)]]).astype(np.int64)


def fact_text(subject: str, relation: str, values: Sequence[str], backward: bool) -> str:
    """Write the text from which a fact's vector is computed: the name of the entity that its triples share, the
    relation, and the first values. `backward` is True if the entity is the tail."""
    listed = ", ".join(values[:IN_TEXT])
    return f"{subject}: {relation} of {listed}" if backward else f"{subject} {relation} {listed}"


SEARCHED = ("facts", "entities", "keys")


class Knowledge:
    """One version (snapshot) of an index's knowledge graph. It never changes, and several threads can use it at
    the same time.

    Entities, relations, keys and triples are numbered from 0, in the order in which they were added.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], embedder: Embedder | None = None) -> None:
        """Open a snapshot whose manifest is already read. Other modules call `Knowledge.open`, which also
        checks the snapshot."""
        self.folder, self.manifest, self.embedder = folder, manifest, embedder
        self._database = open_read_only(folder / FILE)
        self.entities, self._entity_ids = self._named("entities", "name")
        """the name of each entity"""
        self.relations, relation_ids = self._named("relations", "name")
        self.keys, self._key_ids = self._named("keys", "text")
        """the text of each key: the name of a relation, a phrase with which an LLM describes a relation, or a
        theme (what a text is about, in a few words)"""
        rows = integer_rows(self._database, "SELECT id, head, relation, tail FROM triples ORDER BY id")
        self._triple_ids = rows[:, 0]
        self.head: Int32 = np.searchsorted(self._entity_ids, rows[:, 1]).astype(np.int32)
        """[triples] the number of the entity that is the head of each triple"""
        self.relation: Int32 = np.searchsorted(relation_ids, rows[:, 2]).astype(np.int32)
        """[triples] the number of the relation of each triple"""
        self.tail: Int32 = np.searchsorted(self._entity_ids, rows[:, 3]).astype(np.int32)
        """[triples] the number of the entity that is the tail of each triple"""

    @classmethod
    def open(cls, folder: Path, embedder: Embedder | None = None) -> Knowledge:
        """Open the snapshot in `folder`. If `embedder` is None, `encode` raises an error, so you cannot search by
        text.

        Raises `IndexFormatError` if the snapshot is damaged, and `InputError` if its vectors were made with
        another model.
        """
        manifest = read_manifest(folder, "knowledge")
        if embedder is not None and embedder.fingerprint != manifest["embedder"]:
            raise InputError(
                f"{folder}: the vectors were made with a different embedding model; use that model, or build the"
                " knowledge graph again with --embedder"
            )
        try:
            return cls(folder, manifest, embedder)
        except (sqlite3.Error, InputError) as error:
            reason = fault(error) if isinstance(error, sqlite3.Error) else error
            raise IndexFormatError(f"{folder}: {reason}") from None

    def __len__(self) -> int:
        """The number of triples."""
        return len(self.head)

    @property
    def fingerprint(self) -> str:
        """A checksum of the snapshot's content, followed by the embedding model's fingerprint."""
        return str(self.manifest["contents"])

    @property
    def extractions(self) -> list[dict[str, Any]]:
        """The description of each extraction by an LLM (see `extraction.describe_extraction`), oldest first."""
        return list(self.manifest.get("extractions") or ())

    @cached_property
    def facts(self) -> Facts:
        """The facts (groups of triples) of the graph: see `group_facts`."""
        return group_facts(self.head, self.relation, self.tail, len(self.entities))

    @cached_property
    def fact_of(self) -> Int32:
        """[triples] the number of the fact of each triple: the fact with the same head and relation."""
        # The facts by head come first, and they hold each triple once.
        sizes = np.diff(self.facts.offsets)[~self.facts.by_tail]
        made = np.empty(len(self), np.int32)
        made[self.facts.triples[: len(self)]] = np.repeat(np.arange(len(sizes)), sizes)
        return made

    @cached_property
    def _vectors(self) -> dict[str, vector_search.Vectors]:
        return {name: vector_search.load(self.folder, name) for name in SEARCHED}

    @cached_property
    def adjacency(self) -> csr_array:
        """A symmetric sparse CSR matrix, entities x entities: how many triples join two entities, in either
        direction."""
        ones = np.ones(2 * len(self), np.int32)
        ends = (np.concatenate([self.head, self.tail]), np.concatenate([self.tail, self.head]))
        return csr_array((ones, ends), shape=(len(self.entities),) * 2)

    def neighbours(self, entities: Int32, hops: int = 1) -> list[Int32]:
        """Return for each entity the other entities that are at most `hops` triples away, ascending."""
        reached = self.adjacency[entities]
        for _ in range(hops - 1):
            reached = reached + reached @ self.adjacency
            reached.data[:] = 1
        reached.sort_indices()
        rows = np.split(reached.indices, reached.indptr[1:-1])
        return [row[row != entity].astype(np.int32) for row, entity in zip(rows, entities, strict=True)]

    @cached_property
    def incident(self) -> tuple[Int64, Int32]:
        """(offsets [entities + 1], triples): `triples[offsets[i] : offsets[i + 1]]` are the numbers of the
        triples that have entity i as head or tail, ascending."""
        others = np.flatnonzero(self.head != self.tail)  # An entity that is both head and tail has it once.
        triples = np.concatenate([np.arange(len(self)), others]).astype(np.int32)
        return _by_owner(np.concatenate([self.head, self.tail[others]]), triples, len(self.entities))

    @cached_property
    def degree(self) -> Int64:
        """[entities] the number of triples of each entity"""
        return np.diff(self.incident[0])

    def ranked(self, triples: Int32) -> Int32:
        """Sort triples: first those whose head and tail have the most triples, then by strength."""
        return triples[np.argsort(self._rank[triples])]

    @cached_property
    def _rank(self) -> Int32:
        """[triples] the place of each triple in the order of all triples"""
        rank = np.empty(len(self), np.int32)
        around = self.degree[self.head] + self.degree[self.tail]
        rank[np.lexsort((-self.strength, -around))] = np.arange(len(self))
        return rank

    def search(self, kind: str, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """Find the `k` nearest facts, entities or keys for each query vector. `kind` is "facts", "entities" or
        "keys". Returns (numbers [queries, k], cosines).
        """
        return self._vectors[kind].search(queries, k)

    def matrix(self, kind: str, places: Int64 | None = None) -> Float32:
        """Return the vectors of all "facts", "entities" or "keys", or of those with these numbers, as
        float32[texts, dimensions]."""
        known = self._vectors[kind]
        return known.of(np.arange(len(known)) if places is None else places)

    def cosines(self, places: Int32 | Sequence[int], query: Float32, kind: str = "facts") -> Float32:
        """Compute the cosines of some facts, entities or keys with a query vector. `places` are their numbers, and
        `kind` is "facts", "entities" or "keys"."""
        return self._vectors[kind].cosines(np.asarray(places, np.int32), query)

    def entities_named_in(self, text: str) -> list[int]:
        """Find the entities whose names occur in a text. Returns their numbers, ascending. A name inside a
        longer name does not count."""
        return named_in(text, self._by_words)

    @cached_property
    def _by_words(self) -> dict[str, list[int]]:
        by_words: dict[str, list[int]] = {}
        for entity, key in enumerate(map(words_of, self.entities)):
            if key:
                by_words.setdefault(key, []).append(entity)
        return by_words

    def find_triples(self, head: str, relation: str, tail: str) -> list[int]:
        """Find the triples with these names, ignoring case and spaces. Returns their numbers, several if triples
        differ only in their time."""
        ends = self.entity(head), self.entity(tail)
        if None in ends:
            return []
        name = name_key(relation_name(relation))
        joining = self.incident[1][slice(*self.incident[0][ends[0] : ends[0] + 2])]  # type: ignore[operator]
        triples = joining[(self.head[joining] == ends[0]) & (self.tail[joining] == ends[1])]
        return [i for i in triples.tolist() if name_key(self.relations[self.relation[i]]) == name]

    def encode(self, texts: Sequence[str]) -> Float32:
        """Compute the vectors of texts. Raises `InputError` if the store was opened without its embedding
        model.
        """
        if self.embedder is None:
            raise InputError("the knowledge graph was opened without an embedding model")
        return self.embedder.encode(texts)

    def entity(self, name: str) -> int | None:
        """Find the entity with this name, or else the first entity whose name differs only in case or spaces.
        Returns its number, or None if there is no such entity."""
        row = self._database.execute(
            "SELECT id FROM entities WHERE name = ? OR key = ? ORDER BY name != ?, id LIMIT 1",
            (name, name_key(name), name),
        ).fetchone()
        return None if row is None else int(np.searchsorted(self._entity_ids, row[0]))

    def triple(self, triple: int) -> tuple[str, str, str]:
        """Return head, relation and tail of a triple, in words."""
        return next(self.triples(np.array([triple])))

    def triples(self, places: Int32) -> Iterator[tuple[str, str, str]]:
        """Return head, relation and tail of each triple, in words."""
        named, relations = self.entities, self.relations
        ids = (column[places].tolist() for column in (self.head, self.relation, self.tail))
        return ((named[head], relations[relation], named[tail]) for head, relation, tail in zip(*ids, strict=True))

    def times(self, triples: Sequence[int]) -> list[str]:
        """Return the time at which each triple is true, as a string, or "" if the time is unknown."""
        rows = self._about(
            "time", "triples ON triples.id = value", self._triple_ids[np.asarray(triples, np.int64)].tolist()
        )
        return [time for _, time in rows]

    def sources(self, triples: Sequence[int]) -> list[list[int]]:
        """Return for each triple the ids of the segments that state the triple, ascending. Ids are uint64, as in
        the corpus."""
        return self.statements.of(triples)

    def stated_in(self, segments: Sequence[int]) -> Int32:
        """Return the numbers of the triples that these segments state, ascending. `segments` are segment ids."""
        stated = np.flatnonzero(np.isin(self.statements.segments, np.asarray(segments, np.uint64)))
        return np.unique(np.searchsorted(self.statements.offsets, stated, side="right") - 1).astype(np.int32)

    @cached_property
    def statements(self) -> Sources:
        """The segments that state each triple"""
        return self._sources("statements", "triple", self._triple_ids)

    @cached_property
    def _mentions(self) -> Sources:
        return self._sources("mentions", "entity", self._entity_ids)

    def mentions(self, entities: Sequence[int]) -> list[list[int]]:
        """Return for each entity the ids of the segments that describe the entity, ascending."""
        return self._mentions.of(entities)

    def relation_descriptions(self, stated: Sequence[tuple[int, int]]) -> list[str]:
        """Return for each pair (triple, segment id) the sentence that describes the triple in this segment, or ""
        if there is none."""
        found = [""] * len(stated)
        where = "statements ON triple = value ->> 0 AND segment = value ->> 1 GROUP BY asked.key"
        for at, text in self._about("max(description)", where, _pairs(self._triple_ids, stated)):
            found[at] = text
        return found

    def entity_descriptions(self, mentioned: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
        """Return for each pair (entity, segment id) the kind of the entity and its description in this segment,
        each "" if there is none."""
        found = [("", "")] * len(mentioned)
        where = "mentions ON entity = value ->> 0 AND segment = value ->> 1 GROUP BY asked.key"
        # SQLite takes the other columns from the row with the smallest chunk.
        rows = self._about("kind, description, min(chunk)", where, _pairs(self._entity_ids, mentioned))
        for at, kind, description, _ in rows:
            found[at] = kind, description
        return found

    @cached_property
    def is_described(self) -> bool:
        """Whether there are descriptions of triples or entities. Extraction by rules writes none"""
        query = """SELECT EXISTS (SELECT 1 FROM statements WHERE description > '')
            OR EXISTS (SELECT 1 FROM mentions WHERE description > '' OR kind > '')"""
        return bool(self._database.execute(query).fetchone()[0])

    def theme_sources(self, keys: Sequence[int]) -> list[list[int]]:
        """Return for each key the ids of the segments that have this key as a theme (what a text is about, in
        a few words)."""
        return self._themes.of(keys)

    @cached_property
    def _themes(self) -> Sources:
        return self._sources("themes", "key", self._key_ids)

    @cached_property
    def strength(self) -> Int32:
        """[triples] an LLM's estimate of how closely a text connects head and tail of each triple, from 1 to 10.
        If several texts state the triple, it is the highest estimate. 0: no LLM has given one."""
        rows = integer_rows(
            self._database, "SELECT triple, max(strength) FROM statements WHERE strength > 0 GROUP BY triple"
        )
        strength = np.zeros(len(self), np.int32)
        strength[np.searchsorted(self._triple_ids, rows[:, 0])] = rows[:, 1]
        return strength

    def strongest(self, fact: int, limit: int) -> Int32:
        """Return the numbers of the `limit` triples of a fact with the highest `strength`, in the fact's order."""
        triples = self.facts.of(fact)
        if len(triples) <= limit:
            return triples
        return np.sort(triples[np.argsort(-self.strength[triples], kind="stable")[:limit]])

    def triples_of_key(self, key: int, query: Float32, limit: int) -> Int32:
        """Return the numbers of the triples with a key, in ascending order. If there are more than `limit`, return
        only the `limit` triples nearest to a query vector. `key` is the number of the key in `keys`.

        The vector of a triple is the vector of its fact.
        """
        offsets, triples = self._by_key
        every = triples[offsets[key] : offsets[key + 1]]
        if len(every) <= limit:
            return every
        facts, each = np.unique(self.fact_of[every], return_inverse=True)
        far = -self.cosines(facts.astype(np.int32), query)[each]
        return np.sort(every[np.argsort(far, kind="stable")[:limit]])

    @cached_property
    def _by_key(self) -> tuple[Int64, Int32]:
        """(offsets [keys + 1], triples): `triples[offsets[i] : offsets[i + 1]]` are the numbers of the
        triples of key i, ascending."""
        keys, triples = integer_rows(self._database, "SELECT DISTINCT key, triple FROM statement_keys").T
        numbers = np.searchsorted(self._triple_ids, triples).astype(np.int32)
        return _by_owner(np.searchsorted(self._key_ids, keys), numbers, len(self.keys))

    def failed_chunks(self) -> list[tuple[str, str]]:
        """Return the chunks whose extraction failed, each as (checksum, reason)."""
        return self._database.execute("SELECT digest, failed FROM chunks WHERE failed IS NOT NULL").fetchall()

    def extracted_chunks(self) -> set[str]:
        """Return the checksums of the chunks that were extracted successfully."""
        return {row[0] for row in self._database.execute("SELECT digest FROM chunks WHERE failed IS NULL")}

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Run an SQL query on the snapshot's database (see `SCHEMA`), and yield the rows of its result."""
        yield from self._database.execute(query, values)

    def texts(self, kind: str, places: Iterable[int] | None = None) -> list[str]:
        """Return the texts from which the vectors of the facts, entities or keys with these numbers (None: all)
        are computed. `kind` is "facts", "entities" or "keys"."""
        if kind == "facts":
            return [self._fact_text(place) for place in (range(len(self.facts)) if places is None else places)]
        names = self._names(kind)
        return names if places is None else [names[place] for place in places]

    def marks(self, kind: str) -> Int64:
        """Return a row of numbers that identifies each text of `texts`: int64[texts, columns].

        Equal texts have equal rows, even in two stores that one process has open, so a new snapshot can reuse the
        vectors in the previous snapshot.
        """
        if kind != "facts":
            return _marks(self._names(kind))[:, None]
        facts, entities = self.facts, np.append(_marks(self.entities), 0)
        first = facts.triples[facts.offsets[:-1]]
        place = facts.offsets[:-1, None] + np.arange(IN_TEXT)
        triples = facts.triples[np.minimum(place, len(facts.triples) - 1)]
        backward = facts.by_tail
        values = np.where(backward[:, None], self.head[triples], self.tail[triples])
        values[place >= facts.offsets[1:, None]] = -1
        about = np.where(backward, self.tail[first], self.head[first])
        relations = _marks(self.relations)[self.relation[first]]
        return np.column_stack([entities[about], relations, backward, entities[values]])

    def _names(self, kind: str) -> list[str]:
        return self.entities if kind == "entities" else self.keys

    def _fact_text(self, fact: int) -> str:
        triples, backward = self.facts.of(fact), bool(self.facts.by_tail[fact])
        one, other = (self.tail, self.head) if backward else (self.head, self.tail)
        values = [self.entities[i] for i in other[triples[:IN_TEXT]].tolist()]
        relation = self.relations[self.relation[triples[0]]]
        return fact_text(self.entities[one[triples[0]]], relation, values, backward)

    def _named(self, table: str, name: str) -> tuple[list[str], Int64]:
        rows = self._database.execute(f"SELECT id, {name} FROM {table} ORDER BY id").fetchall()
        return [name for _, name in rows], np.array([number for number, _ in rows], np.int64)

    def _about(self, columns: str, table: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Read rows about many values with one SQL query: for each row, the position of its value in `values`,
        then its columns. `table` ends with the condition for a value."""
        if not values:
            return []
        query = f"SELECT asked.key, {columns} FROM json_each(?) AS asked CROSS JOIN {table}"
        return self._database.execute(query, (orjson.dumps(values).decode(),)).fetchall()

    def _sources(self, table: str, owner: str, ids: Int32 | Int64) -> Sources:
        rows = self._database.execute(f"SELECT DISTINCT {owner}, segment FROM {table}").fetchall()
        owners, segments = np.array(rows, np.int64).reshape(-1, 2).T
        return Sources(*_by_owner(np.searchsorted(ids, owners), segments.astype(np.uint64), len(ids)))


def _by_owner(owners: npt.NDArray[Any], values: npt.NDArray[Any], count: int) -> tuple[Int64, npt.NDArray[Any]]:
    """Sort values by their owners, and each owner's values in ascending order. Returns (offsets [count + 1],
    values): the values of owner i are `values[offsets[i] : offsets[i + 1]]`."""
    order = np.lexsort((values, owners))
    return np.searchsorted(owners[order], np.arange(count + 1)), values[order]


def _pairs(ids: Int32 | Int64, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Convert pairs (triple or entity, segment id) to the database's values."""
    return [(int(ids[one]), signed(segment)) for one, segment in pairs]


def _marks(names: Sequence[str]) -> Int64:
    return np.array([hash(name) for name in names], np.int64)


_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@explained()
def export_graph(store: Knowledge, path: Path) -> None:
    """Write a knowledge graph to a file.

    Args:
        store: The knowledge.
        path: The file. Its suffix chooses the format: `.graphml` or `.nt` (N-Triples).

    Raises:
        InputError: The file has an unsupported suffix.
        MissingPackageError: A package for the format is not installed.
    """
    if path.suffix == ".graphml":
        _graphml(store, path)
    elif path.suffix == ".nt":
        _ntriples(store, path)
    else:
        raise InputError(f"{path}: the file name must end in .graphml or .nt")


def _graphml(store: Knowledge, path: Path) -> None:
    import networkx

    graph = networkx.MultiDiGraph()
    for entity, name in enumerate(store.entities):
        graph.add_node(entity, name=_NOT_IN_XML.sub("\ufffd", name))
    times = store.times(range(len(store)))
    for triple, time in enumerate(times):
        relation = store.relations[store.relation[triple]]
        attributes = {"time": _NOT_IN_XML.sub("\ufffd", time)} if time else {}
        ends = int(store.head[triple]), int(store.tail[triple])
        graph.add_edge(*ends, key=triple, relation=_NOT_IN_XML.sub("\ufffd", relation), **attributes)
    networkx.write_graphml(graph, path)


def _ntriples(store: Knowledge, path: Path) -> None:
    """Write N-Triples. An entity becomes a URN such as `urn:pyfast:entity:Titan`, and a relation a URN such
    as `urn:pyfast:relation:orbits`, with the name as its label (`rdfs:label`). The times of triples are left out,
    and a warning says how many.
    """
    from rdflib import RDFS, Graph, Literal, URIRef

    graph = Graph()
    nodes = [URIRef(f"urn:pyfast:entity:{quote(name, safe='')}") for name in store.entities]
    edges = [URIRef(f"urn:pyfast:relation:{quote(name, safe='')}") for name in store.relations]
    for nodes_or_edges, names in ((nodes, store.entities), (edges, store.relations)):
        for node, name in zip(nodes_or_edges, names, strict=True):
            graph.add((node, RDFS.label, Literal(name)))
    for head, relation, tail in zip(store.head, store.relation, store.tail, strict=True):
        graph.add((nodes[head], edges[relation], nodes[tail]))
    graph.serialize(path, format="nt", encoding="utf-8")
    if timed := sum(map(bool, store.times(range(len(store))))):
        LOG.warning("%s: N-Triples cannot store times; triples that lost their time: %d", path, timed)
