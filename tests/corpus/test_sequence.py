"""The hierarchical sequence: the exact way back, and what holds for every corpus."""

from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from corpus_strategies import documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyfast.corpus import (
    Corpus,
    Document,
    KnowledgeGraph,
    Level,
    Outline,
    Table,
    TextDocument,
    Triple,
    decode,
    encode,
    schema,
)
from pyfast.errors import InputError

TEXT = "Dr. Ann Lee won. She left!  \r\n\r\n\tNext “one.” More?\n"


def mixed() -> list[Document]:
    return [
        TextDocument("plain", "Title", TEXT),
        TextDocument("empty", "", ""),
        TextDocument("marked", "", "Before.\n# One\nText one. More.\n\n## Two\n\n# Three\nEnd", markdown=True),
        Table(
            "table",
            "T",
            "S",
            ("a", "", "a"),
            (("1", "", "x", "more"), (), ("", " "), ("é",)),
            ((0, 2, "plain"),),
        ),
        Table("bare", "", "", (), ()),
        KnowledgeGraph(
            "graph", "G", (Triple("h", "r", "t"), Triple("i", "r_s", "h", "1999"), Triple("h", "r", "t"))
        ),
        KnowledgeGraph("none", "", ()),
    ]


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents)
def test_decode_undoes_encode(given_documents: list[Document]) -> None:
    assert decode(encode(given_documents)) == given_documents


def test_ids_stay_what_they_were() -> None:
    """Evidence, runs and knowledge of older indexes name segments by these ids."""
    facts = (Triple("h", "r", "t"), Triple("i", "r", "t"), Triple("h", "s", "u"))
    corpus = encode(
        [
            TextDocument("titan", "Titan", "Titan is a moon. It orbits Saturn."),
            Table("t", "", "", ("a",), (("1", "2"),)),
            KnowledgeGraph("g", "", facts),
        ]
    )
    assert [f"{one:016x}" for one in corpus.ids[:]] == [
        *("625042008a0d2b6c", "14ae729e660a7485", "3b0165cad98d6f49", "972c6572e1695980"),
        *("7f50b30651b83d12", "e475d79fa87795e5", "e662d0aaed2dcd47", "e625d65b92b5331b"),
        *("7e8d31bb936621fa", "d65914272af31976", "9cdbbbcb65630794", "17c554dc4e3f0e2e"),
        *("41a95925fca151fb", "251b005f80c30e92"),
    ]


def test_more_text_than_32_bits_can_number(tmp_path: Path) -> None:
    corpus = encode(mixed())
    segments = corpus._parts[0]
    values = {name: segments.column(name).to_numpy() for name in segments.schema.names}
    wide = schema.segments(values, 1 << 31)
    assert wide.schema.equals(schema.WIDE_SEGMENTS)
    other = Corpus(wide, *corpus._parts[1:])
    other.save(tmp_path)
    assert (
        decode(Corpus.open(tmp_path)) == decode(other) == mixed()
        and other.ids[:].tolist() == corpus.ids[:].tolist()
    )
    with pytest.raises(InputError, match="2,147,483,647"):
        schema.segments({**values, "start": values["start"].astype(np.int64) + (1 << 31)}, 1)


@pytest.mark.parametrize("held", [1 << 24, 1000, 0])
def test_segments_grow_beyond_32_bits_in_memory_and_in_files(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(schema, "_HELD", held)
    numbers = np.random.default_rng(1)
    pieces = [
        {name: numbers.integers(0, 100, size) for name in schema.SEGMENTS.names} for size in (7, 0, 40, 3, 21)
    ]
    growing = schema.GrowingSegments()
    for k, piece in enumerate(pieces):
        piece["byte_end"] += k << 30
        growing.append(piece, 100 + (k << 30))
    growing.set(5, byte_end=5 << 30, subtree_end=71)
    growing.set(50, parent=49)
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in schema.SEGMENTS.names}
    joined["byte_end"][5], joined["subtree_end"][5], joined["parent"][50] = 5 << 30, 71, 49
    assert growing.batch().equals(schema.segments(joined, 5 << 30))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents)
def test_invariants(given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    texts = {document.uri: document.text for document in given_documents if isinstance(document, TextDocument)}
    roots = [i for i in range(len(corpus)) if corpus.parent[i] == -1]
    assert roots == corpus.roots.tolist() and len(roots) == corpus.documents == len(given_documents)
    ids = corpus.ids[:].tolist()
    assert len(set(ids)) == len(corpus) and ids == [corpus.ids[i] for i in range(len(corpus))]

    children: dict[int, list[int]] = {}
    for i in range(len(corpus)):
        parent = int(corpus.parent[i])
        assert parent < i
        if parent >= 0:
            children.setdefault(parent, []).append(i)
            assert corpus.source[parent] == corpus.source[i]
            assert (
                corpus.byte_start[parent] <= corpus.byte_start[i] <= corpus.byte_end[i] <= corpus.byte_end[parent]
            )
        level = Level(int(corpus.level[i]))
        uri = corpus.uri(int(corpus.source[i]))
        if uri in texts:  # the offsets are in characters of the document
            assert corpus.content(i) == texts[uri][corpus.start[i] : corpus.end[i]]
        if level in (Level.PARAGRAPH, Level.SENTENCE):
            only_title = corpus.end[i] == 0 and level == Level.PARAGRAPH and corpus.render(i) != ""
            assert corpus.content(i) == corpus.content(i).strip() != "" or only_title

    for parent, below in children.items():
        for left, right in pairwise(below):
            assert corpus.byte_end[left] <= corpus.byte_start[right]
        if corpus.level[parent] == Level.PARAGRAPH:
            sentences = [corpus.content(i) for i in below]
            assert "".join("".join(sentences).split()) == "".join(corpus.content(parent).split())
            assert (corpus.start[below[0]], corpus.end[below[-1]]) == (
                corpus.start[parent],
                corpus.end[parent],
            )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents)
def test_segments_do_not_depend_on_other_documents(given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    for source, document in enumerate(given_documents):
        own = encode([document])
        for name in ("ids", "level", "start", "end"):
            assert np.array_equal(getattr(corpus, name)[corpus.source == source], getattr(own, name))


@pytest.mark.parametrize("held", [1 << 24, 500, 0])
def test_batches_join_without_a_trace(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    given_documents = mixed()
    whole = encode(given_documents)
    monkeypatch.setattr(schema, "_HELD", held)  # all segments are in memory, some of them, or none
    monkeypatch.setattr(import_module("pyfast.corpus.encode"), "_BATCH", 1)
    monkeypatch.setattr(import_module("pyfast.corpus.encode"), "_LARGE", 1)  # row by row
    parts = encode(given_documents)
    assert decode(parts) == given_documents and parts.fingerprint() == whole.fingerprint()
    assert parts.passages_in(range(parts.documents)) == len(parts.passages())
    for name in ("ids", "level", "parent", "subtree_end", "source", "start", "end"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    assert [parts.content(i) for i in range(len(parts))] == [whole.content(i) for i in range(len(whole))]


def test_segments_of_a_text() -> None:
    corpus = encode([TextDocument("u", "", TEXT)])
    assert [(Level(int(level)).name, corpus.content(i)) for i, level in enumerate(corpus.level)] == [
        ("DOCUMENT", TEXT),
        ("PARAGRAPH", "Dr. Ann Lee won. She left!"),
        ("SENTENCE", "Dr. Ann Lee won."),
        ("SENTENCE", "She left!"),
        ("PARAGRAPH", "Next “one.” More?"),
        ("SENTENCE", "Next “one.”"),
        ("SENTENCE", "More?"),
    ]
    assert corpus.parent.tolist() == [-1, 0, 1, 1, 0, 4, 4]


def test_sections_of_markdown() -> None:
    corpus = encode([mixed()[2]])
    sections = np.flatnonzero(corpus.level == Level.SECTION).tolist()
    assert [corpus.content(i) for i in sections] == [
        "# One\nText one. More.\n\n",
        "## Two\n\n",
        "# Three\nEnd",
    ]
    paragraphs = np.flatnonzero(corpus.level == Level.PARAGRAPH).tolist()
    assert [corpus.content(i) for i in paragraphs] == ["Before.", "Text one. More.", "Two", "End"]
    assert corpus.parent[paragraphs].tolist() == [0, *sections]


def test_segments_of_a_table_and_a_graph() -> None:
    corpus = encode(mixed()[3:6])
    listed = [
        (Level(int(corpus.level[i])).name, int(corpus.start[i]), int(corpus.end[i]), corpus.content(i))
        for i in range(len(corpus))
    ]
    assert listed == [
        ("TABLE", -1, -1, "1\t\tx\tmore\n\n\t \né"),
        ("TABLE_ROW", 0, -1, "1\t\tx\tmore"),
        ("TABLE_CELL", 0, 0, "1"),
        ("TABLE_CELL", 0, 1, ""),
        ("TABLE_CELL", 0, 2, "x"),
        ("TABLE_CELL", 0, 3, "more"),
        ("TABLE_ROW", 1, -1, ""),
        ("TABLE_ROW", 2, -1, "\t "),
        ("TABLE_CELL", 2, 0, ""),
        ("TABLE_CELL", 2, 1, " "),
        ("TABLE_ROW", 3, -1, "é"),
        ("TABLE_CELL", 3, 0, "é"),
        ("TABLE", -1, -1, ""),
        ("DOCUMENT", -1, -1, "h r t; h r t; i r_s h"),
        ("SUBGRAPH", -1, -1, "h r t; h r t"),
        ("TRIPLET", -1, -1, "h r t"),
        ("TRIPLET", -1, -1, "h r t"),
        ("SUBGRAPH", -1, -1, "i r_s h"),
        ("TRIPLET", -1, -1, "i r_s h"),
    ]
    assert corpus.passages().tolist() == [1, 10, 14, 17]  # not the blank rows
    assert corpus.cells(1) == ["1", "x", "more"] and corpus.cells(7) == []
    assert corpus.links(1) == ["plain"] and corpus.links(10) == []
    assert [corpus.is_table(i) for i in (0, 1, 2, 13, 14)] == [True, True, True, False, False]
    assert corpus.in_graphs(np.arange(len(corpus))).tolist() == [i > 12 for i in range(len(corpus))]
    assert [corpus.is_graph(i) for i in range(len(corpus))] == [i > 12 for i in range(len(corpus))]
    assert corpus.triples(17) == [Triple("i", "r_s", "h", "1999")]


def test_rows_of_many_cells() -> None:
    row = tuple(f"c{k}" for k in range(100))
    corpus = encode([Table("t", "", "", (), (row, row[:32], row[:64], ("x",)))])
    assert [corpus.cells(int(i)) for i in corpus.passages()] == [
        list(row),
        list(row[:32]),
        list(row[:64]),
        ["x"],
    ]


def test_subgraphs_are_bounded() -> None:
    triples = tuple(Triple("hub" if k % 2 else "other", "r", str(k)) for k in range(300))
    corpus = encode([KnowledgeGraph("g", "", triples)])
    sizes = [len(corpus.triples(int(i))) for i in corpus.passages()]
    assert sizes == [64, 64, 22] * 2
    assert corpus.triples(int(corpus.passages()[0]))[:2] == [
        triples[0],
        triples[2],
    ]  # heads in order of appearance


def test_ids_are_the_same_on_every_machine() -> None:
    # The formula of `identity.py` in Python's own integers.
    from hashlib import blake2b

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    step = 0x9E3779B97F4A7C15
    corpus = encode([TextDocument("a/é.txt", "", "One. Two."), Table("t", "", "", (), (("x",),))])
    for i in range(len(corpus)):
        uri = corpus.uri(int(corpus.source[i])).encode()
        x = int.from_bytes(blake2b(uri, digest_size=8).digest(), "little")
        x = mix((x + (int(corpus.level[i]) + 1) * step) % 2**64)
        x = mix((x + int(corpus.start[i]) * step) % 2**64)
        x = mix((x + int(corpus.end[i]) * step) % 2**64)
        assert corpus.segment(i)["id"] == f"{x:016x}"


def test_segment_as_evidence() -> None:
    corpus = encode(mixed())
    evidence = corpus.segment(2)
    assert {**evidence, "id": ""} == {
        "id": "",
        "level": "sentence",
        "uri": "plain",
        "offsets": [0, 16],
        "snippet": "Dr. Ann Lee won.",
    }
    assert len(evidence["id"]) == 16 and int(evidence["id"], 16) == int(corpus.ids[2])


@pytest.mark.parametrize("other", [TextDocument("same", "", "x"), Table("same", "", "", (), ())])
def test_two_documents_with_one_uri(other: Document) -> None:
    with pytest.raises(InputError, match="'same'"):
        encode([TextDocument("a", "", ""), TextDocument("same", "", "x"), other])


@pytest.mark.parametrize(
    "document",
    [
        TextDocument("bad", "", "x\ud800"),
        TextDocument("bad", "\udfff", ""),
        TextDocument("bad", "", "x\ud83d y", markdown=True),
        Table("bad", "", "", ("\ud800",), ()),
        Table("bad", "", "", (), (("\ud800",),)),
        Table("bad", "", "", (), (("",),), ((0, 0, "\ud800"),)),
        KnowledgeGraph("bad", "", (Triple("a", "b", "c", "\ud800"),)),
        KnowledgeGraph("bad", "", (Triple("a", "\ud800", "c"),)),
        TextDocument("bad\ud800", "", ""),
    ],
)
def test_lone_surrogates_are_refused_by_name(document: Document) -> None:
    with pytest.raises(InputError, match=r"bad.*surrogate") as caught:
        encode([TextDocument("good", "", "é"), document])
    str(caught.value).encode()  # can be printed


def test_a_document_is_found_by_its_uri() -> None:
    uris = ["plumless", "buckeroo", "é", ""]  # the first two have the same CRC-32
    corpus = encode([TextDocument(uri, "", "") for uri in uris])
    assert [corpus.find(uri) for uri in uris] == [0, 1, 2, 3]
    assert [corpus.find(uri) for uri in ("buckero", "\ud800", "?")] == [None] * 3
    assert encode([]).find("") is None


def test_fingerprint_tells_corpora_apart(tmp_path: Path) -> None:
    base = encode(mixed())
    seen = {base.fingerprint()}
    variants: list[list[Document]] = [
        [TextDocument("plain", "Other", TEXT), *mixed()[1:]],
        [*mixed()[:4], Table("bare", "", "", ("h",), ()), *mixed()[5:]],
        [*mixed()[:4], Table("bare", "", "s", (), ()), *mixed()[5:]],
        [*mixed()[:6], KnowledgeGraph("none", "", (Triple("", "", ""),))],
        [*mixed()[:6], KnowledgeGraph("none", "", (Triple("", "", "", ""),))],
        [Table("t", "", "", (), (("ab", ""),))],
        [Table("t", "", "", (), (("a", "b"),))],
    ]
    for variant in variants:
        seen.add(encode(variant).fingerprint())
    assert len(seen) == 1 + len(variants)
    base.save(tmp_path)
    assert Corpus.open(tmp_path).fingerprint() == base.fingerprint() == encode(mixed()).fingerprint()


@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.text(st.sampled_from("a. B"), min_size=3990, max_size=4010), min_size=1, max_size=3))
def test_long_paragraphs_are_cut(pieces: list[str]) -> None:
    text = " ".join(pieces) + "x" * 9000
    corpus = encode([TextDocument("u", "", text)])
    passages = [corpus.content(int(i)) for i in corpus.passages()]
    assert max(map(len, passages)) <= 4000
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert decode(corpus) == [TextDocument("u", "", text)]


def test_long_paragraphs_are_cut_at_sentences_then_spaces_then_anywhere() -> None:
    sentence = "Aaaa " * 300 + "end. "  # 1505 characters
    cut = [len(u) for u in _passages(sentence * 3)]
    assert cut == [2 * 1505 - 1, 1504]
    assert [len(u) for u in _passages("word " * 1000)] == [3999, 1000 - 1]
    assert [len(u) for u in _passages("x" * 9000)] == [4000, 4000, 1000]


def _passages(text: str) -> list[str]:
    corpus = encode([TextDocument("u", "", text)])
    return [corpus.content(int(i)) for i in corpus.passages()]


@pytest.mark.parametrize("batch", [1, 5, 20])
def test_a_large_text_in_pieces_is_encoded_as_in_one(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    parts = ["A word. ", "Über\n", "\n\n", "Then more.\n\n\n\n", " \n ", "\r\n\r\n", "é 1. ", "\U0001f600\n\n"]
    for shift in range(len(parts)):
        text = "".join(parts[(7 * i + shift * i // 3) % len(parts)] for i in range(40))
        around = [TextDocument(uri, uri, "Before. It.\n\nAfter.") for uri in "ab"]
        documents = [around[0], TextDocument("u", "T", text, outline=Outline(pages=(0, 3))), around[1]]
        whole = encode(documents, 40)
        with monkeypatch.context() as patch:
            patch.setattr(import_module("pyfast.corpus.encode"), "_BATCH", batch)
            patch.setattr(import_module("pyfast.corpus.encode"), "_LARGE", 1)
            cut = encode(documents, 40)
        assert decode(cut) == documents and cut.fingerprint() == whole.fingerprint()
        for name in ("ids", "level", "parent", "subtree_end", "source", "start", "end"):
            assert np.array_equal(getattr(whole, name), getattr(cut, name))
