"""Theorem 1 of the HSEQ paper: a decoder that reads only segments returns every corpus, up to its equivalence,
under T1 to T3; and ids that stay when documents come and go."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from corpus_strategies import documents, graph_parts, names, table_parts, texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyfast.corpus import Corpus, Document, Heading, KnowledgeGraph, Level, Outline, Table, TextDocument, encode
from pyfast.corpus.encode import digest_of, other_than_digest
from pyfast.errors import InputError
from pyfast.ops import hseq_stream
from pyfast.systems.hseq.views import GraphView, TableView, TextView, view

LENIENT = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)


def below(corpus: Corpus, i: int) -> list[int]:
    return np.flatnonzero(corpus.parent == i).tolist()


def chain(corpus: Corpus, i: int) -> list[Level]:
    """The levels from a segment up to its root."""
    levels = []
    while i >= 0:
        levels.append(Level(int(corpus.level[i])))
        i = int(corpus.parent[i])
    return levels


def visible(text: str) -> str:
    return "".join(text.split())


def check_text(corpus: Corpus, root: int, document: TextDocument) -> None:
    """T1: exact substrings at absolute offsets, one chain of parents; together all that is not whitespace."""
    inside = range(root, int(corpus.subtree_end[root]))
    for i in inside:
        assert corpus.content(i) == document.text[corpus.start[i] : corpus.end[i]]
        levels = chain(corpus, i)
        if levels[0] == Level.SENTENCE:
            assert levels[1] == Level.PARAGRAPH and levels[-1] == Level.DOCUMENT
            above = int(corpus.parent[i])
            assert corpus.start[above] <= corpus.start[i] <= corpus.end[i] <= corpus.end[above]
        shown = view(corpus, i)
        assert isinstance(shown, TextView) and (shown.start, shown.end) == (corpus.start[i], corpus.end[i])
        assert (shown.paragraph is not None) == (levels[0] in (Level.PARAGRAPH, Level.SENTENCE))
        assert (shown.section is not None) == (Level.SECTION in levels)
    for level in (Level.PARAGRAPH, Level.SENTENCE):
        decoded = [" "] * len(document.text)
        for i in inside:
            if corpus.level[i] == level:
                decoded[corpus.start[i] : corpus.end[i]] = corpus.content(i)
        if not document.markdown:  # headings are in sections, not in paragraphs
            assert visible("".join(decoded)) == visible(document.text)


def check_table(corpus: Corpus, root: int, document: Table) -> None:
    """T2: the root has the header, each row its index and its cells in order."""
    shown = view(corpus, root)
    assert isinstance(shown, TableView) and shown.schema == document.header and shown.row is None
    rows = below(corpus, root)
    assert [int(corpus.start[row]) for row in rows] == list(range(len(document.rows)))
    assert [tuple(corpus.content(cell) for cell in below(corpus, row)) for row in rows] == list(document.rows)
    for r, row in enumerate(rows):
        part = view(corpus, row)
        assert part == TableView(
            document.header,
            r,
            tuple(range(len(document.rows[r]))),
            tuple((r, c) for c in range(len(document.rows[r]))),
        )
        for c, cell in enumerate(below(corpus, row)):
            assert view(corpus, cell) == TableView(document.header, r, (c,), ((r, c),))


def check_graph(corpus: Corpus, root: int, document: KnowledgeGraph) -> None:
    """T3: one triplet for each edge, with its time, under one subgraph of its head."""
    edges = []
    for subgraph in below(corpus, root):
        for i in below(corpus, subgraph):
            assert chain(corpus, i) == [Level.TRIPLET, Level.SUBGRAPH, Level.DOCUMENT]
            shown = view(corpus, i)
            assert isinstance(shown, GraphView)
            (triple,) = shown.triples
            edges.append(triple)
        heads = {triple.head for triple in corpus.triples(subgraph)}
        assert len(heads) == 1 and view(corpus, subgraph) == GraphView(tuple(corpus.triples(subgraph)))
    assert Counter(edges) == Counter(document.triples)


@LENIENT
@given(documents)
def test_segments_alone_give_every_corpus_back(given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    for source, document in enumerate(given_documents):
        root = int(corpus.roots[source])
        match document:
            case TextDocument():
                check_text(corpus, root, document)
            case Table():
                check_table(corpus, root, document)
            case KnowledgeGraph():
                check_graph(corpus, root, document)


@LENIENT
@given(documents, st.data())
def test_documents_come_and_go(given_documents: list[Document], data: st.DataObject) -> None:
    """Segments keep their ids when others are added or left out; those deleted are in no window and near none."""
    corpus = encode(given_documents)
    gone = data.draw(st.sets(st.sampled_from(range(len(given_documents))))) if given_documents else set()
    rest = encode([document for source, document in enumerate(given_documents) if source not in gone])
    kept = ~np.isin(corpus.source, list(gone))
    assert np.array_equal(corpus.ids[kept], rest.ids[:])

    segments = hseq_stream(corpus.level, corpus.parent, corpus.subtree_end, priority=list(Level)).delete(
        corpus.roots[sorted(gone)]
    )
    window = segments.window(segments.cursors(1), len(corpus) + 1)[1]
    whole = hseq_stream(rest.level, rest.parent, rest.subtree_end, priority=list(Level))
    assert corpus.ids[window].tolist() == rest.ids[whole.window(whole.cursors(1), len(rest) + 1)[1]].tolist()
    for kind in ("children", "parent", "row", "column", "relation"):
        for i in np.flatnonzero(kept).tolist():
            near = segments.neighbors([i], kind)[1]  # type: ignore[arg-type]
            assert kept[near].all()


outlines = st.builds(
    Outline,
    headings=st.none()
    | st.lists(st.builds(Heading, st.integers(0, 9), st.integers(0, 9), st.integers(1, 6), names), max_size=3).map(
        tuple
    ),
    pages=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    aside=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2).map(tuple),
    about=st.sampled_from(["", '{"author": "Ada"}']),
)
texts_with_outlines = st.builds(
    TextDocument, uri=st.just("u"), title=names, text=texts, markdown=st.booleans(), outline=outlines
)


@given(st.lists(texts_with_outlines | table_parts | graph_parts, min_size=2, max_size=6))
@LENIENT
def test_documents_that_differ_have_digests_that_differ(given_documents: list[Document]) -> None:
    digests = list(map(digest_of, given_documents))
    assert bytes(16) not in digests
    for a, one in zip(given_documents, digests, strict=True):
        for b, other in zip(given_documents, digests, strict=True):
            assert (a == b) == (one == other)


def test_a_document_that_differs_from_its_digest_is_found() -> None:
    chapters = "# Herons\n\nThey nest at lakes.\n"
    corpus = encode([TextDocument("a", "", "A."), TextDocument("b", "", chapters, markdown=True)])
    assert other_than_digest(corpus) == ""
    segments, described, triples, buffer = corpus._parts
    at = described.schema.get_field_index("digest")
    first = described.column("digest")[0].as_py()
    wrong = described.set_column(at, described.schema.field(at), pa.array([first, bytes(16)], pa.binary(16)))
    assert other_than_digest(Corpus(segments, wrong, triples, buffer)) == "b"


def test_a_lone_surrogate_is_refused_and_has_a_digest() -> None:
    broken = TextDocument("a", "\ud800", "x")
    assert digest_of(broken) not in (bytes(16), digest_of(TextDocument("a", "\ud801", "x")))
    with pytest.raises(InputError, match="lone surrogate U\\+D800"):
        encode([broken])
