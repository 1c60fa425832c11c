"""An index that is built part by part equals one that is built at once, and a killed build continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import script
from test_changing import document, same

import pyfast
from pyfast.errors import IndexFormatError, InputError
from pyfast.retrieval import BuildProgress, Index, forward_index
from pyfast.retrieval.index import builder
from pyfast.retrieval.index.part_maker import PartMaker

BASE = [document(name, 0) for name in range(40)]


def parts_of(folder: Path) -> int:
    """The number of finished parts of an unfinished index."""
    return len(list((folder.with_name(f".{folder.name}.building") / "parts").glob("*")))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has eight documents."""
    monkeypatch.setattr(builder, "_footprint", lambda document: 75_000_000)


@pytest.mark.usefixtures("small_parts")
def test_built_part_by_part_it_is_the_same_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BuildProgress] = []
    at_once = forward_index._AT_ONCE
    monkeypatch.setattr(forward_index, "_AT_ONCE", 8)  # so that weights are computed in many pieces
    built = pyfast.build_index(
        BASE, tmp_path / "index", on_progress=seen.append, options=pyfast.IndexOptions(memory=950)
    )
    assert max(it.parts for it in seen) == 5 and any(it.merging for it in seen)
    assert len(built.parts) == 1 and parts_of(tmp_path / "index") == 0
    monkeypatch.setattr(builder, "_footprint", lambda document: 1)
    monkeypatch.setattr(forward_index, "_AT_ONCE", at_once)
    same(built, pyfast.build_index(BASE, tmp_path / "fresh"))
    pyfast.verify(tmp_path / "index")
    pyfast.add_documents(tmp_path / "index", document(90, 0))
    same(Index(tmp_path / "index"), pyfast.build_index([*BASE, document(90, 0)], tmp_path / "more"))


@pytest.mark.usefixtures("small_parts")
def test_two_parts_cannot_have_one_document(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"two documents have the uri '3\.x'"):
        pyfast.build_index([*BASE, document(3, 1)], tmp_path / "index", options=pyfast.IndexOptions(memory=950))


_BUILDS = """
import os, signal, sys
from pathlib import Path
import pyfast
from pyfast.retrieval.index import builder
builder._footprint = lambda document: 100_000_000
moment, saved = int(sys.argv[3]), builder.save_part
def save(folder, *rest):
    if moment == int(folder.name):
        os.kill(os.getpid(), signal.SIGKILL)
    saved(folder, *rest)
def merge(*given, **named):
    if moment == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    merged(*given, **named)
merged, builder.merge_parts, builder.save_part = builder.merge_parts, merge, save
read = []
from pyfast.corpus import readers
opened = readers._documents
def documents(uri, *rest):
    read.append(uri)
    yield from opened(uri, *rest)
readers._documents = documents
pyfast.build_index(sys.argv[1], sys.argv[2], options=pyfast.IndexOptions(memory=950))
print(len(read), *read)
"""


def build(source: Path, out: Path, moment: int) -> subprocess.CompletedProcess[str]:
    """Build in another process, which kills itself before the part `moment` is written; 0: before the merge."""
    return script(_BUILDS, source, out, moment)


@pytest.mark.guarantee("G8")
def test_a_killed_build_goes_on_after_its_parts(tmp_path: Path) -> None:
    source, out = tmp_path / "corpus", tmp_path / "index"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02}.txt").write_text(f"Moon {number} of Saturn. It was found in {1600 + number}.")
    (source / "07.pdf").write_bytes(b"no document")
    for moment, finished in ((2, 1), (0, 4)):
        assert build(source, out, moment).returncode == -signal.SIGKILL
        assert parts_of(out) == finished and not out.exists()
    done = build(source, out, 99)
    assert done.stdout.split() == ["1", "19.txt"]  # whether there is more in it
    assert "07.pdf" in done.stderr
    assert not list(tmp_path.glob(".*"))
    same(Index(out), pyfast.build_index(source, tmp_path / "fresh"))


def test_changed_sources_are_read_again(tmp_path: Path) -> None:
    source, out = tmp_path / "corpus", tmp_path / "index"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02}.txt").write_text(f"Moon {number} of Saturn. It was found in {1600 + number}.")
    assert build(source, out, 0).returncode == -signal.SIGKILL
    (source / "08.txt").write_text("It is no moon, but a ring.")
    done = build(source, out, 99)
    assert done.stdout.split()[1:] == [f"{number:02}.txt" for number in range(5, 20)]
    assert "changed since the build stopped" in done.stderr
    same(Index(out), pyfast.build_index(source, tmp_path / "fresh"))
    assert build(source, tmp_path / "other", 0).returncode == -signal.SIGKILL
    with pytest.raises(InputError, match="at least 600 MB"):
        pyfast.build_index(source, tmp_path / "other", options=pyfast.IndexOptions(memory=10))
    pyfast.build_index(
        source, tmp_path / "other", options=pyfast.IndexOptions(stemmer="english")
    )  # other parameters: all is read again
    assert pyfast.describe_index(tmp_path / "other").documents == 20


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes build, and a part has eight documents."""
    monkeypatch.setattr(builder, "_footprint", lambda document: 82_000_000)
    monkeypatch.setenv("PYFAST_THREADS", "2")


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of all files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("in_two")
def test_two_processes_build_the_same_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BuildProgress] = []
    pyfast.build_index(BASE, tmp_path / "index", on_progress=seen.append)
    assert max(it.parts for it in seen) == 5
    assert [it.documents for it in seen] == sorted(it.documents for it in seen)
    monkeypatch.setattr(PartMaker, "start", None)
    monkeypatch.setenv("PYFAST_THREADS", "1")
    monkeypatch.setattr(builder, "_footprint", lambda document: 210_000_000)
    pyfast.build_index(BASE, tmp_path / "in one", on_progress=seen.append)
    assert seen[-1].parts == 5
    assert files_of(tmp_path / "index") == files_of(tmp_path / "in one")


@pytest.mark.usefixtures("in_two")
def test_errors_of_the_other_process_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"two documents have the uri '3\.x'"):
        pyfast.build_index([*BASE, document(3, 1)], tmp_path / "twice")
    start = PartMaker.start

    def damaged(maker: PartMaker, folder: Path) -> None:
        if folder.name == "2":
            (folder / "corpus" / "content.bin").write_bytes(b"")
        start(maker, folder)

    monkeypatch.setattr(PartMaker, "start", damaged)
    with pytest.raises(IndexFormatError, match="do not match"):
        pyfast.build_index(BASE, tmp_path / "damaged")
    assert [
        one["name"] for one in json.loads((tmp_path / ".damaged.building/building.json").read_text())["parts"]
    ] == ["1"]
    monkeypatch.undo()
    pyfast.build_index(BASE, tmp_path / "damaged")
    pyfast.verify(tmp_path / "damaged")


def test_a_merge_may_open_more_files_than_the_soft_limit(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
import pyfast
from pyfast.corpus import TextDocument
from pyfast.retrieval.index import builder
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
builder._footprint = lambda document: 600_000_000
documents = [TextDocument(f"{k}", "", f"Moon {k} of Saturn") for k in range(14)]
pyfast.build_index(documents, sys.argv[1], options=pyfast.IndexOptions(memory=900))
"""
    done = script(code, tmp_path / "index")
    assert done.returncode == 0, done.stderr
    assert pyfast.describe_index(tmp_path / "index").documents == 14


_BUILDS_IN_TWO = """
import os, signal, sys, time
from pathlib import Path
import pyfast
from pyfast.retrieval.index import builder
from pyfast.retrieval.index.part_maker import PartMaker
builder._footprint = lambda document: 165_000_000
moment, whom, start = int(sys.argv[3]), sys.argv[4], PartMaker.start
def kills(maker, folder):
    if moment == int(folder.name) and whom == "idle":
        os.kill(maker._process.pid, signal.SIGKILL)
        time.sleep(0.2)
    start(maker, folder)
    if moment == int(folder.name):
        print(maker._process.pid, flush=True)
        if whom != "idle":
            os.kill(os.getpid() if whom == "this" else maker._process.pid, signal.SIGKILL)
PartMaker.start = kills
pyfast.build_index(sys.argv[1], sys.argv[2])
"""


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(("whom", "moments"), [("this", (2,)), ("other", (1,)), ("idle", (3,))])
def test_a_build_of_two_processes_goes_on_after_a_kill(
    tmp_path: Path, whom: str, moments: tuple[int, ...]
) -> None:
    source, out = tmp_path / "corpus", tmp_path / "index"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02}.txt").write_text(f"Moon {number} of Saturn. It was found in {1600 + number}.")
    (source / "07.pdf").write_bytes(b"no document")

    def build_in_two(moment: int) -> subprocess.CompletedProcess[str]:
        return script(_BUILDS_IN_TWO, source, out, moment, whom, environment={"PYFAST_THREADS": "2"})

    for moment in moments:
        killed = build_in_two(moment)
        if whom == "this":
            assert killed.returncode == -signal.SIGKILL
        else:
            assert killed.returncode == 1 and "it may need more memory" in killed.stderr
        deadline = time.monotonic() + 20
        while Path(f"/proc/{int(killed.stdout)}").exists():
            assert time.monotonic() < deadline, "the other process goes on"
            time.sleep(0.05)
        assert not out.exists()
    done = build_in_two(99)
    assert done.returncode == 0 and "07.pdf" in done.stderr, done.stderr
    assert not list(tmp_path.glob(".*"))
    same(Index(out), pyfast.build_index(source, tmp_path / "fresh"))


def _anonymous(pid: int) -> int:
    """MB of memory that a process holds beside mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0) // 1000


@pytest.mark.slow(suite="shapes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_under_the_option(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    with corpus.open("w") as file:
        for number in range(120_000):
            words = " ".join(f"word{(number * 31 + k * k) % 200_003}" for k in range(60))
            file.write(f'{{"id": "{number}", "title": "Text {number}", "text": "{words}."}}\n')
    command = [sys.executable, "-m", "pyfast", "index", str(corpus), "--out", str(tmp_path / "index")]
    child = subprocess.Popen([*command, "--memory", "600"], env={**os.environ, "OMP_NUM_THREADS": "1"})
    peak = 0
    while child.poll() is None:
        peak = max(peak, _anonymous(child.pid))
        time.sleep(0.02)
    assert child.returncode == 0 and 150 < peak < 600, peak
    assert pyfast.describe_index(tmp_path / "index").documents == 120_000


def test_a_file_that_cannot_fit_into_the_memory_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(200_000_000)  # a sparse file
    with pytest.raises(
        InputError, match=r"a.txt: this file of 200 MB needs at least 821 MB .* the limit is 600 MB"
    ):
        pyfast.build_index([tmp_path / "a.txt"], tmp_path / "I", options=pyfast.IndexOptions(memory=600))


def test_a_cell_with_a_control_character_has_the_words_of_its_line(tmp_path: Path) -> None:
    """NUL stands within words, so the cell must not have the terms `b` and `c`."""
    (tmp_path / "t.csv").write_bytes(b"k,v\na,b\x00c\nx,\x01\ny,\x00\n")
    index = pyfast.build_index(tmp_path / "t.csv", tmp_path / "I")
    assert [index.text(passage) for passage, _ in index.search(["bc"], 3)[0]] == ["t | k: a | v: bc"]
    assert not index.search(["b"], 3)[0]
