"""Passages as retrieval and the LLM read them."""

import pytest
from corpus_strategies import documents
from hypothesis import HealthCheck, given, settings

from pyfast.corpus import Document, KnowledgeGraph, Table, TextDocument, Triple, encode


def rendered(document: Document) -> list[str]:
    corpus = encode([document])
    return [corpus.render(int(i)) for i in corpus.passages()]


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        ("Ann", "She won.", "Ann. She won."),
        ("Ann", "Ann won.", "Ann won."),
        ("", "She won.", "She won."),
        (" ", "She won.", "She won."),
        ("A\nB", "x \r\n  y\nz", "A B. x y z"),
    ],
)
def test_paragraphs(title: str, text: str, expected: str) -> None:
    assert rendered(TextDocument("u", title, text)) == [expected]


def test_rows() -> None:
    rows = (("1", "two\n2", " ", "4"), ("", "", "3"), ("a", "b"))
    assert rendered(Table("u", "T", "", ("A", "", "C"), rows)) == [
        "T | A: 1 | two 2 | 4",
        "T | C: 3",
        "T | A: a | b",
    ]
    assert rendered(Table("u", "", "S", (), (("x",),))) == ["S | x"]


def test_subgraphs() -> None:
    triples = (Triple("h", "part_of", "t"), Triple("h", "is", "x", "1999"), Triple("k", "is", "y", ""))
    assert rendered(KnowledgeGraph("u", "T", triples)) == ["h part of t; is x (1999)", "k is y"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents)
def test_every_unit_is_one_line_that_shows_something(given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    for i in corpus.passages().tolist():
        line = corpus.render(i)
        assert line.strip() and "\n" not in line and "\r" not in line
    for i in range(len(corpus)):
        corpus.render(i)  # anything can be asked for
