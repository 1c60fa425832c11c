"""The driver: the process that assigns blocks to workers, and merges their answers in the order of the
questions."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyfast.engine.configuration as run_toml
import pyfast.engine.distributed.blocks as blocks
from pyfast.engine import Configuration, Event, Job, RunFolder, Summary, Watch
from pyfast.engine.budget import tokens_spent
from pyfast.engine.configuration import CONFIGURATION
from pyfast.engine.distributed.blocks import Block, Lease, Told, Work
from pyfast.engine.distributed.cluster import AT_ONCE, Pool, connected
from pyfast.engine.events import UNWATCHED
from pyfast.engine.run_folder import BLOCKS, is_running
from pyfast.engine.status import PROGRESS, status_of, totals_of, write_progress
from pyfast.errors import InputError, RunError, RunInUseError, error_of
from pyfast.utils.log import LOG
from pyfast.utils.options import Cluster
from pyfast.utils.text_forms import counted

HUNG_S = 30.0
"""If a worker has renewed none of its leases for this many seconds, the driver ends it"""
_LOOK_S, _TELL_S = 0.25, 1.0
_LOSSES = 5
"""If this many workers die while answering the same block, or this many in a row while starting, the run stops
with an error"""
_PATIENCE_S = 60.0  # between two warnings that there is no worker


def work_on_blocks(job: Job, opens: Callable[[], Work], cluster: Cluster, watch: Watch = UNWATCHED) -> Summary:
    """Let a cluster's workers answer or resume a run, until it is finished or `watch.stop` is set.

    Args:
        job: The run, whose folder is on a file system shared by all machines. Its LLMs are not started in this
            process.
        opens: A function that creates a worker's `Work` object.
        cluster: The cluster with the workers.
        watch: How to follow the run (in this thread) and stop it.

    Returns:
        The counts of this session.

    Raises:
        RunInUseError: Another process is working on the folder.
        InputError: The cluster is unreachable, or a worker's code, models or documents differ from this process's.
        RunError: As in `work_on`; or several workers died on the same block, or while starting.
    """
    run = job.folder
    assert run is not None
    run = run.resolve()
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_running(run):
        raise RunInUseError(f"another process is working on the run {run}")
    described = job.describe()
    if blocks.blocks_in(run):
        before = run_toml.read_configuration(run / CONFIGURATION)
        if changed := run_toml.differences(before, described, run_toml.windows_of(described)):
            raise InputError(
                f"{run} was started with different values: {'; '.join(changed)}. Use the same values,"
                " another folder, or --restart"
            )
    if not (run / CONFIGURATION).exists():  # so that workers open the commit that it names
        run_toml.write_configuration(run / CONFIGURATION, described)
    watch.on_event(Event("starting", 0, job.questions.count))
    with (
        connected(cluster) as pool,
        contextlib.closing(_Driver(job, run, described, opens, pool, watch)) as driver,
    ):
        return driver.drive()


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


@dataclass(slots=True, eq=False)
class _Driver:
    """One session of a run with workers."""

    job: Job
    run: Path
    described: Configuration
    opens: Callable[[], Work]
    pool: Pool
    watch: Watch
    folder: RunFolder | None = None
    members: list[_Member] = field(default_factory=list)
    calls: dict[Any, tuple[_Member, Block]] = field(default_factory=dict)
    again: list[Block] = field(default_factory=list)
    """Unfinished blocks waiting for a worker, for example because theirs has ended"""
    fresh: Iterator[Block] = field(default_factory=lambda: iter(()))
    watched: dict[Block, _Watched] = field(default_factory=dict)
    answered: dict[int, Block] = field(default_factory=dict)
    """Blocks that can be merged, by the position of their first question"""
    totals: Summary = field(default_factory=Summary)
    """The calls, tokens and times of all answered blocks, over all sessions"""
    session: Summary = field(default_factory=Summary)
    losses: Counter[Block] = field(default_factory=Counter)
    false_starts: int = 0
    before: int = 0
    """How many questions were answered before this session"""
    done: int = 0
    stopping: bool = False
    spent: RunError | None = None
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)
    warned: float = field(default_factory=time.monotonic)
    waits: bool = False

    def drive(self) -> Summary:
        """Work until the answers to all questions have been merged, or the run is stopped. Returns this session's
        counts."""
        self.members = [self._member() for _ in range(self.pool.size)]
        while self.folder is None or self.done < self.job.questions.count:
            self._hear()
            if self.folder is not None:
                self._look_after()
                self._merge()
                self._limit()
                self._tell()
                if self.stopping and not self.calls:
                    break
                self._hand_out()
            elif self._told_to_stop():
                break
        self._merge()
        if self.spent is not None and self.done < self.job.questions.count:
            raise self.spent
        self.session.seconds = time.monotonic() - self.began
        self.session.left = self.job.questions.count - self.done
        if not self.session.left:
            shutil.rmtree(self.run / BLOCKS, ignore_errors=True)
            (self.run / PROGRESS).unlink(missing_ok=True)
        return self.session

    def close(self) -> None:
        """End the workers, and release the run's folder."""
        for member in self.members:
            self.pool.end(member.actor)
        if self.folder is not None:
            self.folder.close()

    def _member(self) -> _Member:
        actor = self.pool.new(self.opens, self.run)
        return _Member(actor, actor.start.remote())

    def _hear(self) -> None:
        """Wait briefly for a worker's call to end, and handle the results of all ended calls."""
        starts = {member.starting: member for member in self.members if member.starting is not None}
        for call in self.pool.ready([*starts, *self.calls], _LOOK_S):
            if call not in starts and call not in self.calls:  # a call of a worker that was just replaced
                continue
            told: Told | None = self.pool.result(call)
            if told is not None and told.error is not None:
                raise error_of(*told.error)
            if call in starts:
                self._started(starts[call], told)
                continue
            member, block = self.calls.pop(call)
            member.blocks.discard(block)
            for other in member.blocks:  # The worker may begin it only now.
                self.watched[other].since = time.monotonic()
            if told is None:
                self._unreachable(member, block)
            elif told.session is None or told.totals is None:  # Another worker holds the block.
                self.again.append(block)
            else:
                self.session.merge(told.session)
                if told.session.left:  # The worker was told to stop.
                    self.again.append(block)
                else:
                    self.totals.merge(told.totals)
                    self.watched.pop(block, None)
                    self.answered[block.first] = block

    def _started(self, member: _Member, told: Told | None) -> None:
        member.starting = None
        if told is None:
            self.false_starts += not member.has_started  # A worker that had started lost its machine.
            if self.false_starts >= _LOSSES:
                raise RunError(
                    f"{self.false_starts} workers died while starting: they may lack memory, or a model may be"
                    f" faulty. The last one: {self.pool.lost}"
                )
            self._replace(member)
            return
        self.false_starts, member.has_started = 0, True
        assert told.configuration is not None
        theirs = {**told.configuration, "questions": self.described["questions"]}
        unknown = run_toml.windows_of(theirs) if self.folder is None else []
        if changed := run_toml.differences(self.described, theirs, unknown):
            raise InputError(f"a worker differs from this process: {'; '.join(changed)}")
        if self.folder is None:
            places = {**theirs["places"], **self.described["places"], "workers": str(self.pool.size)}
            self._open({**theirs, "places": places})

    def _open(self, described: Configuration) -> None:
        job, total = self.job, self.job.questions.count
        self.described = described
        self.folder = folder = job.open_folder(self.run, described)
        folder.forget_failures(only_of_transport=not job.options.retry_failed)
        self.done = folder.answered(job.questions.read())
        begun = blocks.blocks_in(self.run)
        for block in [block for block in begun if block.end <= self.done]:  # merged before the process was killed
            begun.remove(block)
            blocks.remove(block.folder)
        asked = 1 + folder.journal.last_question()
        self.totals = totals_of(self.run)
        self.fresh = blocks.cut(self.run, job.questions.read(), self.done, total, begun, self.pool.size, asked)
        self.before = self.done
        if ended := sum(folder.journal.counts().values()):
            LOG.info("%s: %d of %d questions are finished; continuing", self.run, ended, total)
        if job.index is not None:
            job.questions.tell_limited(self.watch.on_limited)
        self.watch.on_event(Event("started", self.done, total))

    def _unreachable(self, member: _Member, block: Block) -> None:
        """Handle a call that failed because its worker was unreachable. The block goes back into the queue. To
        find out whether the worker has ended, its `start` is called again; if this fails too, it has."""
        self.losses[block] += 1
        if self.losses[block] >= _LOSSES:
            raise RunError(
                f"{block.folder}: {_LOSSES} workers died while answering this block: one of its questions may be"
                f" too large for them. The last one: {self.pool.lost}"
            )
        self.again.append(block)
        if member.starting is None and member in self.members:
            member.starting = member.actor.start.remote()

    def _replace(self, member: _Member) -> None:
        """Replace a worker that has ended or hangs with a new one. Other workers will get its blocks."""
        self.pool.end(member.actor)
        for call, (one, block) in list(self.calls.items()):
            if one is member:
                del self.calls[call]
                self.again.append(block)
        self.members[self.members.index(member)] = self._member()

    def _look_after(self) -> None:
        """Read the leases of all blocks that are in progress or waiting for another worker. Replace workers that
        hang."""
        now = time.monotonic()
        for block in [*(block for _, block in self.calls.values()), *self.again]:
            lease = blocks.read_lease(block.folder)
            watched = self.watched.get(block)
            if watched is None or watched.lease != lease:
                self.watched[block] = _Watched(lease, now)
        for member in list(self.members):  # A worker's second block has no lease until it starts.
            if not member.blocks or any(now - self.watched[block].since <= HUNG_S for block in member.blocks):
                continue
            LOG.warning("a worker is not responding; replacing it")
            self._replace(member)

    def _free(self, block: Block) -> bool:
        """Return whether a worker may get this block, because no other worker is still working on it."""
        now = time.monotonic()
        watched = self.watched.setdefault(block, _Watched(blocks.read_lease(block.folder), now))
        return blocks.is_given_back(block.folder, watched.lease) or now - watched.since > blocks.LEASE_S

    def _hand_out(self) -> None:
        if self.stopping:
            return
        self.again.sort()
        ready = [member for member in self.members if member.starting is None]
        for load in range(AT_ONCE):  # first one block for each worker
            for member in ready:
                if len(member.blocks) > load:
                    continue
                block = self._next()
                if block is None:
                    return
                member.blocks.add(block)
                free = self.watched[block].lease
                self.watched[block] = _Watched(None, time.monotonic())
                self.calls[member.actor.answer.remote(str(block.folder), free)] = member, block

    def _next(self) -> Block | None:
        for block in self.again:
            if self._free(block):
                self.again.remove(block)
                return block
        for block in self.fresh:
            if self._free(block):
                return block
            self.again.append(block)
        return None

    def _merge(self) -> None:
        """Append the answers of finished blocks to those of the run, in the order of the questions, up to the
        first unfinished block."""
        while self.folder is not None:
            block = next((b for b in self.answered.values() if b.first <= self.done < b.end), None)
            if block is None:
                return
            self.folder.take_in(block.folder, block.first, block.count, self.done)
            self.done = block.end
            del self.answered[block.first]
            blocks.remove(block.folder)

    def _told_to_stop(self) -> bool:
        return self.watch.stop is not None and self.watch.stop.is_set()

    def _limit(self) -> None:
        """Check the run's limits. Raises `RunError` if too many questions have failed or the time is up. If the
        tokens are used up or `stop` is set, the run stops after the questions in progress."""
        so_far, budget, failures = self._so_far(), self.job.budget, self.job.failures
        if failures is not None and so_far.states["failed"] > failures:
            raise RunError(f"more than {counted(failures, 'question')} failed")
        if budget.run_seconds is not None and time.monotonic() - self.began > budget.run_seconds:
            raise RunError(f"the run has reached its limit of {budget.run_seconds:g} s")
        tokens = so_far.prompt_tokens + so_far.completion_tokens
        if budget.run_tokens is not None and tokens >= budget.run_tokens:
            self.spent = tokens_spent(tokens, budget)
        if not self.stopping and (self.spent is not None or self._told_to_stop()):
            self.stopping = True
            for member in self.members:
                member.actor.stop.remote()

    def _so_far(self) -> Summary:
        """Return the counts of all ended questions, including those in blocks in progress."""
        sum_of = Summary()
        sum_of.merge(self.totals)
        for watched in self.watched.values():
            if (lease := watched.lease) is not None:
                sum_of.states.update(lease.states)
                sum_of.add_row(asdict(lease))
        return sum_of

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self.told < _TELL_S:
            return
        self.told = now
        total = self.job.questions.count
        so_far = self._so_far()
        ended = min(sum(so_far.states.values()), total)
        waiting = next((w.lease.waiting for w in self.watched.values() if w.lease and w.lease.waiting), None)
        took, of_session = now - self.began, ended - self.before
        left = (total - ended) * took / of_session if of_session > 0 else None
        status = replace(status_of(so_far, total), running=True, seconds_left=left, waiting=waiting)
        with contextlib.suppress(OSError):  # The file only informs readers, so an error does not matter.
            write_progress(self.run, status)
        kind: Literal["waiting", "answering", "progress"] = "answering" if self.waits else "progress"
        self.watch.on_event(Event("waiting" if waiting else kind, ended, total, waiting=waiting))
        self.waits = waiting is not None
        if all(member.starting is not None for member in self.members) and now - self.warned > _PATIENCE_S:
            self.warned = now
            LOG.warning("waiting for a worker: the cluster has no free resources, or its machines are unreachable")
