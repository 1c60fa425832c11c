"""A run from its folder to its folder: the LLM is started, what was done is skipped, the rest is answered."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pyfast.engine.budget import Budget
from pyfast.engine.configuration import Configuration
from pyfast.engine.folder import ANSWERS, RunFolder
from pyfast.engine.journal import Sync
from pyfast.engine.questions import Question
from pyfast.engine.records import Record
from pyfast.engine.run import Ask, Summary, answer_all
from pyfast.llm import Backend
from pyfast.retrieval import Index

CLOSING_S = 5.0  # a backend that takes longer to stop is left to the end of the process


def dedicate_process() -> None:
    """Set the garbage collector up for a process that does nothing but a run; call it when the index is open.

    What is loaded is there for good: the collector need not go through it again and again. And the objects of
    thousands of questions in work are young, many and no garbage: with its usual 700 new objects between two
    collections it takes a tenth of the event loop's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run as it is wanted."""

    folder: Path
    questions: Callable[[], Iterator[Question]]
    """Reads them from the first on; called more than once"""
    ask: Ask
    index: Index | None
    llm: Backend
    describe: Callable[[], Configuration]
    """Called when the LLM has started"""
    concurrency: int = 64
    budget: Budget
    failures: int | None = None
    """How many questions may fail, in all sessions together"""
    sync: Sync = "normal"
    retry_failed: bool = False
    resumed: Callable[[Path], None] | None = None
    """Called with the answers that stand, before the rest is answered; in a thread of its own"""
    finished: Callable[[Path], None] | None = None
    """Called with the answers' file when every question has its line there; again by each session after that. In a
    thread of its own"""


async def work_on(
    job: Job, stop: asyncio.Event, begun: Callable[[RunFolder, int], None], ended: Callable[[], None]
) -> Summary:
    """Go on with a run until it is done, or `stop` is set; what this session did.

    `begun` is told the folder and how many questions are answered already, `ended` each time that one more is.
    Raises as `answer_all` and `RunFolder` do.
    """
    await job.llm.start()
    try:
        folder = RunFolder(job.folder, job.describe(), job.sync)
        try:
            if job.retry_failed:
                folder.forget_failures()
            done = written = folder.answered(job.questions())
            if job.resumed is not None and done:
                await asyncio.to_thread(job.resumed, job.folder / ANSWERS)
            begun(folder, done)

            def write(record: Record) -> None:
                nonlocal written
                written += 1
                folder.write(record)
                ended()

            failed = folder.journal.counts(done).get("failed", 0)  # later ones fail again, from the journal
            summary = await answer_all(
                islice(job.questions(), done, None),
                job.ask,
                job.index,
                job.llm,
                write,
                job.concurrency,
                budget=job.budget,
                folder=folder,
                first=done,
                failures=job.failures,
                failed=failed,
                stop=stop,
            )
            # A stop may come when the last questions are in work: then nothing is left.
            left = stop.is_set() and next(islice(job.questions(), written, None), None) is not None
            if job.finished is not None and not left:
                await asyncio.to_thread(job.finished, job.folder / ANSWERS)  # Ctrl-C is heard meanwhile
            return summary
        finally:
            folder.close()
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await job.llm.close()
