"""Carry out a run, in a folder or in memory: answer the questions that have no answer yet."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pyfast.engine.budget import Budget, Profile, profile_of
from pyfast.engine.configuration import (
    CONFIGURATION,
    STARTED_IN,
    Configuration,
    configuration,
    differences,
    read_configuration,
    recorded_value,
    windows_of,
    with_accepted_code,
)
from pyfast.engine.events import Event, OnEvent, OnStep, ignore
from pyfast.engine.journal.journal import reused_runs
from pyfast.engine.outages import Waiting
from pyfast.engine.prompt import Prompt
from pyfast.engine.prompt_overrides import PromptOverrides
from pyfast.engine.questions import Questions, questions_from
from pyfast.engine.record import Record
from pyfast.engine.run import Ask, Summary, answer_all
from pyfast.engine.run_folder import (
    ANSWERS,
    GROWN,
    JOURNAL,
    OF_CODE,
    QUESTIONS,
    RunFolder,
    check_reused,
    check_run,
    done_in,
)
from pyfast.errors import InputError, RunError
from pyfast.llm import DEFAULT_ROLE, FullLLM, Role, by_role
from pyfast.retrieval import Index
from pyfast.utils.log import LOG
from pyfast.utils.options import GREEDY, RUN_DEFAULTS, RunOptions, Sampling


def dedicate_process() -> None:
    """Tune Python's garbage collector for a process that only carries out a run. Call this function after the
    index is opened.

    From then on, the collector skips all objects that exist now. By default, Python searches for garbage after
    every 700 new objects. In a run, few objects are garbage, and the searches take a tenth of the event loop's
    time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that pyfast needs to carry out a run: questions, system, LLMs, index, limits and folder."""

    folder: Path | None
    """The run's folder. None: the run is only in memory, and cannot be resumed"""
    questions: Questions
    system: str
    """The name of the system, for run.toml"""
    system_code: str = ""
    """A digest of the system's code. Empty if the system is part of pyfast"""
    ask: Ask
    """The system with its settings"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings in JSON types, as in run.toml"""
    prompts: Sequence[Prompt[Any]] = ()
    replaced: PromptOverrides | None = None
    """The user's own prompts, which replace prompts of the system"""
    index: Index | None = None
    llm: FullLLM | Mapping[Role, FullLLM]
    """The LLM for all prompts, or one for each role"""
    knowledge: Mapping[str, Any] | None = None
    """A description of the knowledge graph on which the answers depend. None: they depend on no knowledge
    graph"""
    places: Mapping[str, str] = field(default_factory=dict)
    """Paths, and texts that name models, for run.toml. They may differ from one session to the next"""
    sampling: Sampling = GREEDY
    """The temperature and the seed. A temperature that the system sets for a prompt takes precedence"""
    options: RunOptions = RUN_DEFAULTS
    """Those of its values that `questions`, `replaced` and `failures` do not show already"""
    concurrency: int = 64
    budget: Budget = field(default_factory=Budget)
    failures: int | None = None
    """How many questions may fail, in all sessions together. None: all may fail"""
    keeps_questions: bool = False
    """Whether the folder keeps the questions. Other jobs make them of what pyfast keeps anyway, such as the
    answers that a judge compares"""
    resumed: Callable[[Path], None] | None = None
    """A function that is called with the path of answers.jsonl before a run with answers resumes.

    The function runs in a separate thread
    """

    def describe(self) -> Configuration:
        """Make the configuration for run.toml. Call this method after the LLMs have started, because their
        context windows are not known before.
        """
        questions = {"count": self.questions.count, "digest": self.questions.digest}
        described = configuration(
            system=self.system,
            system_code=self.system_code,
            settings=self.settings,
            prompts=self.prompts if self.replaced is None else tuple(map(self.replaced.apply, self.prompts)),
            llm=self.llm,
            index=self.index,
            budget=self.budget.shaping(),
            questions=questions if self.questions.restricted else {**questions, "documents": "all"},
            places={
                "questions": self.questions.place,
                "profile": str(self.profile),
                **self._started_in(),
                **self._specs(),
                **self.places,
            },
            knowledge=self.knowledge,
            sampling={} if self.sampling == GREEDY else asdict(self.sampling),
        )
        return described if not self.options.accept_code else with_accepted_code(described, self.folder)

    def extends(self) -> bool:
        """Return whether the folder has a run of only the first questions of this `Job`. The method compares
        digests of the questions."""
        count, digest = (
            None if self.folder is None else recorded_value(self.folder, "questions", name)
            for name in ("count", "digest")
        )
        if not isinstance(count, int) or not 0 < count < self.questions.count:
            return False
        return questions_from(self.questions.read(), count).digest == digest

    @property
    def profile(self) -> Profile:
        """The limits of prompts. They depend on the model's context window, which is known only after the
        model has started."""
        llms = by_role(self.llm)
        answering = llms.get("answer") or llms.get(DEFAULT_ROLE)
        window = min(llm.context_window for llm in ([answering] if answering else llms.values()))
        return profile_of(window, self.budget)

    @property
    def kept(self) -> Questions | None:
        """The questions, if the folder keeps them."""
        return self.questions if self.keeps_questions else None

    def check(self) -> None:
        """Check that the folder is new, or has this run (a run with the same configuration). Raises
        `InputError` if the folder has another run, or questions of the user that the run would replace.

        Call this method before you load a model.
        """
        if self.folder is not None:
            described = self.describe()
            # A run that was killed when it started has made ANSWERS first.
            is_run = any((self.folder / name).exists() for name in (CONFIGURATION, ANSWERS))
            if self.keeps_questions and not is_run and (self.folder / QUESTIONS).exists():
                raise InputError(f"{self.folder}: the run would replace its {QUESTIONS}; choose another folder")
            unknown = [*windows_of(described), *(GROWN if self.extends() else ())]
            check_run(self.folder, described, unknown=unknown)
            copied = reused_runs(self.folder / JOURNAL, self.options.reused)
            for run in (run for run in self.options.reused if run not in copied):
                check_reused(self.folder, described, run)

    def changed_since_the_end(self) -> list[str] | None:
        """Return what has changed in the code since the run in the folder ended, as texts. Return None if another
        run is there, or some of its questions have not ended. Call this method before you load a model."""
        assert self.folder is not None
        described = self.describe()
        changed = differences(read_configuration(self.folder / CONFIGURATION), described, windows_of(described))
        is_this = all(one.startswith(OF_CODE) for one in changed)
        return changed if is_this and done_in(self.folder, self.questions.count) is not None else None

    def _started_in(self) -> dict[str, str]:
        """The working directory, relative to the run, so that both can move together."""
        return {} if self.folder is None else {STARTED_IN: os.path.relpath(Path.cwd(), self.folder.resolve())}

    def _specs(self) -> dict[str, str]:
        llms = by_role(self.llm).items()
        return {"llm" if role == DEFAULT_ROLE else f"{role}_llm": llm.spec for role, llm in llms}


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The result of one process (session) that worked on a run."""

    summary: Summary
    records: list[Record]
    """The records of a run in memory. Empty for a run with a folder, which has its records in
    answers.jsonl"""


async def work_on(
    job: Job, stop: asyncio.Event | None = None, on_event: OnEvent = ignore, on_step: OnStep | None = None
) -> SessionResult:
    """Carry out a run until it is finished or `stop` is set. The LLM must have started.

    Args:
        job: The run.
        stop: After this event is set, no new question starts. Questions in progress finish.
        on_event: A function that is called with each event, in this event loop.
        on_step: A function that is called with each step of each question, in this event loop.

    Returns:
        The result of this session. For a run in memory, it contains the records.

    Raises:
        RunError: As in `answer_all`, or the folder cannot be read or written.
        InputError: Another process is working on the folder, or the folder has another run.
    """
    stop = stop or asyncio.Event()
    logging.getLogger("pyfast.profile").info("%s", job.profile)
    if job.folder is None:
        records: list[Record] = []
        try:
            return SessionResult(await _answered(job, records.append, stop, on_event, on_step), records)
        except RunError as error:
            error.records = tuple(records)
            raise
    try:
        return await _in_folder(job, job.folder, stop, on_event, on_step)
    except OSError as error:
        raise RunError(f"{error.filename or job.folder}: {error.strerror}") from None


async def _in_folder(
    job: Job, path: Path, stop: asyncio.Event, on_event: OnEvent, on_step: OnStep | None
) -> SessionResult:
    options = job.options
    described = job.describe()
    folder = RunFolder(
        path, described, options.sync, options.keep_prompts, job.extends(), options.ask_once, job.kept
    )
    try:
        await asyncio.to_thread(folder.reuse, options.reused, described)
        lost = folder.forget_failures(only_of_transport=not options.retry_failed)
        done = folder.answered(job.questions.read())
        if job.resumed is not None and done:
            await asyncio.to_thread(job.resumed, path / ANSWERS)
        if folder.journal.salvaged is not None:
            LOG.warning("the journal was damaged; its readable part comes from %s", folder.journal.salvaged)
        if ended := sum(folder.journal.counts().values()):  # Those after a gap are written again.
            again = f"; {ended - done} of them are written again from the journal" if ended > done else ""
            LOG.info("%d of %d questions are answered; continuing%s", ended, job.questions.count, again)
        folder.note_outage(None)  # A killed session may have left this file.
        # Questions that fail later are replayed from the journal and counted then.
        failed = folder.journal.counts(done).get("failed", 0)
        summary = await _answered(job, folder.write, stop, on_event, on_step, folder, done, failed, lost)
        return SessionResult(summary, [])
    finally:
        folder.close()


async def _answered(
    job: Job,
    write: Callable[[Record], None],
    stop: asyncio.Event,
    on_event: OnEvent,
    on_step: OnStep | None,
    folder: RunFolder | None = None,
    done: int = 0,
    failed: int = 0,
    lost: int = 0,
) -> Summary:
    """Answer the questions after the first `done` ones, and report events. The folder, `failed` and `lost` are
    those of `answer_all`."""
    written, total = done, job.questions.count
    if job.index is not None:
        job.questions.tell_limited()
    on_event(Event("started", done, total, failed=failed))

    def ended(record: Record) -> None:
        nonlocal written
        written += 1
        write(record)
        on_event(Event("answered", written, total, record))

    def waits(waiting: Waiting | None) -> None:
        if folder is not None:
            folder.note_outage(waiting)
        on_event(_of_outage(waiting, written, total))

    left = iter(()) if done == total else islice(job.questions.read(), done, None)
    summary = await answer_all(
        left,
        job.ask,
        job.index,
        job.llm,
        ended,
        job.concurrency,
        budget=job.budget,
        folder=folder,
        first=done,
        failures=job.failures,
        failed=failed,
        stop=stop,
        replaced=job.replaced,
        outage_seconds=60 * job.options.outage,
        on_outage=waits,
        lost=lost,
        on_step=on_step,
        sampling=job.sampling,
        system=job.system,
    )
    summary.left = total - written
    return summary


def _of_outage(waiting: Waiting | None, done: int, total: int) -> Event:
    if waiting is None:
        LOG.info("no longer waiting for the LLM")  # The LLM answers again, or the run gives up and says so.
        return Event("answering", done, total)
    LOG.warning("%s is not answering; waiting for it: %s", waiting.llm, waiting.reason)
    return Event("waiting", done, total, waiting=waiting)
