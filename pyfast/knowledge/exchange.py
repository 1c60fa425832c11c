"""Knowledge that comes from elsewhere, and goes there: the union of stores; GraphML and N-Triples."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pyfast.errors import InputError
from pyfast.knowledge.records import Extract, Mention, Statement, Writer, key_of
from pyfast.knowledge.snapshots import change, has_knowledge
from pyfast.knowledge.store import Knowledge
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import INSTALL, Embedder

METHOD = "united"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def unite(index: Index, embedder: Embedder, other: Knowledge) -> Knowledge:
    """Add all that `other` knows to the store of an index; entities whose names mean the same are one.

    Its sources are segments of another index: they are kept, and cited only where this one has them too. A store
    that begins so has read none of this index's documents.
    """

    def write(database: sqlite3.Connection) -> None:
        meant = meant_by(other.entities, database)
        Writer(database).add(_renamed(extract, meant) for extract in extracts_of(other))

    return change(index, embedder, write, None if has_knowledge(index) else {"corpus": None})


def meant_by(names: Sequence[str], database: sqlite3.Connection) -> dict[str, str]:
    """For each name of another store's entities the one that its entity has in these records.

    That is the same name, or the first that differs in case or spaces alone; but what the other store tells apart
    by these stays apart.
    """
    here = {name for (name,) in database.execute("SELECT name FROM entities")}
    first = dict(database.execute("SELECT key, name FROM entities ORDER BY id DESC").fetchall())
    keys = [key_of(name) for name in names]
    often = Counter(keys)
    return {
        name: name if name in here or often[key] > 1 else first.get(key, name)
        for name, key in zip(names, keys, strict=True)
    }


def _renamed(extract: Extract, meant: Mapping[str, str]) -> Extract:
    statements = (replace(said, head=meant[said.head], tail=meant[said.tail]) for said in extract.statements)
    mentions = (replace(mention, entity=meant[mention.entity]) for mention in extract.mentions)
    return replace(extract, statements=tuple(statements), mentions=tuple(mentions))


def extracts_of(store: Knowledge) -> Iterator[Extract]:
    """What was read from each chunk of a store, in order; those that failed left out."""
    said = (
        "SELECT h.name, r.name, t.name, segment, time, description, k.text FROM statements"
        " JOIN triples ON triples.id = triple"
        " JOIN entities h ON h.id = head JOIN relations r ON r.id = relation JOIN entities t ON t.id = tail"
        " JOIN keys k ON k.id = statements.key WHERE chunk = ? ORDER BY triple, segment"
    )
    about = (
        "SELECT name, segment, kind, description FROM mentions JOIN entities ON id = entity WHERE chunk = ?"
        " ORDER BY entity, segment"
    )
    for number, digest in list(store.rows("SELECT id, digest FROM chunks WHERE failed IS NULL ORDER BY id")):
        statements = [
            Statement(head, relation, tail, segment, time, description, key.removeprefix(relation)[2:])
            for head, relation, tail, segment, time, description, key in store.rows(said, number)
        ]
        mentions = [Mention(*row) for row in store.rows(about, number)]
        yield Extract(digest, METHOD, tuple(statements), tuple(mentions), exact=True)


def export(store: Knowledge, path: Path) -> None:
    """Write the graph as GraphML (`.graphml`) or N-Triples (`.nt`). Raises `InputError` for another suffix."""
    try:
        if path.suffix == ".graphml":
            _graphml(store, path)
        elif path.suffix == ".nt":
            _ntriples(store, path)
        else:
            raise InputError(f"{path}: known by their suffixes are .graphml and .nt")
    except ImportError as error:
        raise InputError(f"{error.name} is not installed: {INSTALL}") from None


def _graphml(store: Knowledge, path: Path) -> None:
    import networkx

    graph = networkx.MultiDiGraph()
    for entity, name in enumerate(store.entities):
        graph.add_node(entity, name=_NO_XML.sub("\ufffd", name))
    times = store.times(range(len(store)))
    for triple, time in enumerate(times):
        relation = store.relations[store.relation[triple]]
        more = {"time": _NO_XML.sub("\ufffd", time)} if time else {}
        ends = int(store.head[triple]), int(store.tail[triple])
        graph.add_edge(*ends, key=triple, relation=_NO_XML.sub("\ufffd", relation), **more)
    networkx.write_graphml(graph, path)


def _ntriples(store: Knowledge, path: Path) -> None:
    """Entities and relations are URNs of their names, labelled with them. When a triple held is left out."""
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
