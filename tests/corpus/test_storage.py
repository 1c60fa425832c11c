"""Saved corpora: the same when opened, refused when damaged."""

import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from corpus_strategies import documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_sequence import mixed

from pyfast.corpus import Corpus, Document, Table, TextDocument, decode, encode, schema, storage
from pyfast.errors import IndexFormatError, OtherBuildError
from pyfast.utils.blocks import MappedFolder, write_checksums

FILES = ("segments.arrow", "cells.arrow", "documents.arrow", "triples.arrow", "content.bin")
COLUMNS = ("level", "parent", "subtree_end", "source", "start", "end", "byte_start", "byte_end")


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(documents)
def test_round_trip(tmp_path: Path, given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    corpus.save(tmp_path)
    opened = Corpus.open(tmp_path)
    assert decode(opened) == given_documents
    assert np.array_equal(opened.passages(), corpus.passages())
    assert [opened.render(i) for i in range(len(opened))] == [corpus.render(i) for i in range(len(corpus))]
    assert [opened.segment(i) for i in range(len(opened))] == [corpus.segment(i) for i in range(len(corpus))]
    opened.save(tmp_path)  # over the files it is mapped from
    assert decode(Corpus.open(tmp_path)) == decode(opened) == given_documents
    assert not opened.level.flags.writeable


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    encode(mixed()).save(tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["last byte", "first byte", "half", "all", "one byte more", "missing"])
def test_damaged_files_are_refused(saved: Path, name: str, damage: str) -> None:
    data = (saved / name).read_bytes()
    if damage == "missing":
        (saved / name).unlink()
    else:
        kept = {
            "last byte": data[:-1],
            "first byte": data[1:],
            "half": data[: len(data) // 2],
            "all": b"",
            "one byte more": data + b"x",
        }
        (saved / name).write_bytes(kept[damage])
    with pytest.raises(IndexFormatError) as caught:
        Corpus.open(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("name", FILES)
def test_files_of_another_corpus_are_refused(saved: Path, tmp_path: Path, name: str) -> None:
    encode([*mixed(), TextDocument("more", "", "more")]).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, saved / name)
    with pytest.raises(IndexFormatError):
        Corpus.open(saved)


@pytest.mark.parametrize("column", ["parent", "subtree_end"])
def test_a_hierarchy_that_is_none_is_refused(saved: Path, column: str) -> None:
    *_, buffer = parts = storage.read(saved)
    values = {name: parts[0].column(name).to_numpy().copy() for name in parts[0].schema.names}
    # A sentence of the first document, to its first paragraph instead of its second; the end of a leaf.
    values[column][5 if column == "parent" else 2] = 1 if column == "parent" else 4
    storage.write(saved, (schema.record(schema.SEGMENTS, values), *parts[1:3], buffer))
    with pytest.raises(IndexFormatError, match=r"does not end|extends beyond"):
        Corpus.open(saved)


@pytest.mark.guarantee("G8")
def test_files_of_an_earlier_format_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "FORMAT", "pyfast corpus 6")
    encode(mixed()).save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(OtherBuildError, match=r"format pyfast corpus 6, not .+ 1\): build the index again$"):
        Corpus.open(tmp_path)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(documents, st.randoms(use_true_random=False))
def test_cells_are_computed_from_their_rows(given_documents: list[Document], chance: random.Random) -> None:
    """In a mapped corpus, in any order of reading."""
    corpus = encode(given_documents)
    with TemporaryDirectory() as folder:
        files = mapped(Path(folder), corpus)
        opened = Corpus.mapped(files)
        for name in chance.sample(COLUMNS, len(COLUMNS)):
            expected = getattr(corpus, name)
            for _ in range(min(len(corpus), 5)):
                i = chance.randrange(len(corpus))
                assert getattr(opened, name)[i] == expected[i]
                assert getattr(opened, name)[i:].tolist() == expected[i:].tolist()
        assert decode(opened) == given_documents
        opened.check_all()


def test_a_large_table_is_computed_block_by_block(tmp_path: Path) -> None:
    rows = tuple(tuple(map(str, range(k % 9))) for k in range(40_000))
    corpus = encode([TextDocument("a", "", "Before. It."), Table("t", "", "", ("a",), rows)])
    opened = Corpus.mapped(mapped(tmp_path, corpus))
    for i in random.Random(3).sample(range(len(corpus)), 200):
        assert opened.segment(i)["snippet"] == corpus.segment(i)["snippet"]
    for name in COLUMNS:
        assert np.array_equal(getattr(opened, name), getattr(corpus, name)), name


def mapped(folder: Path, corpus: Corpus) -> MappedFolder:
    corpus.save(folder / storage.FOLDER)
    write_checksums(folder)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return MappedFolder(folder, {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths})


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(("k", "place"), [(0, 1), (3, 2), (5, 4), (-1, 1 << 30), (-1, 1)])
def test_positions_that_cannot_be_are_refused(saved: Path, k: int, place: int) -> None:
    with pa.ipc.open_file((saved / "segments.arrow").read_bytes()) as reader:
        batch = reader.get_batch(0)
    places = batch.column("place").to_numpy().copy()
    places[k] = place
    batch = pa.RecordBatch.from_arrays([*batch.columns[:-1], pa.array(places)], schema=batch.schema)
    with pa.ipc.new_file(saved / "segments.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(IndexFormatError, match="damaged"):
        Corpus.open(saved)


def test_folders_that_are_no_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match=r"segments\.arrow"):
        Corpus.open(tmp_path)
    with pytest.raises(IndexFormatError):
        Corpus.open(tmp_path / "nothing")


def test_flipped_bytes_never_lead_out_of_bounds(saved: Path) -> None:
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        name = chance.choice(FILES[:4])
        data = bytearray((saved / name).read_bytes())
        original = bytes(data)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (saved / name).write_bytes(data)
        try:
            corpus = Corpus.open(saved)
            for i in range(len(corpus)):
                try:
                    corpus.content(i)
                    corpus.render(i)
                    corpus.links(i)
                except UnicodeDecodeError:  # a view that begins inside a character
                    pass
        except IndexFormatError:
            refused += 1
        (saved / name).write_bytes(original)
    assert refused > 30
    assert decode(Corpus.open(saved)) == mixed()
