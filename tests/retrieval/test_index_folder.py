"""An index folder is there whole or not at all; what is damaged or foreign is refused, never half-read."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dying import die_at_rename

import pyfast
import pyfast.retrieval.index.commit as commit
from pyfast.corpus import Document, Level, TextDocument, read
from pyfast.errors import IndexFormatError, InputError, OtherBuildError
from pyfast.retrieval import (
    Index,
    RerankConfig,
    bridge_select,
    build_index,
    cite,
    evidence_of,
    narrate,
    rerank_pools,
)
from pyfast.retrieval.index.manifest import write_manifest
from pyfast.systems.graph_convqa.evidence_items import find_evidence_items
from pyfast.systems.hseq.windows import open_window
from pyfast.utils.blocks import BLOCK, raw, write_checksums

pytestmark = pytest.mark.guarantee("G8")


@pytest.fixture(scope="module")
def built(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    build_index(read([examples / "corpus"]), folder)
    return folder


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def current(folder: Path) -> list[Path]:
    """The files of the current commit."""
    return [path for path in files(folder) if path.parent.name != "commits"]


def mapped(array: Any) -> bool:
    array = raw(array)
    while array is not None and not isinstance(array, mmap):
        array = getattr(array, "base", getattr(array, "obj", None))
    return array is not None


def test_reopened_it_is_the_same(small: Index, built: Path) -> None:
    again = Index(built)
    assert again.manifest == small.manifest
    assert list(again.terms) == list(small.terms)
    assert (again.X != small.X).nnz == 0
    queries = ["Which moon did Cassini visit?", "launch site of Apollo 11"]
    for a, b in zip(again.search(queries, 20), small.search(queries, 20), strict=True):
        assert list(a) == list(b)
    passages = range(len(small.passages))
    assert [again.text(u) for u in passages] == [small.corpus.render(i) for i in small.passages.tolist()]


def test_the_same_documents_make_the_same_files(built: Path, examples: Path, tmp_path: Path) -> None:
    build_index(read([examples / "corpus"]), tmp_path / "again")
    for path in files(built):
        assert (tmp_path / "again" / path.relative_to(built)).read_bytes() == path.read_bytes(), path.name


def test_everything_large_is_mapped(small: Index) -> None:
    ((_, lexical),) = small.searched
    arrays = {
        "X.data": small.X.data,
        "X.indices": small.X.indices,
        "X.indptr": small.X.indptr,
        "cells.value_offsets": small.cells.value_offsets,
        "cells.term_offsets": small.cells.term_offsets,
        "cells.term_ids": small.cells.term_ids,
        **{f"bm25.{name}": getattr(lexical, name) for name in ("indptr", "documents", "counts", "lengths")},
        "lines.offsets": small.rendered[0],
        "lines.text": small.rendered[1],
    }
    assert [name for name, array in arrays.items() if not mapped(array)] == []


def test_any_flipped_byte_is_noticed(copy: Path) -> None:
    chance = random.Random(5)
    for path in current(copy):
        whole = path.read_bytes()
        places = {0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(5))}
        for place in places:
            broken = bytearray(whole)
            broken[place] ^= 1 << chance.randrange(8)
            path.write_bytes(broken)
            with pytest.raises(IndexFormatError) as error:
                Index(copy).check_all()
            assert "\n" not in str(error.value), (path.name, place)
        path.write_bytes(whole)
    Index(copy).check_all()


def test_every_byte_of_the_manifest_counts(copy: Path) -> None:
    # Else a wrong count, or another corpus's fingerprint, would pass.
    manifest = copy / "manifest.json"
    whole = manifest.read_bytes()
    for place in range(len(whole)):
        manifest.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises((IndexFormatError, OtherBuildError)):
            Index(copy)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize("damage", [cut, empty, grow, Path.unlink])
def test_cut_emptied_grown_or_missing_files(copy: Path, damage: Callable[[Path], None]) -> None:
    for path in current(copy):
        whole = path.read_bytes()
        damage(path)
        with pytest.raises(IndexFormatError):
            Index(copy)
        path.write_bytes(whole)
    Index(copy).check_all()


FOREIGN = ["{}", "[]", "null", "3", '{"format": "pyfast-index", "format_version": 1}', "[" * 100_000, "\xff", ""]


@pytest.mark.parametrize("text", FOREIGN, ids=[text[:24] for text in FOREIGN])
def test_a_foreign_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(IndexFormatError):
        Index(tmp_path)


def test_folders_that_are_none(tmp_path: Path, copy: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nothing", tmp_path / "file", tmp_path, copy / "parts"):
        with pytest.raises(IndexFormatError, match=str(path)):
            Index(path)


def texts(n: int, fail: bool = False) -> Iterator[Document]:
    for i in range(n):
        yield TextDocument(f"{i}.txt", "", f"moon number{i}")
    if fail:
        raise KeyboardInterrupt


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index(texts(10, fail=True), tmp_path / "new" / "deep" / "index")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [None, "", " \n", "?!", "a the", "the of and"])
def test_nothing_to_retrieve(tmp_path: Path, text: str | None) -> None:
    documents = [] if text is None else [TextDocument("a", "", text)]
    with pytest.raises(InputError, match="there is nothing to index"):
        build_index(documents, tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_a_document_without_words_does_no_harm(tmp_path: Path) -> None:
    documents = [TextDocument("a", "", ""), TextDocument("b", "", "the of"), TextDocument("c", "", "moon")]
    index = build_index(documents, tmp_path / "index")
    assert [index.text(u) for u, _ in index.search(["the moon"], 5)[0]] == ["moon"]


def test_an_index_is_replaced_only_when_told_to(tmp_path: Path) -> None:
    out = tmp_path / "index"
    build_index(texts(3), out)
    with pytest.raises(InputError, match="--overwrite"):
        build_index(texts(4), out)
    assert Index(out).manifest["documents"] == 3
    with pytest.raises(KeyboardInterrupt):
        build_index(texts(4, fail=True), out, overwrite=True)
    assert Index(out).manifest["documents"] == 3
    assert build_index(texts(4), out, overwrite=True).manifest["documents"] == 4
    assert list(tmp_path.iterdir()) == [out]


def test_other_things_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("mine")
    for name in ("file", "folder", "file/index"):
        with pytest.raises(InputError):
            build_index(texts(3), tmp_path / name, overwrite=True)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "file", "folder"]


def test_an_empty_folder_or_a_link_may_be_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    build_index(texts(2), Path("."))
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    build_index(texts(3), tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink() and Index(tmp_path / "empty").manifest["documents"] == 3


BUILD = """
import sys
import threading
from pathlib import Path
from pyfast.corpus import TextDocument
from pyfast.retrieval import build_index
def documents():
    for i in range(6_000):
        if i == 3_000:
            print("half", flush=True)
        yield TextDocument(f"{i}.txt", "", f"moon number{i} of planet{i % 97}")
build_index(documents(), Path(sys.argv[1]))
print("done", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_killed_half_way_there_is_no_index(tmp_path: Path, delay: float) -> None:
    out = tmp_path / "index"
    with subprocess.Popen([sys.executable, "-c", BUILD, str(out)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"half\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        done = process.stdout.read() == b"done\n"
    if out.exists() or done:  # the machine was faster than the delay: then it is whole
        assert Index(out).manifest["documents"] == 6_000
    else:
        build_index(texts(3), out)  # and what the dead one left is not in the way
        assert Index(out).manifest["documents"] == 3


@pytest.mark.parametrize("renamed", range(3))
def test_killed_at_any_rename_what_the_index_knows_is_not_lost(tmp_path: Path, renamed: int) -> None:
    """A real SIGKILL before the rename of that number: a whole index is there, and each has the knowledge."""
    out = tmp_path / "index"
    build_index(texts(3), out)
    (out / "knowledge").mkdir()
    (out / "knowledge" / "current").write_text("7")
    child = os.fork()
    if not child:  # the child of a test must never come back into it
        try:
            die_at_rename(renamed)
            build_index(texts(4), out, overwrite=True)
        finally:
            os._exit(int(renamed != 2))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if renamed == 2 else -signal.SIGKILL)
    whole = [path for path in tmp_path.iterdir() if (path / "manifest.json").is_file()]
    assert whole and all((path / "knowledge" / "current").read_text() == "7" for path in whole)


def test_an_index_built_again_from_the_same_files_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, opened = tmp_path / "index", commit.map_part
    build_index(texts(3), out)

    def between_two_renames(folder: Path, manifest: Any, name: str) -> Any:
        monkeypatch.setattr(commit, "map_part", opened)
        out.rename(tmp_path / "old")
        try:
            return opened(folder, manifest, name)
        finally:
            build_index(texts(3), out)

    monkeypatch.setattr(commit, "map_part", between_two_renames)
    assert Index(out).manifest["documents"] == 3
    shutil.rmtree(out / "parts")
    with pytest.raises(IndexFormatError, match="is missing"):
        Index(out)


def test_two_at_the_same_time(tmp_path: Path) -> None:
    """The second stops at once, with a message; the first is not disturbed."""
    refused = []

    def documents() -> Iterator[Document]:
        yield TextDocument("one", "One", "The first is built.")
        for overwrite in (False, True):
            with pytest.raises(InputError, match="another process is building this folder") as error:
                build_index([TextDocument("two", "Two", "The second is not.")], tmp_path / "out", overwrite)
            refused.append(str(error.value))

    index = build_index(documents(), tmp_path / "out")
    assert len(refused) == 2 and index.manifest["documents"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def tampered(folder: Path, name: str, chance: random.Random) -> None:
    """Other values in an array, or in the columns of a corpus, with checksums that are right again."""
    path = folder / "parts" / "1" / name
    if path.suffix == ".arrow":
        with pa.ipc.open_file(path.read_bytes()) as reader:
            batch = reader.get_batch(0)
        columns = list(batch.columns)
        numbers = [k for k, one in enumerate(columns) if pa.types.is_integer(one.type) and len(one)]
        if not numbers:
            return
        k = chance.choice(numbers)
        values = columns[k].to_numpy().copy()
        values[chance.randrange(len(values))] = chance.choice([0, 1, 7, 100, np.iinfo(values.dtype).max])
        columns[k] = pa.array(values, columns[k].type)
        with pa.ipc.new_file(path, batch.schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=batch.schema))
    elif path.suffix == ".npy":
        values = np.load(path).copy()
        if not values.size:
            return
        limits = [0, 3, np.nan, -1e30] if values.dtype.kind == "f" else [0, 1, 99, np.iinfo(values.dtype).max]
        if values.dtype.kind == "i":
            limits += [-1, np.iinfo(values.dtype).min]
        values.ravel()[chance.randrange(values.size)] = chance.choice(limits)
        np.save(path, values)
    else:
        data = bytearray(path.read_bytes())
        if data:
            data[chance.randrange(len(data))] = chance.choice([0, 0x80, 0xFF, 0x22])
        path.write_bytes(data)
    write_checksums(path.parents[len(Path(name).parts) - 1])
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["blake2b"], manifest["files"]
    write_manifest(folder, {key: manifest[key] for key in manifest if key not in ("format", "format_version")})


def everything(index: Index) -> None:
    """What all systems ask of an index."""
    queries = ["Which moon did Cassini visit?", "launch site of Apollo 11", "Saturn"]
    pools = index.search(queries, 9)
    narrate(index, pools, 4000)
    cite(index, [evidence_of(index, pool) for pool in pools])
    ranked = list(zip(pools, queries, strict=True))
    for how in (RerankConfig(2, 9, rank="bridge_rank", expand=True), RerankConfig(2, 9, edges=True)):
        rerank_pools(index, ranked, how)
    bridge_select(index, pools, 0.2)
    find_evidence_items(index, queries, 5, 5)
    open_window(index, queries, 8, 4, (Level.PARAGRAPH, Level.TABLE_ROW, Level.SENTENCE, Level.TRIPLET))
    pyfast.delete_documents(index.folder, index.uri(0))


def test_values_that_cannot_be_are_refused_or_harmless(built: Path, tmp_path: Path) -> None:
    """Also with right checksums, nothing is read out of bounds, and no error but one comes of it."""
    chance = random.Random(int(os.environ.get("PYFAST_SEED", "7")))
    names = [str(path.relative_to(built / "parts" / "1")) for path in files(built / "parts" / "1")]
    refused = 0
    rounds = int(os.environ.get("PYFAST_ROUNDS", "1"))
    for number, name in enumerate(name for _ in range(rounds) for name in names if name != "checksums.bin"):
        copy = Path(shutil.copytree(built, tmp_path / f"{number}"))
        tampered(copy, name, chance)
        for work in (lambda at=copy: everything(Index(at)), lambda at=copy: Index(at).check_all()):
            try:
                work()
            except IndexFormatError:
                refused += 1
        shutil.rmtree(copy)
    assert refused > rounds * len(names) / 2


def test_healthy_files_of_another_index_are_refused(copy: Path, tmp_path: Path) -> None:
    build_index(texts(40), tmp_path / "other")
    for path in files(tmp_path / "other" / "parts" / "1"):
        name = path.relative_to(tmp_path / "other")
        if path.name in ("checksums.bin",) or (copy / name).read_bytes() == path.read_bytes():
            continue
        own = (copy / name).read_bytes()
        shutil.copy(path, copy / name)
        write_checksums(copy / "parts" / "1")
        manifest = json.loads((copy / "manifest.json").read_text())
        del manifest["blake2b"], manifest["files"]
        write_manifest(copy, {key: manifest[key] for key in manifest if key not in ("format", "format_version")})
        with pytest.raises(IndexFormatError):
            Index(copy).check_all()
        with contextlib.suppress(IndexFormatError):
            everything(Index(copy))
        (copy / name).write_bytes(own)


def test_opening_reads_few_blocks(tmp_path: Path) -> None:
    """What opening does not need may be damaged: only a search that reads it notices."""
    rows = [TextDocument(f"{i}.txt", "", f"moon number{i} " + "word " * 60) for i in range(3000)]
    build_index(rows, tmp_path / "index")
    for name in ("corpus/content.bin", "rendered_passages/text.bin"):
        path = tmp_path / "index" / "parts" / "1" / name
        data = bytearray(path.read_bytes())
        data[-BLOCK // 4] ^= 1  # in the last block: of the last documents
        path.write_bytes(data)
    index = Index(tmp_path / "index")
    first, last = (index.search([f"number{i}"], 1)[0] for i in (0, 2999))
    assert index.text(int(first.passages[0])).startswith("moon number0")
    assert cite(index, [evidence_of(index, first)])
    with pytest.raises(IndexFormatError, match=r"text\.bin is damaged \(wrong checksum\)"):
        index.text(int(last.passages[0]))
    with pytest.raises(IndexFormatError, match=r"content\.bin is damaged \(wrong checksum\)"):
        cite(index, [evidence_of(index, last)])
    assert not pyfast.verify(tmp_path / "index").passed


def test_who_opens_an_index_while_it_is_replaced_waits(tmp_path: Path) -> None:
    out = tmp_path / "index"
    build_index(texts(3), out)
    out.rename(tmp_path / "index.old-1")  # as between the two renames
    back = threading.Timer(0.2, (tmp_path / "index.old-1").rename, [out])
    back.start()
    assert Index(out).manifest["documents"] == 3
    back.join()
    out.rename(tmp_path / "elsewhere")
    with pytest.raises(IndexFormatError, match="there is no index folder"):
        Index(out)
