"""Knowledge units: what is found lies around what was looked for, stands in its source, and comes once."""

from pathlib import Path

import networkx
import numpy as np
import orjson
import pytest
from knowing import know
from scripted import run

from pyfast.corpus import read
from pyfast.knowledge import Session
from pyfast.llm.instant import Instant
from pyfast.retrieval import build_index
from pyfast.systems.mtqa.knowledge_units import Keywords, knowledge_units

SEARCHES = [
    Keywords(("Titan", "Christiaan Huygens"), ("discoverer",)),
    Keywords(("Saturn",)),
    Keywords((), ("named after",)),
    Keywords(("no such word",), ("nor such a relation",)),
]


def near(session: Session, keywords: Keywords, entities: int, relations: int) -> set[tuple[str, str, str]]:
    """The triples that may be found: slowly, by networkx, within two hops of what matches."""
    store = session.store
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(store.entities)))
    graph.add_edges_from(zip(store.head.tolist(), store.tail.tolist(), strict=True))
    starts = [store.search("entities", store.encode([word]), entities)[0][0] for word in keywords.detailed]
    seeds = {int(place) for places in starts for place in places}
    for word in keywords.general:
        for key in store.search("keys", store.encode([word]), relations)[0][0].tolist():
            triples = store.triples_of_key(key, store.encode([word])[0], 10**9)
            seeds |= {*store.head[triples].tolist(), *store.tail[triples].tolist()}
    reached = {node for seed in seeds for node in networkx.single_source_shortest_path_length(graph, seed, 1)}
    within = [i for i in range(len(store)) if {int(store.head[i]), int(store.tail[i])} & reached]
    return {store.triple(i) for i in within}


@pytest.mark.parametrize("keywords", SEARCHES, ids=str)
def test_units_lie_within_two_hops(known: Session, keywords: Keywords) -> None:
    (units,) = knowledge_units([keywords], known, 2, 2, 1000)
    found = [triple for unit in units for triple in unit.triples]
    assert found and len(found) == len(set(found)) and len({unit.passage for unit in units}) == len(units)
    assert set(found) <= near(known, keywords, 2, 2)


def test_every_triple_stands_in_its_source(known: Session) -> None:
    ids = known.index.corpus.ids[known.index.passages]
    store = known.store
    said = {
        (store.triple(i), segment) for i, ids_ in enumerate(store.sources(range(len(store)))) for segment in ids_
    }
    for units in knowledge_units(SEARCHES, known, 3, 3, 50):
        assert {(triple, int(ids[unit.passage])) for unit in units for triple in unit.triples} <= said


def test_what_is_named_comes_first(known: Session) -> None:
    (units,) = knowledge_units(SEARCHES[:1], known, 3, 3, 10)
    assert units[0].triples[0] == ("Titan", "Discoverer", "Christiaan Huygens")
    assert [unit.score for unit in units] == sorted((unit.score for unit in units), reverse=True)


def test_a_search_does_not_depend_on_its_company(known: Session) -> None:
    together = knowledge_units(SEARCHES * 3, known, 3, 3, 10)
    alone = [knowledge_units([search], known, 3, 3, 10)[0] for search in SEARCHES]
    assert together == alone * 3
    assert knowledge_units([Keywords(())], known, 3, 3, 10) == [[]]
    assert [len(units) for units in knowledge_units(SEARCHES, known, 3, 3, 2)] == [2] * 4


def test_facts_of_triples_and_around_entities(known: Session) -> None:
    store, facts = known.store, known.store.facts
    for triple, fact in enumerate(store.fact_of.tolist()):
        alike = (store.head == store.head[triple]) & (store.relation == store.relation[triple])
        assert not facts.by_tail[fact] and facts.of(fact).tolist() == np.flatnonzero(alike).tolist()
    for entities in ([5, 2, 2, 7], [], [0], [len(store.entities) - 1]):
        about, which = facts.around(np.array(entities, np.int32))
        slices = [facts.about[facts.about_offsets[i] : facts.about_offsets[i + 1]].tolist() for i in entities]
        assert about.tolist() == [fact for found in slices for fact in found]
        assert which.tolist() == [place for place, found in enumerate(slices) for _ in found]


@pytest.fixture(scope="module")
def hotpotqa(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, list[dict[str, object]]]:
    """The passages that 25 real questions rest on, each beside two others, with their knowledge."""
    folder = tmp_path_factory.mktemp("hotpotqa")
    lines = (data / "hotpotqa" / "questions.jsonl").read_bytes().splitlines()
    asked = [question for question in map(orjson.loads, lines) if question.get("supporting")][:25]
    gold = {uri for question in asked for uri in question["supporting"]}
    passages = [orjson.loads(line) for line in (data / "hotpotqa" / "corpus.jsonl").read_bytes().splitlines()]
    others = [passage for passage in passages if passage["id"] not in gold][: 2 * len(gold)]
    kept = [passage for passage in passages if passage["id"] in gold] + others
    (folder / "corpus.jsonl").write_bytes(b"\n".join(map(orjson.dumps, kept)))
    return know(build_index(read([folder / "corpus.jsonl"]), folder / "index")), asked


def test_real_passages_are_found_by_their_names(hotpotqa: tuple[Session, list[dict[str, object]]]) -> None:
    """Given a gold passage's title as keyword: units of its text are found, for all but a few."""
    session, asked = hotpotqa
    titles = sorted({str(uri) for question in asked for uri in question["supporting"]})  # type: ignore[attr-defined]
    found = knowledge_units([Keywords((title,)) for title in titles], session, 3, 3, 10)
    corpus, index = session.index.corpus, session.index
    uris = [{corpus.uri(int(corpus.source[index.passages[unit.passage]])) for unit in units} for units in found]
    hits = sum(title in here for title, here in zip(titles, uris, strict=True))
    assert len(titles) > 40 and hits >= 0.9 * len(titles), (hits, len(titles))


def test_real_questions_get_the_same_answers_with_any_concurrency(
    hotpotqa: tuple[Session, list[dict[str, object]]],
) -> None:
    session, asked = hotpotqa
    texts = [str(question["question"]) for question in asked]
    many, few = (
        [vars(record) for record in run(session.index, Instant(), texts, "mtqa", concurrency, session=session)]
        for concurrency in (25, 2)
    )
    assert many == few and all(record["evidence"] and record["state"] == "answered" for record in many)
