"""The store: what it holds against the documents, its graph against networkx."""

import shutil
from typing import Any

import networkx
import numpy as np
import pytest
from word_vectors import WordVectors

from pyfast.corpus import KnowledgeGraph
from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge import (
    Extract,
    Knowledge,
    Mention,
    Statement,
    add_extracts,
    open_knowledge,
)
from pyfast.retrieval import Index

ONE = Extract("a", "test", (Statement("Ada", "knows", "Bob", 7, description="well", keys=("friends",)),))


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
    lines = {int(corpus.ids[place]): corpus.render(place) for place in index.passages.tolist()}
    for triple, place in triples.items():
        for segment in store.sources([place])[0]:
            assert triple[2] in lines[segment] or "is listed in" in triple


def test_a_fact_is_all_of_a_head_or_of_a_tail(store: Knowledge) -> None:
    facts, seen = store.facts, []
    for fact in range(len(facts)):
        places = facts.of(fact)
        shared = store.tail if facts.by_tail[fact] else store.head
        pairs = set(zip(shared[places].tolist(), store.relation[places].tolist(), strict=True))
        (pair,) = pairs
        everything = np.flatnonzero((shared == pair[0]) & (store.relation == pair[1]))
        np.testing.assert_array_equal(np.sort(places), everything)
        if not facts.by_tail[fact]:
            seen += places.tolist()
    assert sorted(seen) == list(range(len(store)))
    for entity in range(len(store.entities)):  # with the facts about it every statement about it is reached
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
    matrix = store.encode(store.texts("facts"))
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
    monkeypatch.setattr("pyfast.retrieval.vectors.vector_search.EXACT", 100)
    queries = store.encode(store.texts("facts")[::5])
    exact, _ = store.search("facts", queries, 1)
    coded = add_extracts(index, store.embedder, [ONE])  # type: ignore[arg-type]
    assert coded._vectors["facts"].codes is not None
    found, cosines = coded.search("facts", queries, 1)
    assert np.mean(cosines > 0.999) > 0.95
    alone = [coded.search("facts", query[None], 1)[1][0, 0] for query in queries]
    np.testing.assert_array_equal(cosines[:, 0], alone)
    assert len(exact) == len(found)


def test_a_name_in_other_letters_is_the_same_entity_but_a_graphs_own_stand(index: Index) -> None:
    other = Statement("ADA", "knows", " bob ", 8)
    exact = Extract("c", "test", (Statement("ada", "likes", "Bob", 9),), exact=True)
    store = add_extracts(index, WordVectors(), [ONE, Extract("b", "test", (other,)), exact])
    assert store.entities == ["Ada", "Bob", "ada"]
    assert [store.triple(i) for i in range(2)] == [("Ada", "knows", "Bob"), ("ada", "likes", "Bob")]
    assert store.sources([0, 1]) == [[7, 8], [9]]
    assert store.keys == ["knows", "friends", "likes"]
    query = store.encode(["ada"])[0]
    assert [store.triples_of_key(key, query, 10).tolist() for key in range(3)] == [[0], [0], [1]]
    assert store.entity("BOB") == 1 and store.entity("Carl") is None
    assert not store.find_triples("bob", "Knows", "ada") and store.find_triples("ada", "LIKES", "bob")


def test_names_in_a_text_are_the_longest(index: Index) -> None:
    said = [Statement("The Tempest", "written by", name, 1) for name in ("John", "John Gielgud", "tempest")]
    store = add_extracts(index, WordVectors(), [Extract("a", "test", tuple(said))])
    named = [store.entities[i] for i in store.entities_named_in("Was 'the tempest' John Gielgud's, or John?")]
    assert named == ["The Tempest", "John", "John Gielgud"]


def test_what_cannot_be_opened(index: Index, store: Knowledge) -> None:
    other = WordVectors()
    other.fingerprint = "another"  # type: ignore[misc]
    with pytest.raises(InputError, match="a different embedding model"):
        open_knowledge(index, other)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without an embedding model"):
        open_knowledge(index).encode(["text"])
    shutil.rmtree(index.folder / "knowledge")
    with pytest.raises(IndexFormatError, match="pyfast knowledge build"):
        open_knowledge(index)


def test_entities_that_a_text_names(store: Knowledge) -> None:
    for text in ("Was it *Neil Armstrong*?", "(neil  armstrong's) boots", "Neil Armstrong’s boots"):
        assert [store.entities[i] for i in store.entities_named_in(text)] == ["Neil Armstrong"], text
    assert store.entities_named_in("... - _ '") == []


def test_names_are_looked_for_in_any_text_in_linear_time(store: Knowledge) -> None:
    """Marks without end: what looks back at them all from each takes hours."""
    assert store.entities_named_in("x" + "-" * 2_000_000 + "x " + "- " * 200_000) == []


def test_of_a_key_of_many_triples_the_nearest_are_looked_at(index: Index) -> None:
    """Whatever their places: a slow look at all of them finds the same."""
    said = [
        Statement(f"Actor {i}", "starred in", f"Film {i} of {'war' if i % 7 else 'peace'}", 7) for i in range(300)
    ]
    store = add_extracts(index, WordVectors(), [Extract("a", "test", tuple(said))])
    query = store.encode(["Actor 287 Film 287 of peace"])[0]
    found = store.triples_of_key(0, query, 5).tolist()
    cosines = {i: float(store.cosines(store.fact_of[[i]], query)[0]) for i in range(300)}
    assert found == sorted(sorted(cosines, key=lambda i: (-cosines[i], i))[:5]) and 287 in found
    assert store.triples_of_key(0, query, 1000).tolist() == list(range(300))


def test_descriptions_belong_to_a_segment(index: Index) -> None:
    plain = Extract("p", "test", (Statement("Ada", "knows", "Bob", 7),))
    assert not add_extracts(index, WordVectors(), [plain]).is_described
    largest = (1 << 64) - 1  # In SQLite, it is a negative number.
    said = [
        Statement("Ada", "knows", "Bob", 7, description="She met him."),
        Statement("Ada", "knows", "Bob", largest),
        Statement("Bob", "owns", "Rex", 3, description="Rex is a dog."),
    ]
    about = [Mention("Ada", 7, "person", "A poet's daughter."), Mention("Ada", 3, "person", "")]
    store = add_extracts(index, WordVectors(), [Extract("a", "test", tuple(said), tuple(about))])
    assert store.is_described and store.sources([1, 0, 1]) == [[3], [7, largest], [3]]
    pairs = [(1, 3), (0, largest), (0, 7), (1, 7), (0, 7)]
    assert store.relation_descriptions(pairs) == ["Rex is a dog.", "", "She met him.", "", "She met him."]
    told = store.entity_descriptions([(1, 7), (0, 3), (0, 7)])
    assert told == [("", ""), ("person", ""), ("person", "A poet's daughter.")]
    assert store.mentions([1, 0]) == [[], [3, 7]] and store.times([0, 1]) == ["", ""]
    assert store.relation_descriptions([]) == store.sources([]) == store.entity_descriptions([]) == []
    np.testing.assert_array_equal(store.stated_in([largest, 5]), [0])


def test_triples_are_ranked_by_what_is_around_them(index: Index) -> None:
    said = [Statement("Ada", "likes", name, 1, strength=5 - at) for at, name in enumerate(("Bob", "Carl", "Dora"))]
    said += [Statement("Eve", "likes", "Carl", 2), Statement("Fay", "likes", "Guy", 3)]
    store = add_extracts(index, WordVectors(), [Extract("a", "test", tuple(said))])
    np.testing.assert_array_equal(store.ranked(np.arange(5, dtype=np.int32)), [1, 0, 2, 3, 4])
    np.testing.assert_array_equal(store.ranked(np.array([4, 2, 1], np.int32)), [1, 2, 4])
