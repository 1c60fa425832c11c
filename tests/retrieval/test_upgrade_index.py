"""An index of an older format becomes, to the byte, the index that is built anew; nothing is lost on the way."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dying import die_at_rename

from pyfast.corpus import Corpus, TextDocument, read
from pyfast.errors import IndexFormatError
from pyfast.retrieval import Index, build_index, manifest, upgrade
from pyfast.retrieval.changing import add_documents, delete_documents
from pyfast.retrieval.passage_size import PassageSize
from pyfast.retrieval.upgrade import upgrade_index


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def built(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    build_index(read([examples / "corpus"]), folder)
    return folder


_CORPORA = {3: "pyfast corpus 2", 4: "pyfast corpus 3", 5: "pyfast corpus 3", 6: "pyfast corpus 4"}


FILES = ("segments.arrow", "documents.arrow", "triples.arrow")


def make_old(folder: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What upgrading reads of an index of an older format: its corpora, and a manifest that covers all files."""
    facts = manifest.read_manifest(folder)
    for name in ("format", "version", "files"):
        del facts[name]
    corpora = list(folder.glob("parts/*/corpus"))
    for corpus in corpora:
        make_old_corpus(corpus, version)
    for path in folder.glob("parts/*/checksums.bin"):
        path.unlink()
    for part in facts["parts"]:  # deleted documents were bytes, not bits
        if part["deleted"] is not None:
            bits = np.fromfile(folder / part["deleted"], np.uint8)
            (folder / part["deleted"]).unlink()
            part["deleted"] = part["deleted"].replace(".bits", ".npy")
            np.save(folder / part["deleted"], np.unpackbits(bits, count=part["documents"]))
    shutil.rmtree(folder / "commits")
    (folder / "manifest.json").unlink()
    if version < 6:
        corpora[0].rename(folder / "corpus")
        shutil.rmtree(folder / "parts")
        facts = {"documents": 5}
    with monkeypatch.context() as patch:
        patch.setitem(manifest.VERSION, "index", version)
        patch.setattr(manifest, "PARTS", "")  # all files had a checksum of the whole
        manifest.write_manifest(folder, facts)
        if version >= 6:
            manifest.keep_commit(folder, facts["commit"])


def make_old_corpus(folder: Path, version: int) -> None:
    """Without the columns that are newer, and with cells, wide numbers and the ids, which were stored."""
    corpus = Corpus.open(folder)
    ids, parts = corpus.ids[:], corpus._parts
    # Copies: the files that they are mapped from are overwritten.
    batches = [batch.take(pa.array(range(len(batch)), pa.int64())) for batch in parts[:3]]
    sizes = " ".join(str(len(part)) for part in parts)
    (folder / "cells.arrow").unlink()
    for path, batch in zip(map(folder.joinpath, FILES), batches, strict=True):
        told = {"sizes": sizes, "format": _CORPORA[version]}
        newer = ("hash",) if version == 6 else ("hash", "digest", "passages")
        batch = batch.select([name for name in batch.schema.names if name not in newer])
        if path.name == "segments.arrow":
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            wide = {
                name: it if name == "source" or it.type != pa.int32() else it.cast(pa.int64())
                for name, it in columns.items()
            }
            values = {"ids": pa.array(ids), **wide}
            fields = [pa.field(name, it.type, nullable=False) for name, it in values.items()]
            batch = pa.RecordBatch.from_arrays(list(values.values()), schema=pa.schema(fields))
        names = {"passage": "unit"} if version == 3 else {}
        fields = [field.with_name(names.get(field.name, field.name)) for field in batch.schema]
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields, told))
        with pa.ipc.new_file(path, batch.schema) as writer:
            writer.write_batch(batch)


@pytest.fixture(params=[3, 4, 5, 6])
def old(built: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(built, tmp_path / "old"))
    make_old(folder, request.param, monkeypatch)
    return folder


def test_it_is_the_index_built_anew(old: Path, built: Path) -> None:
    assert upgrade_index(old)
    assert files(old) == files(built)
    assert Index(old).corpus.fingerprint() == Index(old).manifest["corpus"] == Index(built).manifest["corpus"]
    assert list(old.parent.iterdir()) == [old]


def test_one_that_was_changed_is_that_of_its_documents(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts become one, without deleted documents; it stays at its commit, and at its passages' size."""
    documents = list(read([examples / "corpus"]))
    more = [TextDocument("more", "More", "Mimas is a moon of Saturn. " * 20), TextDocument("gone", "", "Gone.")]
    size = PassageSize(200, 50)
    changed, fresh = tmp_path / "changed", tmp_path / "fresh"
    build_index(documents, changed, size=size)
    add_documents(changed, more)
    delete_documents(changed, ["gone"])
    make_old(changed, 6, monkeypatch)
    assert upgrade_index(changed)
    build_index([*documents, more[0]], fresh, size=size)
    assert Index(changed).commit == 3
    parts = {name: data for name, data in files(fresh).items() if name.startswith("parts")}
    assert {name: data for name, data in files(changed).items() if name.startswith("parts")} == parts


def test_one_of_today_is_left_as_it_is(built: Path) -> None:
    before = {path: path.stat() for path in built.rglob("*")}
    assert not upgrade_index(built)
    assert {path: path.stat().st_mtime_ns for path in built.rglob("*")} == {
        path: told.st_mtime_ns for path, told in before.items()
    }


def test_what_the_manifest_does_not_cover_comes_along(old: Path, built: Path, tmp_path: Path) -> None:
    (old / "knowledge" / "1").mkdir(parents=True)
    (old / "knowledge" / "1" / "records.sqlite").write_text("paid for")
    (old / "notes.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_text("far")
    (old / "link").symlink_to(Path("..") / "elsewhere")
    record = (old / "knowledge" / "1" / "records.sqlite").stat().st_ino
    assert upgrade_index(old)
    assert (old / "knowledge" / "1" / "records.sqlite").stat().st_ino == record
    assert (old / "notes.txt").read_text() == "mine"
    assert (old / "link").is_symlink() and (old / "link" / "a").read_text() == "far"
    assert (old / "manifest.json").read_bytes() == (built / "manifest.json").read_bytes()
    Index(old)


def test_a_link_stays_a_link(old: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(old)
    assert upgrade_index(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and Index(tmp_path / "link").manifest["version"] == 7


def test_opening_it_says_what_to_do(old: Path) -> None:
    with pytest.raises(IndexFormatError, match=rf"this pyfast reads 7; `pyfast upgrade {old}`") as error:
        Index(old)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("version", "told"),
    [(2, r"too old to be upgraded; .+`pyfast index SOURCE --out .+ --overwrite`"), (8, "use a newer pyfast")],
)
def test_too_old_or_too_new_is_told(built: Path, tmp_path: Path, version: int, told: str) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "index"))
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"version": 7', f'"version": {version}'))
    for does in (Index, upgrade_index):
        with pytest.raises(IndexFormatError, match=told) as error:
            does(folder)
        assert f"format {version}" in str(error.value) and "\n" not in str(error.value)


def test_a_damaged_one_is_refused_and_stays(old: Path) -> None:
    for path in sorted(old.rglob("*")):
        if path.is_file():
            whole = path.read_bytes()
            broken = bytearray(whole)
            broken[len(whole) // 2] ^= 1
            path.write_bytes(broken)
            before = files(old)
            with pytest.raises(IndexFormatError):
                upgrade_index(old)
            assert files(old) == before and list(old.parent.iterdir()) == [old], path
            path.write_bytes(whole)
    assert upgrade_index(old)


def test_a_failure_half_way_leaves_the_old_one(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    before = files(old)
    with monkeypatch.context() as patch:
        patch.setattr(upgrade, "write_index", fails)
        with pytest.raises(KeyboardInterrupt):
            upgrade_index(old)
    assert files(old) == before and list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize("renamed", range(2))
def test_killed_at_a_rename_a_whole_index_is_there(old: Path, renamed: int) -> None:
    """A real SIGKILL before one of the two renames of folders."""
    (old / "knowledge").mkdir()
    (old / "knowledge" / "current").write_text("7")
    child = os.fork()
    if not child:  # the child of a test must never come back into it
        try:
            die_at_rename(renamed)
            upgrade_index(old)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    whole = [path for path in old.parent.iterdir() if (path / "manifest.json").is_file()]
    assert len(whole) == 2 and all((path / "knowledge" / "current").read_text() == "7" for path in whole)
    for path in whole:
        upgrade_index(path)
        Index(path)
