"""Hypothesis strategies for documents of all kinds, with the characters and shapes that break things."""

from hypothesis import strategies as st

from pyfast.corpus import Document, KnowledgeGraph, Table, TextDocument, Triple

# Any Unicode but surrogates, and a small alphabet in which the rules of segmentation meet each other often.
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
tricky = st.text(st.sampled_from("ab AB1.!?…。！”\"')(“ \n\n\r\t\u00a0\u2028é漢😀𝛿\0#=-"), max_size=120)
texts = anything | tricky | st.lists(tricky, max_size=6).map("\n\n".join)
names = st.sampled_from(["", " ", "a", "B b", "\t", "é\n"]) | anything

text_parts = st.builds(TextDocument, uri=st.just(""), title=names, text=texts, markdown=st.booleans())
about = st.sampled_from(["", '{"author":"Sagan"}'])
rows = st.lists(st.lists(names, max_size=5).map(tuple), max_size=6).map(tuple)
table_parts = st.builds(
    Table,
    uri=st.just(""),
    title=names,
    section=names,
    header=st.lists(names, max_size=5).map(tuple),
    rows=rows,
    links=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), names), max_size=4).map(tuple),
    page=st.integers(0, 3),
    numbers=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=3).map(tuple),
    about=about,
)
triples = st.builds(
    Triple, head=names, relation=names, tail=names, time=st.none() | st.sampled_from(["", "1999"]) | anything
)
graph_parts = st.builds(
    KnowledgeGraph, uri=st.just(""), title=names, triples=st.lists(triples, max_size=12).map(tuple), about=about
)


def _named(pair: tuple[list[Document], list[str]]) -> list[Document]:
    from dataclasses import replace

    return [replace(document, uri=uri) for document, uri in zip(*pair, strict=True)]


documents = st.integers(0, 7).flatmap(
    lambda n: st.tuples(
        st.lists(text_parts | table_parts | graph_parts, min_size=n, max_size=n),
        st.lists(names, min_size=n, max_size=n, unique=True),
    ).map(_named)
)
"""Lists of documents of mixed kinds with uris of their own."""
