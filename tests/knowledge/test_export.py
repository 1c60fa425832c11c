"""Exported graphs, read back by the libraries whose formats they are."""

from pathlib import Path

import networkx
import pytest

from pyfast.errors import InputError
from pyfast.knowledge import (
    Knowledge,
    export_graph,
)


def test_export_is_read_back_by_the_libraries(store: Knowledge, tmp_path: Path) -> None:
    rdflib = pytest.importorskip("rdflib")
    triples = {store.triple(i) for i in range(len(store))}
    export_graph(store, tmp_path / "g.graphml")
    graph = networkx.read_graphml(tmp_path / "g.graphml", force_multigraph=True)
    name = dict(graph.nodes(data="name"))
    edges = graph.edges(data="relation")
    assert {(name[head], relation, name[tail]) for head, tail, relation in edges} == triples
    export_graph(store, tmp_path / "g.nt")
    read_back = rdflib.Graph().parse(tmp_path / "g.nt")
    label = {node: str(text) for node, text in read_back.subject_objects(rdflib.RDFS.label)}
    assert {(label[h], label[r], label[t]) for h, r, t in read_back if r != rdflib.RDFS.label} == triples
    with pytest.raises(InputError, match="must end in"):
        export_graph(store, tmp_path / "g.csv")
