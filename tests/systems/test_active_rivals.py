"""FLARE and Adaptive-RAG beside loops written from their papers: the same calls, queries, passages and answers."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from loops import QUESTIONS, REASONED, Library, drawn, happened

from pyfast.retrieval import Index

LOOK_AHEAD = r"(?:Evidence:\n(.*)\n\n)?Question: ([^\n]*)\nYour sentences: (.*)"
QUERY = r"()Question: ([^\n]*)\nSentence: ([^\n]*)\nPart: (.*)"
CONCLUDE = r"()Notes:\n(.*)\n\nQuestion: (.*)"
Said = dict[str, Any]


def flare(
    library: Library, question: str, said: Iterator[Said], k: int, most: int, retrieve: str, query: str
) -> tuple[str, list[str]]:
    """The look-ahead sentence without passages, except for the first. Where it is uncertain, a search, and the
    sentence again from the passages of this search alone."""
    passages, sentences = library.search(question, k), list[str]()
    for _ in range(most):
        library.read("look_ahead", passages, question, " ".join(sentences) or "none yet")
        sentence, passages = next(said), []
        words = sentence["sentence"].split()
        uncertain = [word for word in words if word in sentence["unsure"]]
        if retrieve == "always" or (retrieve == "unsure" and uncertain):
            queries = [sentence["sentence"]]
            if query == "masked" and len(uncertain) < len(words):
                queries = [" ".join(word for word in words if word not in uncertain)]
            if query == "questions" and uncertain:
                for phrase in sentence["unsure"]:
                    library.read("query_for_phrase", [], question, sentence["sentence"], phrase)
                queries = [f"What is {phrase}?" for phrase in sentence["unsure"]]
            found = [library.search(one, k) for one in queries]
            merged = [ranking[rank] for rank in range(k) for ranking in found if rank < len(ranking)]
            library.read(
                "look_ahead", list(dict.fromkeys(merged))[:k], question, " ".join(sentences) or "none yet"
            )
            sentence = next(said)
        sentences.append(sentence["sentence"])
        if sentence["answer"]:
            return sentence["answer"], sentences
    library.read("conclude", [], " ".join(sentences), question)
    return "Saturn", sentences


def sentences_of(*seed: object, ends: int) -> list[Said]:
    """Sentences of different words, some of which are uncertain, and an answer beside one of them."""
    draw, text = random.Random(repr(seed)), drawn(*seed)
    said = []
    for at in range(30):
        words = list(dict.fromkeys(next(text).split()))
        unsure = words if draw.random() < 0.2 else words[: draw.choice([0, 0, 1, 2])]
        said.append({"sentence": " ".join(words), "unsure": unsure, "answer": "Titan" if at == ends else ""})
    return said


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("retrieve", ["unsure", "always", "never"])
@pytest.mark.parametrize("query", ["masked", "questions", "sentence"])
@pytest.mark.parametrize(("k", "most", "ends"), [(2, 8, 9), (3, 3, 99), (2, 8, 0)])
def test_flare_is_the_loop_of_its_paper(
    small: Index, question: str, retrieve: str, query: str, k: int, most: int, ends: int
) -> None:
    said = sentences_of(question, k, most, ends=ends)
    library = Library(small)
    answer, sentences = flare(library, question, iter(said), k, most, retrieve, query)
    given = {"k": str(k), "sentences": str(most), "retrieve": retrieve}
    given |= {"query": query} if retrieve != "never" else {}
    phrases = [event[4] for event in library.events if event[0] == "query_for_phrase"]
    replies = {
        "look_ahead": said,
        "query_for_phrase": [{"query": f"What is {phrase}?"} for phrase in phrases],
        "conclude": [{"answer": "Saturn"}],
    }
    parts = {"look_ahead": LOOK_AHEAD, "query_for_phrase": QUERY, "conclude": CONCLUDE}
    events, record = happened(small, question, "flare", replies, parts, **given)
    assert events == library.events
    assert (record.answer, record.trace["sentences"]) == (answer, sentences)
    read = {line for event in events if event[0] == "look_ahead" for line in event[1]}
    assert {piece["snippet"] for piece in record.evidence} == read or len(record.evidence) == len(read)


def test_flare_masks_whole_words_and_only_what_the_sentence_has(small: Index) -> None:
    said = [
        {"sentence": "Apollo 11 landed in 1969.", "unsure": ["1", "11", "Mars"], "answer": ""},
        {"sentence": "Apollo 11 landed in 1969.", "unsure": ["Apollo"], "answer": "1969"},
    ]
    events, record = happened(small, "When?", "flare", {"look_ahead": said}, {"look_ahead": LOOK_AHEAD})
    assert [event[1] for event in events if event[0] == "search"] == ["When?", "Apollo landed in 1969."]
    assert record.answer == "1969" and record.trace["steps"][1]["unsure"] == ["1", "11", "Mars"]


@pytest.mark.parametrize(
    ("unsure", "query"), [("HUYGENS", "landed on Titan."), ("its crew", "Huygens landed on Titan.")]
)
def test_flare_searches_whenever_the_llm_is_unsure(small: Index, unsure: str, query: str) -> None:
    """Also if the words do not stand in the sentence in this form."""
    said = {"sentence": "Huygens landed on Titan.", "unsure": [unsure], "answer": ""}
    replies = {"look_ahead": [said, {**said, "unsure": [], "answer": "Titan"}]}
    events, record = happened(small, "When?", "flare", replies, {"look_ahead": LOOK_AHEAD})
    assert [event[1] for event in events if event[0] == "search"] == ["When?", query]
    assert record.answer == "Titan" and record.trace["steps"][1]["unsure"] == [unsure]


def test_flare_answers_from_its_sentences_if_the_next_is_not_usable(small: Index) -> None:
    sentence = {"sentence": "Titan circles Saturn.", "unsure": [], "answer": ""}
    replies = {"look_ahead": [sentence, "?"], "conclude": [{"answer": "Saturn"}]}
    parts = {"look_ahead": LOOK_AHEAD, "conclude": CONCLUDE}
    events, record = happened(small, QUESTIONS[1], "flare", replies, parts)
    assert events[-1] == ("conclude", (), "Titan circles Saturn.", QUESTIONS[1])
    assert record.answer == "Saturn" and record.trace["sentences"] == ["Titan circles Saturn."]


def test_flare_answers_if_it_has_nothing_more_to_say(small: Index) -> None:
    said = [{"sentence": "", "unsure": [], "answer": ""}]
    replies = {"look_ahead": said, "conclude": [{"answer": "Saturn"}]}
    parts = {"look_ahead": LOOK_AHEAD, "conclude": CONCLUDE}
    events, record = happened(small, QUESTIONS[1], "flare", replies, parts)
    assert [event[0] for event in events] == ["search", "look_ahead", "conclude"]
    assert record.answer == "Saturn" and record.trace["sentences"] == []


SENTENCE = r"Evidence:\n(.*)\n\nQuestion: (.*)\nYour sentences: (.*)"
ASKED = r"()Question: (.*)"


def adaptive(library: Library, question: str, complexity: str, sentences: list[str], steps: int) -> None:
    """No search, one search of 5, or a search of 6 for each sentence, with 15 paragraphs at most."""
    library.read("classify", [], question)
    if complexity == "A":
        library.read("direct", [], question)
        return
    read, chain = library.search(question, 5 if complexity == "B" else 6), list[str]()
    while complexity == "C" and len(read) < 15 and len(chain) < steps:
        library.read("sentence", read, question, " ".join(chain) or "none yet")
        chain.append(sentences[len(chain)])
        read = list(dict.fromkeys([*read, *library.search(chain[-1], 6)]))[:15]
    library.read("reasoned_answer", read, question)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(("complexity", "steps"), [("A", 8), ("B", 8), ("C", 8), ("C", 1), ("?", 2)])
def test_adaptive_rag_takes_the_strategy_of_the_class(
    small: Index, question: str, complexity: str, steps: int
) -> None:
    """Where the class is not usable, the question counts as complex."""
    text = drawn(question, complexity)
    sentences = [f"A {next(text)}." for _ in range(9)]
    library = Library(small)
    adaptive(library, question, complexity.replace("?", "C"), sentences, steps)
    replies = {
        "classify": [{"complexity": complexity}],
        "direct": [{"answer": "Saturn"}],
        "sentence": [{"sentence": one} for one in sentences],
        "reasoned_answer": [{"reasoning": "", "answer": "Saturn"}],
    }
    parts = {"classify": ASKED, "direct": ASKED, "sentence": SENTENCE, "reasoned_answer": REASONED}
    events, record = happened(small, question, "adaptive_rag", replies, parts, steps=str(steps))
    assert events == library.events and record.answer == "Saturn"
    assert record.trace["complexity"] == complexity.replace("?", "C")
    assert len(record.evidence) == (len(events[-1][1]) if complexity != "A" else 0)


def test_adaptive_rag_shows_the_llm_as_many_passages_as_it_is_told(small: Index) -> None:
    """Also more than a question of class C collects."""
    replies = {"classify": [{"complexity": "B"}], "reasoned_answer": [{"reasoning": "", "answer": "Saturn"}]}
    parts = {"classify": ASKED, "reasoned_answer": REASONED}
    events, _ = happened(small, "Titan, a moon of Saturn?", "adaptive_rag", replies, parts, k="20")
    assert len(events[-1][1]) > 15


@pytest.mark.parametrize("complexity", ["A", "B", "C"])
def test_adaptive_rag_keeps_the_class_of_a_question_that_fails(small: Index, complexity: str) -> None:
    replies = {"classify": [{"complexity": complexity}], "direct": [{}], "sentence": [{}], "reasoned_answer": [{}]}
    parts = {"classify": ASKED, "direct": ASKED, "sentence": SENTENCE, "reasoned_answer": REASONED}
    _, record = happened(small, "When?", "adaptive_rag", replies, parts)
    assert record.state == "failed" and record.trace["complexity"] == complexity
    assert bool(record.evidence) == (complexity != "A")
