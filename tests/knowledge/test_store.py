"""The store: what it holds against the documents, its graph against networkx, its snapshots against kills."""

import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from word_vectors import WordVectors

from pyfast.corpus import KnowledgeGraph, read
from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge import (
    Extract,
    Knowledge,
    Statement,
    Writer,
    change,
    open_knowledge,
    open_session,
    read_straight,
    snapshots,
)
from pyfast.knowledge.exchange import export, unite
from pyfast.retrieval import Index, build_index

ONE = Extract("a", "test", (Statement("Ada", "knows", "Bob", 7, description="well", keywords="friends"),))


def add(*extracts: Extract) -> Any:
    return lambda database: Writer(database).add(extracts)


def graph_of(store: Knowledge) -> Any:
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(store.entities)))
    graph.add_edges_from(zip(store.head.tolist(), store.tail.tolist(), strict=True))
    return graph


def test_triples_of_graphs_are_all_there_with_their_sources(index: Index, store: Knowledge) -> None:
    corpus = index.corpus
    graphs = [corpus.document(i) for i in range(corpus.documents)]
    wanted = {
        (t.head, t.relation.replace("_", " "), t.tail)
        for graph in graphs
        if isinstance(graph, KnowledgeGraph)
        for t in graph.triples
    }
    triples = {store.triple(i): i for i in range(len(store))}
    assert wanted and wanted <= triples.keys()
    lines = {int(corpus.ids[place]): corpus.render(place) for place in index.units.tolist()}
    for triple, place in triples.items():
        for segment in store.sources([place])[0]:
            assert triple[2] in lines[segment] or "is listed in" in triple


def test_a_fact_is_all_of_a_head_or_of_a_tail(store: Knowledge) -> None:
    facts, seen = store.facts, []
    for fact in range(len(facts)):
        places = facts.of(fact)
        shared = store.tail if facts.backward[fact] else store.head
        pairs = set(zip(shared[places].tolist(), store.relation[places].tolist(), strict=True))
        (pair,) = pairs
        everything = np.flatnonzero((shared == pair[0]) & (store.relation == pair[1]))
        np.testing.assert_array_equal(np.sort(places), everything)
        if not facts.backward[fact]:
            seen += places.tolist()
    assert sorted(seen) == list(range(len(store)))
    for entity in range(len(store.entities)):  # with the facts about it all that is said of it is reached
        about = facts.about[facts.about_offsets[entity] : facts.about_offsets[entity + 1]]
        reached = {place for fact in about for place in facts.of(fact).tolist()}
        assert reached >= set(np.flatnonzero((store.head == entity) | (store.tail == entity)).tolist())


@pytest.mark.parametrize("hops", [1, 2])
def test_neighbours_as_networkx_has_them(store: Knowledge, hops: int) -> None:
    graph = graph_of(store)
    entities = np.arange(len(store.entities), dtype=np.int32)[::3]
    for entity, found in zip(entities.tolist(), store.neighbours(entities, hops), strict=True):
        reached = networkx.single_source_shortest_path_length(graph, entity, cutoff=hops)
        assert found.tolist() == sorted(set(reached) - {entity})


def test_incident_triples(store: Knowledge) -> None:
    offsets, triples = store.incident
    for entity in range(len(store.entities)):
        expected = np.flatnonzero((store.head == entity) | (store.tail == entity))
        np.testing.assert_array_equal(triples[offsets[entity] : offsets[entity + 1]], expected)


def test_a_search_finds_the_nearest_whatever_comes_with_it(store: Knowledge) -> None:
    queries = store.encode(["Who commanded Apollo 11?", "the moons of Mars", "named after", ""] * 5)
    matrix = store.encode(store.wordings("facts"))
    places, cosines = store.search("facts", queries, 5)
    exact = np.sort(-(queries @ matrix.T), axis=1)[:, :5]
    np.testing.assert_allclose(-cosines, exact, atol=1e-6)
    for i in range(4):
        alone = store.search("facts", queries[i : i + 1], 5)
        np.testing.assert_array_equal(alone[0][0], places[i])
        np.testing.assert_array_equal(alone[1][0], cosines[i])


def test_codes_find_nearly_all_of_the_nearest(
    index: Index, store: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr("pyfast.knowledge.vectors.EXACT", 100)
    queries = store.encode(store.wordings("facts")[::5])
    exact, _ = store.search("facts", queries, 1)
    coded = change(index, store.embedder, add(ONE))  # type: ignore[arg-type]
    assert coded._vectors["facts"].codes is not None
    found, cosines = coded.search("facts", queries, 1)
    assert np.mean(cosines > 0.999) > 0.95
    alone = [coded.search("facts", query[None], 1)[1][0, 0] for query in queries]
    np.testing.assert_array_equal(cosines[:, 0], alone)
    assert len(exact) == len(found)


def test_a_name_in_other_letters_is_the_same_entity_but_a_graphs_own_stand(index: Index) -> None:
    other = Statement("ADA", "knows", " bob ", 8)
    exact = Extract("c", "test", (Statement("ada", "likes", "Bob", 9),), exact=True)
    store = change(index, WordVectors(), add(ONE, Extract("b", "test", (other,)), exact))
    assert store.entities == ["Ada", "Bob", "ada"]
    assert [store.triple(i) for i in range(2)] == [("Ada", "knows", "Bob"), ("ada", "likes", "Bob")]
    assert store.sources([0, 1]) == [[7, 8], [9]]
    assert store.keys == ["knows, friends", "knows", "likes"]
    assert [store.of_key(key, 10).tolist() for key in range(3)] == [[0], [0], [1]]
    assert store.entity("BOB") == 1 and store.entity("Carl") is None
    assert store.knows("bob", "Knows", "ada") is False and store.knows("ada", "LIKES", "bob")


def test_names_in_a_text_are_the_longest(index: Index) -> None:
    said = [Statement("The Tempest", "written by", name, 1) for name in ("John", "John Gielgud", "tempest")]
    store = change(index, WordVectors(), add(Extract("a", "test", tuple(said))))
    named = [store.entities[i] for i in store.named_in("Was 'the tempest' John Gielgud's, or John?")]
    assert named == ["The Tempest", "John", "John Gielgud"]


def test_a_text_is_encoded_once(index: Index, store: Knowledge) -> None:
    vectors = WordVectors()
    grown = change(index, vectors, add(ONE))
    assert sorted(vectors.encoded) == ["Ada", "Ada knows Bob", "Bob", "knows, friends"]
    np.testing.assert_array_equal(grown.matrix("facts"), WordVectors().encode(grown.wordings("facts")))


def test_nothing_new_is_no_new_snapshot(index: Index, store: Knowledge) -> None:
    again = change(index, WordVectors(), lambda database: Writer(database).add(read_straight(index)))
    assert again.folder == store.folder and again.fingerprint == store.fingerprint


def test_a_run_finds_the_snapshot_that_it_was_begun_with(index: Index, store: Knowledge) -> None:
    grown = change(index, WordVectors(), add(ONE))
    assert open_knowledge(index).fingerprint == grown.fingerprint != store.fingerprint
    assert open_knowledge(index, begun_with=store.fingerprint).fingerprint == store.fingerprint
    change(index, WordVectors(), add(Extract("b", "test", (Statement("C", "d", "E", 1),))))
    assert open_knowledge(index, begun_with=store.fingerprint).fingerprint != store.fingerprint  # it is gone


def test_a_change_that_fails_changes_nothing(index: Index, store: Knowledge) -> None:
    def broken(database: sqlite3.Connection) -> None:
        Writer(database).add([ONE])
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        change(index, WordVectors(), broken)
    assert open_knowledge(index).fingerprint == store.fingerprint
    assert sorted(path.name for path in (index.folder / "knowledge").iterdir()) == ["1", "current", "lock"]


@pytest.mark.parametrize("when", ["records", "vectors", "renamed"])
def test_killed_in_a_change(index: Index, store: Knowledge, when: str) -> None:
    """A real SIGKILL: while records are written, while vectors are, and just before the new snapshot is named."""
    child = os.fork()
    if not child:  # the child of a test must never come back into it
        try:
            if when == "renamed":
                snapshots._point_at = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            vectors = WordVectors()
            if when == "vectors":
                vectors.encode = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]

            def write(database: sqlite3.Connection) -> None:
                Writer(database).add([ONE])
                if when == "records":
                    os.kill(os.getpid(), signal.SIGKILL)

            change(index, vectors, write)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert open_knowledge(index).fingerprint == store.fingerprint
    grown = change(index, WordVectors(), add(ONE))
    assert open_knowledge(index).fingerprint == grown.fingerprint and "Ada" in grown.entities
    assert {path.name for path in (index.folder / "knowledge").iterdir()} == {"1", "2", "current", "lock"}


def test_a_damaged_file_is_refused(index: Index, store: Knowledge) -> None:
    chance = np.random.default_rng(5)
    for path in sorted(store.folder.iterdir()):
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[chance.integers(len(whole))] ^= 64
        path.write_bytes(damaged)
        with pytest.raises(IndexFormatError, match=r"damaged|format"):
            open_knowledge(index)
        path.write_bytes(whole)
    (index.folder / "knowledge" / "current").write_text("x")
    with pytest.raises(IndexFormatError, match="damaged"):
        open_knowledge(index)


def damage(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 64
    path.write_bytes(contents)


@pytest.mark.parametrize("damaged", ["2/records.sqlite", "2/facts.vectors.npy", "2/manifest.json", "current"])
def test_a_damaged_snapshot_is_put_aside_by_the_next_build(
    index: Index, store: Knowledge, damaged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody works with it, or with the one before unasked; the error says what to do, and that does it."""
    grown = change(index, WordVectors(), add(ONE))
    home = index.folder / "knowledge"
    if damaged == "current":
        (home / damaged).write_text("\0\0")
    else:
        damage(home / damaged)
    for attempt in (lambda: open_knowledge(index), lambda: change(index, WordVectors(), add(ONE))):
        with pytest.raises(IndexFormatError, match=rf"damaged.*`pyfast knowledge build {index.folder}`"):
            attempt()
    snapshots.mend(index)
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "damaged" in told
    left = grown if damaged == "current" else store  # only the name was damaged: nothing is lost
    assert open_knowledge(index).fingerprint == left.fingerprint
    assert (home / "2.damaged").exists() == (damaged != "current")
    assert change(index, WordVectors(), add(ONE)).fingerprint == grown.fingerprint
    snapshots.mend(index)
    assert capsys.readouterr().err == "" and open_knowledge(index).fingerprint == grown.fingerprint


def test_where_no_snapshot_is_whole_all_stays_as_it_is(index: Index, store: Knowledge) -> None:
    damage(store.folder / "records.sqlite")
    before = sorted(path.name for path in store.folder.parent.rglob("*"))
    with pytest.raises(IndexFormatError, match=rf"damaged.*remove {store.folder.parent} to begin anew"):
        snapshots.mend(index)
    assert sorted(path.name for path in store.folder.parent.rglob("*")) == before


def test_a_snapshot_is_on_the_disk_before_it_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file as it is to stay; then the folder's new name; then `current`, and its name."""
    done: list[tuple[str, str, int]] = []  # (what, path, bytes)
    fsync, rename = os.fsync, Path.rename

    def synced(file: int) -> None:
        fsync(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        done.append(("fsync", str(path), path.stat().st_size if path.is_file() else 0))

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", str(path), 0))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    store = change(index, WordVectors(), add(ONE))
    home = store.folder.parent
    built = done.index(("rename", str(home / "1.building"), 0))
    files = {("fsync", str(home / "1.building" / f.name), f.stat().st_size) for f in store.folder.iterdir()}
    assert len(files) > 5 and files | {("fsync", str(home / "1.building"), 0)} == set(done[:built])
    new = str(home / "current.new")
    assert done[built + 1 :] == [
        ("fsync", str(home), 0), ("fsync", new, 2), ("rename", new, 0), ("fsync", str(home), 0)
    ]  # fmt: skip


def test_what_cannot_be_opened(index: Index, store: Knowledge) -> None:
    other = WordVectors()
    other.fingerprint = "another"  # type: ignore[misc]
    with pytest.raises(InputError, match="another embedding model"):
        open_knowledge(index, other)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without an embedding model"):
        open_knowledge(index).encode(["text"])
    shutil.rmtree(index.folder / "knowledge")
    with pytest.raises(IndexFormatError, match="pyfast knowledge build"):
        open_knowledge(index)


def test_knowledge_stays_when_the_index_is_built_anew(index: Index, store: Knowledge, examples: Path) -> None:
    again = build_index(read([examples / "corpus"]), index.folder, overwrite=True)
    assert open_knowledge(again).fingerprint == store.fingerprint


def test_union(index: Index, store: Knowledge, small: Index, tmp_path: Path) -> None:
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    shutil.rmtree(other.folder / "knowledge", ignore_errors=True)
    first = change(other, WordVectors(), add(ONE))
    both = unite(index, WordVectors(), first)
    triples = {both.triple(i) for i in range(len(both))}
    assert triples == {store.triple(i) for i in range(len(store))} | {("Ada", "knows", "Bob")}
    ada = both.entity("Ada")
    assert ada is not None and both.keys[-1] == "knows, friends"
    assert unite(index, WordVectors(), first).fingerprint == both.fingerprint


def test_in_a_union_names_mean_what_they_mean_in_each_store(index: Index, small: Index, tmp_path: Path) -> None:
    """Case and spaces make no other entity, but where the other store tells two apart by them."""
    change(index, WordVectors(), add(ONE, Extract("e", "test", (Statement("ONE", "is", "eve", 1),))))
    said = [("ADA", "BOB  Ross"), ("bob", "Eve"), ("Zoe", "zoe"), ("Eve", "one"), ("Bob ross", "ada")]
    extract = Extract("o", "test", tuple(Statement(head, "met", tail, 9) for head, tail in said[:2]))
    exact = Extract("x", "test", tuple(Statement(head, "met", tail, 9) for head, tail in said[2:]), exact=True)
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    both = unite(index, WordVectors(), change(other, WordVectors(), add(extract, exact)))
    met = [both.triple(i) for i in range(len(both)) if both.triple(i)[1] == "met"]
    assert met[:2] == [("ADA", "met", "BOB Ross"), ("Bob", "met", "eve")]  # other has both ADA and ada
    assert sorted(met[2:]) == [("Bob ross", "met", "ada"), ("Zoe", "met", "zoe"), ("eve", "met", "ONE")]
    assert unite(index, WordVectors(), open_knowledge(other)).fingerprint == both.fingerprint


def test_a_union_is_not_of_documents_that_nobody_read(
    index: Index, small: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the index's own documents say is read by the next run, beside what came from elsewhere."""
    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    united = unite(index, WordVectors(), change(other, WordVectors(), add(ONE)))
    assert len(united) == 1 and united.manifest["corpus"] is None
    store = open_session(index, "words").store
    assert "bringing its knowledge up to date" in capsys.readouterr().err
    assert store.entity("Neil Armstrong") is not None and store.entity("Ada") is not None
    assert store.manifest["corpus"] == index.manifest["corpus"]
    assert unite(index, WordVectors(), united).fingerprint == store.fingerprint
    assert open_knowledge(index).manifest["corpus"] == index.manifest["corpus"]


def test_export_is_read_back_by_the_libraries(store: Knowledge, tmp_path: Path) -> None:
    rdflib = pytest.importorskip("rdflib")
    triples = {store.triple(i) for i in range(len(store))}
    export(store, tmp_path / "g.graphml")
    graph = networkx.read_graphml(tmp_path / "g.graphml", force_multigraph=True)
    name = dict(graph.nodes(data="name"))
    edges = graph.edges(data="relation")
    assert {(name[head], relation, name[tail]) for head, tail, relation in edges} == triples
    export(store, tmp_path / "g.nt")
    read_back = rdflib.Graph().parse(tmp_path / "g.nt")
    label = {node: str(text) for node, text in read_back.subject_objects(rdflib.RDFS.label)}
    assert {(label[h], label[r], label[t]) for h, r, t in read_back if r != rdflib.RDFS.label} == triples
    with pytest.raises(InputError, match="suffixes"):
        export(store, tmp_path / "g.csv")


def test_entities_that_a_text_names(store: Knowledge) -> None:
    for text in ("Was it *Neil Armstrong*?", "(neil  armstrong's) boots", "Neil Armstrong’s boots"):
        assert [store.entities[i] for i in store.named_in(text)] == ["Neil Armstrong"], text
    assert store.named_in("... - _ '") == []


def test_names_are_looked_for_in_any_text_in_linear_time(store: Knowledge) -> None:
    """Marks without end: what looks back at them all from each takes hours."""
    assert store.named_in("x" + "-" * 2_000_000 + "x " + "- " * 200_000) == []
