"""Merging two stores: all that either knows, and names mean what they mean in each."""

import shutil
from pathlib import Path

import pytest
from word_vectors import WordVectors

from pyfast.knowledge import (
    Extract,
    Knowledge,
    Statement,
    add_extracts,
    merge_knowledge,
    open_knowledge,
    open_session,
    reset_knowledge,
    update_knowledge,
)
from pyfast.retrieval import Index

ONE = Extract(
    "a",
    "test",
    (Statement("Ada", "knows", "Bob", 7, description="well", keys=("friends", "acquaintance"), strength=4),),
)


def test_union(index: Index, store: Knowledge, small: Index, tmp_path: Path) -> None:
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    shutil.rmtree(other.folder / "knowledge", ignore_errors=True)
    first = add_extracts(other, WordVectors(), [ONE])
    both = merge_knowledge(index, WordVectors(), first)
    triples = {both.triple(i) for i in range(len(both))}
    assert triples == {store.triple(i) for i in range(len(store))} | {("Ada", "knows", "Bob")}
    ada = both.entity("Ada")
    assert ada is not None and both.keys[-3:] == ["knows", "friends", "acquaintance"]
    assert merge_knowledge(index, WordVectors(), first).fingerprint == both.fingerprint


def test_in_a_union_names_mean_what_they_mean_in_each_store(index: Index, small: Index, tmp_path: Path) -> None:
    """Case and spaces make no other entity, but where the other store tells two apart by them."""
    add_extracts(index, WordVectors(), [ONE, Extract("e", "test", (Statement("ONE", "is", "eve", 1),))])
    said = [("ADA", "BOB  Ross"), ("bob", "Eve"), ("Zoe", "zoe"), ("Eve", "one"), ("Bob ross", "ada")]
    extract = Extract("o", "test", tuple(Statement(head, "met", tail, 9) for head, tail in said[:2]))
    exact = Extract("x", "test", tuple(Statement(head, "met", tail, 9) for head, tail in said[2:]), exact=True)
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    both = merge_knowledge(index, WordVectors(), add_extracts(other, WordVectors(), [extract, exact]))
    met = [both.triple(i) for i in range(len(both)) if both.triple(i)[1] == "met"]
    assert met[:2] == [("ADA", "met", "BOB Ross"), ("Bob", "met", "eve")]  # other has both ADA and ada
    assert sorted(met[2:]) == [("Bob ross", "met", "ada"), ("Zoe", "met", "zoe"), ("eve", "met", "ONE")]
    assert merge_knowledge(index, WordVectors(), open_knowledge(other)).fingerprint == both.fingerprint


def test_a_union_is_not_of_documents_that_nobody_read(
    index: Index, small: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """pyfast says so until it is built; what came from elsewhere stays beside it, until it is reset."""
    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
    caplog.set_level("INFO", "pyfast")
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    united = merge_knowledge(index, WordVectors(), add_extracts(other, WordVectors(), [ONE]))
    assert len(united) == 1 and united.manifest["corpus"] is None
    assert open_session(index, "words").store.entity("Neil Armstrong") is None
    assert "has changed since its knowledge graph was built" in caplog.text
    store = update_knowledge(index, WordVectors(), texts_by_rules=True)
    assert store.entity("Neil Armstrong") is not None and store.entity("Ada") is not None
    assert store.manifest["corpus"] == index.manifest["corpus"]
    assert merge_knowledge(index, WordVectors(), united).fingerprint == store.fingerprint
    assert open_knowledge(index).manifest["corpus"] == index.manifest["corpus"]
    alone = update_knowledge(
        Index(shutil.copytree(small.folder, tmp_path / "alone")), WordVectors(), texts_by_rules=True
    )
    both, own = ({*known.triples(range(len(known)))} for known in (reset_knowledge(index, WordVectors()), alone))
    assert both == own
