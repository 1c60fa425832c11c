"""Tokenizers, stemmers and stop words of an index: against Snowball's own, and in other languages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfast
from pyfast.corpus import Table
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.retrieval.terms import WORDS, Analysis

CHINESE = [
    {"id": "saturn", "title": "土星", "text": "土卫六是环绕土星运行的一颗卫星，由惠更斯发现。"},
    {"id": "moon", "title": "月球", "text": "月球是地球唯一的天然卫星。"},
]
ENGLISH = [
    {"id": "c", "title": "C", "text": "C is a programming language of Dennis Ritchie."},
    {"id": "moons", "title": "Moons", "text": "Astronomers discovered moons orbiting distant planets."},
    {"id": "x", "title": "X", "text": "Musk bought the network and named it X."},
]


def first(index: Index, question: str) -> str | None:
    (pool,) = index.search(question, 5)
    return index.uri(int(pool.passages[0])) if len(pool) else None


def test_the_default_tokens() -> None:
    text = "Titan's 2nd moon, 土卫六 and a C!"
    assert Analysis().tokens(text) == WORDS.words(text) == ["titan", "2nd", "moon", "土卫六", "and", "a", "c"]
    assert Analysis().tokens("moons") == ["moon"] and Analysis(stemmer="none").tokens("moons") == ["moons"]
    assert Analysis("characters").tokens(text)[-6:] == ["土", "卫", "六", "and", "a", "c"]


def test_chinese_is_found_by_characters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [
        {"id": str(i), "title": "Titan", "text": f"Titan is 土卫六, moon {word}"} for i, word in enumerate("abc")
    ]
    pyfast.build_index([*ENGLISH, *names], tmp_path / "english")
    assert not caplog.messages
    by_words = pyfast.build_index(CHINESE, tmp_path / "words")
    assert first(by_words, "谁发现了土卫六？") is None
    assert len(caplog.messages) == 1 and "--tokenizer characters" in caplog.messages[0]
    index = pyfast.build_index(
        CHINESE, tmp_path / "characters", options=pyfast.IndexOptions(tokenizer="characters", stop_words="none")
    )
    assert first(index, "谁发现了土卫六？") == "saturn" and first(index, "地球的卫星") == "moon"
    pyfast.add_documents(tmp_path / "characters", [{"id": "mars", "title": "火星", "text": "火星有两颗卫星。"}])
    assert first(pyfast.open_index(tmp_path / "characters"), "火星有几颗卫星") == "mars"
    assert len(index.question_terms("土卫六")) == 3 and len(caplog.messages) == 1


def test_words_of_one_character(tmp_path: Path) -> None:
    assert first(pyfast.build_index(ENGLISH, tmp_path / "words"), "C?") == "c"
    index = pyfast.build_index(
        ENGLISH, tmp_path / "characters", options=pyfast.IndexOptions(tokenizer="characters")
    )
    assert first(index, "C?") == "c" and first(index, "X") == "x"


def test_stems(tmp_path: Path) -> None:
    """Snowball's stems, in the passages, the cells and the queries."""
    import Stemmer

    analysis = Analysis()
    assert analysis.tokens("Moons orbited") == Stemmer.Stemmer("english").stemWords(["moons", "orbited"])
    plain = pyfast.build_index(ENGLISH, tmp_path / "plain", options=pyfast.IndexOptions(stemmer="none"))
    assert first(plain, "Who discovers a planet's moon?") is None
    index = pyfast.build_index(ENGLISH, tmp_path / "stems")
    assert first(index, "Who discovers a planet's moon?") == "moons"
    assert "discov" in index.terms and "discovered" not in index.terms
    (the,) = index.terms.find(["the"])
    assert not index.search("those were being the", 5)[0].passages.size or index.idf(the) == 0
    table = Table("t", "Moons", "", ("Moon", "Discoverers"), (("Titan", "Huygens"),))
    of_rows = pyfast.build_index([table], tmp_path / "rows")
    for word in ("discoverer", "titans"):  # a word of the header, and one of a cell
        assert first(of_rows, word) == "t"
    german = pyfast.build_index(
        [{"id": "d", "text": "Die Häuser standen leer."}],
        tmp_path / "g",
        options=pyfast.IndexOptions(stemmer="german"),
    )
    assert first(german, "Haus") == "d"


@pytest.mark.parametrize("options", [{"stemmer": "german"}, {"tokenizer": "characters", "stop_words": "none"}])
def test_an_index_that_changes_keeps_its_analysis(options: Any, tmp_path: Path) -> None:
    """Bit for bit the index built from scratch, through additions, deletions and a merge."""
    given = pyfast.IndexOptions(**options)
    whole = pyfast.build_index(ENGLISH, tmp_path / "whole", options=given)
    pyfast.build_index(
        [*ENGLISH[:1], {"id": "gone", "text": "Moons everywhere."}],
        tmp_path / "parts",
        options=given,
    )
    pyfast.add_documents(tmp_path / "parts", ENGLISH[1:])
    pyfast.delete_documents(tmp_path / "parts", ["gone"])
    for _ in range(2):
        index = pyfast.open_index(tmp_path / "parts")
        assert index.analysis == whole.analysis != Analysis()
        for question in ("Who discovers the moon of a planet?", "X or C"):
            ours, theirs = index.search(question, 5)[0], whole.search(question, 5)[0]
            assert [(index.uri(u), s) for u, s in ours] == [(whole.uri(u), s) for u, s in theirs]
        np.testing.assert_array_equal(index.X.toarray()[:, : len(whole.terms)], whole.X.toarray())
        pyfast.compact_index(tmp_path / "parts", erase=True)


@pytest.mark.parametrize("system", ["rag", "n2n", "hseq"])
def test_systems_answer_over_it(system: str, tmp_path: Path) -> None:
    index = pyfast.build_index(
        CHINESE, tmp_path / "index", options=pyfast.IndexOptions(tokenizer="characters", stop_words="none")
    )
    run = pyfast.answer(["谁发现了土卫六？"], index=index, llm="instant", system=system)
    assert run.records[0].state != "failed"
    assert "nothing_retrieved" not in run.records[0].trace


@pytest.mark.parametrize("system", ["rag", "n2n"])
def test_a_question_that_retrieves_nothing_says_so(system: str, small: Index) -> None:
    run = pyfast.answer(["土卫六", "Who discovered Titan?"], index=small, llm="instant", system=system)
    empty, usual = run.records
    assert any("土卫六" in query for query in empty.trace["nothing_retrieved"])
    assert not any("Titan" in query for query in usual.trace.get("nothing_retrieved", ()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "letters"}, "tokenizer: expected words or characters"),
        ({"stemmer": "klingon"}, "stemmer: expected none or one of"),
        ({"stop_words": "german"}, "stop_words: expected english or none"),
    ],
)
def test_options_that_there_are_not(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        pyfast.build_index(ENGLISH, tmp_path / "index", options=pyfast.IndexOptions(**options))
    assert not (tmp_path / "index").exists()
