"""The blocks of a run, their leases, and the worker that answers them: a process on a machine of the cluster, with
its own engine.

A block is an ordinary run of some consecutive questions, in a folder inside the folder of the whole run. The
folder is named after the numbers of the block's questions: `blocks/000000001-000000128` contains the first 128
questions. It appears only when the block's question file is complete.

A lease is a file in a block's folder that shows which worker holds the block. The worker renews it every second.
Only one worker at a time may hold a block, which a file lock cannot ensure: some file systems do not share locks
between machines, and a frozen process keeps its lock. So if a lease is not renewed, another worker takes the
block: it renames the block's folder and continues in a copy with the old name. If the old worker wakes up, it ends
as soon as it finds that the lease is not its own, or that its files have moved. This needs a file system with
atomic renames."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

import orjson
from pydantic import TypeAdapter, ValidationError

from pyfast.engine import (
    Configuration,
    Event,
    OnEvent,
    Question,
    Questions,
    Summary,
    Waiting,
    dedicate_process,
    write_questions,
)
from pyfast.engine.configuration import CONFIGURATION
from pyfast.engine.journal.journal import Journal
from pyfast.engine.questions import by_conversation
from pyfast.engine.run_folder import BLOCKS, JOURNAL, QUESTIONS, is_running
from pyfast.engine.status import totals_of
from pyfast.errors import InputError, PyfastError, told_of
from pyfast.utils.files import built_aside, free_name, write_atomically

_NAME = re.compile(r"(\d{9,})-(\d{9,})")
_LARGEST, _SMALLEST = 4096, 8
"""The maximum and minimum number of questions in a block.

Larger blocks have less overhead, and with smaller blocks, all workers finish at about the same time
"""
_SHARES = 4
"""The maximum size of the next block is the number of remaining questions, divided by `_SHARES` and the number of
workers, so that the last blocks are the smallest"""
LEASE = "lease.json"
BEAT_S = 1.0
LEASE_S = 12 * BEAT_S
"""After this many seconds without a change of the lease, no worker holds the block"""


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """Consecutive questions of a run that one worker answers."""

    first: int
    """The position of the block's first question in the run"""
    count: int
    folder: Path

    @property
    def end(self) -> int:
        """The position after the block's last question."""
        return self.first + self.count


def blocks_in(run: Path) -> list[Block]:
    """Return the started blocks that have not been merged into the run yet, in the order of their questions."""
    found = []
    if (run / BLOCKS).is_dir():
        for folder in (run / BLOCKS).iterdir():
            if match := _NAME.fullmatch(folder.name):
                first, last = int(match[1]) - 1, int(match[2])
                found.append(Block(first, last - first, folder))
    return sorted(found)


def cut(
    run: Path,
    questions: Iterator[Question],
    done: int,
    total: int,
    existing: Sequence[Block],
    workers: int,
    asked: int,
) -> Iterator[Block]:
    """Yield the blocks of the questions that have not been merged yet, in order.

    A new block is created when a worker needs it. All turns of a conversation are in the same block. Only one
    block's questions are in memory.

    Args:
        run: The folder of the run.
        questions: All questions of the run.
        done: The number of questions that have been merged.
        total: The number of all questions.
        existing: Blocks that were started before. Some of the first block's questions may have been merged.
        workers: The number of workers that answer the blocks.
        asked: The run's journal may contain LLM calls of the first `asked` questions, which are copied to the
            blocks of these questions.
    """
    place = min([done, *(block.first for block in existing)])
    units = by_conversation(islice(questions, place, None))
    for known in [*existing, Block(total, 0, run)]:
        while place < known.first:
            size = max(_SMALLEST, min(_LARGEST, (total - place) // (_SHARES * workers)))
            taken: list[Question] = []
            while len(taken) < min(size, known.first - place):
                taken += next(units)
            block = Block(place, len(taken), run / BLOCKS / f"{place + 1:09}-{place + len(taken):09}")
            _make(run, block, taken, place < asked)
            place = block.end
            yield block
        while place < known.end:
            place += len(next(units))
        if known.count:
            yield known


def _make(run: Path, block: Block, questions: Sequence[Question], was_asked: bool) -> None:
    block.folder.parent.mkdir(mode=0o700, exist_ok=True)
    with built_aside(block.folder) as aside:
        aside.chmod(0o700)
        checked = Questions(partial(iter, questions), len(questions), digest="")
        write_questions(checked, aside / QUESTIONS)
        if was_asked:
            journal = Journal(aside / JOURNAL)
            journal.take_in(run / JOURNAL, block.first, block.end - 1, -block.first)
            journal.close()


def remove(block: Path) -> None:
    """Delete a block's folder.

    The folder is renamed first, so that a killed process leaves no incomplete block behind.
    """
    aside = free_name(block, "merged")
    block.rename(aside)
    shutil.rmtree(aside)


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lease file."""

    holder: str
    """The worker that holds the block: machine, process, and a random number. Empty: the block has been
    released"""
    machine: str
    beat: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    waiting: Waiting | None = None
    """The outage that the block is waiting out. None: the block is not waiting"""


_READ = TypeAdapter(Lease)


def machine() -> str:
    """Return a name for this machine, which changes when the machine restarts.

    With this name, pyfast can tell that a worker on this machine has ended: its lease names this machine, but no
    process of this machine has locked the block.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def read_lease(block: Path) -> Lease | None:
    """Read the lease of a block. Returns None if there is no readable lease."""
    try:
        return _READ.validate_json((block / LEASE).read_bytes())
    except (OSError, ValidationError):
        return None


def is_given_back(block: Path, lease: Lease | None) -> bool:
    """Return whether the block is certainly free: no worker is still working on it."""
    return lease is None or not lease.holder or (lease.machine == machine() and not is_running(block))


def take(block: Path, free: Lease | None) -> Holding | None:
    """Take a free block for this worker, and return the block's new lease.

    If the driver considers the block free only because the lease has not changed for `LEASE_S` seconds, the old
    worker may still exist. The function then renames the block's folder, and this worker gets a copy with the old
    name.

    Args:
        block: The folder of the block.
        free: The lease that the driver saw when it found the block free. If the block has a different lease by
            now, another worker took it while this worker stood still, and the function returns None.

    Raises `OSError`, and `InputError` if the block's journal cannot be read.
    """
    lease = read_lease(block)
    if lease != free:
        return None
    if not is_given_back(block, lease):
        left = free_name(block, "left")
        block.rename(left)
        with built_aside(block) as new:
            new.chmod(0o700)
            for path in left.iterdir():
                if path.is_file() and path.name != LEASE and not path.name.endswith("-shm"):
                    shutil.copyfile(path, new / path.name)
    return Holding(block)


class Holding:
    """A lease that this process holds. The lease file also contains the progress of the block."""

    def __init__(self, block: Path) -> None:
        """Write the lease. Raises `OSError`, and `InputError` if the block's journal cannot be read."""
        self._block = block
        self.is_new = not (block / JOURNAL).exists()
        """Whether this worker is the block's first"""
        try:
            self._totals = Summary() if self.is_new else totals_of(block)
        except InputError:
            if (block / CONFIGURATION).exists():
                raise
            # A worker was killed while it created the journal, before it answered any question.
            self.is_new, self._totals = True, Summary()
        self._name = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"
        self._machine = machine()
        self._beats = 0
        self._waiting: Waiting | None = None
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None
        self._write(self._name)

    def hear(self, event: Event) -> None:
        """Add an event of the block's run to the progress in the lease."""
        self._waiting = event.waiting
        if event.record is not None:
            self._totals.states[event.record.state] += 1
            self._totals.add_row(asdict(event.record.usage))

    def keep(self, is_alive: Callable[[], bool], lost: Callable[[], None]) -> None:
        """Renew the lease from a thread, until it is released.

        Args:
            is_alive: A function that returns whether the work continues. While it returns False, the lease is not
                renewed.
            lost: A function to call, once, if another worker takes the block.
        """

        def renew() -> None:
            while not self._over.wait(BEAT_S):
                if not self._is_mine():
                    time.sleep(BEAT_S)  # A file system may show a newly written file late.
                    if not self._is_mine():
                        if not self._over.is_set():
                            lost()
                        return
                if is_alive():
                    with contextlib.suppress(OSError):
                        self._write(self._name)

        self._renewing = threading.Thread(target=renew, name="pyfast-lease", daemon=True)
        self._renewing.start()

    def give_back(self) -> None:
        """Release the lease, so that other workers can take the block."""
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        if self._is_mine():
            with contextlib.suppress(OSError):
                self._write("")

    def _is_mine(self) -> bool:
        lease = read_lease(self._block)
        return lease is not None and lease.holder == self._name

    def _write(self, holder: str) -> None:
        self._beats += 1
        totals = self._totals
        used = totals.llm_calls, totals.prompt_tokens, totals.completion_tokens
        lease = Lease(holder, self._machine, self._beats, dict(totals.states), *used, self._waiting)
        write_atomically(self._block / LEASE, orjson.dumps(lease))


class Work(Protocol):
    """The interface of a worker's task, which is to answer blocks of one run. The models stay loaded between
    blocks."""

    def start(self) -> Configuration:
        """Load the models, and return the configuration of the whole run. Raises `PyfastError`."""
        ...

    def answer(self, block: Path, on_event: OnEvent, stop: threading.Event) -> Summary:
        """Answer the questions in a block's folder, or resume the block. Raises `PyfastError`."""
        ...

    def concurrency(self) -> int:
        """Return how many questions of a block are in progress at once."""
        ...

    def turn(self) -> Future[None]:
        """Return a future that ends as soon as the event loop has time, and never if the event loop hangs."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """The result or the error of a call that a worker executed.

    pyfast's errors are sent as plain values, because pickle cannot restore all of them.
    """

    configuration: Configuration | None = None
    totals: Summary | None = None
    """The calls, tokens and times of all ended questions of the block, over all sessions"""
    session: Summary | None = None
    """The counts of the questions that this call answered. If both `session` and `error` are None in the result of
    `answer`, another worker holds the block"""
    error: tuple[str, str] | None = None
    """The class and the text of the error"""


class Worker:
    """A worker in a Ray actor, whose methods are called by several threads."""

    def __init__(self, opens: Callable[[], Work], run: str) -> None:
        """Prepare the worker. `start` opens the index and loads the models.

        Args:
            opens: A function that creates this worker's `Work` object. It is called in the actor.
            run: The run's folder.
        """
        self._opens, self._run = opens, Path(run)
        self._work: Work | None = None
        self._stop = threading.Event()
        self._full = threading.Lock()
        """A block holds this lock until it has few questions left, so that this worker's next block can start
        then"""

    def start(self) -> Told:
        """Open the index and load the models. Returns the run's configuration, or an error."""
        try:
            if not self._run.is_dir():
                raise PyfastError(
                    f"{os.uname().nodename}: {self._run} does not exist: the folder of a run must be on a file"
                    " system that all machines of the cluster share, at the same path"
                )
            self._work = self._work or self._opens()
            described = self._work.start()
        except PyfastError as error:
            return Told(error=told_of(error))
        dedicate_process()
        return Told(described)

    def answer(self, name: str, free: Lease | None) -> Told:
        """Answer the questions of the block in the folder `name`, and return the block's counts, or an error. If
        the block no longer has the lease that the driver saw (`free`), return an empty `Told`."""
        work, block = self._work, Path(name)
        assert work is not None
        with contextlib.ExitStack() as full:
            full.enter_context(self._full)
            try:
                holding = take(block, free)
            except PyfastError as error:
                return Told(error=told_of(error))
            except OSError as error:
                return Told(error=("RunError", f"{block}: {error.strerror}"))
            if holding is None:
                return Told()
            turn = work.turn()

            def is_alive() -> bool:
                nonlocal turn
                if not turn.done():
                    return False
                turn = work.turn()
                return True

            def hear(event: Event) -> None:
                holding.hear(event)
                if event.total - event.done <= work.concurrency() // 2:
                    full.close()  # This releases the lock, so that this worker's next block can start.

            # If another worker takes the block, this process ends immediately.
            holding.keep(is_alive, lambda: os._exit(1))
            try:
                session = work.answer(block, hear, self._stop)
                return Told(totals=session if holding.is_new else totals_of(block), session=session)
            except PyfastError as error:
                return Told(error=told_of(error))
            finally:
                holding.give_back()
                gc.collect()  # A finished run's garbage holds all its questions, and the collector seldom runs.

    def stop(self) -> None:
        """Let no new question start. The questions in progress finish."""
        self._stop.set()
