"""Blocks of a run: how questions are cut, who may work on a block, and what a merged run holds."""

import fcntl
import json
import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from grouped import grouped
from hypothesis import given
from hypothesis import strategies as st
from runs import answers, traces

import pyfast
from pyfast.engine import Configuration, OnEvent, Question, RunFolder, Summary, read_questions
from pyfast.engine.configuration import read_configuration
from pyfast.engine.distributed import blocks as blocks_module
from pyfast.engine.distributed.blocks import (
    LEASE,
    QUESTIONS,
    Block,
    Holding,
    Lease,
    Told,
    Worker,
    blocks_in,
    cut,
    is_given_back,
    read_lease,
    remove,
    take,
)
from pyfast.engine.run_folder import ANSWERS, BLOCKS, CONFIGURATION, JOURNAL
from pyfast.engine.status import totals_of
from pyfast.errors import InputError


def asked(sizes: list[int]) -> list[Question]:
    """A question for each 0, a conversation of so many turns for any other number."""
    questions = []
    for number, size in enumerate(sizes):
        name = f"c{number}" if size else None
        questions += [Question(f"q{number}.{turn}", "Who?", name) for turn in range(max(size, 1))]
    return questions


@given(
    sizes=st.lists(st.sampled_from([0, 0, 0, 2, 7, 30]), min_size=1, max_size=60),
    workers=st.integers(1, 5),
    done=st.floats(0, 1),
    kept=st.randoms(use_true_random=False),
)
def test_every_question_is_in_one_block_and_conversations_stay_whole(sizes, workers, done, kept) -> None:  # type: ignore[no-untyped-def]
    questions = asked(sizes)
    with TemporaryDirectory() as folder:
        run = Path(folder)

        def blocks(merged: int) -> list[Block]:
            begun = [block for block in blocks_in(run) if block.end > merged]
            return list(cut(run, iter(questions), merged, len(questions), begun, workers, 0))

        first = blocks(0)
        assert blocks_in(run) == first
        assert [block.first for block in first] + [len(questions)] == [0] + [block.end for block in first]
        for block in first:
            assert list(read_questions(block.folder / QUESTIONS)) == questions[block.first : block.end]
        groups = groupby(questions, key=lambda question: question.conversation or question.id)
        ends = {0}
        for _, turns in groups:
            ends.add(max(ends) + len(list(turns)))
        assert {block.end for block in first} <= ends

        # Resumed: what was started stays as it is, and what is missing is cut again.
        for block in first:
            if kept.random() < 0.5:
                remove(block.folder)
        there = blocks_in(run)
        merged = min(there[0].end - 1, there[0].first + int(done * there[0].count)) if there else 0
        merged = merged if not there or there[0].first == 0 else 0
        again = blocks(merged)
        assert set(there) <= set(again)
        place = min(merged, again[0].first)
        for block in again:
            assert block.first == place
            assert list(read_questions(block.folder / QUESTIONS)) == questions[block.first : block.end]
            place = block.end
        assert place == len(questions)


def test_the_last_blocks_are_the_smallest(tmp_path: Path) -> None:
    questions = asked([0] * 3000)
    sizes = [block.count for block in cut(tmp_path, iter(questions), 0, 3000, [], 2, 0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 375 and sizes[-2] == 8


@pytest.fixture
def whole(examples: Path, tmp_path: Path) -> Path:
    """A run of 40 questions in one process."""
    lines = (json.dumps({"id": f"q{i}", "question": f"Who discovered moon {i}?"}) for i in range(40))
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    pyfast.answer(tmp_path / "q.jsonl", llm="instant", system="cot", run=tmp_path / "whole")
    return tmp_path / "whole"


def divided(whole: Path) -> tuple[Path, list[Block]]:
    """The same questions, answered in blocks."""
    run = whole.with_name("divided")
    run.mkdir()
    questions = list(read_questions(whole.parent / "q.jsonl"))
    blocks = list(cut(run, iter(questions), 0, 40, [], 1, 0))
    for block in blocks:
        pyfast.answer(block.folder / QUESTIONS, llm="instant", system="cot", run=block.folder)
    return run, blocks


@pytest.mark.parametrize("killed", [0, 5, 8])
def test_merged_blocks_are_the_run_of_one_process(whole: Path, killed: int) -> None:
    """A process that is killed while it merges has written the journal, and some of the answers."""
    run, blocks = divided(whole)
    described = read_configuration(whole / CONFIGURATION)
    questions = list(read_questions(whole.parent / "q.jsonl"))
    folder = RunFolder(run, described)
    done = folder.answered(iter(questions))
    for number, block in enumerate(blocks):
        folder.take_in(block.folder, block.first, block.count, done)
        if number == 1 and killed:
            folder.close()
            lines = answers(run).splitlines(keepends=True)
            (run / ANSWERS).write_bytes(b"".join(lines[: block.first + killed]) + b'{"torn')
            folder = RunFolder(run, described)
            done = folder.answered(iter(questions))
            assert done == block.first + killed
            folder.take_in(block.folder, block.first, block.count, done)
        done = block.end
    folder.close()
    assert answers(run) == answers(whole) and traces(run) == traces(whole)
    assert pyfast.verify(run).passed
    ours, theirs = pyfast.Run(run), pyfast.Run(whole)
    assert ours.status.states == theirs.status.states and ours.status.llm_calls == 40
    assert [ours.prompts(f"q{i}") for i in range(40)] == [theirs.prompts(f"q{i}") for i in range(40)]


def test_a_later_block_costs_no_more_steps_of_sqlite_than_the_first(whole: Path) -> None:
    run, blocks = divided(whole)
    folder = RunFolder(run, read_configuration(whole / CONFIGURATION))
    journal, steps, costs, size = folder.journal, 0, [], blocks[0].count

    def step() -> None:
        nonlocal steps
        steps += 1

    journal._database.set_progress_handler(step, 1)
    for number in range(300):  # the journal is filled with the same block again and again
        steps = 0
        journal.take_in(blocks[0].folder / JOURNAL, 0, size - 1, number * size)
        costs.append(steps)
    counts = journal.counts()
    folder.close()
    assert counts == {"answered": 300 * size}
    assert max(costs[1:]) < 1.2 * costs[1]


def test_a_block_that_is_not_done_is_refused(whole: Path) -> None:
    run, blocks = divided(whole)
    lines = answers(blocks[0].folder).splitlines(keepends=True)
    (blocks[0].folder / ANSWERS).write_bytes(b"".join(lines[:-1]))
    folder = RunFolder(run, read_configuration(whole / CONFIGURATION))
    folder.answered(iter(()))
    with pytest.raises(pyfast.errors.RunError, match="damaged: it contains only 9 of 10 answers"):
        folder.take_in(blocks[0].folder, 0, 10, 0)
    folder.close()


@pytest.fixture
def block(whole: Path) -> Iterator[Path]:
    yield divided(whole)[1][0].folder


def taken(block: Path) -> Holding:
    """The lease of a worker to which the driver has just given the block."""
    holding = take(block, read_lease(block))
    assert holding is not None
    return holding


def test_a_block_of_a_process_that_is_gone_is_taken_as_it_is(block: Path) -> None:
    taken(block)
    before = (block / ANSWERS).stat().st_ino
    assert is_given_back(block, read_lease(block))  # its lock is free on this machine
    holding = taken(block)
    assert (block / ANSWERS).stat().st_ino == before
    holding.give_back()
    assert read_lease(block).holder == ""  # type: ignore[union-attr]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["a lock that is held", "another machine"])
def test_a_block_that_somebody_may_still_write_to_is_taken_as_a_copy(
    block: Path, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who had it finds its files moved, and another's lease."""
    if elsewhere:
        monkeypatch.setattr(blocks_module, "machine", lambda: "another")
    first = taken(block)
    monkeypatch.undo()
    with (block / ANSWERS).open("rb") as held:
        if not elsewhere:
            fcntl.flock(held, fcntl.LOCK_EX)
        before, was = (block / ANSWERS).stat().st_ino, answers(block)
        lost = []
        monkeypatch.setattr(blocks_module, "BEAT_S", 0.02)
        first.keep(lambda: True, lambda: lost.append(True))
        second = taken(block)
        assert (block / ANSWERS).stat().st_ino != before and answers(block) == was
        first._renewing.join(10)  # type: ignore[union-attr]
    assert lost == [True]
    second.give_back()
    assert totals_of(block).states["answered"] == 10
    pyfast.answer(block / QUESTIONS, llm="instant", system="cot", run=block)  # nothing is left to do
    assert sorted(path.name for path in block.parent.iterdir())[:2] == [block.name, f"{block.name}.left-1"]


class Instantly:
    """The work of a worker, with the instant LLM."""

    def __init__(self) -> None:
        self.begun: list[Path] = []

    def start(self) -> Configuration:
        return {}

    def answer(self, block: Path, on_event: OnEvent, stop: threading.Event) -> Summary:
        self.begun.append(block)
        pyfast.answer(block / QUESTIONS, llm="instant", system="cot", run=block)
        return totals_of(block)

    def concurrency(self) -> int:
        return 4

    def turn(self) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done


def test_a_worker_that_stood_still_leaves_its_next_block_to_the_worker_that_has_it(block: Path) -> None:
    """It has got a block, but has not started it, when it stands still. The driver gives the block to another."""
    free = read_lease(block)
    holding = taken(block)
    work = Instantly()
    slow = Worker(lambda: work, str(block.parents[1]))
    slow._work = work
    with (block / ANSWERS).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert slow.answer(str(block), free) == Told()
    assert not work.begun and not list(block.parent.glob("*.left-*"))
    holding.give_back()
    told = slow.answer(str(block), read_lease(block))
    assert work.begun == [block] and told.totals is not None and told.totals.states["answered"] == 10


def test_a_block_whose_worker_was_killed_while_it_made_the_journal_is_new(whole: Path) -> None:
    run = whole.with_name("torn")
    run.mkdir()
    block = next(cut(run, read_questions(whole.parent / "q.jsonl"), 0, 40, [], 1, 0))
    with closing(sqlite3.connect(block.folder / JOURNAL)) as journal:
        journal.executescript("PRAGMA journal_mode = WAL; CREATE TABLE run (digest TEXT NOT NULL);")
    holding = taken(block.folder)
    assert holding.is_new
    pyfast.answer(block.folder / QUESTIONS, llm="instant", system="cot", run=block.folder)
    holding.give_back()
    assert totals_of(block.folder).states["answered"] == block.count


def test_a_lease_that_says_nothing_is_none(block: Path) -> None:
    (block / LEASE).write_text('{"holder": 3')
    assert read_lease(block) is None
    (block / LEASE).write_text(json.dumps({"holder": "", "machine": "m"}))
    assert read_lease(block) == Lease("", "m")


def test_one_process_does_not_resume_what_workers_have_begun(whole: Path) -> None:
    run, _ = divided(whole)
    with pytest.raises(InputError, match="this run was started on a cluster"):
        pyfast.answer(whole.parent / "q.jsonl", llm="instant", system="cot", run=run)
    assert (run / BLOCKS).is_dir()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"llm": pyfast.open_llm("instant")}, "llm default: with ray, name the model"),
        ({"llm": "batch:m@http://127.0.0.1:1"}, "llm: `batch:` cannot be used with ray"),
        ({"system": pyfast.systems.load_system("direct")}, "system: with ray, pass a name"),
        ({"on_step": print}, "on_step: cannot be used with ray"),
        ({"run": None}, "run: with ray, give a folder"),
        ({"workers": 0}, "workers: expected a number of at least 1"),
        ({"worker_resources": {"GPU": -1}}, "worker_resources GPU: expected"),
    ],
)
def test_what_workers_cannot_do_is_refused(given, fault: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    arguments = {"llm": "instant", "system": "direct", "run": tmp_path / "run", "ray": "local", **given}
    with pytest.raises(InputError, match=fault):
        pyfast.answer(["Who?"], **grouped(**arguments))
    assert not (tmp_path / "run").exists()


def test_ray_without_work_for_workers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with pytest.raises(InputError, match="ray: can only be used with vectors"):
        pyfast.build_index(
            [{"id": "a", "title": "", "text": "A moon."}], tmp_path / "index", cluster=pyfast.Cluster("local")
        )
    with pytest.raises(InputError, match="ray: can only be used with an LLM"):
        pyfast.build_knowledge(tmp_path / "index", cluster=pyfast.Cluster("local"))
    assert not (tmp_path / "index").exists()
