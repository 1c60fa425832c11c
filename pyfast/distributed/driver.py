"""The driver: the process that gives blocks to workers, and merges their answers in the order of the
questions."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.distributed.blocks import Block, blocks_in, cut, remove
from pyfast.distributed.cluster import AT_ONCE, Pool, connected
from pyfast.distributed.leases import LEASE_S, Lease, is_given_back, read_lease
from pyfast.distributed.worker import Told, Work
from pyfast.engine import Configuration, Event, Job, RunFolder, Summary, Waiting, Watch
from pyfast.engine.configuration import CONFIGURATION, differences, read_configuration, write_configuration
from pyfast.engine.events import UNWATCHED
from pyfast.engine.run_folder import BLOCKS, is_running
from pyfast.engine.status import PROGRESS, status_of, totals_of, write_progress
from pyfast.errors import InputError, RunError, error_of
from pyfast.options import Cluster

HUNG_S = 30.0
"""If a worker has renewed none of its leases for this many seconds, the driver ends the worker"""
_LOOK_S, _TELL_S = 0.25, 1.0
_LOSSES = 5
"""If this many workers end while they answer the same block, the run stops with an error. It also stops if
this many workers in a row end while they start"""
_PATIENCE_S = 60.0  # between two warnings that there is no worker
_LOG = logging.getLogger("pyfast")


def work_on_blocks(job: Job, opens: Callable[[], Work], cluster: Cluster, watch: Watch = UNWATCHED) -> Summary:
    """Let the workers of a cluster answer or resume a run, until it is finished or `watch.stop` is set.

    Args:
        job: The run. Its folder is on a file system that all machines share. Its LLMs are not started in this
            process.
        opens: A function that makes the `Work` object of a worker.
        cluster: The cluster with the workers.
        watch: Whom to tell, in this thread, and how to stop.

    Returns:
        The counts of this session.

    Raises:
        InputError: Another process is working on the folder, the cluster cannot be reached, or a worker has
            other code, models or documents than this process.
        RunError: As in `answer_all`. Also if several workers die on the same block, or while they start.
    """
    run = job.folder
    assert run is not None
    run = run.resolve()
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_running(run):
        raise InputError(f"{run}: another process is working on this run")
    described = job.describe()
    if blocks_in(run) and (
        changed := differences(read_configuration(run / CONFIGURATION), described, _windows(described))
    ):
        raise InputError(
            f"{run}: was started with other values: {'; '.join(changed)}. Give what it was started with, or"
            " another folder, or --restart"
        )
    if not (run / CONFIGURATION).exists():
        write_configuration(run / CONFIGURATION, described)  # so that workers open the commit that it names
    watch.on_event(Event("starting", 0, job.questions.count))
    with connected(cluster) as pool:
        driver = _Driver(job, run, described, opens, pool, watch)
        try:
            return driver.drive()
        finally:
            driver.close()


@dataclass(slots=True, eq=False)
class _Member:
    """A worker, as the driver sees it."""

    actor: Any
    starting: Any
    """The call that starts the worker. None when it has started"""
    has_started: bool = False
    blocks: set[Block] = field(default_factory=set)


@dataclass(slots=True)
class _Watched:
    """The lease of a block, as the driver saw it last."""

    lease: Lease | None
    since: float
    """When the lease last changed, by this process's clock"""


class _Driver:
    """One session of a run with workers."""

    def __init__(
        self,
        job: Job,
        run: Path,
        described: Configuration,
        opens: Callable[[], Work],
        pool: Pool,
        watch: Watch,
    ) -> None:
        self._job, self._run, self._described = job, run, described
        self._pool, self._on_event, self._stop = pool, watch.on_event, watch.stop or threading.Event()
        self._new = partial(pool.new, opens, run)
        self._folder: RunFolder | None = None
        self._members: list[_Member] = []
        self._calls: dict[Any, tuple[_Member, Block]] = {}
        self._again: list[Block] = []
        """Unfinished blocks that wait for a worker, for example because their worker has ended"""
        self._fresh: Iterator[Block] = iter(())
        self._watched: dict[Block, _Watched] = {}
        self._answered: dict[int, Block] = {}
        """Blocks that can be merged, by the position of their first question"""
        self._totals = Summary()
        """The calls, tokens and times of all answered blocks, in all sessions"""
        self._session = Summary()
        self._losses: Counter[Block] = Counter()
        self._false_starts = 0
        self._done = 0
        self._stopping = self._told_to_stop = False
        self._ends: RunError | None = None
        self._began = time.monotonic()
        self._before = 0
        self._told = self._warned = self._began
        self._waits = False

    def drive(self) -> Summary:
        """Work until the answers to all questions are merged, or the run is stopped. Return the counts of
        this session."""
        self._members = [self._member() for _ in range(self._pool.size)]
        while self._folder is None or self._done < self._job.questions.count:
            self._hear()
            if self._folder is not None:
                self._look_after()
                self._merge()
                self._limit()
                self._tell()
                if self._stopping and not self._calls:
                    break
                self._hand_out()
            elif self._stop.is_set():
                break
        self._merge()
        if self._ends is not None:
            raise self._ends
        self._session.seconds = time.monotonic() - self._began
        self._session.left = self._job.questions.count - self._done
        if not self._session.left:
            with contextlib.suppress(OSError):
                for path in (self._run / BLOCKS).iterdir():
                    remove(path)
                (self._run / BLOCKS).rmdir()
            (self._run / PROGRESS).unlink(missing_ok=True)
        return self._session

    def close(self) -> None:
        """End the workers, and release the run's folder."""
        for member in self._members:
            self._pool.end(member.actor)
        if self._folder is not None:
            self._folder.close()

    def _member(self) -> _Member:
        actor = self._new()
        return _Member(actor, actor.start.remote())

    def _hear(self) -> None:
        """Wait a short time until a call of a worker ends, and handle the results of all calls that have
        ended."""
        starts = {member.starting: member for member in self._members if member.starting is not None}
        for call in self._pool.ready([*starts, *self._calls], _LOOK_S):
            if call not in starts and call not in self._calls:  # of a worker that was just replaced
                continue
            told: Told | None = self._pool.result(call)
            if told is not None and told.error is not None:
                raise error_of(*told.error)
            if call in starts:
                self._started(starts[call], told)
                continue
            member, block = self._calls.pop(call)
            member.blocks.discard(block)
            for other in member.blocks:  # it may begin only now
                self._watched[other].since = time.monotonic()
            if told is None:
                self._unreachable(member, block)
            elif told.session is None or told.totals is None:  # another worker has it
                self._again.append(block)
            else:
                self._session.merge(told.session)
                if told.session.left:  # it was stopped
                    self._again.append(block)
                else:
                    self._ended(block, told.totals)

    def _started(self, member: _Member, told: Told | None) -> None:
        member.starting = None
        if told is None:
            self._false_starts += not member.has_started  # else its machine is gone, perhaps with others
            if self._false_starts >= _LOSSES:
                raise RunError(
                    f"{self._false_starts} workers ended while they started: memory, or a fault of the model"
                )
            self._replace(member)
            return
        self._false_starts, member.has_started = 0, True
        assert told.configuration is not None
        theirs = {**told.configuration, "questions": self._described["questions"]}
        unknown = _windows(theirs) if self._folder is None else []
        if changed := differences(self._described, theirs, unknown):
            raise InputError(f"a worker differs from this process: {'; '.join(changed)}")
        if self._folder is None:
            places = {**theirs["places"], **self._described["places"], "workers": str(self._pool.size)}
            self._open({**theirs, "places": places})

    def _open(self, described: Configuration) -> None:
        job, total, options = self._job, self._job.questions.count, self._job.options
        self._described = described
        folder = RunFolder(self._run, described, options.sync, options.keep_prompts, extends=job.extends())
        self._folder = folder
        folder.forget_failures(only_of_transport=not options.retry_failed)
        self._done = folder.answered(job.questions.read())
        begun = blocks_in(self._run)
        for block in [block for block in begun if block.end <= self._done]:  # merged when the process was killed
            begun.remove(block)
            remove(block.folder)
        asked = 1 + folder.journal.last_question()
        self._totals = totals_of(self._run)
        self._fresh = cut(self._run, job.questions.read(), self._done, total, begun, self._pool.size, asked)
        self._before = self._done
        if self._done:
            _LOG.info("%d of %d questions are answered; going on", self._done, total)
        self._on_event(Event("started", self._done, total))

    def _unreachable(self, member: _Member, block: Block) -> None:
        """Handle a call that failed because its worker could not be reached. The block goes back into the
        queue. To find out whether the worker has ended, the method calls the worker's `start` again. If this
        call fails too, the worker has ended."""
        self._losses[block] += 1
        if self._losses[block] >= _LOSSES:
            raise RunError(
                f"{block.folder}: has cost {_LOSSES} workers; is one of its questions too large for them?"
            )
        self._again.append(block)
        if member.starting is None and member in self._members:
            member.starting = member.actor.start.remote()

    def _replace(self, member: _Member) -> None:
        """Put a new worker in the place of a worker that has ended or hangs. The blocks of the old worker
        will be given to other workers."""
        self._pool.end(member.actor)
        for call, (one, block) in list(self._calls.items()):
            if one is member:
                del self._calls[call]
                self._again.append(block)
        self._members[self._members.index(member)] = self._member()

    def _look_after(self) -> None:
        """Read the leases of the blocks in progress, and of the blocks that wait for another worker. Replace
        each worker that hangs."""
        now = time.monotonic()
        for block in [*(block for _, block in self._calls.values()), *self._again]:
            lease = read_lease(block.folder)
            watched = self._watched.get(block)
            if watched is None or watched.lease != lease:
                self._watched[block] = _Watched(lease, now)
        for member in list(self._members):  # a block that waits for another of its worker has no lease yet
            if not member.blocks or any(now - self._watched[block].since <= HUNG_S for block in member.blocks):
                continue
            _LOG.warning("a worker does not go on: another one takes its place")
            self._replace(member)

    def _free(self, block: Block) -> bool:
        """Return whether a worker may get this block: no other worker is working on it any more."""
        now = time.monotonic()
        watched = self._watched.setdefault(block, _Watched(read_lease(block.folder), now))
        return is_given_back(block.folder, watched.lease) or now - watched.since > LEASE_S

    def _hand_out(self) -> None:
        if self._stopping:
            return
        self._again.sort()
        ready = [member for member in self._members if member.starting is None]
        for load in range(AT_ONCE):  # first one for each
            for member in ready:
                if len(member.blocks) > load:
                    continue
                block = self._next()
                if block is None:
                    return
                member.blocks.add(block)
                free = self._watched[block].lease
                self._watched[block] = _Watched(None, time.monotonic())
                self._calls[member.actor.answer.remote(str(block.folder), free)] = member, block

    def _next(self) -> Block | None:
        for block in self._again:
            if self._free(block):
                self._again.remove(block)
                return block
        for block in self._fresh:
            if self._free(block):
                return block
            self._again.append(block)
        return None

    def _ended(self, block: Block, totals: Summary) -> None:
        self._totals.merge(totals)
        self._watched.pop(block, None)
        self._answered[block.first] = block

    def _merge(self) -> None:
        """Append the answers of finished blocks to the answers of the run, in the order of the questions.
        Stop at the first block that is not finished."""
        while self._folder is not None:
            block = next((b for b in self._answered.values() if b.first <= self._done < b.end), None)
            if block is None:
                return
            self._folder.take_in(block.folder, block.first, block.count, self._done)
            self._done = block.end
            del self._answered[block.first]
            remove(block.folder)

    def _limit(self) -> None:
        """Check the limits of the run. Raises `RunError` if too many questions failed or the time is over. If
        the tokens are used up or `stop` is set, the run stops after the questions in progress."""
        failed, budget = self._so_far().states["failed"], self._job.budget
        if self._job.failures is not None and failed > self._job.failures:
            raise RunError(f"more than {self._job.failures} questions failed")
        if budget.run_seconds is not None and time.monotonic() - self._began > budget.run_seconds:
            raise RunError(f"the run's {budget.run_seconds:g} seconds are over")
        if budget.run_tokens is not None and self._ends is None:
            so_far = self._so_far()
            tokens = so_far.prompt_tokens + so_far.completion_tokens
            if tokens >= budget.run_tokens:
                self._ends = RunError(f"{tokens} tokens used of the run's {budget.run_tokens}")
        if self._ends is not None or self._stop.is_set():
            self._stopping = True
        if self._stopping and not self._told_to_stop:
            self._told_to_stop = True
            for member in self._members:
                member.actor.stop.remote()

    def _so_far(self) -> Summary:
        """Return the counts of all ended questions, including those in blocks in progress."""
        sum_of = Summary()
        sum_of.merge(self._totals)
        for watched in self._watched.values():
            if (lease := watched.lease) is not None:
                sum_of.states.update(lease.states)
                sum_of.llm_calls += lease.llm_calls
                sum_of.prompt_tokens += lease.prompt_tokens
                sum_of.completion_tokens += lease.completion_tokens
        return sum_of

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told < _TELL_S:
            return
        self._told = now
        total = self._job.questions.count
        so_far = self._so_far()
        ended = min(sum(so_far.states.values()), total)
        waiting = next((w.lease.waiting for w in self._watched.values() if w.lease and w.lease.waiting), None)
        took, of_session = now - self._began, ended - self._before
        left = (total - ended) * took / of_session if of_session > 0 else None
        status = replace(status_of(so_far, total), running=True, seconds_left=left, waiting=waiting)
        with contextlib.suppress(OSError):  # nothing depends on it
            write_progress(self._run, status)
        self._event(ended, waiting)
        if all(member.starting is not None for member in self._members) and now - self._warned > _PATIENCE_S:
            self._warned = now
            _LOG.warning("no worker is there: the cluster has no room for one, or its machines are gone; waiting")

    def _event(self, ended: int, waiting: Waiting | None) -> None:
        total = self._job.questions.count
        if waiting is not None:
            self._on_event(Event("waiting", ended, total, waiting=waiting))
        elif self._waits:
            self._on_event(Event("answering", ended, total))
        else:
            self._on_event(Event("progress", ended, total))
        self._waits = waiting is not None


def _windows(described: Configuration) -> list[str]:
    """Return the names of the context windows in a configuration. Their values are known only after the LLMs
    have started."""
    return [f"llm.{name}" for name in described["llm"] if name.endswith("context_window")]
