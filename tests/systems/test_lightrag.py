"""LightRAG beside a loop written from its paper and the authors' code, over names and dictionaries: the same
entities, relations and texts, in the same order."""

from collections import Counter
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import Scripted, run
from word_vectors import WordVectors

from pyfast.corpus import TextDocument
from pyfast.engine import Question
from pyfast.knowledge import Extract, Session, Statement, add_extracts
from pyfast.knowledge.extracts import Mention
from pyfast.retrieval import build_index

QUESTION = "Who discovered the moon that Huygens landed on?"
KEYWORDS = [
    {"detailed": ["Titan", "Huygens"], "general": ["discoverer", "landing"]},
    {"detailed": ["Apollo 11"], "general": []},
    {"detailed": [], "general": ["orbits"]},
    {"detailed": ["Mars", "country"], "general": ["launched by", "mission"]},
]


class Paper:
    def __init__(self, session: Session, k: int) -> None:
        self.store, self.index, self.k, self.vectors = session.store, session.index, k, WordVectors()
        self.triples = [self.store.triple(at) for at in range(len(self.store))]
        by_id = {int(self.index.corpus.ids[at]): row for row, at in enumerate(self.index.passages.tolist())}
        sources = self.store.sources(range(len(self.triples)))
        self.stated = [[by_id[one] for one in ids if one in by_id] for ids in sources]
        mentions = self.store.mentions(range(len(self.store.entities)))
        self.described = [[by_id[one] for one in ids if one in by_id] for ids in mentions]
        self.degree = Counter(name for head, _, tail in self.triples for name in {head, tail})

    def near(self, names: list[str], query: str) -> list[int]:
        cosines = self.vectors.encode(names) @ self.vectors.encode([query])[0]
        order = np.argsort(-cosines.round(6), kind="stable")[: self.k].tolist()
        return [at for at in order if cosines[at] > 0]

    def ranked(self, triples: Any) -> list[int]:
        def worth(at: int) -> tuple[int, int]:
            head, _, tail = self.triples[at]
            return -(self.degree[head] + self.degree[tail]), at

        return sorted(set(triples), key=worth)

    def local(self, words: list[str]) -> tuple[list[str], list[int], list[int]]:
        entities = [self.store.entities[at] for at in self.near(list(self.store.entities), ", ".join(words))]
        of_each = {
            e: self.ranked(at for at, one in enumerate(self.triples) if e in (one[0], one[2])) for e in entities
        }
        texts = []
        for entity, around in of_each.items():
            stating = Counter(text for at in around[:20] for text in self.stated[at])
            texts += [text for text, _ in stating.most_common()]
            texts += self.described[self.store.entities.index(entity)]
        return entities, self.ranked(chain(*(around[:100] for around in of_each.values()))), texts

    def of_themes(self, words: list[str]) -> tuple[list[str], list[int], list[int]]:
        query, found = ", ".join(words), dict[int, None]()
        for key in self.near(list(self.store.keys), query):
            vector = self.vectors.encode([query])[0]
            found |= dict.fromkeys(self.store.triples_of_key(key, vector, 100).tolist())
        triples = self.ranked(list(found)[: self.k])
        ends = [name for at in triples for name in (self.triples[at][0], self.triples[at][2])]
        return list(dict.fromkeys(ends)), triples, [text for at in triples for text in self.stated[at]]


def in_turn(lists: list[list[Any]]) -> list[Any]:
    return list(dict.fromkeys(one for one in chain(*zip_longest(*lists)) if one is not None))


def parts(user: str) -> dict[str, list[str]]:
    text = user.partition("Evidence:\n")[2].rpartition("\n\nQuestion: ")[0]
    return {part.split("\n")[0]: part.split("\n")[1:] for part in text.split("\n\n")}


@pytest.mark.parametrize("said", KEYWORDS, ids=str)
@pytest.mark.parametrize("mode", ["local", "global", "hybrid", "mix"])
@pytest.mark.parametrize("k", [5, 60])
def test_it_is_the_method_of_its_paper(known: Session, said: dict[str, list[str]], mode: str, k: int) -> None:
    llm = Scripted(keywords=said, answer={"answer": "Huygens"})
    (record,) = run(known.index, llm, [QUESTION], "lightrag", session=known, mode=mode, k=str(k))
    paper = Paper(known, k)
    levels = []
    if said["detailed"] and mode != "global":
        levels.append(paper.local(said["detailed"]))
    if said["general"] and mode != "local":
        levels.append(paper.of_themes(said["general"]))
    if mode == "mix":
        (pool,) = known.index.search([QUESTION], 20)
        levels.append(([], [], pool.passages.tolist()))
    entities, triples, texts = ([list(dict.fromkeys(level[part])) for level in levels] for part in range(3))
    assert record.trace["entities"] == in_turn(entities)
    assert record.trace["relations"] == [list(paper.triples[at]) for at in in_turn(triples)]
    shown = parts(llm.users("answer")[0])
    assert shown.get("Entities:", []) == record.trace["entities"][: len(shown.get("Entities:", []))]
    lines = [line.partition(" ")[2] for line in shown.get("Texts:", [])]
    assert lines == [known.index.text(text) for text in in_turn(texts)][: len(lines)]
    assert (
        len(record.evidence) == len(lines) and record.answer == "Huygens" and llm.kinds == ["keywords", "answer"]
    )
    if levels and mode != "mix":
        assert lines and shown["Relations:"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Two texts with relations and entities that an LLM would have described."""
    texts = ["Titan is a moon of Saturn.", "Huygens found Titan."]
    documents = [TextDocument(f"d{at}", "", text) for at, text in enumerate(texts)]
    index = build_index(documents, tmp_path_factory.mktemp("told") / "index")
    one, two = index.corpus.ids[index.passages].tolist()
    statements = (
        Statement("Titan", "is a moon of", "Saturn", one, description="Titan goes round Saturn.", strength=9),
        Statement(
            "Huygens", "found", "Titan", two, description="He saw it in 1655.", strength=5, keys=("discovery",)
        ),
    )
    mentions = (
        Mention("Titan", one, "moon", "the largest moon of Saturn"),
        Mention("Titan", two, "moon", "what Huygens found"),
    )
    extract = Extract("0" * 32, "llm", statements, mentions)
    return Session(index, add_extracts(index, WordVectors(), [extract]))


def test_descriptions_are_read_from_the_texts_that_a_question_may_use(told: Session) -> None:
    said = {"detailed": ["Titan"], "general": ["discovery"]}
    for documents in (("d0",), ("d1",), ("d0", "d1")):
        llm = Scripted(keywords=said, answer={"answer": "Huygens"})
        (record,) = run(told.index, llm, [Question("a", QUESTION, documents=documents)], "lightrag", session=told)
        shown = "\n".join(chain(*parts(llm.users("answer")[0]).values()))
        assert ("goes round Saturn" in shown) == ("largest moon" in shown) == ("d0" in documents)
        assert ("in 1655" in shown) == ("what Huygens found" in shown) == ("d1" in documents)
        assert {one["uri"] for one in record.evidence} == set(documents)


def test_switches_leave_parts_out_and_limits_hold(known: Session) -> None:
    llm = Scripted(keywords=KEYWORDS[0], answer={"answer": "Huygens"})
    run(known.index, llm, [QUESTION], "lightrag", session=known, source_text="off")
    given = {"entity_tokens": "100", "relation_tokens": "100", "text_tokens": "100"}
    run(known.index, llm, [QUESTION], "lightrag", session=known, **given)
    without, short = map(parts, llm.users("answer"))
    assert "Texts:" not in without and without["Relations:"]
    assert all(len("\n".join(lines)) <= 300 for lines in short.values()) and len(short) == 3


def test_without_keywords_the_question_is_searched(known: Session) -> None:
    for reply in ({"detailed": [], "general": []}, "?"):
        llm = Scripted(keywords=reply, answer={"answer": "Huygens"})
        (record,) = run(known.index, llm, [QUESTION], "lightrag", session=known)
        assert record.trace["keywords"] == {"detailed": [QUESTION], "general": [QUESTION]} and record.evidence


def test_without_a_graph_it_says_that_nothing_was_found(tmp_path: Path) -> None:
    index = build_index([TextDocument("a", "Moon", "the moon is far away")], tmp_path / "index")
    session = Session(index, add_extracts(index, WordVectors(), []))
    llm = Scripted(keywords=KEYWORDS[0], answer={"answer": "insufficient evidence"})
    (record,) = run(index, llm, [QUESTION], "lightrag", session=session)
    assert record.state == "abstained" and "(nothing was found)" in llm.users("answer")[0]


def test_a_long_answer_has_paragraphs(known: Session) -> None:
    llm = Scripted(keywords=KEYWORDS[0], long_answer={"paragraphs": ["It was Huygens.", "In 1655."]})
    (record,) = run(known.index, llm, [QUESTION], "lightrag", session=known, long_answer="on")
    assert record.answer == "It was Huygens.\n\nIn 1655."
