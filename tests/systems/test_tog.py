"""Think-on-Graph beside a loop written from its paper, over names and dictionaries: the same calls, paths and
answer. What the LLM says depends on what it gets."""

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from scripted import Scripted, run
from word_vectors import WordVectors

from pyfast.corpus import TextDocument
from pyfast.engine import Question
from pyfast.knowledge import Extract, Session, Statement, add_extracts
from pyfast.llm import Request
from pyfast.retrieval import build_index

TRIPLES = [
    *(("Ada", "wrote", f"Book {at}") for at in range(6)),
    *(("Ben", "wrote", f"Book {at}") for at in range(4, 9)),
    *((f"Book {at}", "was published by", f"House {at % 3}") for at in range(9)),
    *((f"Book {at}", "is about", ("birds", "ships")[at % 2]) for at in range(9)),
    *((f"House {at}", "stands in", ("Oslo", "Turin", "Oslo")[at]) for at in range(3)),
    ("Ada", "was born in", "Oslo"),
    ("Ben", "was born in", "Turin"),
    ("Oslo", "is a city of", "Norway"),
    ("Turin", "is a city of", "Italy"),
]
QUESTION = "In which country did Ada and Ben find a house for their books?"
Path_ = tuple[str, tuple[int, ...], float]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A graph of books, in which each triple has a text."""
    documents = [TextDocument(f"d{at}", "", f"{' '.join(triple)}.") for at, triple in enumerate(TRIPLES)]
    index = build_index(documents, tmp_path_factory.mktemp("books") / "index")
    ids = index.corpus.ids[index.passages].tolist()
    statements = tuple(Statement(*triple, segment) for triple, segment in zip(TRIPLES, ids, strict=True))
    return Session(index, add_extracts(index, WordVectors(), [Extract("0" * 32, "learned", statements)]))


def drawn(*of: object) -> int:
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=3).digest())


def said(kind: str, user: str, ends: int = 99) -> dict[str, Any]:
    """The reply to a prompt: lines with scores that depend on the prompt."""
    if kind == "keywords":
        return {"detailed": ["Ada", "Ben", "Book 4", "Ada"], "general": []}
    if kind == "verdict":
        return {"sufficient": drawn(user) % 3 == ends, "answer": "Norway"}
    count = sum(line.partition(".")[0].isdigit() for line in user.split("\n"))
    chosen = [{"number": at, "score": drawn(user, at) % 1000 / 1000} for at in range(1, count + 3)]
    return {"chosen": chosen[drawn(user) % 2 :]}


class Paper:
    """The loop of the paper. A path is its end, its triples and its score."""

    def __init__(self, width: int, depth: int, ends: int) -> None:
        self.width, self.depth, self.ends = width, depth, ends
        self.calls: list[tuple[str, str]] = []
        self.paths: list[list[tuple[int, ...]]] = []

    def ask(self, kind: str, user: str) -> dict[str, Any]:
        self.calls.append((kind, user))
        return said(kind, user, self.ends)

    def choose(self, kind: str, name: str, path: Path_, lines: list[str]) -> list[tuple[int, float]]:
        if len(lines) < 2:
            return [(at, 1.0) for at in range(len(lines))]
        before = "".join(" | ".join(TRIPLES[at]) + "\n" for at in path[1])
        user = f"Question: {QUESTION}\n\n" + (f"Path so far:\n{before}\n" if before else "")
        user += f"{name}:\n" + "\n".join(f"{at}. {line}" for at, line in enumerate(lines, 1))
        found = self.ask(kind, f"{user}\n\nChoose at most {min(self.width, len(lines))}.")["chosen"]
        best = [(one["number"] - 1, one["score"]) for one in found if one["number"] <= len(lines)]
        return sorted(best, key=lambda one: -one[1])[: self.width]

    def answer(self) -> str:
        names = list(dict.fromkeys(self.ask("keywords", QUESTION)["detailed"]))
        paths: list[Path_] = [(name, (), 1.0) for name in names[: self.width]]
        for _ in range(self.depth):
            relations = []
            for path in paths:
                end, triples, score = path
                counts = Counter((r, True) for h, r, _ in TRIPLES if h == end)
                counts.update((r, False) for _, r, t in TRIPLES if t == end)
                if triples:
                    counts.pop((TRIPLES[triples[-1]][1], TRIPLES[triples[-1]][0] == end), None)
                order = {r: at for at, r in enumerate(dict.fromkeys(r for _, r, _ in TRIPLES))}
                edges = sorted(counts, key=lambda e: (-counts[e], order[e[0]], e[1]))
                lines = [f"{end} | {r} | ?" if out else f"? | {r} | {end}" for r, out in edges]
                chosen = self.choose("choose_relations", "Relations", path, lines)
                relations += [(score * worth, path, edges[at]) for at, worth in chosen]
            longer: dict[tuple[int, ...], Path_] = {}
            for score, path, (relation, out) in sorted(relations, key=lambda one: -one[0])[: self.width]:
                side = 0 if out else 2
                behind = [at for at, one in enumerate(TRIPLES) if one[1] == relation and one[side] == path[0]]
                lines = [" | ".join(TRIPLES[at]) for at in behind]
                for at, worth in self.choose("choose_entities", "Facts", path, lines):
                    triples = (*path[1], behind[at])
                    longer[triples] = (TRIPLES[behind[at]][2 - side], triples, score * worth)
            paths = sorted(longer.values(), key=lambda path: -path[2])[: self.width]
            if not paths:
                break
            self.paths.append([path[1] for path in paths])
            facts = dict.fromkeys(" | ".join(TRIPLES[at]) for path in paths for at in path[1])
            verdict = self.ask("verdict", "Facts:\n" + "\n".join(facts) + f"\n\nQuestion: {QUESTION}")
            if verdict["sufficient"]:
                return str(verdict["answer"])
        self.calls.append(("direct", f"Question: {QUESTION}"))
        return "from memory"


def replies(ends: int) -> dict[str, Callable[[Request], Any]]:
    def reply(kind: str) -> Callable[[Request], Any]:
        return lambda request: said(kind, request.messages[-1].content, ends)

    kinds = ("keywords", "choose_relations", "choose_entities", "verdict")
    return {**{kind: reply(kind) for kind in kinds}, "direct": lambda request: {"answer": "from memory"}}


@pytest.mark.parametrize("width", [1, 2, 3, 6])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("ends", [0, 1, 99])
def test_it_is_the_loop_of_its_paper(graph: Session, width: int, depth: int, ends: int) -> None:
    paper = Paper(width, depth, ends)
    answer = paper.answer()
    llm = Scripted(**replies(ends))
    given = {"width": str(width), "depth": str(depth)}
    (record,) = run(graph.index, llm, [QUESTION], "tog", session=graph, **given)
    calls = [(kind, request.messages[-1].content) for kind, request in llm.calls]
    calls[0] = calls[0][0], calls[0][1].split("\n\nQuestion: ")[1]
    assert sorted(calls) == sorted(paper.calls)
    assert record.answer == answer and record.trace["topics"] == ["Ada", "Ben", "Book 4"][:width]
    assert record.trace["rounds"] == [
        [[list(TRIPLES[at]) for at in path] for path in paths] for paths in paper.paths
    ]
    assert len(calls) <= 2 + depth * (2 * max(width, 3) + 1)
    read = {f"d{at}" for path in paper.paths[-1] for at in path}
    by_graph = answer != "from memory"
    assert record.trace["answered_by"] == ("graph" if by_graph else "llm")
    assert {one["uri"] for one in record.evidence or ()} == (read if by_graph else set())


def test_entities_can_be_drawn(graph: Session) -> None:
    """ToG-R: the LLM chooses only relations, and a question always draws the same entities."""
    llm = Scripted(**replies(99))
    first, again = (run(graph.index, llm, [QUESTION], "tog", session=graph, entities="drawn")[0] for _ in range(2))
    assert "choose_entities" not in llm.kinds and "choose_relations" in llm.kinds
    assert first.trace == again.trace and first.trace["rounds"]


def test_of_many_entities_a_few_are_shown(graph: Session) -> None:
    llm = Scripted(**replies(99))
    run(graph.index, llm, [QUESTION], "tog", session=graph, candidates="3")
    facts = [
        user.partition("Facts:\n")[2].partition("\n\n")[0].split("\n") for user in llm.users("choose_entities")
    ]
    assert facts and max(map(len, facts)) == 3


def test_replies_that_are_not_usable_do_not_end_a_question(graph: Session) -> None:
    llm = Scripted(
        **{**replies(99), "choose_relations": "?", "choose_entities": "?", "verdict": "?", "keywords": "?"}
    )
    (record,) = run(graph.index, llm, [QUESTION], "tog", session=graph)
    assert record.answer == "from memory" and len(record.trace["rounds"]) == 3
    assert record.trace["topics"] and record.state == "answered"


def test_a_question_s_own_documents_have_their_triples_alone(graph: Session) -> None:
    llm = Scripted(**replies(0))
    documents = ("d0", "d11", "d20", "d29")
    (record,) = run(graph.index, llm, [Question("a", QUESTION, documents=documents)], "tog", session=graph)
    inside = [list(TRIPLES[int(uri[1:])]) for uri in documents]
    assert record.trace["rounds"]
    assert all(one in inside for paths in record.trace["rounds"] for path in paths for one in path)


def test_without_a_graph_the_llm_answers_from_what_it_knows(tmp_path: Path) -> None:
    index = build_index([TextDocument("a", "Moon", "the moon is far away")], tmp_path / "index")
    session = Session(index, add_extracts(index, WordVectors(), []))
    llm = Scripted(**replies(0))
    (record,) = run(index, llm, [QUESTION], "tog", session=session)
    assert llm.kinds == ["keywords", "direct"] and record.trace["answered_by"] == "llm"
