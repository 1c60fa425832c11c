"""Every corpus of the real data goes there and back exactly."""

import json
from pathlib import Path

import pytest

from pyfast.corpus import Document, KnowledgeGraph, Table, TextDocument, Triple, decode, encode, read

SETS = ("2wiki", "convmix", "hotpotqa", "hybridqa", "metaqa", "musique", "nq", "tatqa")


def document(record: dict[str, object]) -> Document:
    """A record of the data as a document, straight from the data's description."""
    match record:
        case {"kind": "text", "id": str(uri), "title": str(title), "text": str(text)}:
            return TextDocument(uri, title, text)
        case {"kind": "table", "id": str(uri), "title": str(title), "section": str(section)}:
            links = [
                (*map(int, key.split(",")), to) for key, uris in record.get("links", {}).items() for to in uris
            ]
            rows = tuple(map(tuple, record["rows"]))
            return Table(uri, title, section, tuple(record["header"]), rows, tuple(links))
        case {"kind": "kg", "id": str(uri), "title": str(title), "triples": list(triples)}:
            return KnowledgeGraph(uri, title, tuple(Triple(*triple) for triple in triples))
    raise AssertionError(record)


@pytest.mark.parametrize("name", SETS)
def test_there_and_back(name: str, data: Path) -> None:
    path = data / name / "corpus.jsonl"
    with path.open(encoding="utf-8") as file:
        expected = [document(json.loads(line)) for line in file]
    found = list(read([path]))
    assert found == expected
    corpus = encode(found)
    assert decode(corpus) == expected
    assert corpus.passages().size >= sum(not isinstance(d, Table) for d in expected)
