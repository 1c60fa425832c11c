"""Words of all kinds are found: each title finds its own document first, through changes of the index too."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest

import pyfast
from pyfast.corpus import KnowledgeGraph, Triple
from pyfast.corpus.encode import decode, encode
from pyfast.knowledge.names import is_named_in, name_key
from pyfast.retrieval import Index
from pyfast.systems.hseq.views import entity_links

TITLES = [
    "Beyonc\u00e9 Dufr\u00eane",
    "Jose\u0301 Nu\u0301n\u0303ez",
    "\u0141\u00f3d\u017a",
    "\ufb01sh \uff21\uff22\uff23",
    "Apollo 7",
    "Apollo 8",
    "Vitamin C",
    "Vitamin D",
    "AT&T",
    "H&M",
    "C++",
    "U.S.",
    "Henry V",
    "X",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0b9c\u0bc6\u0baf\u0bb2\u0bb2\u0bbf\u0ba4\u0bbe",
    "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0645\u064f\u062d\u0645\u0651\u064e\u062f",
]
QUERIES = {
    title: {title, *(unicodedata.normalize(form, title) for form in ("NFC", "NFD", "NFKC"))} for title in TITLES
}
QUERIES[TITLES[0]].add("beyonce dufrene")
QUERIES[TITLES[1]].add("Jose Nunez")
QUERIES[TITLES[2]].add("LODZ")
QUERIES[TITLES[-2]].add("\u05e9\u05dc\u05d5\u05dd")
QUERIES[TITLES[-1]].add("\u0645\u062d\u0645\u062f")


def documents() -> list[dict[str, Any]]:
    return [{"id": str(i), "title": title, "text": f"This is number {title}."} for i, title in enumerate(TITLES)]


def first(index: Index, question: str) -> str | None:
    (pool,) = index.search(question, 5)
    return index.uri(int(pool.passages[0])) if len(pool) else None


@pytest.mark.parametrize("tokenizer", ["words", "characters"])
def test_each_title_finds_its_own_document_first(tokenizer: Any, tmp_path: Path) -> None:
    pyfast.build_index(documents()[:9], tmp_path / "I", options=pyfast.IndexOptions(tokenizer=tokenizer))
    pyfast.add_documents(tmp_path / "I", documents()[9:])
    index = pyfast.open_index(tmp_path / "I")
    for i, title in enumerate(TITLES):
        for query in QUERIES[title]:
            assert first(index, query) == str(i), query
    assert [one.text for one in decode(index.corpus)] == [one["text"] for one in documents()]


def test_accents_can_be_kept(tmp_path: Path) -> None:
    index = pyfast.build_index(documents(), tmp_path / "I", options=pyfast.IndexOptions(accents="keep"))
    assert first(index, "Beyonce") is None and first(index, "Beyonce\u0301") == "0"
    assert pyfast.open_index(tmp_path / "I").analysis.accents == "keep"


def test_names_of_triples(tmp_path: Path) -> None:
    file = tmp_path / "triples.tsv"
    file.write_text("head\trelation\ttail\nBarack_Obama\tborn_in\tHonolulu\nOdda_FC\tplays_in\tOdda\n")
    said: list[Any] = []
    index = pyfast.build_index([file], tmp_path / "I", on_unread=lambda *unread: said.append(unread))
    assert [index.text(int(index.search(query, 5)[0].passages[0])) for query in ("Barack Obama", "odda")] == [
        "Barack Obama born in Honolulu",
        "Odda FC plays in Odda",
    ]
    assert not index.search("head tail", 5)[0].passages.size and "header" in str(said)
    (graph,) = decode(index.corpus)
    assert graph.triples == (Triple("Barack_Obama", "born_in", "Honolulu"), Triple("Odda_FC", "plays_in", "Odda"))


def test_values_of_triples_keep_underscores(tmp_path: Path) -> None:
    file = tmp_path / "card.ttl"
    file.write_text(
        '@prefix v: <http://www.w3.org/2006/vcard/ns#> .\n<http://x/ada_lund> v:email "ada_lund@x.org" ;'
        ' v:hasUID "AB_07__X" ; v:nick "ada_l" ; v:note "Set MAX_SIZE in my_conf.ini" ; v:at [ v:town "Odda" ] .\n'
        '<http://x/ini> v:file "my_conf.ini" ; v:key "MAX_SIZE" .\n'
    )
    index = pyfast.build_index([file], tmp_path / "I")
    assert [index.text(passage) for passage in range(3)] == [
        "ada lund email ada_lund@x.org; hasUID AB_07__X; nick ada_l; note Set MAX_SIZE in my_conf.ini;"
        " at _:card.ttl#1",
        "_:card.ttl#1 town Odda",
        "ini file my_conf.ini; key MAX_SIZE",
    ]


def test_names_are_compared_as_words(tmp_path: Path) -> None:
    facts = [("Beyonc\u00e9", "sang", "Halo"), ("Halo", "by", "BEYONCE\u0301"), ("Beyonce", "born", "Houston")]
    links = entity_links(encode([KnowledgeGraph("g", "", tuple(Triple(*fact) for fact in facts))]))
    assert links.entity[:, 0].tolist()[0] == links.entity[1, 1] == links.entity[2, 0]
    assert is_named_in(name_key("Barack_Obama"), name_key("Who is Bar\u00e1ck Obama?"))
    pyfast.build_index(
        [{"id": "a", "title": "Jose\u0301", "text": "One."}, {"id": "b", "text": "Two."}], tmp_path / "I"
    )
    assert first(pyfast.open_index(tmp_path / "I", filter="title=Jose"), "one two") == "a"
