"""Carry out a run, in a folder or in memory: answer the questions that have no answer yet, each in its own
coroutine, with a limited number in progress at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from operator import attrgetter
from time import perf_counter, time

import numpy as np
import orjson

from pyfast.engine.budget import tokens_spent, within
from pyfast.engine.context import Ask, Context, Past, Runtime
from pyfast.engine.events import Event, OnEvent, OnStep, ignore
from pyfast.engine.job import Job
from pyfast.engine.journal.ledger import Ledger, StageTotals, UsageTotals, add_stages
from pyfast.engine.models import Models
from pyfast.engine.outages import Waiting
from pyfast.engine.questions import by_conversation
from pyfast.engine.record import REPLY_BEGINS, Answer, Cited, Record, State, Usage, with_names
from pyfast.engine.run_folder import ANSWERS, RunFolder
from pyfast.errors import InputError, LLMUnavailableError, OutageError, PyfastError, RunError, kind_of
from pyfast.llm.protocol import BatchLog
from pyfast.retrieval import PassageList, ScoredSegments
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted

_NOTHING = ScoredSegments(np.empty(0, np.int64), np.empty(0, np.float32))
_LAST_CALLS_S = 60.0  # how many seconds an ending run waits for the calls in flight, whose replies cost money
_AHEAD = 4096  # the maximum number of answers waiting for an earlier one


@dataclass(slots=True)
class Summary(UsageTotals):
    """The counts of one session: the outcomes of its questions, and their LLM calls, tokens and times."""

    states: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    left: int = 0
    """How many questions have not ended because the run was stopped"""
    first_failure: str | None = None
    failures: Counter[str] = field(default_factory=Counter)
    """How many questions failed, by reason (without the LLM's replies)"""
    stages: dict[str, StageTotals] = field(default_factory=dict)

    def merge(self, other: Summary) -> None:
        """Add the counts of other questions."""
        self.states.update(other.states)
        self.add(other)
        self.seconds += other.seconds
        self.left += other.left
        self.first_failure = self.first_failure or other.first_failure
        self.failures.update(other.failures)
        add_stages(self.stages, other.stages)

    def count(self, record: Record, ledger: Ledger) -> None:
        """Count one more question that has ended."""
        self.states[record.state] += 1
        self.add(ledger)
        add_stages(self.stages, ledger.stages)
        if record.reason is not None:
            self.failures[record.reason.partition(REPLY_BEGINS)[0]] += 1
            self.first_failure = self.first_failure or record.reason


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The result of one session (one process's work) on a run."""

    summary: Summary
    records: list[Record]
    """The records of a run in memory. Empty for a run with a folder, whose records are in answers.jsonl"""


async def work_on(
    job: Job, stop: asyncio.Event | None = None, on_event: OnEvent = ignore, on_step: OnStep | None = None
) -> SessionResult:
    """Carry out a run until it is finished or `stop` is set. The LLM must have started.

    Args:
        job: The run.
        stop: Once this event is set, no new question starts. Questions in progress finish.
        on_event: A function to call with each event, in this event loop.
        on_step: A function to call with each step of each question, in this event loop.

    Returns:
        The result of this session. For a run in memory, it contains the records.

    Raises:
        RunError: The LLM has ended or is unreachable, the disk is full, the run's budget is spent, or too many
            questions failed.
        InputError: Another process is working on the folder, the folder contains another run, or the run's
            configuration is not valid.
    """
    logging.getLogger("pyfast.profile").info("%s", job.profile)
    if job.folder is None:
        records: list[Record] = []
        try:
            return SessionResult(await _answer_all(job, records.append, stop, on_event, on_step), records)
        except RunError as error:
            error.records = tuple(records)
            raise
    try:
        described, options = job.describe(), job.options
        with contextlib.closing(job.open_folder(job.folder, described)) as folder:
            if options.reused:
                await asyncio.to_thread(folder.reuse, options.reused, described)
            lost = folder.forget_failures(only_of_transport=not options.retry_failed)
            done = folder.answered(job.questions.read())
            if job.resumed is not None and done:
                await asyncio.to_thread(job.resumed, job.folder / ANSWERS)
            if folder.journal.salvaged is not None:
                LOG.warning(
                    "the journal was damaged; pyfast continues with what it could read from %s",
                    folder.journal.salvaged,
                )
            if ended := sum(folder.journal.counts().values()):  # Answers after a gap are written again.
                again = f"; {ended - done} of them are written again from the journal" if ended > done else ""
                told = job.folder, ended, job.questions.count, again
                LOG.info("%s: %d of %d questions are finished; continuing%s", *told)
            folder.note_outage(None)  # A killed session may have left this file.
            summary = await _answer_all(job, folder.write, stop, on_event, on_step, folder, done, lost)
            return SessionResult(summary, [])
    except OSError as error:
        raise RunError(f"{error.filename or job.folder}: {error.strerror}") from None


async def _answer_all(
    job: Job,
    keep: Callable[[Record], None],
    stop: asyncio.Event | None,
    on_event: OnEvent,
    on_step: OnStep | None = None,
    folder: RunFolder | None = None,
    done: int = 0,
    lost: int = 0,
) -> Summary:
    """Answer the questions after the first `done` ones. `keep` is called with the records in the order of the
    questions.

    The turns of a conversation are answered one after the other, and each sees the results of the earlier ones.
    Every question ends as answered, abstained or failed. If too many finished questions are waiting for an earlier
    one, no new question starts, so that memory stays bounded. If the run stops early, all finished records are
    written first, and the calls in flight have a minute to end, so that the journal receives their replies.

    `lost` is the number of questions tried again because they failed in earlier sessions. Their calls may fail
    again, so the run accepts this many additional failed calls before it stops.
    """
    budget, total, written = job.budget, job.questions.count, done
    stop = stop or asyncio.Event()
    # Questions that fail later are replayed from the journal and counted then.
    failed = 0 if folder is None else folder.journal.counts(done).get("failed", 0)
    on_event(Event("started", done, total, failed=failed))
    summary = Summary()
    started = perf_counter()
    left = iter(()) if done == total else islice(job.questions.read(), done, None)
    numbers = count(done)
    conversations = ([(next(numbers), turn) for turn in turns] for turns in by_conversation(left))
    # for each finished question: its record, and whether it ends a conversation
    finished: dict[int, tuple[Record, bool]] = {}
    ahead = asyncio.Semaphore(max(_AHEAD, 4 * job.concurrency))
    halted = False
    asked: dict[str, None] = {}  # the ids of the questions in progress

    def write(record: Record) -> None:
        nonlocal written
        written += 1
        keep(record)
        on_event(Event("answered", written, total, record))

    def waits(waiting: Waiting | None) -> None:
        if folder is not None:
            folder.note_outage(waiting)
        if waiting is None:
            LOG.info("no longer waiting for the LLM")  # The LLM answers again, or the run gives up and says so.
        else:
            LOG.warning("%s is not answering (%s); waiting for it", waiting.llm, waiting.reason)
        on_event(Event("answering" if waiting is None else "waiting", written, total, waiting=waiting))

    def finish(number: int, record: Record, context: Context, last: bool) -> None:
        finished[number] = record, last
        if folder is not None:
            folder.end(number, record, context.ledger)
        summary.count(record, context.ledger)
        while (ready := finished.pop(written, None)) is not None:
            write(ready[0])
            if ready[1]:
                ahead.release()
        too_many()

    def too_many() -> None:
        if job.failures is not None and failed + summary.states["failed"] > job.failures:
            because = f"; the first reason was: {summary.first_failure}" if summary.first_failure else ""
            raise RunError(f"more than {counted(job.failures, 'question')} failed{because}")

    too_many()
    if job.index is not None and done < total:  # Otherwise, the first questions would wait while parts are merged.
        await asyncio.to_thread(getattr, job.index, "whole")
    with ThreadPoolExecutor(2, thread_name_prefix="pyfast-batch") as executor:
        models, patience_s = Models(job.llm, 60 * job.options.outage, waits, stop, lost), _LAST_CALLS_S
        runtime = Runtime(job.index, models, executor, budget, folder, on_step, job.sampling)

        def may_admit() -> bool:
            nonlocal halted
            if budget.run_tokens is not None and runtime.tokens >= budget.run_tokens:
                halted = True
            return not halted and not stop.is_set()

        async def work() -> None:
            while True:
                await ahead.acquire()
                await models.over()
                turns = next(conversations, [])
                if not turns or not may_admit():  # A run without a further question needs no more tokens.
                    ahead.release()
                    return
                past: Past = ()
                for place, (number, question) in enumerate(turns, start=1):
                    if place > 1 and not may_admit():
                        ahead.release()  # This conversation will write nothing else, so its place is free.
                        return
                    context = Context(runtime, question, number, past, job.replaced, system=job.system)
                    if folder is not None:
                        folder.begin(number, context.ledger.earlier)
                    asked[question.id] = None
                    record, answer = await answer_question(job.ask, context)
                    del asked[question.id]
                    past = (*past, (question, answer))
                    finish(number, record, context, place == len(turns))
                    await asyncio.sleep(0)  # Let the loop handle signals, even if the LLM answers at once.

        async def work_until_a_stop() -> None:
            try:
                await work()
            except LLMUnavailableError as error:  # The error cancels the other coroutines, which cannot note it.
                # A server that refuses every call says what is wrong itself.
                is_known = models.have_answered or isinstance(error, OutageError)
                if folder is not None and is_known and not models.stopped:
                    folder.note_stop([*asked], error)
                raise

        try:
            runtime.progress = await models.join_run(BatchLog() if folder is None else folder.batches())
            async with within(budget.run_seconds), asyncio.TaskGroup() as group:
                for _ in range(min(job.concurrency, total - done)):
                    group.create_task(work_until_a_stop())
        except ExceptionGroup as errors:  # The first error cancelled the other coroutines.
            if not models.stopped:
                raise errors.exceptions[0] from None
        except TimeoutError:
            raise RunError(f"the run has reached its limit of {budget.run_seconds:g} s") from None
        except asyncio.CancelledError:
            patience_s = 0.0
            raise
        finally:
            models.close()
            await runtime.finish_calls(patience_s)
            try:
                for number in sorted(finished):
                    write(finished[number][0])
            finally:
                if folder is not None:
                    folder.flush()
    if halted:
        raise tokens_spent(runtime.tokens, budget)
    summary.seconds, summary.left = perf_counter() - started, total - written
    return summary


def _checked(evidence: bytes) -> bytes:
    """Check a system's own evidence, and return it as JSON. Raises `ValueError` if it is not an array of objects
    with `uri` and `snippet`."""
    items = orjson.loads(evidence)
    if not isinstance(items, list) or not all(
        isinstance(item, dict) and isinstance(item.get("uri"), str) and isinstance(item.get("snippet"), str)
        for item in items
    ):
        raise ValueError("evidence: expected a JSON array of objects with `uri` and `snippet`")
    return orjson.dumps(items)


async def _written(answer: Answer, context: Context, counted: bool) -> tuple[Cited, bytes]:
    """Write the evidence and the trace of an answer as JSON. If `counted` is True, this is a step of the
    question. Two additions to the trace are written unless they are empty: how many passages did not fit into each
    prompt, and the queries for which a search found nothing."""
    notes = {"left_out": context.ledger.left_out, "nothing_retrieved": sorted(context.nothing_retrieved)}
    trace, lists = {**answer.trace, **{name: note for name, note in notes.items() if note}}, list[PassageList]()
    written = orjson.dumps(trace, default=partial(_gather, lists))
    given = answer.evidence or b"[]"
    if isinstance(given, ScoredSegments):
        cited = await context.cited(given, lists, counted)
    else:
        cited = Cited(_checked(given), None)
        if lists:
            await context.cited(_NOTHING, lists, counted)
    return cited, orjson.dumps(trace, default=attrgetter("segments")) if lists else written


def _gather(lists: list[PassageList], part: object) -> None:
    """Collect the lists of passages in a trace. orjson calls this function for each part of another type."""
    if not isinstance(part, PassageList):
        raise TypeError
    lists.append(part)


async def answer_question(ask: Ask, context: Context) -> tuple[Record, Answer | None]:
    """Answer one question.

    Args:
        ask: The system with its settings.
        context: The question, and the values and methods that the system may use.

    Returns:
        The question's record, and its answer, or None if the question failed.

    Raises:
        RunError: The run cannot continue.
        InputError: The run's configuration is not valid. After any other exception, only this question fails.
    """
    ledger = context.ledger
    ledger.started, ledger.began = time() - ledger.earlier, perf_counter() - ledger.earlier
    try:
        if context.tracing is None:
            return await _answered(ask, context)
        with context.tracing.question(context.question, context.system) as ended:
            record, answer = await _answered(ask, context)
            ended(record)
        return record, answer
    finally:
        ledger.nothing_found = int(bool(context.nothing_retrieved))
        context.forget()
        ledger.seconds = perf_counter() - ledger.began


async def _answered(ask: Ask, context: Context) -> tuple[Record, Answer | None]:
    try:
        async with context.timed():
            await context.restrict()
            answer = await ask(context.question, context)
            evidence, trace = await _written(answer, context, counted=True)
        (answer.text or "").encode()  # Text that is not valid Unicode fails here, not when it is written.
        return _record(context, answer.text, None, None, evidence, trace), answer
    except (RunError, InputError):
        raise
    except TimeoutError as error:
        limit = context.seconds
        reason = "TimeoutError" if limit is None else f"not finished within the question's limit of {limit:g} s"
        kind = kind_of(error)
    except Exception as error:  # Only this question fails, with its reason.
        reason = str(error) if isinstance(error, PyfastError) else f"{type(error).__name__}: {error}"
        kind = kind_of(error)
        if not isinstance(error, PyfastError):
            LOG.debug("question %s failed", context.question.id, exc_info=error)
    evidence, trace = Cited(b"[]", None), b"{}"
    try:
        evidence, trace = await _written(context.until_now(), context, counted=False)
    except Exception as error:
        reason += f"; the partial results cannot be written: {error}"
    reason = reason.encode(errors="replace").decode()
    return _record(context, None, reason, kind, evidence, trace), None


def _record(
    context: Context, text: str | None, reason: str | None, error: str | None, evidence: Cited, trace: bytes
) -> Record:
    """Create a question's record, with the part of the ledger that is unaffected by interruptions of the run."""
    state: State = "failed" if reason is not None else "abstained" if text is None else "answered"
    ledger = context.ledger
    usage = Usage(ledger.llm_calls, ledger.prompt_tokens, ledger.completion_tokens)
    record = Record(context.question.id, state, text, reason, evidence.whole, trace, usage, error)
    return with_names(record, evidence.names)
