"""An index that changes is, bit for bit, the index that is built from what it holds; whatever ends its writers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.corpus import Document, KnowledgeGraph, Table, TextDocument, Triple, decode, read
from pyfast.errors import IndexFormatError, InputError
from pyfast.retrieval import Index, RerankConfig, cite, evidence_of, narrate, rerank_pools
from pyfast.utils.stop_words import ENGLISH, LUCENE

QUERIES = ["moon of saturn", "which rocket flew to the moon", "huygens titan titan", "the of", "europa"]
WORDS = ["moon", "saturn", "titan", "rocket", "huygens", "europa", "orbit", "the", "of", "flew", "cassini", "ring"]


def text_of(seed: int) -> str:
    chance = np.random.default_rng(seed)
    return " ".join(chance.choice(WORDS, chance.integers(1, 12))) + "."


def document(name: int, version: int) -> Document:
    """One of a few kinds; another version has other contents."""
    uri, seed = f"{name}.x", 100 * name + version
    if name % 4 == 1:
        rows = tuple((text_of(seed + row), text_of(seed + row + 50)) for row in range(2))
        return Table(uri, f"Table {name}", "s", ("a", "b"), rows)
    if name % 4 == 2:
        return KnowledgeGraph(uri, f"Graph {name}", (Triple(text_of(seed), "orbits", text_of(seed + 1), "1655"),))
    return TextDocument(uri, f"Text {name}", f"{text_of(seed)}\n\n{text_of(seed + 7)}")


def known_of(index: Index) -> dict[str, Any]:
    """Searches, weights, reranking with expansion, what the LLM reads, evidence: all to the last bit."""
    pools = index.search(QUERIES, 7)
    how = RerankConfig(2, 5, rank="bridge_rank", expand=True)
    ranked = rerank_pools(index, list(zip(pools, QUERIES, strict=True)), how)
    assert index.place is None or len(index.place) >= len(index.passages), pools
    return {
        "documents": decode(index.corpus),
        "manifest": [index.manifest[name] for name in ("documents", "passages", "corpus")],
        "ids": index.corpus.ids[:].tolist(),
        "pools": [(pool.passages.tobytes(), pool.scores.tobytes()) for pool in pools],
        "weights": (index.X.data.tobytes(), index.XT.data.tobytes()),
        "terms": [index.terms[t] for t in index.X.indices],
        "ranked": [(pool.passages.tobytes(), pool.scores.tobytes()) for pool in ranked],
        "read": narrate(index, pools, 4000),
        "evidence": cite(index, [evidence_of(index, pool) for pool in pools]),
        "cells": ([index.terms[t] for t in index.cells.term_ids], index.cells.value_offsets.tolist()),
    }


def same(changed: Index, fresh: Index) -> None:
    """No bit of what is known of one is another than of the other."""
    found, expected = known_of(changed), known_of(fresh)
    for name, value in expected.items():
        assert found[name] == value, name


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "update", "delete", "compact", "erase"]), st.integers(3, 12), st.integers(0, 3)
    ),
    max_size=6,
)


@settings(max_examples=8, deadline=None)
@given(steps=STEPS)
def test_any_changes_give_the_index_that_is_built_from_scratch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    held: dict[str, Document] = {d.uri: d for d in (document(name, 0) for name in range(3))}
    pyfast.build_index(list(held.values()), folder / "index")
    for what, name, version in steps:
        change(folder / "index", held, what, name, version)
    same(Index(folder / "index"), pyfast.build_index(list(held.values()), folder / "fresh"))
    shutil.rmtree(folder)


def change(index: Path, held: dict[str, Document], what: str, name: int, version: int) -> None:
    """One step on the index, and on what it is to hold."""
    many = [document(name, version), document(name + 20, version)]
    if what == "add":
        new = [d for d in many if d.uri not in held]
        pyfast.add_documents(index, new)
        held.update({d.uri: d for d in new})
    elif what == "update":
        pyfast.update_documents(index, many)
        for d in many:
            if held.get(d.uri) != d:
                held.pop(d.uri, None)
                held[d.uri] = d
    elif what == "delete":
        gone = [d.uri for d in many if d.uri in held]
        pyfast.delete_documents(index, gone)
        for uri in gone:
            del held[uri]
    else:
        pyfast.compact_index(index, erase=what == "erase")


def test_parts_are_joined_when_a_tier_is_full(tmp_path: Path) -> None:
    documents = [document(name, 0) for name in range(30)]
    pyfast.build_index(documents[:1], tmp_path / "index")
    for one in documents[1:]:
        pyfast.add_documents(tmp_path / "index", one)
    info = pyfast.describe_index(tmp_path / "index")
    assert info.commit == 30 and len(info.parts) <= 8 and info.documents == 30
    same(Index(tmp_path / "index"), pyfast.build_index(documents, tmp_path / "fresh"))


def test_a_large_part_is_not_written_again_for_small_additions(tmp_path: Path) -> None:
    """More than eight small parts after a large one become one part, and the large one stays."""
    index = tmp_path / "IDX"
    many = [TextDocument(f"{number}.txt", "", text_of(number)) for number in range(600)]
    pyfast.build_index(many, index)
    (large,) = pyfast.describe_index(index).parts
    counts = []
    for number in range(600, 630):
        many.append(TextDocument(f"{number}.txt", "", text_of(number)))
        pyfast.add_documents(index, many[-1:])
        parts = pyfast.describe_index(index).parts
        assert parts[0] == large
        counts.append(len(parts))
    assert max(counts) == 9 and counts.count(2) == 4
    same(Index(index), pyfast.build_index(many, tmp_path / "NEW"))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    pyfast.build_index([document(name, 0) for name in range(6)], tmp_path / "index")
    return tmp_path / "index"


def test_what_was_deleted_is_erased_to_the_last_byte(index: Path, tmp_path: Path) -> None:
    secret = TextDocument("secret.txt", "Zanzibar", "The password is xyzzyplugh. It rhymes with nothing.")
    pyfast.add_documents(index, [document(7, 0), secret, document(8, 0)])
    pyfast.delete_documents(index, "secret.txt")
    found = lambda: [p for p in index.rglob("*") if p.is_file() and b"xyzzyplugh" in p.read_bytes()]  # noqa: E731
    assert found()
    pyfast.compact_index(index, erase=True)
    assert not found() and not any(b"secret.txt" in p.read_bytes() for p in index.rglob("*") if p.is_file())
    assert pyfast.describe_index(index).kept == 0
    documents = [document(name, 0) for name in (0, 1, 2, 3, 4, 5, 7, 8)]
    same(Index(index), pyfast.build_index(documents, tmp_path / "fresh"))


def test_a_reader_keeps_its_commit_and_earlier_ones_can_be_opened(index: Path, tmp_path: Path) -> None:
    reader = Index(index)
    before = pyfast.build_index([document(name, 0) for name in range(6)], tmp_path / "before")
    pyfast.update_documents(index, [document(2, 1), document(9, 0)])
    pyfast.delete_documents(index, ["0.x", "1.x"])
    same(reader, before)
    same(Index(index, commit=1), before)
    same(Index(index).at(1), before)
    pyfast.compact_index(index, erase=True)
    same(reader, before)  # its files are gone by name only
    with pytest.raises(IndexFormatError, match=r"commits/1\.json is damaged or missing"):
        Index(index, commit=1)


def test_a_change_is_one_commit_or_none(index: Path) -> None:
    for wrong, told in (
        (
            lambda: pyfast.add_documents(index, [document(20, 0), document(3, 1)]),
            "already contains the document '3.x'",
        ),
        (lambda: pyfast.delete_documents(index, ["1.x", "nowhere"]), "has no document 'nowhere'"),
        (lambda: pyfast.add_documents(index, [document(20, 0), document(20, 1)]), "two documents have the uri"),
        (lambda: pyfast.add_documents(index, [TextDocument("bad", "", "\ud800")]), "surrogate"),
    ):
        with pytest.raises(InputError, match=told):
            wrong()
        assert pyfast.describe_index(index).commit == 1
    assert pyfast.update_documents(index, [document(3, 0)]) == pyfast.api.index.Change(1, unchanged=1)
    for wrong in (lambda: pyfast.add_documents(index / "parts", []), lambda: pyfast.describe_index(index.parent)):
        with pytest.raises(IndexFormatError):
            wrong()


def test_all_may_be_deleted_and_come_again(index: Path, tmp_path: Path) -> None:
    pyfast.delete_documents(index, [f"{name}.x" for name in range(6)])
    assert [len(pool) for pool in Index(index).search(QUERIES, 5)] == [0] * len(QUERIES)
    pyfast.compact_index(index)
    pyfast.add_documents(index, [document(3, 0)])
    same(Index(index), pyfast.build_index([document(3, 0)], tmp_path / "fresh"))


def test_a_second_writer_waits(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow() -> Iterable[Document]:
        yield document(30, 0)

    hold = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert hold.stdout is not None and hold.stdin is not None and hold.stdout.readline() == b"held\n"

    def add() -> None:
        entered.set()
        pyfast.add_documents(index, slow())
        leave.set()

    writer = threading.Thread(target=add)
    writer.start()
    assert entered.wait(30) and not leave.wait(0.5)
    hold.communicate(b"\n")
    writer.join(60)
    assert leave.is_set() and "another process is changing" in caplog.text
    assert pyfast.describe_index(index).documents == 7


_HOLD = """
import sys
from pathlib import Path
from pyfast.utils.files import only_writer
with only_writer(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.readline()
"""


def _dying(after: int) -> None:
    """Kill this process before the file or folder of that number is brought to the disk or renamed."""
    seen = [0]

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def dies(*given: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] > after:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*given, **named)

        return dies

    os.fsync = counted(os.fsync)
    Path.rename = counted(Path.rename)  # type: ignore[method-assign]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]
    np.save = counted(np.save)


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("what", ["add", "update", "delete", "erase"])
def test_killed_at_any_moment_it_is_as_before_or_as_after(index: Path, tmp_path: Path, what: str) -> None:
    """A real SIGKILL before a write, sync, rename or removal, early and late ones."""
    pyfast.update_documents(index, [document(2, 1)])
    held = {d.uri: d for d in [*(document(name, 0) for name in (0, 1, 3, 4, 5)), document(2, 1)]}
    before = pyfast.build_index(list(held.values()), tmp_path / "before")
    step = {"add": (40, 0), "update": (5, 1), "delete": (2, 0), "erase": (0, 0)}[what]
    start = dict(held)
    change(Path(shutil.copytree(index, tmp_path / "copy")), held, what, *step)
    after = pyfast.build_index(list(held.values()), tmp_path / "after")
    known = {index.manifest["corpus"]: known_of(index) for index in (before, after)}
    ended = False
    for moment in [0, 1, 3, 8, 17, 30, 42, 100]:
        copy = Path(shutil.copytree(index, tmp_path / f"{moment}"))
        child = os.fork()
        if not child:  # the child of a test must never come back into it
            try:
                _dying(moment)
                change(copy, start, what, *step)
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL)
        ended = status == 0
        found = Index(copy)
        assert known_of(found) == known[found.manifest["corpus"]]
        assert not ended or found.manifest["corpus"] == after.manifest["corpus"]
        pyfast.add_documents(copy, document(91, 0))  # what the dead one left is not in the way
        assert Index(copy).corpus.find("91.x") is not None
        shutil.rmtree(copy)
        if ended:
            break
    assert ended


_WRITES = """
import sys
from pathlib import Path
import pyfast
for number in range(int(sys.argv[2])):
    pyfast.update_documents(sys.argv[1], [
        {"id": name, "title": f"Text {number}", "text": f"moon number{number} of saturn"} for name in ("a", "b")
    ])
    if number % 6 == 5:
        pyfast.compact_index(sys.argv[1], erase=number % 12 == 11)
"""


@pytest.mark.guarantee("G9")
def test_a_reader_never_sees_a_mixed_commit(tmp_path: Path) -> None:
    """Two documents always change together, in another process: a reader sees both of one commit."""
    updates = int(os.environ.get("PYFAST_UPDATES", "14"))
    pyfast.build_index(
        [{"id": "a", "text": "moon number of saturn"}, {"id": "b", "text": "moon"}], tmp_path / "index"
    )
    writer = subprocess.Popen([sys.executable, "-c", _WRITES, str(tmp_path / "index"), str(updates)])
    seen: set[str] = set()
    held = Index(tmp_path / "index")
    first = [list(pool) for pool in held.search(["moon saturn"], 5)]
    while writer.poll() is None:
        index = Index(tmp_path / "index")
        texts = {index.text(passage).partition(".")[2] for passage, _ in index.search(["moon"], 5)[0]}
        assert len(texts) == 1 or index.commit == 1
        seen |= texts
        assert [list(pool) for pool in held.search(["moon saturn"], 5)] == first
    assert writer.returncode == 0 and len(seen) > 2
    assert pyfast.describe_index(tmp_path / "index").documents == 2


def test_a_run_goes_on_with_the_commit_that_it_began_with(
    index: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions = [f"Which moon has {word}?" for word in WORDS[:6]]
    ask = lambda name, on: pyfast.answer(  # noqa: E731
        questions, index=on, llm="instant", system="rag", run=tmp_path / name
    )
    whole = (ask("whole", index).path / "answers.jsonl").read_bytes()
    ask("run", index)
    answers = tmp_path / "run" / "answers.jsonl"
    answers.write_bytes(b"".join(whole.splitlines(True)[:2]))
    pyfast.update_documents(index, [document(0, 1), document(9, 0)])
    assert "commit" not in caplog.text
    ask("run", index)  # a path: the commit that run.toml names is opened
    assert answers.read_bytes() == whole
    answers.write_bytes(b"".join(whole.splitlines(True)[:2]))
    told = f"{index} is now at commit 2, but this run uses commit 1, with which it began; a new run would use"
    assert caplog.text.count(told) == 1
    ask("run", pyfast.open_index(index))
    assert answers.read_bytes() == whole
    ask("run", index)  # nothing is left to do
    assert caplog.text.count(told) == 3
    ask("new", index)
    assert caplog.text.count(told) == 3
    answers.write_bytes(b"".join(whole.splitlines(True)[:2]))
    pyfast.compact_index(index, erase=True)
    with pytest.raises(InputError, match=r"index\.commit was 1 and is now 3"):
        ask("run", index)


def test_the_command_line(index: Path, examples: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        done = CliRunner().invoke(app, ["corpus", *map(str, arguments)])
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    shutil.copytree(examples / "corpus", tmp_path / "corpus")
    read_ = list(read([tmp_path / "corpus"]))
    assert run("add", index, tmp_path / "corpus") == f"{index}: {len(read_)} added; commit 2\n"
    assert run("update", index, tmp_path / "corpus") == f"{index}: {len(read_)} unchanged; commit 2\n"
    assert run("delete", index, read_[0].uri) == f"{index}: 1 deleted; commit 3\n"
    assert "2 parts, with 1 deleted document" in run("info", index)
    assert run("compact", index, "--erase") == f"{index}: no document changed; commit 4\n"
    assert "commit 4, 0 earlier commits" in run("info", index)


def test_a_damaged_part_is_not_written_on(index: Path) -> None:
    pyfast.update_documents(index, [document(2, 1)])
    path = next((index / "deleted").iterdir())
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    for work in (lambda: pyfast.compact_index(index), lambda: pyfast.delete_documents(index, ["2.x"])):
        with pytest.raises(IndexFormatError, match="damaged"):
            work()


def test_stop_words_of_bm25_are_stop_words_of_the_forward_index() -> None:
    """So weights can be made of the counts that BM25 reads."""
    assert LUCENE <= ENGLISH == ENGLISH_STOP_WORDS


def test_the_documents_of_an_index_and_its_columns(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "wide.csv").write_text("a,b,c,d\n1,2,3,4\n5,6,7,8\n")
    (files / "note.md").write_text("# Titan\n\nA moon.\n\nOf Saturn.\n")
    pyfast.build_index(files, tmp_path / "IDX", columns=2)
    expected = [("note.md", "Titan", "markdown", 2)]
    expected += [(f"wide.csv#columns-{k}-{k}", "wide", "table", 2) for k in (2, 3, 4)]
    assert [dataclasses.astuple(one) for one in pyfast.list_documents(tmp_path / "IDX")] == expected
    assert pyfast.sync_documents(tmp_path / "IDX", files).unchanged == 4  # with the columns of the build
    (files / "wide.csv").write_text("a,b,c,d\n1,2,3,9\n5,6,7,8\n")
    assert pyfast.sync_documents(tmp_path / "IDX", files).uris["replaced"] == ["wide.csv#columns-4-4"]
    assert pyfast.update_documents(tmp_path / "IDX", files).unchanged == 4  # of the next commit, too
    for wrong, meant in (("wide.csw", "wide.csv"), ("nota.md", "note.md")):
        with pytest.raises(InputError, match=f"has no document '{wrong}'; did you mean {meant}?"):
            pyfast.delete_documents(tmp_path / "IDX", wrong)
    pyfast.delete_documents(tmp_path / "IDX", "wide.csv#columns-3-3")
    assert [one.uri for one in pyfast.list_documents(tmp_path / "IDX", "wide*3")] == []
    shown = processes.pyfast("corpus", "list", tmp_path / "IDX", "w*", "--json", "--out", tmp_path / "d.csv")
    assert [one["uri"] for one in json.loads(shown.stdout)] == ["wide.csv#columns-2-2", "wide.csv#columns-4-4"]
    assert (tmp_path / "d.csv").read_text().splitlines()[1] == '"wide.csv#columns-2-2","wide","table",2'
    assert "2 documents" in processes.pyfast("corpus", "list", tmp_path / "IDX", "w*").stdout
