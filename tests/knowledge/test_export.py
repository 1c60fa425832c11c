"""Exported graphs, read back by the libraries whose formats they are."""

import logging
from pathlib import Path

import networkx
import pytest
from typer.testing import CliRunner
from word_vectors import WordVectors

from pyfast import build_index
from pyfast.commands.cli import app
from pyfast.corpus import KnowledgeGraph, Triple
from pyfast.errors import InputError
from pyfast.knowledge import Knowledge, add_extracts, export_graph, extract_by_rules


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


def test_times_that_a_format_has_no_place_for_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("rdflib")
    facts = (Triple("Titan", "visited by", "Cassini", "2004"), Triple("Titan", "orbits", "Saturn"))
    index = build_index([KnowledgeGraph("facts", "Facts", facts)], tmp_path / "IDX")
    add_extracts(index, WordVectors(), extract_by_rules(index))
    said = {}
    for suffix in ("graphml", "nt"):
        with caplog.at_level(logging.WARNING, "pyfast"):
            out = str(tmp_path / f"g.{suffix}")
            assert (
                CliRunner().invoke(app, ["knowledge", "export", str(tmp_path / "IDX"), "--out", out]).exit_code
                == 0
            )
        said[suffix] = [one.getMessage() for one in caplog.records]
    told = f"{tmp_path / 'g.nt'}: N-Triples cannot store times; triples that lost their time: 1"
    assert said == {"graphml": [], "nt": [told]}
    assert "2004" in (tmp_path / "g.graphml").read_text() and "2004" not in (tmp_path / "g.nt").read_text()
