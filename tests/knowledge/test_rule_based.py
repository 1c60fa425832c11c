"""Knowledge without a model: what rows, links and sentences give."""

from pathlib import Path

import pytest

from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Triple, read
from pyfast.knowledge import extract_by_rules
from pyfast.knowledge.names import is_named_in, name_key
from pyfast.knowledge.rule_based import name_spans, triples_of_sentence
from pyfast.retrieval import Index, build_index

TABLE = Table(
    "t",
    "Moons",
    "",
    ("No", "Name", "", "Planet"),
    (("1", "Io", "rocky", "Jupiter"), ("2", "3", "", ""), ("4", "Triton", "", " Neptune ", "extra")),
    ((0, 3, "j"), (2, 1, "triton")),
)
TEXTS = [TextDocument("j", "Jupiter (planet)", "It is large."), TextDocument("triton", "Triton", "A moon.")]


def said(index: Index) -> set[tuple[str, str, str]]:
    return {(s.head, s.relation, s.tail) for extract in extract_by_rules(index) for s in extract.statements}


def test_rows_and_links(tmp_path: Path) -> None:
    assert said(build_index([TABLE, *TEXTS], tmp_path / "i")) == {
        ("Io", "No", "1"),
        ("Io", "has", "rocky"),
        ("Io", "Planet", "Jupiter"),
        ("Io", "is listed in", "Moons"),
        ("Jupiter", "is described in", "Jupiter (planet)"),
        ("Triton", "No", "4"),
        ("Triton", "Planet", "Neptune"),
        ("Triton", "has", "extra"),
        ("Triton", "is listed in", "Moons"),
    }


def test_triples_as_they_stand(tmp_path: Path) -> None:
    triples = (Triple("a b", "r_s", "c", "1999"), Triple("A  b", "r_s", "c"), Triple(" ", "r", "c"))
    index = build_index([KnowledgeGraph("k", "K", triples)], tmp_path / "i")
    statements = [s for extract in extract_by_rules(index) for s in extract.statements]
    assert {(s.head, s.relation, s.tail, s.time) for s in statements} == {
        ("a b", "r_s", "c", "1999"),
        ("A  b", "r_s", "c", ""),
    }
    by_id = {int(index.corpus.ids[place]): index.corpus.content(place) for place in index.passages.tolist()}
    assert all(f"{s.head} {s.relation} {s.tail}" in by_id[s.segment] for s in statements)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Marie Curie was born in Warsaw.", [("Marie Curie", "was born in", "Warsaw")]),
        (
            "She saw Paris and Kraków.",
            [("T", "she saw", "Paris"), ("T", "she saw", "Kraków")],
        ),
        ("In 1898 she left Oslo.", [("T", "in", "1898"), ("T", "she left", "Oslo")]),
        ("Ada joined the University of Oslo.", [("Ada", "joined", "University of Oslo")]),
        ("nothing at all", []),
        ("", []),
        ("Ada " + "and so on " * 9 + "Bob", []),
    ],
)
def test_sentences(sentence: str, expected: list[tuple[str, str, str]]) -> None:
    assert list(triples_of_sentence(sentence, "T")) == expected


def test_marks_and_addresses_of_markdown_are_no_names(tmp_path: Path) -> None:
    sentences = (
        "Caf&eacute; Roma belongs to **AT&amp;T**.",
        "Oskar Berg met [Ada Lund](https://en.wiki.org/wiki/Ada_(Lund) 'Lund'), see https://en.wiki.org/Bad_Name.",
    )
    (tmp_path / "a.md").write_text("\n\n".join(sentences))
    assert said(build_index(read([tmp_path / "a.md"]), tmp_path / "i")) == {
        ("Caf\u00e9 Roma", "belongs to", "AT&T"),
        ("Oskar Berg", "met", "Ada Lund"),
    }


def test_names_of_any_text_lie_in_order(examples: Path) -> None:
    for path in sorted((examples / "corpus").rglob("*.md")):
        for line in path.read_text().splitlines():
            ends = [0, *(place for span in name_spans(line) for place in span)]
            assert ends == sorted(ends)
            assert all(line[a].isalnum() and line[b - 1].isalnum() for a, b in name_spans(line))


def test_whole_words_alone_are_named() -> None:
    said = name_key("Ann saw Wyoming in 1969; O'Neill's (late) war. 東京タワーは赤い。")
    for name in ("Ann", "wyoming", "1969", "O'Neill", "(late) war", "東京", "タワー"):
        assert is_named_in(name_key(name), said), name
    for name in ("An", "omin", "196", "ar", "Neil", "in 19", "Anna"):
        assert not is_named_in(name_key(name), said), name
    assert not is_named_in("ar", "ar" * 20_000)
