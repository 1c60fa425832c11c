"""cite against its reference, the corpus's own words and Python's JSON and rounding; malformed input."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import cite_reference, segment_id_reference

from pyfast import ops
from pyfast.corpus import Corpus, KnowledgeGraph, Table, TextDocument, Triple, encode
from pyfast.errors import ArrayError

NASTY = "".join(map(chr, [*range(0x30), *b'"\\/<', 0x7F, 0x85, 0x2028, 0xE9, 0x6F22, 0xFFFF, 0x1F600, 0x10FFFF]))
string = st.text(st.sampled_from(NASTY) | st.characters(exclude_categories=["Cs"]), max_size=12)
strings = st.lists(string, max_size=4).map(tuple)
# Documents without a uri yet
texts = st.builds(TextDocument, st.just(""), string, st.lists(string, max_size=3).map("\n\n".join), st.booleans())
tables = st.builds(Table, st.just(""), string, string, strings, st.lists(strings, max_size=4).map(tuple))
triples = st.lists(st.builds(Triple, st.sampled_from("ab") | string, string, string), max_size=5)
graphs = st.builds(KnowledgeGraph, st.just(""), string, triples.map(tuple))
corpora = st.lists(texts | tables | graphs, max_size=5).map(
    lambda documents: encode(replace(document, uri=f"{NASTY}{i}") for i, document in enumerate(documents))
)


def shown(corpus: Corpus, i: int, score: float) -> dict[str, Any]:
    """The evidence in the corpus's own words."""
    segment = corpus.segment(i)
    named = {name: segment[name] for name in ("uri", "offsets", "snippet")}
    return {"segment": segment["id"], **named, "score": round(score, 6)}


def cite(columns: ops.Segments, items: list[list[tuple[int, float]]]) -> list[bytes]:
    pairs = [pair for item in items for pair in item]
    offsets = np.cumsum([0, *map(len, items)])
    return ops.cite(columns, offsets, [i for i, _ in pairs], [score for _, score in pairs])


@given(corpora, st.data())
def test_every_segment(corpus: Corpus, data: st.DataObject) -> None:
    score = st.integers(-(10**7), 10**7).map(lambda v: v / 2**9)
    pairs = [(i, data.draw(score)) for i in range(len(corpus))]
    items = [pairs, [], pairs[::-1], pairs[:1]]
    found = cite(corpus.columns, items)
    for item, written in zip(items, found, strict=True):
        expected = [shown(corpus, *pair) for pair in item]
        assert orjson.loads(written) == json.loads(written, strict=True) == expected
        assert [cite_reference(corpus.columns, *pair) for pair in item] == expected
        assert [list(each) for each in orjson.loads(written)] == [list(each) for each in expected]  # keys' order
        assert cite(corpus.columns, [item]) == [written]


CORPUS = encode(
    [
        TextDocument("t", "", "One. Two é.\n\nThree."),
        Table("r", "", "", ("a",), (("1", "2"), (), ("3",))),
        KnowledgeGraph("g", "", (Triple("h", "r", "t"), Triple("i", "r", "t"), Triple("h", "s", "u"))),
    ]
)
GOOD = CORPUS.columns
N = len(CORPUS)


@given(st.floats(width=64) | st.integers(0, 2**40).map(lambda v: v / 2**20))
def test_scores_are_rounded_as_python_does(score: float) -> None:
    (written,) = cite(GOOD, [[(0, score)]])
    found = orjson.loads(written)[0]["score"]
    if math.isfinite(score):
        assert isinstance(found, float) and found == round(score, 6)
        assert math.copysign(1, found) == math.copysign(1, score)
    else:
        assert found is None


def altered(name: str, place: int, value: Any) -> ops.Segments:
    array = getattr(GOOD, name).copy()
    array[place] = value
    return replace(GOOD, **{name: array})


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        *[(replace(GOOD, **{name: getattr(GOOD, name)[:-1]}), "segments") for name in ("level", "source")],
        *[(replace(GOOD, **{name: getattr(GOOD, name)[:-1]}), "segments") for name in ("start", "byte_end")],
        *[
            (replace(GOOD, **{n: getattr(GOOD, n)[:-1]}), "triplets")
            for n in ("ordinal", "relation_start", "tail_start")
        ],
        (replace(GOOD, triplets=GOOD.triplets + 1), "triplets"),
        (replace(GOOD, level=GOOD.level.astype(np.float32)), "level"),
        (replace(GOOD, hashes=GOOD.hashes[:-1]), "hashes"),
        (replace(GOOD, hashes=GOOD.hashes[None]), "hashes"),
        (altered("source", 0, 3), "source"),
        (altered("source", 0, -1), "source"),
        (altered("uri_offsets", 1, 10**6), "uri_offsets"),
        (altered("uri_offsets", 1, -1), "uri_offsets"),
        (replace(GOOD, uri_offsets=GOOD.uri_offsets[:0]), "uri_offsets"),
        (altered("byte_end", 0, 10**6), "content"),
        (altered("byte_start", 0, -1), "content"),
        (altered("byte_start", 0, 10**6), "content"),
        (altered("relation_start", 2, 0), "content"),
        (altered("tail_start", 2, 2**62), "content"),
        (altered("tail_start", 0, -(2**62)), "content"),
        (replace(GOOD, content=GOOD.content[:-1]), "content"),
        (None, "segments"),
    ],
)
def test_malformed_columns(columns: Any, name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        cite(columns, [[(i, 1.0) for i in range(N)]])


@pytest.mark.parametrize(
    ("offsets", "cited", "scores", "name"),
    [
        ([0, 1], [N], [1.0], f"no segment {N}"),
        ([0, 1], [-1], [1.0], "no segment -1"),
        ([0, 1], [2**62], [1.0], "no segment"),
        ([0, 1], [1.5], [1.0], "cited"),
        ([0, 1], ["1"], [1.0], "cited"),
        ([0, 1], [1], [1.0, 2.0], "scores"),
        ([0, 1], [1], ["x"], "scores"),
        ([0, 2], [1], [1.0], "offsets"),
        ([0, 1, 0], [1], [1.0], "offsets"),
        ([], [1], [1.0], "offsets"),
    ],
)
def test_malformed_lists(offsets: Any, cited: Any, scores: Any, name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.cite(GOOD, offsets, cited, scores)
    assert cite(GOOD, [[]]) == [b"[]"]


@given(corpora, st.data())
def test_lists_of_segments(corpus: Corpus, data: st.DataObject) -> None:
    """Ids and uris as the corpus has them, and numbers as Python rounds and orjson writes them."""
    score = st.floats(-(2**20), 2**20, width=32)
    items = data.draw(st.lists(st.lists(st.integers(0, max(len(corpus) - 1, 0)), max_size=3 * bool(len(corpus)))))
    listed = [i for item in items for i in item]
    names = data.draw(st.lists(string, unique=True, max_size=3).map(lambda names: [f"_{name}" for name in names]))
    drawn = {name: [data.draw(score) for _ in listed] for name in names}
    offsets = np.cumsum([0, *map(len, items)])
    found = ops.list_segments(corpus.columns, offsets, np.array(listed, np.int64), drawn)
    for item, first, written in zip(items, offsets.tolist(), found, strict=False):
        expected = [
            {
                "segment": corpus.segment(i)["id"],
                "uri": corpus.segment(i)["uri"],
                **{name: round(values[at], 4) for name, values in drawn.items()},
            }
            for at, i in enumerate(item, start=first)
        ]
        assert written == orjson.dumps(expected)


def test_malformed_lists_of_segments() -> None:
    for offsets, listed, scores, name in (
        ([0, 1], [N], [1.0], f"no segment {N}"),
        ([0, 2], [1], [1.0], "offsets"),
        ([0, 1], [1], [1.0, 2.0], "scores"),
        ([0, 1], [1], ["x"], "scores"),
    ):
        with pytest.raises(ArrayError, match=name):
            ops.list_segments(GOOD, offsets, listed, {"score": scores})
    with pytest.raises(ArrayError, match="hashes"):
        ops.list_segments(replace(GOOD, hashes=GOOD.hashes[:-1]), [0, 1], [1], {})
    with pytest.raises(ArrayError, match="uri_offsets"):
        ops.list_segments(altered("uri_offsets", 1, 10**6), [0, 1], [1], {})


def test_objects_get_more_members() -> None:
    members = [b'"title":"a"', b'"title":"b","more":[1]']
    written = ops.cite(GOOD, [0, 3], [0, 1, 2], [1.0] * 3, members, [1, -1, 0])
    plain = orjson.loads(cite(GOOD, [[(0, 1.0), (1, 1.0), (2, 1.0)]])[0])
    assert orjson.loads(written[0]) == [
        {**plain[0], "title": "b", "more": [1]},
        plain[1],
        {**plain[2], "title": "a"},
    ]
    for member_of in ([2, 0, 0], [-2, 0, 0], [0]):
        with pytest.raises(ArrayError, match="member_of"):
            ops.cite(GOOD, [0, 3], [0, 1, 2], [1.0] * 3, members, member_of)


levels = st.lists(st.integers(0, 255) | st.integers(0, 8), min_size=N, max_size=N)


@given(levels)
def test_any_levels_are_refused_or_harmless(level: list[int]) -> None:
    try:
        found = cite(replace(GOOD, level=np.array(level, np.uint8)), [[(i, 1.0)] for i in range(N)])
    except ArrayError:
        return
    assert all(len(orjson.loads(written)) == 1 for written in found)


@given(corpora)
def test_ids(corpus: Corpus) -> None:
    every = [segment_id_reference(corpus.columns, i) for i in range(len(corpus))]
    assert ops.segment_ids(corpus.columns, np.arange(len(corpus))).tolist() == every == corpus.ids[:].tolist()
    assert corpus.ids[np.arange(len(corpus)) % 2 == 1].tolist() == every[1::2] == corpus.ids[1::2].tolist()


def test_no_such_segment_has_an_id() -> None:
    for which in (-1, N):
        with pytest.raises(ArrayError, match=f"segment {which}; the corpus has {N}"):
            ops.segment_ids(GOOD, [0, which])
    with pytest.raises(ArrayError, match="there is no document"):
        ops.segment_ids(replace(GOOD, source=GOOD.source + np.int32(99)), [0])
    with pytest.raises(ArrayError, match="value per segment"):
        ops.segment_ids(replace(GOOD, end=GOOD.end[1:]), [0])
    with pytest.raises(ArrayError, match="value per triplet"):
        ops.segment_ids(replace(GOOD, ordinal=GOOD.ordinal[1:]), [0])
    with pytest.raises(IndexError):
        CORPUS.ids[N]
