"""`pyfast.Engine`: answer questions inside a service. The questions of all callers share batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import orjson

from pyfast.api.configured_system import ConfiguredSystem, configure, reads_history
from pyfast.api.index import index_of
from pyfast.api.jobs import AnswerArguments, ManyQuestions, QuestionLike, job_of
from pyfast.api.models import GivenLLM, opened
from pyfast.api.run import Run
from pyfast.engine import (
    Answer,
    Ask,
    Budget,
    Context,
    Evidence,
    Ledger,
    OnEvent,
    OnStep,
    Past,
    PromptOverrides,
    Question,
    Record,
    RunFolder,
    Runtime,
    answer_question,
    read_prompts,
    work_on,
)
from pyfast.engine.events import ignore
from pyfast.engine.models import Models
from pyfast.engine.question_files import as_path, read_question_records
from pyfast.engine.questions import read_question
from pyfast.errors import InputError
from pyfast.llm.protocol import OnText
from pyfast.llm.roles import check_given
from pyfast.retrieval import Index, cite, evidence_of, search
from pyfast.systems import System
from pyfast.utils.options import RUN_DEFAULTS, FollowUps, RunOptions, at_least_one, not_below


class Engine:
    """Answer questions inside a service. Use it with `async with`.

    Use an engine only in the event loop in which its `async with` block started. The questions of all callers
    of `answer` and `answer_many` share batches, even if they use different systems. If you cancel one caller,
    the other callers are not affected. Without `journal`, these two methods write nothing to the disk.

    Example:
        >>> import asyncio, pyfast
        >>> async def main() -> None:
        ...     async with pyfast.Engine("IDX", "openai:qwen3-8b@http://127.0.0.1:8000") as engine:
        ...         record = await engine.answer("Who discovered Titan?", system="rag")
        ...         print(record.answer)
        >>> asyncio.run(main())
    """

    def __init__(
        self,
        index: Index | str | Path | None = None,
        llm: GivenLLM = "embedded",
        *,
        concurrency: int = 64,
        budget: Mapping[str, Any] | None = None,
        outage: float = 0.0,
        prompts: str | Path | None = None,
        follow_ups: FollowUps = "off",
        journal: str | Path | None = None,
    ) -> None:
        """Configure the engine. `async with` starts it.

        Args:
            index: An index, or its folder. None: only systems that need no index can answer.
            llm: A model, or the text that names one (see `pyfast.open_llm`). The model starts with the `async
                with` block, and closes when the last engine that uses it ends. You can also pass a mapping of
                roles to models, as in `pyfast.answer`. The mapping may contain roles that only some systems have.
            concurrency: How many questions of all callers together are in progress at once. Further questions
                wait.
            budget: Limits of each question, by name: `calls`, `tokens`, `steps`, `seconds`, `call_seconds`,
                `attempts`, `passages`, `answer_tokens`.
            outage: How many minutes calls wait if the model cannot be reached, is overloaded or has internal
                errors. 0: `LLMUnavailableError` is raised immediately.
            prompts: A TOML file with prompts that replace prompts of the systems.
            follow_ups: What to do with a question that has a `history`, if the system can answer only single
                questions. The values are those of `pyfast.answer`. Other systems read the history themselves,
                and this argument has no effect on them.
            journal: A new folder, into which `answer` and `answer_many` write replies of the LLM, answers,
                traces and times, as a run does. A reply is stored before the question that asked for the
                reply continues. You cannot resume from this folder. None: these methods write nothing.

        Raises:
            InputError: A budget or the name of the model cannot be read.
            IndexFormatError: The folder has no index, or the index is damaged.
        """
        self._index = None if index is None else index_of(index)
        self._llm = replace(opened(llm), kept=frozenset())
        self._budget = Budget.parse(budget or {})
        not_below(0, "outage", outage)
        self._outage_s = 60 * outage
        self._prompts = None if prompts is None else read_prompts(Path(prompts))
        self._follow_ups = follow_ups
        self._concurrency = at_least_one("concurrency", concurrency)
        self._free = asyncio.Semaphore(concurrency)
        self._working: set[asyncio.Task[Any]] = set()
        self._opened = contextlib.AsyncExitStack()
        self._runtime: Runtime | None = None
        self._journal = None if journal is None else Path(journal)
        self._folder: RunFolder | None = None
        self._numbers = count()
        self._prepared: dict[object, asyncio.Future[_Prepared]] = {}

    async def __aenter__(self) -> Self:
        if self._runtime is not None:
            raise InputError("this engine is entered already")
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._llm.started())
            executor = ThreadPoolExecutor(2, thread_name_prefix="pyfast-batch")
            stack.callback(executor.shutdown, wait=False, cancel_futures=True)
            self._free = asyncio.Semaphore(self._concurrency)  # a semaphore of the running event loop
            models = Models(self._llm.full(), self._outage_s)
            stack.callback(models.close)
            if self._journal is not None:
                self._folder = _new_folder(self._journal, stack)
            self._runtime = Runtime(self._index, models, executor, self._budget, self._folder)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        """Wait for questions in progress, or cancel them if the block ended with an error."""
        working = self._working - {asyncio.current_task()}
        if kind is not None:
            for task in working:
                task.cancel()
        if working:
            await asyncio.wait(working)
        self._runtime = self._folder = None
        self._prepared.clear()
        await self._opened.aclose()

    async def answer(
        self,
        question: QuestionLike,
        *,
        system: str | System = "n2n",
        settings: Mapping[str, Any] | None = None,
        history: Sequence[tuple[str, str]] = (),
        on_step: OnStep | None = None,
        ledger: Ledger | None = None,
        on_text: OnText | None = None,
    ) -> Record:
        """Answer one question.

        Args:
            question: A string, a mapping with `id` and `question`, or a `Question`.
            system: The name of an installed system, or a `System` object.
            settings: Settings of the system, by name.
            history: The earlier (question, answer) pairs, if the question continues a conversation.
            on_step: A function that is called in this event loop with each `pyfast.engine.Step`. A step is one
                call that the question makes: to the model, or to a batched function such as a search. The function
                is called twice for each step: when the step begins and when it ends.
            ledger: A new `pyfast.engine.Ledger`. `answer` writes the question's calls, tokens, and time of each
                stage into it.
            on_text: A function that is called in this event loop with the answer so far, while the LLM writes it.
                Some systems and LLMs cannot do this, and then it is not called. If the reply cannot be used in the
                end, the record has another answer.

        Returns:
            The record of the question. If the question could not be answered, its state is `failed`, with a
            reason.

        Raises:
            InputError: The system, a setting or the question is not valid.
            LLMUnavailableError: The model can no longer be reached.
        """
        past = tuple(
            (Question(f"turn {number}", asked), Answer(answer))
            for number, (asked, answer) in enumerate(history, 1)
        )
        turns = [turn for _, turn in read_question(question, 1)]
        if len(turns) != 1:
            raise InputError("a conversation has several answers: give it to answer_many")
        prepared = await self._prepare(system, settings)
        return (await self._answer(turns, prepared, past, on_step, ledger, on_text))[0]

    async def answer_many(
        self,
        questions: ManyQuestions,
        *,
        system: str | System = "n2n",
        settings: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Answer questions, and yield their records in the order of the questions.

        The engine reads only about `2 * concurrency` questions ahead, so an iterator may be endless. To stop
        early, call the generator's `aclose()`, or use `contextlib.aclosing`. Both cancel the questions in
        progress.

        Args:
            questions: As in `pyfast.answer`, including asynchronous iterators. Consecutive `Question` objects with
                the same `conversation` are its turns, which the engine answers one after the other.
            system: As in `answer`.
            settings: As in `answer`.

        Yields:
            One record for each question or turn.

        Raises:
            InputError: The system, a setting or a question is not valid. If a question is not valid, the
                error comes after the records of all earlier questions.
            LLMUnavailableError: The model can no longer be reached.
        """
        prepared = await self._prepare(system, settings)
        working: deque[asyncio.Task[list[Record]]] = deque()
        asked = _conversations(questions)
        following: asyncio.Task[list[Question]] | None = asyncio.ensure_future(_next(asked))
        fault: Exception | None = None
        try:
            while working or following is not None:
                has_room = following is not None and len(working) < 2 * self._concurrency
                wanted = {*list(working)[:1], *([following] if has_room and following is not None else [])}
                await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
                if has_room and following is not None and following.done():
                    try:
                        turns = following.result()
                    except Exception as error:
                        turns, fault = [], error
                    if turns:
                        working.append(asyncio.ensure_future(self._answer(turns, prepared, ())))
                    following = asyncio.ensure_future(_next(asked)) if turns else None
                while working and working[0].done():
                    for record in working[0].result():
                        yield record
                    working.popleft()
            if fault is not None:
                raise fault
        finally:
            left = [*working, *([following] if following is not None else [])]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await asked.aclose()

    async def answer_run(
        self,
        questions: ManyQuestions,
        run: str | Path,
        *,
        system: str | System = "n2n",
        settings: Mapping[str, Any] | None = None,
        options: RunOptions = RUN_DEFAULTS,
        on_event: OnEvent = ignore,
        stop: asyncio.Event | None = None,
    ) -> Run:
        """Answer a set of questions as `pyfast.answer` does, with the models of this engine.

        The questions of the run share batches with each other, but not with the questions of other callers. All
        callers share the models. If you cancel `answer_run`, call it again with the same arguments to resume the
        run.

        Args:
            questions: As in `pyfast.answer`.
            run: The folder of the run. If it exists, the run resumes.
            system: As in `answer`.
            settings: As in `answer`.
            options: As in `pyfast.answer`. `outage`, `keep_prompts`, `retry_failed` and `reuse` have an effect
                here, and others are refused.
            on_event: A function that is called in this event loop with each `pyfast.engine.Event`.
            stop: After you set this event, no new question starts. Questions in progress finish, and you can
                resume the run.

        Returns:
            The run.

        Raises:
            InputError: An argument is not valid, or the folder has a run with other arguments.
            LLMUnavailableError: A model can no longer be reached.
            RunError: The run cannot continue. No finished work is lost.
        """
        self._entered()
        _refuse_module(system)
        options.only("answer_run", "outage", "keep_prompts", "retry_failed", "reuse")
        given = AnswerArguments(
            index=self._index,
            llm=self._llm.by_role,
            system=system,
            settings=settings,
            run=run,
            concurrency=self._concurrency,
            budget=self._budget.model_dump(exclude_none=True),
            options=replace(options, follow_ups="off" if reads_history(system) else self._follow_ups),
            replaced=self._prompts,
        )
        job, _ = await asyncio.to_thread(job_of, questions, given)
        task = asyncio.current_task()
        assert task is not None and job.folder is not None
        self._working.add(task)
        try:
            result = await work_on(job, stop, on_event)
        finally:
            self._working.discard(task)
        return Run.finished(job.folder, job.questions, result.summary, result.records)

    async def retrieve(self, query: str, k: int = 20) -> list[Evidence]:
        """Find the `k` best passages for a query, best first, without calling the model.

        Args:
            query: Words, or a question.
            k: The maximum number of passages.

        Returns:
            The passages with their uris, offsets and scores.

        Raises:
            InputError: The engine has no index, or its `async with` block has not started.
        """
        runtime = self._entered()
        at_least_one("k", k)
        context = Context(runtime, Question("retrieve", query))
        pool = await context.call(search, query, k)
        evidence = await context.call(cite, evidence_of(runtime.required_index(), pool))
        return [Evidence.read(item) for item in orjson.loads(evidence)]

    def _entered(self) -> Runtime:
        if self._runtime is None:
            raise InputError("this engine is not entered: use `async with pyfast.Engine(...) as engine`")
        return self._runtime

    async def _answer(
        self,
        turns: Sequence[Question],
        prepared: _Prepared,
        past: Past,
        on_step: OnStep | None = None,
        ledger: Ledger | None = None,
        on_text: OnText | None = None,
    ) -> list[Record]:
        """Answer one question, or the turns of one conversation. Return the record of each, in order."""
        ask, replaced, system = prepared
        records = []
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            async with self._free:
                for question in turns:
                    number = next(self._numbers)
                    given = past, replaced, on_step, system, on_text
                    context = Context(self._entered(), question, number, *given)
                    context.ledger = ledger or context.ledger
                    record, answer = await answer_question(question, ask, context, self._budget.seconds)
                    if self._folder is not None:
                        self._folder.end(number, record, context.ledger)
                        self._folder.write(record)
                    past = (*past, (question, answer))
                    records.append(record)
        finally:
            self._working.discard(task)
        return records

    async def _prepare(self, system: str | System, settings: Mapping[str, Any] | None) -> _Prepared:
        """Return a system with its settings. What the system needs in addition to the index is opened in a
        thread, and only once for all questions with the same system and settings."""
        self._entered()
        _refuse_module(system)
        key = system, orjson.dumps(settings or {}, option=orjson.OPT_SORT_KEYS, default=repr)
        opening = self._prepared.get(key)
        if opening is None:
            follow_ups = "off" if reads_history(system) else self._follow_ups
            configured = configure(system, settings, self._index, self._prompts, follow_ups)
            check_given(configured.system.name, configured.roles, self._llm.by_role)
            opening = self._prepared[key] = asyncio.ensure_future(asyncio.to_thread(_opened, configured))
            opening.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(opening)

    def _forget(self, key: object, opening: asyncio.Future[_Prepared]) -> None:
        """Forget a system that could not be opened, because its opening failed or was cancelled. The next
        caller then tries again to open it."""
        if opening.cancelled() or opening.exception() is not None:
            self._prepared.pop(key, None)


def _new_folder(path: Path, stack: contextlib.AsyncExitStack) -> RunFolder:
    """Make the folder of a run, and register its `flush` and `close` with `stack`. Raises `InputError` if
    `path` exists and is not an empty folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"journal: {path} exists already; give a new folder")
    folder = RunFolder(path, {})
    stack.callback(folder.close)
    stack.callback(folder.flush)
    return folder


def _refuse_module(system: str | System) -> None:
    """Raise `InputError` if the system is given as `MODULE:NAME`. This text may come from a request, and a
    request must not import modules."""
    if isinstance(system, str) and ":" in system:
        raise InputError(f"{system}: give the engine a System, or the name of an installed one")


_Prepared = tuple[Ask, PromptOverrides | None, str]


def _opened(configured: ConfiguredSystem) -> _Prepared:
    return configured.ask(configured.open(None)), configured.replaced, configured.system.name


async def _next(asked: AsyncGenerator[list[Question], None]) -> list[Question]:
    """Return the next question, or the turns of the next conversation. The list is empty at the end."""
    return await anext(asked, [])


async def _conversations(questions: ManyQuestions) -> AsyncGenerator[list[Question], None]:
    """Yield a list of one question for each single question, and a list of all turns for each conversation."""
    turns: list[Question] = []
    number = 0
    async for given in _each(questions):
        number += 1
        read = [turn for _, turn in read_question(given, number)]
        goes_on = bool(turns) and isinstance(given, Question) and turns[0].conversation == given.conversation
        if turns and not goes_on:
            yield turns
            turns = []
        if isinstance(given, Question) and given.conversation is not None:
            turns += read
        else:
            yield read
    if turns:
        yield turns


async def _each(questions: ManyQuestions) -> AsyncIterator[QuestionLike]:
    """Yield the questions. `questions` is an iterable, an asynchronous iterable, the path of a file, or a text
    that is one question. Raises `InputError` for bytes and for a single mapping."""
    if isinstance(questions, bytes | Mapping):
        raise InputError("questions: expected a text, a list of questions, or a file of them")
    if isinstance(questions, str):
        questions = as_path(questions) or [questions]
    if isinstance(questions, Path):
        for _, line in read_question_records(questions):
            yield line
    elif isinstance(questions, AsyncIterable):
        async for given in questions:
            yield given
    else:
        for given in questions:
            yield given
            await asyncio.sleep(0)  # Let the event loop do other work during a long list.
