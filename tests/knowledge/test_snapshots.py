"""Snapshots: one change is one snapshot, whatever ends it; damaged ones are refused, and repaired."""

import os
import signal
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from word_vectors import WordVectors

from pyfast.corpus import read
from pyfast.errors import IndexFormatError
from pyfast.knowledge import (
    Extract,
    Knowledge,
    Statement,
    add_extracts,
    extract_by_rules,
    open_knowledge,
    reset_knowledge,
    snapshots,
)
from pyfast.knowledge.extracts import LEARNED
from pyfast.knowledge.snapshots import Writer, contents_digest, make_snapshot
from pyfast.knowledge.store import FILE, open_read_only
from pyfast.retrieval import Index, build_index

KEYS = ("friends", "acquaintance")
ONE = Extract("a", "test", (Statement("Ada", "knows", "Bob", 7, "", "well", KEYS, 4),))


def test_a_text_is_encoded_once(index: Index, store: Knowledge) -> None:
    vectors = WordVectors()
    grown = add_extracts(index, vectors, [ONE])
    assert sorted(vectors.encoded) == ["Ada", "Ada knows Bob", "Bob", "acquaintance", "friends", "knows"]
    np.testing.assert_array_equal(grown.matrix("facts"), WordVectors().encode(grown.texts("facts")))


def test_a_store_that_grew_and_shrank_is_as_one_made_at_once(index: Index, store: Knowledge) -> None:
    """Its digest too, which counts what changed: and to take out again what was added is to go back."""
    learned = [Extract("l", LEARNED, (Statement("Ada", "KNOWS", "Bob", 7), Statement("Eve", "is", "Ada", 8)))]
    names = [store.triple(place) for place in range(len(store))]
    grown = add_extracts(index, WordVectors(), learned)
    whole = Knowledge.open(grown.folder, WordVectors())
    with open_read_only(grown.folder / FILE) as database:
        assert f"{contents_digest(database)}-words" == grown.fingerprint == whole.fingerprint
    for kind in ("facts", "entities", "keys"):
        np.testing.assert_array_equal(grown.matrix(kind), WordVectors().encode(grown.texts(kind)))
    assert not {("Ada", "KNOWS", "Bob"), ("Eve", "is", "Ada")} - {grown.triple(i) for i in range(len(grown))}
    back = reset_knowledge(index, WordVectors())
    assert back.fingerprint == store.fingerprint
    assert [back.triple(place) for place in range(len(back))] == names


def test_nothing_new_is_no_new_snapshot(index: Index, store: Knowledge) -> None:
    again = add_extracts(index, WordVectors(), extract_by_rules(index))
    assert again.folder == store.folder and again.fingerprint == store.fingerprint


@pytest.mark.guarantee("G9")
def test_who_has_a_snapshot_open_keeps_it(index: Index, store: Knowledge) -> None:
    grown = add_extracts(index, WordVectors(), [ONE])
    assert open_knowledge(index).fingerprint == grown.fingerprint != store.fingerprint
    assert Knowledge.open(store.folder).fingerprint == store.fingerprint
    add_extracts(index, WordVectors(), [Extract("b", "test", (Statement("C", "d", "E", 1),))])
    assert not store.folder.exists()


def test_a_change_that_fails_changes_nothing(index: Index, store: Knowledge) -> None:
    def broken(database: sqlite3.Connection) -> None:
        Writer(database).add([ONE])
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        make_snapshot(index, WordVectors(), broken)
    assert open_knowledge(index).fingerprint == store.fingerprint
    assert sorted(path.name for path in (index.folder / "knowledge").iterdir()) == ["1", "current"]


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("when", ["database", "vectors", "renamed"])
def test_killed_in_a_change(index: Index, store: Knowledge, when: str) -> None:
    """A real SIGKILL: while the database is written, while vectors are, just before the new snapshot is named."""
    child = os.fork()
    if not child:  # the child of a test must never come back into it
        try:
            if when == "renamed":
                snapshots.set_current = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            vectors = WordVectors()
            if when == "vectors":
                vectors.encode = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]

            def write(database: sqlite3.Connection) -> None:
                Writer(database).add([ONE])
                if when == "database":
                    os.kill(os.getpid(), signal.SIGKILL)

            make_snapshot(index, vectors, write)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert open_knowledge(index).fingerprint == store.fingerprint
    grown = add_extracts(index, WordVectors(), [ONE])
    assert open_knowledge(index).fingerprint == grown.fingerprint and "Ada" in grown.entities
    assert {path.name for path in (index.folder / "knowledge").iterdir()} == {"1", "2", "current"}


@pytest.mark.guarantee("G8")
def test_a_damaged_file_is_refused(index: Index, store: Knowledge) -> None:
    chance = np.random.default_rng(5)
    for path in sorted(store.folder.iterdir()):
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[chance.integers(len(whole))] ^= 64
        path.write_bytes(damaged)
        with pytest.raises(IndexFormatError, match=r"damaged|format"):
            open_knowledge(index)
        path.write_bytes(whole)
    (index.folder / "knowledge" / "current").write_text("x")
    with pytest.raises(IndexFormatError, match="damaged"):
        open_knowledge(index)


def damage(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 64
    path.write_bytes(contents)


@pytest.mark.parametrize("damaged", ["2/triples.sqlite", "2/facts.vectors.npy", "2/manifest.json", "current"])
def test_a_damaged_snapshot_is_put_aside_by_the_next_build(
    index: Index, store: Knowledge, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody works with it, or with the one before unasked; the error says what to do, and that does it."""
    grown = add_extracts(index, WordVectors(), [ONE])
    home = index.folder / "knowledge"
    if damaged == "current":
        (home / damaged).write_text("\0\0")
    else:
        damage(home / damaged)
    for attempt in (lambda: open_knowledge(index), lambda: add_extracts(index, WordVectors(), [ONE])):
        with pytest.raises(IndexFormatError, match=rf"damaged.*`pyfast knowledge build {index.folder}`"):
            attempt()
    snapshots.repair(index)
    (warning,) = caplog.messages
    assert "damaged" in warning
    caplog.clear()
    left = grown if damaged == "current" else store  # only the name was damaged: nothing is lost
    assert open_knowledge(index).fingerprint == left.fingerprint
    assert (home / "2.damaged").exists() == (damaged != "current")
    assert add_extracts(index, WordVectors(), [ONE]).fingerprint == grown.fingerprint
    snapshots.repair(index)
    assert not caplog.records and open_knowledge(index).fingerprint == grown.fingerprint


def test_where_no_snapshot_is_whole_all_stays_as_it_is(index: Index, store: Knowledge) -> None:
    damage(store.folder / "triples.sqlite")
    before = sorted(path.name for path in store.folder.parent.rglob("*"))
    with pytest.raises(IndexFormatError, match=rf"damaged.*remove {store.folder.parent} to start again"):
        snapshots.repair(index)
    assert sorted(path.name for path in store.folder.parent.rglob("*")) == before


def test_a_snapshot_is_on_the_disk_before_it_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file as it is to stay; then the folder's new name; then `current`, and its name."""
    done: list[tuple[str, str, int]] = []  # (what, path, bytes)
    fsync, rename = os.fsync, Path.rename

    def synced(file: int) -> None:
        fsync(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        done.append(("fsync", str(path), path.stat().st_size if path.is_file() else 0))

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", str(path), 0))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    store = add_extracts(index, WordVectors(), [ONE])
    home = store.folder.parent
    built = done.index(("rename", str(home / "1.building"), 0))
    files = {("fsync", str(home / "1.building" / f.name), f.stat().st_size) for f in store.folder.iterdir()}
    folders = {("fsync", str(folder), 0) for folder in (home.parent, home / "1.building")}
    assert len(files) > 4 and files | folders == set(done[:built])
    new = done[built + 2][1]  # a name of its own, beside `current`
    assert new.startswith(str(home / "current.new-"))
    assert done[built + 1 :] == [
        ("fsync", str(home), 0), ("fsync", new, 2), ("rename", new, 0), ("fsync", str(home), 0)
    ]  # fmt: skip


def test_knowledge_stays_when_the_index_is_built_anew(index: Index, store: Knowledge, examples: Path) -> None:
    again = build_index(read([examples / "corpus"]), index.folder, overwrite=True)
    assert open_knowledge(again).fingerprint == store.fingerprint
