"""What names the same entity, against a search of the documents themselves."""

from pathlib import Path

from corpus_strategies import documents
from hypothesis import HealthCheck, given, settings

from pyfast.corpus import Corpus, Document, KnowledgeGraph, Level, Table, TextDocument, Triple, encode, read
from pyfast.systems.hseq.views import _EACH, entity_links
from pyfast.utils.text_forms import name_form


def form(name: str) -> str:
    return name_form(name) or name


def related(corpus: Corpus, i: int) -> set[int]:
    return set(entity_links(corpus).of(i))


def expected(corpus: Corpus, given_documents: list[Document], i: int) -> set[int]:
    """By comparing every triple and link with every other."""
    level = Level(int(corpus.level[i]))
    everything = range(len(corpus))
    if level in (Level.TRIPLET, Level.SUBGRAPH):
        names = {form(name) for triple in corpus.triples(i) for name in (triple.head, triple.tail)}
        others = (k for k in everything if corpus.level[k] == Level.TRIPLET)
        return {
            k
            for k in others
            if not i <= k < max(corpus.subtree_end[i], i + 1)
            and names & {form(corpus.triples(k)[0].head), form(corpus.triples(k)[0].tail)}
        }
    if level in (Level.TABLE_ROW, Level.TABLE_CELL):
        table = given_documents[corpus.source[i]]
        assert isinstance(table, Table)
        uris = {uri for row, _, uri in table.links if row == corpus.start[i]}
        found = {k for k in everything if corpus.uri(int(corpus.source[k])) in uris}
        return {k for k in found if corpus.level[k] == Level.PARAGRAPH}
    found = set()
    for source, table in enumerate(given_documents):
        if isinstance(table, Table):
            rows = {row for row, _, uri in table.links if uri == corpus.uri(int(corpus.source[i]))}
            found |= {
                k
                for k in everything
                if corpus.source[k] == source and corpus.level[k] == Level.TABLE_ROW and corpus.start[k] in rows
            }
    return found


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(documents)
def test_those_that_name_the_same(given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    for i in range(len(corpus)):
        all_of_them = expected(corpus, given_documents, i)
        assert related(corpus, i) <= all_of_them
        if len(all_of_them) <= _EACH:  # of a hub, some are left out
            assert related(corpus, i) == all_of_them


def test_two_hops_over_documents() -> None:
    facts = [("Alien", "directed_by", "Ridley Scott"), ("Blade Runner", "directed_by", "Ridley Scott")]
    facts += [("Blade Runner", "starred", "Sean Young")]
    given_documents: list[Document] = [
        KnowledgeGraph(f"g{k}", "", (Triple(*fact),)) for k, fact in enumerate(facts)
    ]
    corpus = encode([TextDocument("between", "", "A text. Another."), *given_documents])
    place = {corpus.content(i): i for i in range(len(corpus)) if corpus.level[i] == Level.TRIPLET}
    first, second, third = place.values()
    assert related(corpus, first) == {second} and related(corpus, second) == {first, third}
    assert list(entity_links(corpus).of(int(corpus.parent[second]))) == [first, third]  # tails first


def test_hubs_are_cut_off() -> None:
    facts = tuple(Triple(f"film {k}", "has_genre", "Drama") for k in range(500))
    corpus = encode([KnowledgeGraph("g", "", facts)])
    near = list(entity_links(corpus).of(2))
    assert len(near) == 16 and len(set(near)) == 16


def test_of_real_tables(data: Path) -> None:
    """HybridQA: every link of a table is followed both ways."""
    documents = list(read([data / "hybridqa" / "corpus.jsonl"]))
    tables = [document for document in documents if isinstance(document, Table)][:20]
    linked = {uri for table in tables for _, _, uri in table.links}
    corpus = encode([*tables, *(d for d in documents if isinstance(d, TextDocument) and d.uri in linked)])
    hops = entity_links(corpus)
    followed = 0
    for i in range(len(corpus)):
        if corpus.level[i] == Level.TABLE_ROW:
            near = list(dict.fromkeys(hops.of(i)))
            assert {corpus.uri(int(corpus.source[k])) for k in near} == set(corpus.links(i))
            assert all(i in hops.of(k) for k in near if len(list(hops.of(k))) < 16)
            followed += len(near)
    assert followed > 500
