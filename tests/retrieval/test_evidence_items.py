"""Evidence in items: what a passage is made of, its words, and BM25 against bm25s."""

from pathlib import Path

import bm25s
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Triple, encode, read
from pyfast.engine import read_questions
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.systems.graph_convqa.evidence_items import bm25_scores, find_evidence_items

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]), max_size=8).map(" ".join)


@given(texts=st.lists(WORDS, min_size=1, max_size=12), query=WORDS)
def test_bm25_is_that_of_bm25s(texts: list[str], query: str) -> None:
    ids: dict[str, int] = {}
    tokens = [[ids.setdefault(word, len(ids)) for word in text.split()] for text in texts]
    asked = sorted({ids[word] for word in query.split() if word in ids})
    frequencies = {word: sum(word in text.split() for text in texts) for word in set(query.split())}
    found = bm25_scores(frequencies, len(texts), texts)
    expected = np.zeros(len(texts))
    if asked:
        engine = bm25s.BM25(**BM25_PARAMETERS)
        engine.index((tokens, ids), show_progress=False)
        expected = engine.get_scores(asked)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_pieces_and_their_lines() -> None:
    header = ("Publication", "Year", "Rank")
    corpus = encode(
        [
            TextDocument("t", "Kid A", "Kid A is an album. Radiohead made it.\n\nIt sold well.", False),
            Table("b", "Kid A", "Accolades", header, (("Rolling Stone", "2009", "1"), ("Fact", "", "7", "!"))),
            Table("i", "Rolling Stone", "Infobox", ("", ""), (("Editor", "Noah Shachtman"),)),
            KnowledgeGraph("g", "g", (Triple("Kid A", "publication_date", "2 October 2000", "2000"),)),
        ]
    )
    lines = [corpus.linearise(i) for passage in corpus.passages().tolist() for i in corpus.evidence_items(passage)]
    assert lines == [
        "Kid A, Kid A is an album.",
        "Kid A, Radiohead made it.",
        "Kid A, It sold well.",
        "Kid A, Publication Rolling Stone, Year 2009, Rank 1",
        "Kid A, Publication Fact, Rank 7, !",
        "Rolling Stone, Editor, Noah Shachtman",
        "Kid A, publication date, 2 October 2000, 2000",
    ]


def test_the_best_pieces_of_the_best_units(small: Index) -> None:
    queries = ["When was Titan discovered by Huygens?", "xyzzy", "", "Which probe landed on Titan?"]
    found = find_evidence_items(small, queries, 20, 5)
    assert [len(evidence) for evidence in found] == [5, 0, 0, 5]
    first = found[0]
    assert "Titan" in small.corpus.linearise(int(first.segments[0]))
    assert (np.diff(first.scores) <= 0).all() and (first.scores > 0).all()
    assert len(set(first.segments.tolist())) == 5
    for query, evidence in zip(queries, found, strict=True):  # in any batch
        (alone,) = find_evidence_items(small, [query], 20, 5)
        np.testing.assert_array_equal(alone.segments, evidence.segments)
        np.testing.assert_array_equal(alone.scores, evidence.scores)
    (none,) = find_evidence_items(small, queries[:1], 20, 0)
    assert len(none) == 0


@pytest.mark.slow(suite="data")
def test_it_finds_the_evidence_of_real_turns(data: Path, tmp_path: Path) -> None:
    """Of ConvMix's turns that its corpus answers, most have the answer in their 20 items."""

    index = build_index(read([data / "convmix" / "corpus.jsonl"]), tmp_path / "index")
    asked = list(read_questions(data / "convmix" / "questions.jsonl"))

    gold = [orjson.loads(line) for line in (data / "convmix" / "questions.jsonl").read_bytes().splitlines()]
    found = find_evidence_items(index, [question.text for question in asked], 50, 20)
    told = [
        any(
            answer.lower() in index.corpus.linearise(i).lower()
            for answer in one["answers"]
            for i in evidence.segments
        )
        for one, evidence in zip(gold, found, strict=True)
    ]
    assert np.mean(told) > 0.6
