"""Knowledge of formats 1 and 2, made by undoing what the upgrade does: the same after it, killed or damaged."""

import fcntl
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from word_vectors import WordVectors

from pyfast.api.upgrading import upgrade as upgrade_folder
from pyfast.errors import IndexFormatError, InputError
from pyfast.knowledge import (
    Extract,
    Knowledge,
    Statement,
    add_extracts,
    build_knowledge,
    merge_knowledge,
    open_knowledge,
    upgrade,
    upgrade_knowledge,
)
from pyfast.knowledge.database import open_for_writing
from pyfast.retrieval import Index
from pyfast.retrieval.manifest import VERSION, read_manifest, write_manifest

OLD_NAMES = {"rule_based": "straight", "llm": "read", "merged": "united"}
BY_LLM = Extract("b", "llm", (Statement("Ada", "knows", "Bob", 7),))


ONE_KEY = """
ALTER TABLE statements ADD COLUMN key INTEGER NOT NULL DEFAULT 0;
UPDATE statements SET key = (SELECT key FROM statement_keys AS k
    WHERE k.triple = statements.triple AND k.chunk = statements.chunk);
CREATE INDEX by_relation_key ON statements (key);
ALTER TABLE statements DROP COLUMN strength;
DROP TABLE statement_keys;
DROP TABLE themes;
"""


def make_old(home: Path, version: int = 1) -> None:
    """Turn the snapshots and what lies beside them into those of an older format."""
    for snapshot in home.glob("[0-9]*"):
        manifest = read_manifest(snapshot, "knowledge")
        (snapshot / "manifest.json").unlink()
        database = open_for_writing(snapshot / "triples.sqlite")
        for now, before in OLD_NAMES.items() if version == 1 else ():
            database.execute("UPDATE chunks SET method = ? WHERE method = ?", (before, now))
        database.executescript(ONE_KEY)
        database.close()
        if version == 1:
            (snapshot / "triples.sqlite").rename(snapshot / "records.sqlite")
        kept = {name: manifest[name] for name in ("embedder", "corpus", "chunk_tokens")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(VERSION, "knowledge", version)
            write_manifest(snapshot, {"contents": "older", **kept}, "knowledge")
    if version > 1:
        return
    (home / "reading").mkdir()
    (home / "reading" / "chunks.jsonl").write_text('{"id": "c", "question": "q", "title": "", "passages": []}\n')
    (home / "reading.old-1").mkdir()
    (home / "computed").write_bytes(b"vectors")


def rows(store: Knowledge) -> list[Any]:
    tables = ("chunks", "entities", "relations", "keys", "triples", "statements", "statement_keys", "mentions")
    return [row for table in tables for row in store.rows(f"SELECT * FROM {table}")]


@pytest.fixture
def both(index: Index, store: Knowledge, small: Index, tmp_path: Path) -> tuple[Knowledge, Knowledge]:
    """(the snapshot before, the current one), with chunks of every method, of an index that is then made old."""
    other = Index(shutil.copytree(small.folder, tmp_path / "other"))
    merged = Extract("m", "test", (Statement("Eve", "met", "Zoe", 9),))
    before = merge_knowledge(index, WordVectors(), add_extracts(other, WordVectors(), [merged]))
    current = add_extracts(
        index, WordVectors(), [BY_LLM, Extract("l", "learned"), Extract("f", "llm", failed="no")]
    )
    kept = tmp_path / "kept"
    shutil.copytree(index.folder / "knowledge", kept)
    make_old(index.folder / "knowledge")
    return Knowledge.open(kept / before.folder.name), Knowledge.open(kept / current.folder.name)


def check(index: Index, both: tuple[Knowledge, Knowledge]) -> None:
    """All is as it was before it was made old."""
    before, current = both
    home, found = index.folder / "knowledge", open_knowledge(index, WordVectors())  # type: ignore[arg-type]
    assert rows(found) == rows(current) and found.fingerprint == current.fingerprint
    assert {**found.manifest, "files": 0} == {**current.manifest, "files": 0}
    assert {method for (method,) in found.rows("SELECT method FROM chunks")} == {*OLD_NAMES, "learned"}
    for old in current.folder.iterdir():
        if old.suffix != ".json":
            assert (found.folder / old.name).read_bytes() == old.read_bytes() or old.suffix == ".sqlite"
    assert (
        Knowledge.open(found.folder.with_name(str(int(found.folder.name) - 1))).fingerprint == before.fingerprint
    )
    assert len([path for path in home.iterdir() if path.name.isdigit()]) == 2
    beside = {"current", "lock", "extraction", "extraction.old-1", "embeddings.cache"}
    assert {path.name for path in home.iterdir() if not path.name.isdigit()} == beside
    assert (home / "extraction" / "chunks.jsonl").is_file()
    assert (home / "embeddings.cache").read_bytes() == b"vectors"


def test_old_knowledge_is_refused_and_then_upgraded(index: Index, both: tuple[Knowledge, Knowledge]) -> None:
    home = index.folder / "knowledge"
    with pytest.raises(IndexFormatError, match="knowledge of format 1, this pyfast reads 3; `pyfast upgrade"):
        open_knowledge(index)
    upgrade_knowledge(home)
    check(index, both)
    files = sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*") if path.name != "lock")
    upgrade_knowledge(home)  # nothing is left to do
    assert sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*") if path.name != "lock") == files


def test_knowledge_of_format_2_is_upgraded(index: Index, store: Knowledge) -> None:
    current = add_extracts(index, WordVectors(), [BY_LLM])  # type: ignore[arg-type]
    all_rows, contents = rows(current), current.fingerprint
    make_old(index.folder / "knowledge", 2)
    with pytest.raises(IndexFormatError, match="knowledge of format 2, this pyfast reads 3; `pyfast upgrade"):
        open_knowledge(index)
    assert upgrade_knowledge(index.folder / "knowledge")
    found = open_knowledge(index, WordVectors())  # type: ignore[arg-type]
    assert rows(found) == all_rows and found.fingerprint == contents


def test_the_upgrade_of_an_index_takes_its_knowledge_along(
    index: Index, both: tuple[Knowledge, Knowledge]
) -> None:
    assert upgrade_folder(index.folder) == f"{index.folder}: index of format 7, upgraded"
    check(index, both)
    assert upgrade_folder(index.folder) == f"{index.folder}: index of format 7 already"


def test_vectors_are_the_same_files(index: Index, both: tuple[Knowledge, Knowledge]) -> None:
    """By hard links: no second copy of what is large."""
    before = {path.name: path.stat().st_ino for path in (index.folder / "knowledge" / "3").glob("*.npy")}
    upgrade_knowledge(index.folder / "knowledge")
    store = open_knowledge(index)
    assert before and {path.name: path.stat().st_ino for path in store.folder.glob("*.npy")} == before
    assert np.array_equal(store.matrix("facts"), both[1].matrix("facts"))


@pytest.mark.parametrize("step", range(1, 12))
def test_killed_in_an_upgrade(index: Index, both: tuple[Knowledge, Knowledge], step: int) -> None:
    """A real SIGKILL before one of its steps on the disk: the knowledge is of one format, whole; it goes on."""
    home, done = index.folder / "knowledge", 0
    child = os.fork()
    if not child:  # the child of a test must never come back into it
        try:

            def counted(work: Any) -> Any:
                def wrapped(*given: Any, **named: Any) -> Any:
                    nonlocal done
                    done += 1
                    if done == step:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return work(*given, **named)

                return wrapped

            Path.rename = counted(Path.rename)  # type: ignore[method-assign]
            upgrade.shutil.rmtree = counted(shutil.rmtree)  # type: ignore[attr-defined]
            upgrade.shutil.copyfile = counted(shutil.copyfile)  # type: ignore[attr-defined]
            upgrade.write_manifest = counted(upgrade.write_manifest)  # type: ignore[attr-defined]
            upgrade_knowledge(home)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    number = int((home / "current").read_text())
    versions = [version for version in (1, 3) if is_whole(home / str(number), version)]
    assert len(versions) == 1
    upgrade_knowledge(home)
    check(index, both)


def is_whole(snapshot: Path, version: int) -> bool:
    try:
        read_manifest(snapshot, "knowledge", version)
    except IndexFormatError:
        return False
    return True


def damage(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 64
    path.write_bytes(contents)


@pytest.mark.parametrize("damaged", ["3/records.sqlite", "3/manifest.json"])
def test_a_damaged_snapshot_does_not_come_along(
    index: Index, both: tuple[Knowledge, Knowledge], damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = index.folder / "knowledge"
    damage(home / damaged)
    upgrade_knowledge(home)
    assert open_knowledge(index).fingerprint == both[0].fingerprint
    (warning,) = caplog.messages
    assert "damaged: continuing with snapshot 2" in warning
    assert (home / "3.damaged").is_dir()  # perhaps something of it can be saved


def test_where_none_is_whole_all_stays(index: Index, both: tuple[Knowledge, Knowledge]) -> None:
    home = index.folder / "knowledge"
    for number in (2, 3):
        damage(home / f"{number}/records.sqlite")
    before = sorted(home.rglob("*"))
    with pytest.raises(IndexFormatError, match=f"{home}: all snapshots are damaged: remove the folder"):
        upgrade_knowledge(home)
    assert sorted(home.rglob("*")) == before


def test_nothing_to_upgrade(index: Index, store: Knowledge, tmp_path: Path) -> None:
    upgrade_knowledge(tmp_path / "none")
    upgrade_knowledge(store.folder.parent)
    assert open_knowledge(index).fingerprint == store.fingerprint
    only = tmp_path / "index" / "knowledge"
    shutil.rmtree(only)
    (only / "reading").mkdir(parents=True)  # stopped before there was any snapshot
    upgrade_knowledge(only)
    assert {path.name for path in only.iterdir()} == {"extraction", "lock"}


def test_a_build_upgrades_and_adds_nothing_twice(index: Index, both: tuple[Knowledge, Knowledge]) -> None:
    """Chunks that rules or an LLM extracted before are known again by their digests."""
    shutil.rmtree(index.folder / "knowledge" / "reading")
    vectors = WordVectors()
    built = build_knowledge(index, embedder=vectors, run_job=lambda job: None)  # type: ignore[arg-type]
    digests = "SELECT digest FROM chunks WHERE method = 'rule_based' ORDER BY id"
    assert [*built.rows(digests)] == [*both[1].rows(digests)] != []
    assert vectors.encoded == []


def test_an_extraction_that_runs_is_left_alone(index: Index, both: tuple[Knowledge, Knowledge]) -> None:
    home = index.folder / "knowledge"
    with (home / "reading" / "answers.jsonl").open("w") as answers:
        fcntl.flock(answers, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process is working on it"):
            upgrade_knowledge(home)
    upgrade_knowledge(home)
    assert (home / "extraction").is_dir() and not (home / "reading").exists()
