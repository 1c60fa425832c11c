"""HippoRAG 2 beside a slow loop written from its paper, over the entire graph: the same facts for the LLM, the
same seeds, the same ranks, the same passages read."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from knowing import know
from scripted import Scripted, run
from word_vectors import WordVectors

import pyfast.ops as ops
from pyfast.corpus import TextDocument
from pyfast.engine import Question
from pyfast.knowledge import Extract, Session, Statement, add_extracts
from pyfast.retrieval import Pool, build_index
from pyfast.systems.rivals.phrase_graph import Walk, ranked_passages

QUESTIONS = [
    "Who discovered the moon that Huygens landed on?",
    "Which planet does Titan circle?",
    "In which year was the commander of Apollo 11 born?",
    "Which country has the most Mars landers?",
    "moon of Jupiter discoverer",
]
Triple = tuple[str, str, str]


class Paper:
    """The method on the triples and passages of a session, by dictionaries of names and networkx."""

    def __init__(self, session: Session) -> None:
        store, index = session.store, session.index
        self.triples: list[Triple] = [store.triple(place) for place in range(len(store))]
        self.texts = [index.text(passage) for passage in range(len(index.passages))]
        by_id = {int(index.corpus.ids[segment]): at for at, segment in enumerate(index.passages.tolist())}
        self.stated = [
            [by_id[segment] for segment in segments if segment in by_id]
            for segments in store.sources(range(len(store)))
        ]
        self.index, self.names = index, list(store.entities)
        self.vectors = WordVectors()
        forward, backward = defaultdict(list), defaultdict(list)
        number = {name: at for at, name in enumerate([*self.names, *store.relations])}
        for at, (head, relation, tail) in enumerate(self.triples):
            forward[number[head], store.relations.index(relation)].append(at)
            backward[number[tail], store.relations.index(relation)].append(at)
        self.facts: list[tuple[str, list[int]]] = []
        for _, group in sorted(forward.items()):
            head, relation, _ = self.triples[group[0]]
            tails = ", ".join(self.triples[at][2] for at in group[:3])
            self.facts.append((f"{head} {relation} {tails}", group[:3]))
        for _, group in sorted(backward.items()):
            _, relation, tail = self.triples[group[0]]
            heads = ", ".join(self.triples[at][0] for at in group[:3])
            if len(group) > 1:
                self.facts.append((f"{tail}: {relation} of {heads}", group[:3]))

    def cosines(self, texts: list[str], to: str) -> Any:
        return self.vectors.encode(texts) @ self.vectors.encode([to])[0]

    def retrieved(self, question: str, most: int) -> list[tuple[float, list[int]]]:
        """The best facts, without the triples of better ones."""
        cosines = self.cosines([text for text, _ in self.facts], question)
        found, seen = list[tuple[float, list[int]]](), set[int]()
        for at in np.argsort(-cosines.round(6), kind="stable")[: 2 * most].tolist():
            new = [triple for triple in self.facts[at][1] if triple not in seen]
            seen |= set(new) if len(found) < most else set()
            found += [(float(cosines[at]), new)] if new and len(found) < most else []
        return found

    def seeds(self, kept: list[tuple[float, list[int]]], most: int) -> dict[str, float]:
        scores = defaultdict(list)
        for cosine, triples in kept:
            for triple in triples:
                for name in dict.fromkeys((self.triples[triple][0], self.triples[triple][2])):
                    scores[name].append(cosine)
        means = {name: sum(each) / len(each) for name, each in scores.items()}
        return dict(sorted(means.items(), key=lambda one: -one[1])[:most])

    def ranks(self, phrases: dict[str, float], pool: Pool, walk: Walk, weight: float) -> Any:
        """The rank of each passage."""
        graph = networkx.Graph()
        graph.add_nodes_from([*self.names, *range(len(self.texts))])
        for (head, _, tail), passages in zip(self.triples, self.stated, strict=True):
            if head != tail:
                before = graph.get_edge_data(head, tail, {"weight": 0})["weight"]
                graph.add_edge(head, tail, weight=before + 1)
            for passage in passages if walk.passage_nodes else ():
                graph.add_edge(passage, head, weight=1)
                graph.add_edge(passage, tail, weight=1)
        alike = defaultdict(float)
        for name in phrases if walk.synonyms < 1 else ():
            cosines = self.cosines(self.names, name)
            near = np.argsort(-cosines.round(6), kind="stable")[:21].tolist()
            for at in near:
                if cosines[at] >= walk.synonyms and self.names[at] != name:
                    alike[frozenset((name, self.names[at]))] = float(cosines[at])
        for (one, other), cosine in ((tuple(pair), cosine) for pair, cosine in alike.items()):
            before = graph.get_edge_data(one, other, {"weight": 0})["weight"]
            graph.add_edge(one, other, weight=before + cosine)
        restart: dict[Any, float] = dict(phrases)
        if walk.passage_nodes:
            best = max([score for _, score in pool], default=1)
            restart |= {passage: weight * score / best for passage, score in pool}
        found = networkx.pagerank(graph, walk.damping, restart, tol=1e-12, max_iter=1000)
        if walk.passage_nodes:
            return np.array([found[passage] for passage in range(len(self.texts))])
        contained = defaultdict(set)
        for (head, _, tail), passages in zip(self.triples, self.stated, strict=True):
            for passage in passages:
                contained[passage] |= {head, tail}
        return np.array([sum(found[name] for name in contained[at]) for at in range(len(self.texts))])


def shown(llm: Scripted, kind: str) -> list[str]:
    (user,) = llm.users(kind)
    return user.removeprefix("Facts:\n").rpartition("\n\nQuestion: ")[0].split("\n")


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"recognition": "off", "k": "9"},
        {"passage_nodes": "off", "facts": "3"},
        {"linking": "phrases", "phrases": "3", "synonyms": "0.5"},
        {"synonyms": "1", "damping": "0.85", "seeds": "7", "passage_weight": "0.5"},
    ],
    ids=str,
)
def test_it_is_the_method_of_its_paper(known: Session, question: str, given: dict[str, str]) -> None:
    paper, useful = Paper(known), [2, 1, 77]
    values = {"facts": 5, "phrases": 5, "k": 5, "seeds": 100, "passage_weight": 0.05, **given}
    facts, most, k, seeds = (int(values[name]) for name in ("facts", "phrases", "k", "seeds"))
    llm = Scripted(recognise={"useful": useful}, answer={"answer": "Titan"})
    (record,) = run(known.index, llm, [question], "hipporag", session=known, **given)

    by_phrases, recognises = given.get("linking") == "phrases", given.get("recognition") != "off"
    calls = ["recognise", "answer"] if recognises and not by_phrases else ["answer"]
    assert llm.kinds == calls and record.answer == "Titan" and record.trace["ranked_by"] == "graph"
    if by_phrases:
        cosines = paper.cosines(paper.names, question)
        phrases = {paper.names[at]: cosines[at] for at in np.argsort(-cosines.round(6), kind="stable")[:most]}
    else:
        found = paper.retrieved(question, facts)
        said = [[list(paper.triples[at]) for at in triples] for _, triples in found]
        assert [fact["triples"] for fact in record.trace["facts"]] == said
        kept = [one for number, one in enumerate(found, start=1) if number in useful or not recognises]
        assert [fact["useful"] for fact in record.trace["facts"]] == [one in kept for one in found]
        phrases = paper.seeds(kept, most)
        if recognises:
            lines = [line.partition(". ") for line in shown(llm, "recognise")]
            assert [number for number, _, _ in lines] == [str(at + 1) for at in range(len(found))]
            for (_, _, line), triples in zip(lines, said, strict=True):
                assert {name for triple in triples for name in triple} == {
                    name for part in line.split(" | ") for name in part.split("; ")
                }
    assert [name for name, _ in record.trace["phrases"]] == list(phrases)
    np.testing.assert_allclose(
        [weight for _, weight in record.trace["phrases"]], list(phrases.values()), atol=1e-6
    )

    walk = Walk(given.get("passage_nodes") != "off", float(values.get("synonyms", 0.8)), 0.5, 10**6, k)
    walk = walk._replace(damping=float(values.get("damping", 0.5)))
    (pool,) = paper.index.search([question], max(seeds, k))
    ranks = paper.ranks(phrases, pool.head(seeds), walk, float(values["passage_weight"]))
    lines = llm.users("answer")[0].partition("Evidence:\n")[2].rpartition("\n\nQuestion: ")[0].split("\n")
    read = [paper.texts.index(line.partition(" ")[2]) for line in lines]
    scores = [one["score"] for one in record.trace["steps"][0]["evidence"]]
    assert len(read) == len(set(read)) == len(record.evidence) == min(k, int((ranks > 1e-9).sum()))
    np.testing.assert_allclose(ranks[read], np.sort(ranks)[::-1][: len(read)], atol=1e-7)
    np.testing.assert_allclose(scores, ranks[read], atol=6e-5)  # A trace has four decimals.


def test_without_useful_facts_it_reads_what_a_search_finds(known: Session) -> None:
    llm = Scripted(recognise={"useful": []}, answer={"answer": "Titan"})
    (record,) = run(known.index, llm, QUESTIONS[:1], "hipporag", session=known)
    (pool,) = known.index.search(QUESTIONS[:1], 5)
    assert [known.index.text(passage) for passage, _ in pool] == [
        line.partition(" ")[2]
        for line in llm.users("answer")[0].partition("Evidence:\n")[2].rpartition("\n\n")[0].split("\n")
    ]
    assert record.trace["ranked_by"] == "search" and record.trace["phrases"] == []
    assert len(llm.calls) == 2


def test_without_triples_it_reads_what_a_search_finds(tmp_path: Path) -> None:
    index = build_index([TextDocument("a", "Moon", "the moon is far away")], tmp_path / "index")
    session = know(index)
    assert not len(session.store)
    llm = Scripted(answer={"answer": "far"})
    (record,) = run(index, llm, ["Where is the moon?"], "hipporag", session=session)
    assert record.trace["ranked_by"] == "search" and len(record.evidence) == 1
    assert llm.kinds == ["answer"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """3,000 passages with triples of 2,000 entities, some of which are in many."""
    drawn = random.Random(7)
    documents = [TextDocument(f"{at}", f"Note {at}", f"Note {at}.") for at in range(3000)]
    index = build_index(documents, tmp_path_factory.mktemp("large") / "index")
    ids = index.corpus.ids[index.passages].tolist()
    statements = [
        Statement(f"entity {int(2000 * drawn.random() ** 2)}", "meets", f"entity {drawn.randrange(2000)}", segment)
        for segment in ids
        for _ in range(3)
    ]
    return Session(index, add_extracts(index, WordVectors(), [Extract("0" * 32, "learned", tuple(statements))]))


def test_the_part_of_the_graph_around_the_seeds_is_enough(large: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has few nodes, and its best passages are those of the entire graph."""
    sizes: list[int] = []
    whole = ops.pagerank

    def counted(graph: Any, *given: Any) -> Any:
        sizes.extend(np.diff(graph.pool_offsets).tolist())
        return whole(graph, *given)

    monkeypatch.setattr(ops, "pagerank", counted)
    drawn = random.Random(3)
    degree = np.bincount(np.concatenate([large.store.head, large.store.tail]))
    rare = np.flatnonzero(degree < 12).tolist()
    items = []
    for _ in range(40):
        phrases = tuple((entity, drawn.uniform(0.2, 0.9)) for entity in drawn.sample(rare, 5))
        passages = np.array(drawn.sample(range(3000), 20), np.int32)
        items.append((large, phrases, Pool(passages, np.linspace(0.05, 0.01, 20, dtype=np.float32))))
    walk = Walk(True, 1.0, 0.5, 10**6, 5)
    entire = ranked_passages(items, large.store, walk)
    assert min(sizes) > 4000
    sizes.clear()
    bounded = ranked_passages(items, large.store, walk._replace(nodes=1000))
    assert sizes == [1000] * 40
    shared = [
        len(set(a.passages.tolist()) & set(b.passages.tolist())) for a, b in zip(entire, bounded, strict=True)
    ]
    assert sum(shared) >= 0.97 * 5 * 40
    alone = [ranked_passages([item], large.store, walk._replace(nodes=1000))[0] for item in items]
    for one, other in zip(alone, bounded, strict=True):
        assert one.passages.tobytes() == other.passages.tobytes()
        assert one.scores.tobytes() == other.scores.tobytes()


def test_it_writes_the_same_in_any_batch(known: Session) -> None:
    def records(concurrency: int) -> list[Any]:
        llm = Scripted(recognise={"useful": [1, 2, 4]}, answer={"answer": "Titan"})
        asked = [Question(f"{at}", QUESTIONS[at % 5] + " moon" * (at // 5)) for at in range(20)]
        found = run(known.index, llm, asked, "hipporag", concurrency, known)
        return [(record.id, record.answer, record.trace, record.evidence) for record in found]

    assert records(1) == records(20)


def test_a_question_s_documents_alone_are_linked_and_read(known: Session) -> None:
    index = known.index
    uris = sorted({index.uri(passage) for passage in range(len(index.passages))})
    titan = [uri for uri in uris if "titan" in uri.lower()][:1] + uris[:2]
    for linking in ("triples", "phrases"):
        llm = Scripted(recognise={"useful": [1, 2, 3, 4, 5]}, answer={"answer": "Titan"})
        question = Question("a", QUESTIONS[0], documents=tuple(titan))
        (record,) = run(index, llm, [question], "hipporag", session=known, linking=linking, synonyms="0")
        assert {one["uri"] for one in record.evidence} <= set(titan) and record.evidence
        ids = [
            int(index.corpus.ids[segment]) for at, segment in enumerate(index.passages) if index.uri(at) in titan
        ]
        inside = [known.store.triple(int(at)) for at in known.store.stated_in(ids)]
        for fact in record.trace.get("facts", ()):
            assert all(tuple(triple) in inside for triple in fact["triples"])
        names = {name for head, _, tail in inside for name in (head, tail)}
        assert {name for name, _ in record.trace["phrases"]} <= names
