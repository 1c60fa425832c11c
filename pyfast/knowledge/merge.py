"""Merge: add the knowledge graph of another index, or the triples that a run learned, to a store. Another
function removes all merged triples."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyfast.knowledge.extracts import LEARNED, MERGED, Extract, Mention, Statement, Theme
from pyfast.knowledge.names import name_key
from pyfast.knowledge.session import learned_extracts
from pyfast.knowledge.snapshots import has_knowledge, make_snapshot
from pyfast.knowledge.store import Knowledge
from pyfast.knowledge.writer import Writer, remove_other_chunks
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder


def merge_knowledge(index: Index, embedder: Embedder, other: Knowledge) -> Knowledge:
    """Add all triples of another index to the knowledge of an index.

    An entity of `other` and an entity of `index` become one if their names differ only in case or spaces
    (`matching_entities` has the exceptions). The source of an added triple is a segment of the other index. An
    answer can cite the source only if `index` has the same segment.

    Args:
        index: The index. If it has no knowledge yet, its graph will have only the added triples.
        embedder: The embedding model.
        other: The knowledge of the other index.

    Returns:
        The current snapshot of the knowledge.
    """

    def write(database: sqlite3.Connection) -> None:
        here = matching_entities(other.entities, database)
        Writer(database).add(_renamed(extract, here) for extract in extracts_of(other))

    return make_snapshot(index, embedder, write, None if has_knowledge(index) else {"corpus": None})


def merge_learned(index: Index, embedder: Embedder, answers: Path) -> Knowledge:
    """Add the triples that a run has learned to the knowledge of an index. Triples that the knowledge already
    has are not added again.

    Args:
        index: The index.
        embedder: The embedding model.
        answers: The file `answers.jsonl` of the run.

    Returns:
        The current snapshot of the knowledge.
    """
    learned = learned_extracts(answers)
    notes = None if has_knowledge(index) else {"corpus": None}
    return make_snapshot(index, embedder, lambda database: Writer(database).add(learned), notes)


def reset_knowledge(index: Index, embedder: Embedder) -> Knowledge:
    """Remove all merged triples. Triples from the index's own documents stay.

    Args:
        index: The index.
        embedder: The embedding model.

    Returns:
        The current snapshot of the knowledge.
    """
    return make_snapshot(index, embedder, lambda database: remove_other_chunks(database, (), (LEARNED, MERGED)))


def matching_entities(names: Sequence[str], database: sqlite3.Connection) -> dict[str, str]:
    """Find the names that the entities of a store get when the store is merged into another store.
    `database` belongs to the other store. Returns a dict from old names to new names.

    A name stays unchanged in three cases. First: the database has exactly this name. Second: the database has
    no name that differs only in case or spaces. Third: `names` has another name that differs only in case or
    spaces. These two names then stay two entities. In all other cases, the new name is the first name in the
    database that differs only in case or spaces.
    """
    here = {name for (name,) in database.execute("SELECT name FROM entities")}
    first = dict(database.execute("SELECT key, name FROM entities ORDER BY id DESC").fetchall())
    keys = [name_key(name) for name in names]
    often = Counter(keys)
    return {
        name: name if name in here or often[key] > 1 else first.get(key, name)
        for name, key in zip(names, keys, strict=True)
    }


def _renamed(extract: Extract, names: Mapping[str, str]) -> Extract:
    statements = (replace(one, head=names[one.head], tail=names[one.tail]) for one in extract.statements)
    mentions = (replace(one, entity=names[one.entity]) for one in extract.mentions)
    return replace(extract, statements=tuple(statements), mentions=tuple(mentions))


def extracts_of(store: Knowledge) -> Iterator[Extract]:
    """Read the extracts of a store's chunks, in order. Failed chunks are left out."""
    statements_of = (
        "SELECT triple, strength, h.name, r.name, t.name, segment, time, description FROM statements"
        " JOIN triples ON triples.id = triple"
        " JOIN entities h ON h.id = head JOIN relations r ON r.id = relation JOIN entities t ON t.id = tail"
        " WHERE chunk = ? ORDER BY triple, segment"
    )
    keys_of = "SELECT triple, text FROM statement_keys JOIN keys ON id = key WHERE chunk = ? ORDER BY triple, key"
    themes_of = "SELECT text, segment FROM themes JOIN keys ON id = key WHERE chunk = ? ORDER BY key, segment"
    mentions_of = (
        "SELECT name, segment, kind, description FROM mentions JOIN entities ON id = entity WHERE chunk = ?"
        " ORDER BY entity, segment"
    )
    for number, digest in list(store.rows("SELECT id, digest FROM chunks WHERE failed IS NULL ORDER BY id")):
        keys: dict[int, list[str]] = defaultdict(list)
        for triple, key in store.rows(keys_of, number):
            keys[triple].append(key)
        statements = []
        for triple, strength, *stated in store.rows(statements_of, number):
            one = Statement(*stated)
            others = tuple(key for key in keys[triple] if key != one.relation)
            statements.append(replace(one, keys=others, strength=strength))
        mentions = [Mention(*row) for row in store.rows(mentions_of, number)]
        themes = [Theme(*row) for row in store.rows(themes_of, number)]
        yield Extract(digest, MERGED, tuple(statements), tuple(mentions), tuple(themes), exact=True)
