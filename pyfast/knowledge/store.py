"""An opened snapshot of the knowledge graph. The triples are in memory, descriptions and sources are read
from SQLite, and searches compare vectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge import database
from pyfast.knowledge.facts import IN_TEXT, Facts, fact_text, group_facts
from pyfast.knowledge.names import name_key, named_in, relation_name, words_of
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.retrieval import vectors
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.manifest import read_manifest
from pyfast.sqlite_files import fault

SEARCHED = ("facts", "entities", "keys")


class Knowledge:
    """The knowledge graph of an index, in one version (snapshot). It never changes, and several threads can
    use it at the same time.

    Entities, relations, keys and triples are numbered from 0, in the order in which they were added.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], embedder: Embedder | None = None) -> None:
        """Open a snapshot whose manifest is already read. Other modules call `Knowledge.open`, which also
        checks the snapshot."""
        self.folder, self.manifest, self.embedder = folder, manifest, embedder
        self._database = database.open_read_only(folder / database.FILE)
        self.entities, self._entity_ids = self._named("entities", "name")
        """the name of each entity"""
        self.relations, relation_ids = self._named("relations", "name")
        self.keys, self._key_ids = self._named("keys", "text")
        """The text of each key. A key is the name of a relation, a phrase with which an LLM describes a
        relation, or a theme (what a text is about, in a few words)"""
        rows = database.integer_rows(self._database, "SELECT id, head, relation, tail FROM triples ORDER BY id")
        self._triple_ids = rows[:, 0]
        self.head: Int32 = np.searchsorted(self._entity_ids, rows[:, 1]).astype(np.int32)
        """[triples] the number of the entity that is the head of each triple"""
        self.relation: Int32 = np.searchsorted(relation_ids, rows[:, 2]).astype(np.int32)
        """[triples] the number of the relation of each triple"""
        self.tail: Int32 = np.searchsorted(self._entity_ids, rows[:, 3]).astype(np.int32)
        """[triples] the number of the entity that is the tail of each triple"""

    @classmethod
    def open(cls, folder: Path, embedder: Embedder | None = None) -> Knowledge:
        """Open the snapshot in `folder`. If `embedder` is None, `encode` raises an error, so that a search by
        text is not possible.

        Raises `IndexFormatError` if the snapshot is damaged, and `InputError` if its vectors were made with
        another model.
        """
        manifest = read_manifest(folder, "knowledge")
        if embedder is not None and embedder.fingerprint != manifest["embedder"]:
            raise InputError(f"{folder}: its vectors are of another embedding model than the one given")
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
        """A checksum of the snapshot's content, followed by the fingerprint of the embedding model."""
        return str(self.manifest["contents"])

    @property
    def extractions(self) -> list[dict[str, Any]]:
        """The description of each extraction by an LLM, oldest first. `provenance.describe_extraction` makes
        these descriptions."""
        return list(self.manifest.get("extractions") or ())

    @cached_property
    def facts(self) -> Facts:
        """The facts (groups of triples) of the graph: see `facts.group_facts`."""
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
    def _vectors(self) -> dict[str, vectors.Vectors]:
        return {name: vectors.load(self.folder, name) for name in SEARCHED}

    @cached_property
    def adjacency(self) -> csr_array:
        """A symmetric sparse CSR matrix, entities x entities: how many triples join two entities, with either of
        them as the head."""
        ones = np.ones(2 * len(self), np.int32)
        ends = (np.concatenate([self.head, self.tail]), np.concatenate([self.tail, self.head]))
        return csr_array((ones, ends), shape=(len(self.entities),) * 2)

    def neighbours(self, entities: Int32, hops: int = 1) -> list[Int32]:
        """Return for each entity the other entities that are at most `hops` triples away, ascending."""
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
        """(offsets [entities + 1], triples): `triples[offsets[i] : offsets[i + 1]]` are the numbers of the
        triples that have entity i as head or tail, ascending."""
        triples = np.arange(len(self), dtype=np.int32)
        loops = self.head == self.tail
        entity = np.concatenate([self.head, self.tail[~loops]])
        triple = np.concatenate([triples, triples[~loops]])
        order = np.lexsort((triple, entity))
        return np.searchsorted(entity[order], np.arange(len(self.entities) + 1)), triple[order]

    def search(self, kind: str, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """Find the `k` nearest facts, entities or keys for each query vector. `kind` is "facts", "entities" or
        "keys". Returns (numbers [queries, k], cosines).
        """
        return self._vectors[kind].search(queries, k)

    def matrix(self, kind: str) -> Float32:
        """Return the vectors of "facts", "entities" or "keys": float32[texts, dimensions]."""
        known = self._vectors[kind]
        return known.of(np.arange(len(known)))

    def cosines(self, places: Int32 | Sequence[int], query: Float32, kind: str = "facts") -> Float32:
        """Compute the cosines of some facts, entities or keys with a query's vector. `places` are their
        numbers, and `kind` is "facts", "entities" or "keys"."""
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
        """Find the triples with these names. Case and spaces do not matter. Returns the numbers of the
        triples. There are several if triples differ only in their time."""
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
            raise InputError("the knowledge was opened without an embedding model")
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
        """Return the time at which each triple is true, as text. The text is empty if the time is not
        known."""
        query = "SELECT time FROM triples WHERE id = ?"
        return [self._database.execute(query, (int(self._triple_ids[i]),)).fetchone()[0] for i in triples]

    def sources(self, triples: Sequence[int]) -> list[list[int]]:
        """Return for each triple the ids of the segments that state the triple, ascending. Ids are uint64, as in
        the corpus."""
        query = "SELECT DISTINCT segment FROM statements WHERE triple = ? ORDER BY segment"
        return [self._segments(query, int(self._triple_ids[i])) for i in triples]

    def stated_in(self, segments: Sequence[int]) -> Int32:
        """Return the numbers of the triples that these segments state, ascending. `segments` are the ids of
        segments in the corpus."""
        rows = self._statements
        stated = np.isin(rows[:, 1], np.asarray(segments, np.uint64).view(np.int64))
        return np.unique(np.searchsorted(self._triple_ids, rows[stated, 0])).astype(np.int32)

    @cached_property
    def _statements(self) -> Int64:
        """[statements, 2]: the id of a triple in the database, and the id of a segment that states the
        triple, as a signed integer"""
        rows = self._database.execute("SELECT DISTINCT triple, segment FROM statements").fetchall()
        return np.array(rows, np.int64).reshape(-1, 2)

    def mentions(self, entities: Sequence[int]) -> list[list[int]]:
        """Return for each entity the ids of the segments that describe the entity."""
        query = "SELECT DISTINCT segment FROM mentions WHERE entity = ? ORDER BY segment"
        return [self._segments(query, int(self._entity_ids[i])) for i in entities]

    def descriptions(self, entities: Sequence[int]) -> list[list[str]]:
        """Return the descriptions of each entity, without duplicates. If the kind of the entity is known, a
        description has the form `kind: description`."""
        query = "SELECT kind, description FROM mentions WHERE entity = ? ORDER BY chunk, segment"
        rows = [self._database.execute(query, (int(self._entity_ids[i]),)).fetchall() for i in entities]
        texts = [[": ".join(filter(None, row)) for row in of_one] for of_one in rows]
        return [list(dict.fromkeys(filter(None, of_one))) for of_one in texts]

    def relation_descriptions(self, triples: Sequence[int], segment: int) -> list[str]:
        """Return for each triple the sentence that describes it in a segment, or "" if there is none.
        `segment` is the id of the segment."""
        query = "SELECT max(description) FROM statements WHERE triple = ? AND segment = ?"
        at = database.signed(segment)
        rows = (self._database.execute(query, (int(self._triple_ids[i]), at)).fetchone() for i in triples)
        return [row[0] or "" for row in rows]

    def described_in(self, entities: Sequence[int], segment: int) -> list[tuple[str, str, str]]:
        """Return (name, kind, description) of each of the `entities` that a segment describes. `segment` is
        the id of the segment. Other entities are left out."""
        query = "SELECT kind, description FROM mentions WHERE entity = ? AND segment = ? ORDER BY chunk LIMIT 1"
        at = database.signed(segment)
        rows = ((i, self._database.execute(query, (int(self._entity_ids[i]), at)).fetchone()) for i in entities)
        return [(self.entities[i], *row) for i, row in rows if row is not None and any(row)]

    def theme_sources(self, keys: Sequence[int]) -> list[list[int]]:
        """Return for each key the ids of the segments that have this key as a theme (what a text is about, in
        a few words)."""
        query = "SELECT DISTINCT segment FROM themes WHERE key = ?"
        return [self._segments(query, int(self._key_ids[i])) for i in keys]

    @cached_property
    def strength(self) -> Int32:
        """[triples] an LLM's estimate of how closely a text connects head and tail of each triple, from 1 to 10.
        If several texts state the triple, the highest number is taken. 0: no LLM has given a number."""
        rows = database.integer_rows(
            self._database, "SELECT triple, max(strength) FROM statements WHERE strength > 0 GROUP BY triple"
        )
        strength = np.zeros(len(self), np.int32)
        strength[np.searchsorted(self._triple_ids, rows[:, 0])] = rows[:, 1]
        return strength

    def strongest(self, fact: int, limit: int) -> Int32:
        """Return the numbers of the `limit` triples of a fact that have the highest `strength`. They are in
        the order in which the fact has them."""
        triples = self.facts.of(fact)
        if len(triples) <= limit:
            return triples
        return np.sort(triples[np.argsort(-self.strength[triples], kind="stable")[:limit]])

    def triples_of_key(self, key: int, query: Float32, limit: int) -> Int32:
        """Find the triples with a key, ascending. If there are more than `limit`, only the `limit` triples that
        are nearest to a query's vector are returned. `key` is the number of the key in `keys`.

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
        query = "SELECT DISTINCT key, triple FROM statement_keys ORDER BY key, triple"
        keys, triples = database.integer_rows(self._database, query).T
        offsets = np.append(np.searchsorted(keys, self._key_ids), len(keys))
        return offsets, np.searchsorted(self._triple_ids, triples).astype(np.int32)

    def failed_chunks(self) -> list[tuple[str, str]]:
        """Return the chunks whose extraction failed, each as (checksum, reason)."""
        return self._database.execute("SELECT digest, failed FROM chunks WHERE failed IS NOT NULL").fetchall()

    def extracted_chunks(self) -> set[str]:
        """Return the checksums of the chunks that were extracted successfully."""
        return {row[0] for row in self._database.execute("SELECT digest FROM chunks WHERE failed IS NULL")}

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Run an SQL query on the snapshot's database (see `database.SCHEMA`), and return the rows of its
        result."""
        yield from self._database.execute(query, values)

    def texts(self, kind: str) -> list[str]:
        """Return the texts of all facts, entities or keys, in the order of their numbers. Their vectors are
        computed from these texts. `kind` is "facts", "entities" or "keys"."""
        return self.texts_at(kind, range(len(self.facts))) if kind == "facts" else self._names(kind)

    def texts_at(self, kind: str, places: Iterable[int]) -> list[str]:
        """Return the texts of the facts, entities or keys with these numbers, as in `texts`."""
        if kind == "facts":
            return [self._fact_text(place) for place in places]
        names = self._names(kind)
        return [names[place] for place in places]

    def marks(self, kind: str) -> Int64:
        """Return a row of numbers that identifies each text of `texts`: int64[texts, columns].

        Equal texts have equal rows. This is also true for texts in two stores, if one process has both stores
        open. So a new snapshot can find the vectors of texts that the previous snapshot already has.
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

    def _segments(self, query: str, number: int) -> list[int]:
        return sorted(database.unsigned(row[0]) for row in self._database.execute(query, (number,)).fetchall())


def _marks(names: Sequence[str]) -> Int64:
    return np.array([hash(name) for name in names], np.int64)
