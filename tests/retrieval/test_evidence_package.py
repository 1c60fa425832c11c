"""The evidence package: its contract (A.3.5), and every snippet at its offsets."""

import json
from hashlib import sha1

import pytest

from pyfast.corpus import Document, KnowledgeGraph, Level, Table, TextDocument, Triple
from pyfast.retrieval import Index, build_index
from pyfast.systems.hseq.evidence_package import EvidencePackage, canonicalize

DOCUMENTS: list[Document] = [
    TextDocument("z.md", "Z", "One sentence alone.\n\nTwo here. And é there.", markdown=True),
    Table("t", "T", "S", ("year", "name"), (("1999", "a"), ("2000", "b é"))),
    KnowledgeGraph("g", "", (Triple("h", "r", "t"), Triple("h", "r", "t", "1999"), Triple("i", "r", "t"))),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(DOCUMENTS, tmp_path_factory.mktemp("package") / "index")


def package(index: Index, segments: list[int]) -> EvidencePackage:
    return canonicalize(index, [segments])[0]


def test_the_contract(index: Index) -> None:
    corpus = index.corpus
    whole = package(index, list(range(len(corpus))))
    written = [{("segment" if name == "id" else name): it for name, it in item.items()} for item in whole.items]
    assert json.loads(whole.json()) == [{**item, "score": None} for item in written]
    for i, item, line in zip(whole.segments, whole.items, whole.lines, strict=True):
        assert list(item) == ["id", "level", "uri", "offsets", "source_type", "snippet", "meta"]
        assert list(item["meta"]) == ["schema", "time", "source_version", "sha1"]
        assert item["id"] == f"{corpus.ids[i]:016x}" and item["level"] == Level(corpus.level[i]).name.lower()
        assert item["meta"]["sha1"] == sha1(item["snippet"].encode()).hexdigest()
        assert item["meta"]["source_version"] == corpus.fingerprint()
        start, end = item["offsets"]
        document = next(document for document in DOCUMENTS if document.uri == item["uri"])
        match document:
            case TextDocument():
                assert item["source_type"] == "text" and document.text[start:end] == item["snippet"]
            case Table():
                assert item["source_type"] == "table" and item["meta"]["schema"] == ["year", "name"]
                rows = document.rows if start < 0 else document.rows[start : start + 1]
                cells = [row if end < 0 else row[end : end + 1] for row in rows]
                assert item["snippet"] == "\n".join(map("\t".join, cells))
            case KnowledgeGraph():
                assert item["source_type"] == "kg" and (start, end) == (-1, -1)
        assert line == corpus.render(i)
    times = [item["meta"]["time"] for item in whole.items if item["source_type"] == "kg"]
    assert times == [[None, "1999", None], [None, "1999"], None, ["1999"], None, None]


def test_order_and_duplicates(index: Index) -> None:
    everything = list(range(len(index.corpus)))
    whole = package(index, everything)
    assert package(index, everything[::-1] * 2).json() == whole.json()
    places = [(item["uri"], *item["offsets"]) for item in whole.items]
    assert places == sorted(places)
    outside = [place for place in places if place[0] != "g"]
    assert len(set(outside)) == len(outside) and places.count(("g", -1, -1)) == 6
    ids = {item["id"] for item in whole.items}
    assert len(ids) == len(whole.items)
    # A paragraph of one sentence is where its sentence is: the larger one stays.
    (alone,) = (item for item in whole.items if item["snippet"] == "One sentence alone.")
    assert alone["level"] == "paragraph"


def test_batches_do_not_matter(index: Index) -> None:
    lists = [[3, 1], [], [7, 8, 9], [0]]
    together = canonicalize(index, lists)
    assert [p.json() for p in together] == [package(index, one).json() for one in lists]
    assert together[1].items == ()
