"""Export the knowledge graph as GraphML or N-Triples, for other tools."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from pyfast.errors import InputError
from pyfast.knowledge.store import Knowledge
from pyfast.retrieval.embeddings import INSTALL

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def export_graph(store: Knowledge, path: Path) -> None:
    """Write a knowledge graph to a file.

    Args:
        store: The knowledge.
        path: The file. Its suffix chooses the format: `.graphml` or `.nt` (N-Triples).

    Raises:
        InputError: The file has another suffix, or a package for the format is not installed.
    """
    try:
        if path.suffix == ".graphml":
            _graphml(store, path)
        elif path.suffix == ".nt":
            _ntriples(store, path)
        else:
            raise InputError(f"{path}: the file name must end in .graphml or .nt")
    except ImportError as error:
        raise InputError(f"{error.name} is not installed: {INSTALL}") from None


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
    as `urn:pyfast:relation:orbits`. The URN has the name as its label (`rdfs:label`). The times of triples
    are left out.
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
