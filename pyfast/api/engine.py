"""`pyfast.Engine`: answer questions inside a service. The questions of all callers share batches."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import orjson

from pyfast.api.index import index_of
from pyfast.api.jobs import (
    AnswerArguments,
    ConfiguredSystem,
    ManyQuestions,
    QuestionLike,
    configure,
    job_of,
    reads_history,
)
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
    Question,
    Record,
    RunFolder,
    Runtime,
    answer_question,
    read_prompts,
    work_on,
)
from pyfast.engine.budget import OF_RUN
from pyfast.engine.configuration import ENGINE, code_table, index_table
from pyfast.engine.events import ignore
from pyfast.engine.job import recorded_models
from pyfast.engine.models import Models
from pyfast.engine.question_files import as_path, read_question_records
from pyfast.engine.questions import read_question
from pyfast.engine.run_folder import QUESTIONS
from pyfast.errors import InputError, PyfastError, QuestionError
from pyfast.llm import FullLLM, Role
from pyfast.llm.protocol import OnText, check_given
from pyfast.retrieval import Index, cite, evidence_of, search
from pyfast.retrieval.index.commit import Condition, parse_filter
from pyfast.retrieval.index.manifest import state_of
from pyfast.systems import System, names
from pyfast.utils.log import LOG
from pyfast.utils.options import RUN_DEFAULTS, FollowUps, RunOptions, at_least_one, not_below

_FORGOTTEN_S = 1.0
_SYSTEMS = 64  # the number of systems, each with its settings, that stay open for one view
_TITLES = 1 << 14  # the number of an index's titles that stay in memory, because looking up a title is slow


class View:
    """An index as questions see it, at one commit and with one filter. Questions on the same view share batches
    and opened systems. `Engine.view` creates it."""

    def __init__(self, index: Index | None, runtime: Runtime) -> None:
        self.index, self.runtime = index, runtime
        self.title: Callable[[str], str] = (lambda uri: "") if index is None else lru_cache(_TITLES)(index.title)
        """Returns the title of the document with a given uri, or an empty string if there is none"""
        self.prepared: dict[object, asyncio.Future[_Prepared]] = {}
        self.users = 0
        """The number of calls that use it"""
        self.is_kept = True
        """Whether later calls may use it"""


Filter = str | Sequence[str] | View


class Engine:
    """Answers questions inside a service. Use it with `async with`.

    Use an engine only in the event loop in which its `async with` block started. Questions from all callers of
    `answer` and `answer_many` share batches, even if they use different systems. Cancelling one caller does not
    affect the others. Without `journal`, these two methods write nothing to disk.

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
        follow_ups: FollowUps = "rewrite",
        journal: str | Path | None = None,
        follow: bool = False,
        views: int = 32,
    ) -> None:
        """Configure the engine, which `async with` then starts.

        Args:
            index: An index, or its folder. None: only systems that need no index can answer.
            llm: A model, or a string that names one (see `pyfast.open_llm`). The model starts with the `async
                with` block, and closes when the last engine using it ends. You can also pass a mapping from roles
                to models, as in `pyfast.answer`; it may include roles that only some systems use.
            concurrency: How many questions, from all callers together, to process at once. Further questions wait.
            budget: Limits per question, by name: `calls`, `tokens`, `steps`, `seconds`, `call_seconds`,
                `attempts`, `passages`, `answer_tokens`. Run limits are rejected.
            outage: How many minutes calls wait if the model is unreachable or overloaded, or has internal errors.
                0: raise `LLMUnavailableError` when all attempts at a call and at a test call have failed; how long
                this takes depends on the model's options `attempts` and `backoff_s`.
            prompts: A TOML file with prompts that replace the systems' own.
            follow_ups: What to do with a question that has a `history`, and with later turns of a conversation, if
                the system can answer only single questions. The values are those of `pyfast.RunOptions`. The
                argument has no effect without a history, nor on systems that read the history themselves.
            journal: A new folder to which `answer` and `answer_many` write the LLM's replies, questions, answers,
                traces and times, as a run does. Each reply is stored before the question that is waiting for it
                continues. `pyfast.Run` and the commands read the folder like that of a run whose questions are
                those finished so far, even while the engine is writing to it; it cannot be resumed. With a
                journal, `answer` numbers questions without an id from 1. None: these methods write nothing.
            follow: After the index has changed, use its new commit for calls that start later; calls in progress
                finish with the old commit. False: stay at the commit of `index`.
            views: For how many filters to keep the selected documents in temporary files. To make room for
                another filter, the engine deletes the files of a filter that was used only once or, failing that,
                of the least recently used one. Set this higher than the number of filters in constant use.

        Raises:
            InputError: A budget or the name of the model cannot be read.
            IndexFormatError: The folder contains no index, or the index is damaged.
        """
        self._index = None if index is None else index_of(index)
        self._llm = replace(opened(llm), kept=frozenset())
        self._budget = Budget.parse(budget or {})
        if of_run := [name for name in OF_RUN if name in (budget or {})]:
            instead = of_run[0].removeprefix("run_")
            raise InputError(
                f"budget {of_run[0]}: applies only to runs of `answer`; here, {instead} limits each question"
            )
        not_below(0, "outage", outage)
        self._outage_s = 60 * outage
        self._prompts = None if prompts is None else read_prompts(Path(prompts))
        self._follow_ups = follow_ups
        self._concurrency = at_least_one("concurrency", concurrency)
        self._free = asyncio.Semaphore(concurrency)
        self._working: set[asyncio.Task[Any]] = set()
        self._opened = contextlib.AsyncExitStack()
        self._models: Models | None = None
        self._runtime: Callable[[Index | None], Runtime] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the one in which it was entered last
        self._journal = None if journal is None else Path(journal)
        self._folder: RunFolder | None = None
        self._tickets = count(-1, -1)
        self._asked = count(1)  # ids for questions without one, if there is a journal
        self._follow, self._most_views = follow, at_least_one("views", views)
        self._base: View | None = None  # with the engine's own index
        self._views: dict[frozenset[Condition], asyncio.Future[View]] = {}  # the one used last is the last
        self._used_again: set[frozenset[Condition]] = set()
        self._one_view = asyncio.Lock()
        self._moving: asyncio.Task[None] | None = None
        self._state: object = None  # the folder's state when the index was last known to be up to date

    async def __aenter__(self) -> Self:
        if self._runtime is not None:
            raise InputError("this engine has already been entered")
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._llm.started())
            executor = ThreadPoolExecutor(2, thread_name_prefix="pyfast-batch")
            stack.callback(executor.shutdown, wait=False, cancel_futures=True)
            self._free = asyncio.Semaphore(self._concurrency)  # a semaphore of the running event loop
            self._models = models = Models(self._llm.full(), self._outage_s, on_out=_tell)
            stack.callback(models.close)
            if self._journal is not None:
                self._folder = _new_folder(self._journal, self._index, self._llm.full(), stack)
            of_all = partial(Runtime, models=models, executor=executor, budget=self._budget, folder=self._folder)
            self._runtime = partial(of_all, in_flight=set())
            self._base = View(self._index, self._runtime(self._index))
            self._loop = asyncio.get_running_loop()
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        """Wait for the questions in progress, or cancel them if the block ended with an error."""
        working = self._working - {asyncio.current_task()}
        if kind is not None:
            for task in working:
                task.cancel()
        if working:
            await asyncio.wait(working)
        opening: list[asyncio.Future[Any]] = [*self._views.values(), *([self._moving] if self._moving else [])]
        await asyncio.gather(*opening, return_exceptions=True)
        assert self._base is not None
        await self._base.runtime.finish_calls(0)  # With a journal, the calls of cancelled questions continue.
        self._runtime = self._folder = self._base = self._models = None
        self._views.clear()
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
        filter: Filter = (),
        documents: Sequence[str] | None = None,
        on_text: OnText | None = None,
    ) -> Record:
        """Answer one question.

        Args:
            question: A string, a mapping with `id` and `question`, or a `Question`.
            system: The name of an installed system, or a `System` object.
            settings: Settings of the system, by name.
            history: The earlier (question, answer) pairs, if the question continues a conversation.
            on_step: A function to call in this event loop with each `pyfast.engine.Step`. A step is one call that
                the question makes, to the model or to a batched function such as a search. The function is called
                twice per step, when the step begins and when it ends, and once, with `fell_back`, if the system
                continues without a usable reply.
            ledger: A new `pyfast.engine.Ledger`. `answer` records the question's calls, tokens, and time per stage
                in it.
            filter: Conditions as in `pyfast.open_index`, in addition to those the index was opened with. The
                question searches only documents that meet all of them. Questions with the same filter share
                batches. You can also pass a `view`, to stay at its commit.
            documents: The uris of the documents to search. If the question itself lists `documents`, it searches
                those in both lists.
            on_text: A function to call in this event loop with the answer so far, while the LLM writes it. With
                some systems and LLMs, it is never called. If the reply turns out to be unusable, the answer in the
                record is a different one.

        Returns:
            The question's record. Its state is `failed`, with a reason, if the question could not be answered.

        Raises:
            InputError: The system, a setting, the filter or the question is not valid, or no document meets the
                filter.
            LLMUnavailableError: The model has become unreachable.
        """
        past = tuple(_turn(number, pair) for number, pair in enumerate(history, 1))
        turns = [turn for _, turn in read_question(question, 1 if self._journal is None else next(self._asked))]
        if len(turns) != 1:
            raise InputError("a conversation has several answers: pass it to answer_many")
        async with self.view(filter) as view:
            turns = _narrowed(turns, documents, view)
            prepared = await self._prepare(view, system, settings)
            return (await self._answer(turns, view, prepared, past, on_step, ledger, on_text))[0]

    async def answer_many(
        self,
        questions: ManyQuestions,
        *,
        system: str | System = "n2n",
        settings: Mapping[str, Any] | None = None,
        filter: Filter = (),
        documents: Sequence[str] | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Answer questions, and yield their records in the order of the questions.

        The engine reads only about `2 * concurrency` questions ahead, so an iterator may be endless. To stop early
        and cancel the questions in progress, call the generator's `aclose()`, or use `contextlib.aclosing`.

        Args:
            questions: As in `pyfast.answer`, including asynchronous iterators, but the id of a question without
                `id` is its position, counted from 1. Consecutive `Question` objects with
                the same `conversation` are its turns, which the engine answers one after another.
            system: As in `answer`.
            settings: As in `answer`.
            filter: As in `answer`. All questions use the same commit of the index.
            documents: As in `answer`.

        Yields:
            One record for each question or turn.

        Raises:
            InputError: The system, a setting, the filter or a question is not valid. An invalid question raises
                the error after the records of all earlier questions.
            LLMUnavailableError: The model has become unreachable.
        """
        # An asynchronous context manager is a generator, which an ending event loop may close before this one.
        with self._using(await self._viewed(filter)) as view:
            prepared = await self._prepare(view, system, settings)
            working = asyncio.Queue[
                asyncio.Task[list[Record]] | None
            ]()  # in the order of the questions; None: end
            started, room = set[asyncio.Task[list[Record]]](), asyncio.Semaphore(2 * self._concurrency)

            async def read() -> None:
                try:
                    async with contextlib.aclosing(_conversations(questions)) as asked:
                        async for turns in asked:
                            await room.acquire()
                            narrowed = _narrowed(turns, documents, view)
                            started.add(task := asyncio.ensure_future(self._answer(narrowed, view, prepared, ())))
                            task.add_done_callback(started.discard)
                            working.put_nowait(task)
                finally:
                    working.put_nowait(None)

            reading = asyncio.ensure_future(read())
            try:
                while (answering := await working.get()) is not None:
                    for record in await answering:
                        yield record
                    room.release()
                await reading  # raises its error after the records of all earlier questions
            finally:
                left = [reading, *started]
                for one in left:
                    one.cancel()
                await asyncio.gather(*left, return_exceptions=True)

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
        filter: Filter = (),
    ) -> Run:
        """Answer a set of questions as `pyfast.answer` does, with the models of this engine.

        The run's questions share batches with each other, but not with those of other callers; all callers share
        the models. If you cancel `answer_run`, call it again with the same arguments to resume the run.

        Args:
            questions: As in `pyfast.answer`.
            run: The folder of the run. If it exists, the run resumes.
            system: As in `answer`.
            settings: As in `answer`.
            options: As in `pyfast.answer`. Supported here are `follow_ups`, `outage`, `keep_prompts`,
                `retry_failed`, `ask_once` and `reuse`; others are rejected.
            on_event: A function to call in this event loop with each `pyfast.engine.Event`.
            stop: Once you set this event, no new question starts. Questions in progress finish, and you can resume
                the run.
            filter: As in `answer`.

        Returns:
            The run.

        Raises:
            InputError: An argument is not valid, or the folder contains a run with other arguments.
            LLMUnavailableError: A model has become unreachable.
            RunError: The run cannot continue. No finished work is lost.
        """
        self._entered()
        _check_installed(system)
        RunOptions.require(options)
        options.only("answer_run", "follow_ups", "outage", "keep_prompts", "retry_failed", "ask_once", "reuse")
        async with self.view(filter) as view:
            given = AnswerArguments(
                index=view.index,
                llm=self._llm.by_role,
                system=system,
                settings=settings,
                run=run,
                concurrency=self._concurrency,
                budget=self._budget.model_dump(exclude_none=True),
                options=options,
                replaced=self._prompts,
            )
            job, _ = await asyncio.to_thread(job_of, questions, given)
            task = asyncio.current_task()
            assert task is not None and job.folder is not None
            self._working.add(task)
            try:
                if job.index is not None:
                    job.questions.tell_limited()
                result = await work_on(job, stop, on_event)
            finally:
                self._working.discard(task)
            return Run.finished(job.folder, job.questions, result.summary, result.records)

    async def retrieve(
        self, query: str, k: int = 20, *, filter: Filter = (), documents: Sequence[str] | None = None
    ) -> list[Evidence]:
        """Find the `k` best passages for a query, best first, without calling the model.

        Args:
            query: Words, or a question.
            k: The maximum number of passages.
            filter: As in `answer`.
            documents: As in `answer`.

        Returns:
            The passages with their uris, offsets and scores.

        Raises:
            InputError: The engine has no index, its `async with` block has not started, the filter is not valid,
                no document meets it, or one of the documents is not in the index.
        """
        at_least_one("k", k)
        async with self.view(filter) as view:
            if view.index is None:
                raise InputError("there is no index to search")
            (question,) = _narrowed([Question("retrieve", query)], documents, view)
            context = Context(view.runtime, question)
            try:
                await context.restrict()
            except QuestionError as error:
                raise InputError(str(error)) from None
            pool = await context.call(search, query, k)
            evidence = await context.call(cite, evidence_of(context.index, pool))
        return [Evidence.read(item) for item in orjson.loads(evidence)]

    def llm_is_out(self) -> bool:
        """Return whether a model is out, for health checks of a service.

        A model is out from the moment a call fails because of it, or is cancelled after a failed attempt, until it
        answers a call or a test call. While a model is out and no question is waiting for it, this method sends
        test calls, at most one every two seconds and none during a pause that the model's server asks for, without
        waiting for the reply, so that a service which receives no questions in the meantime still detects the end
        of the outage. It also sends a test call after questions were cancelled while the model was not replying;
        if this call gets no reply within 30 seconds, the model is out too. The log contains one line for the start
        of an outage and one for its end.

        Returns:
            Whether a model is out. False before the `async with` block.

        Example:
            >>> import asyncio, pyfast
            >>> async def main() -> bool:
            ...     async with pyfast.Engine(llm="instant") as engine:
            ...         return engine.llm_is_out()
            >>> asyncio.run(main())
            False
        """
        return self._models is not None and self._models.are_out()

    @property
    def index(self) -> Index | None:
        """The index that calls without a filter currently use."""
        return self._index

    @contextlib.asynccontextmanager
    async def view(self, filter: Filter = ()) -> AsyncIterator[View]:
        """Hold the engine's index at one commit, with this filter, for several calls: while the `async with` block
        runs, all calls that take the view as their `filter` see the same documents.

        The first use of a filter copies the documents that meet it to temporary files.

        Args:
            filter: As in `answer`.

        Yields:
            The view. `view.index` is the index.

        Raises:
            InputError: The engine has no index, a condition cannot be read, or no document meets the conditions.
        """
        with self._using(await self._viewed(filter)) as view:
            yield view

    async def _viewed(self, filter: Filter) -> View:
        self._entered()
        return filter if isinstance(filter, View) else await self._view(tuple(dict.fromkeys(parse_filter(filter))))

    @contextlib.contextmanager
    def _using(self, view: View) -> Iterator[View]:
        view.users += 1
        try:
            yield view
        finally:
            view.users -= 1
            self._free_unused(view)

    async def _view(self, conditions: tuple[Condition, ...]) -> View:
        while self._is_changed():
            if self._moving is None:
                self._moving = asyncio.ensure_future(self._move())
            await asyncio.shield(self._moving)  # Other calls use it too.
        assert self._base is not None
        if not conditions:
            return self._base
        key = frozenset(conditions)
        making = self._views.pop(key, None)
        if making is None:
            making = asyncio.ensure_future(self._made(self._base, conditions))
            making.add_done_callback(partial(_forget, self._views, key))
        else:
            self._used_again.add(key)
        self._views[key] = making
        if len(self._views) > self._most_views:
            # Views used only once go first: otherwise, a client with many filters would evict everyone else's
            # views.
            oldest = min(list(self._views)[:-1], key=self._used_again.__contains__)
            self._drop(self._views.pop(oldest))
        self._used_again &= self._views.keys()
        return await asyncio.shield(making)

    async def _made(self, base: View, conditions: tuple[Condition, ...]) -> View:
        if base.index is None:
            raise InputError("filter: can only be used with an index")

        def make(index: Index) -> Index:
            try:
                chosen = index.fitting([str(one) for one in conditions])
            except InputError:  # Its message would also show conditions that a server adds to a client's.
                raise InputError("filter: no document matches; check its keys and values") from None
            _ = chosen.whole  # made here rather than in a batch's thread
            return chosen

        async with self._one_view:  # It holds the GIL, and one client must not occupy all threads.
            index = await asyncio.to_thread(make, base.index)
        return View(index, self._entered()(index))

    def _is_changed(self) -> bool:
        if not self._follow or self.index is None:
            return False
        if (state := state_of(self.index.folder)) is None:
            if self._state is not None:
                LOG.error(
                    "%s no longer exists; the engine stays at commit %d", self.index.folder, self.index.commit
                )
                self._state = None  # Logged only once. An index that reappears may be a different one.
            return False
        return state != self._state

    async def _move(self) -> None:
        """Open the current commit of the index. If it cannot be opened, the engine keeps its commit."""
        base = self._base
        assert base is not None and base.index is not None
        self._state = state_of(base.index.folder)
        try:
            index = await asyncio.to_thread(base.index.newest)
            if index is not base.index:
                self._index, self._base = index, View(index, self._entered()(index))
                LOG.info("%s is now at commit %d", index.folder, index.commit)
                base.is_kept = False
                self._free_unused(base)
                for making in self._views.values():
                    self._drop(making)
                self._views.clear()
        except PyfastError as error:
            LOG.error("%s stays at commit %d: %s", base.index.folder, base.index.commit, error)
        finally:
            self._moving = None

    def _drop(self, making: asyncio.Future[View]) -> None:
        def dropped(done: asyncio.Future[View]) -> None:
            if not done.cancelled() and done.exception() is None:
                done.result().is_kept = False
                self._free_unused(done.result())

        making.add_done_callback(dropped)

    def _free_unused(self, view: View) -> None:
        if not view.users and not view.is_kept:
            # An index's objects refer to each other, so only the garbage collector frees its files, once the last
            # call and the threads have dropped the index.
            asyncio.get_running_loop().call_later(_FORGOTTEN_S, gc.collect)

    def _entered(self) -> Callable[[Index | None], Runtime]:
        if self._loop is None:
            raise InputError("this engine has not been entered: use `async with pyfast.Engine(...) as engine`")
        if self._runtime is None:
            raise InputError("this engine has been closed: its `async with` block has ended")
        if self._loop is not asyncio.get_running_loop():
            raise InputError("use this engine in the event loop in which its `async with` block started")
        return self._runtime

    async def _answer(
        self,
        turns: Sequence[Question],
        view: View,
        prepared: _Prepared,
        past: Past,
        on_step: OnStep | None = None,
        ledger: Ledger | None = None,
        on_text: OnText | None = None,
    ) -> list[Record]:
        """Answer one question, or the turns of one conversation, and return their records in order."""
        configured, ask = prepared
        system = configured.system.name
        if past or len(turns) > 1:
            check_given(system, configured.roles, self._llm.by_role)
        records = []
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            async with self._free:
                for question in turns:
                    ticket = next(self._tickets)
                    given = past, configured.replaced, on_step, system, on_text
                    context = Context(view.runtime, question, ticket, *given)
                    context.ledger = ledger or context.ledger
                    record, answer = await answer_question(ask, context)
                    if self._folder is not None:
                        self._folder.keep(ticket, question, record, context.ledger)
                    past = (*past, (question, answer))
                    records.append(record)
        finally:
            self._working.discard(task)
        return records

    async def _prepare(self, view: View, system: str | System, settings: Mapping[str, Any] | None) -> _Prepared:
        """Return a system with its settings. What the system needs in addition to the index is opened in a thread,
        once for all questions with the same system and settings."""
        _check_installed(system)
        key = system, orjson.dumps(settings or {}, option=orjson.OPT_SORT_KEYS, default=repr)
        opening = view.prepared.pop(key, None)
        if opening is None:
            follow_ups = "off" if reads_history(system) else self._follow_ups
            configured = configure(system, settings, view.index, self._prompts, follow_ups)
            check_given(configured.system.name, configured.system.roles, self._llm.by_role)
            opening = asyncio.ensure_future(asyncio.to_thread(_opened, configured))
            opening.add_done_callback(partial(_forget, view.prepared, key))
        view.prepared[key] = opening  # the one used last is the last
        if len(view.prepared) > _SYSTEMS:
            del view.prepared[next(iter(view.prepared))]
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:  # A time limit passes this text on as the cause of its TimeoutError.
            name = system if isinstance(system, str) else system.name
            why = f"{name} is not ready; its knowledge graph or models are still being prepared"
            raise asyncio.CancelledError(why) from None


def _tell(name: str, fault: Exception | None) -> None:
    if fault is None:
        LOG.info("%s answers again", name)
    else:
        LOG.warning("%s is down: %s", name, fault)


def _forget(kept: dict[Any, asyncio.Future[Any]], key: object, opening: asyncio.Future[Any]) -> None:
    """Forget an entry whose opening failed or was cancelled, so that the next caller tries again."""
    if (opening.cancelled() or opening.exception() is not None) and kept.get(key) is opening:
        del kept[key]


def _turn(number: int, pair: object) -> tuple[Question, Answer]:
    """Return an earlier turn of a conversation. Raises `InputError` if `pair` is not a question and its answer."""
    match pair:
        case (str(asked), str(answer)):
            return Question(f"turn {number}", asked), Answer(answer)
    raise InputError(f"history, item {number}: expected a pair of strings (question, answer)")


def _narrowed(turns: Sequence[Question], documents: Sequence[str] | None, view: View) -> list[Question]:
    """Return questions that see only the given documents. Raises `InputError` if there are none, or if a question
    names only other documents."""
    if documents is None:
        return list(turns)
    are_uris = not isinstance(documents, str) and all(isinstance(uri, str) for uri in documents)
    if not documents or not are_uris or view.index is None:
        raise InputError("documents: expected a non-empty list of the uris of indexed documents")
    narrowed, allowed = [], set(documents)
    for turn in turns:
        both = tuple(uri for uri in turn.documents or documents if uri in allowed)
        if not both:
            raise InputError(f"question {turn.id}: none of the documents that it lists is in `documents`")
        narrowed.append(replace(turn, documents=both))
    return narrowed


def _new_folder(
    path: Path, index: Index | None, llms: Mapping[Role, FullLLM], stack: contextlib.AsyncExitStack
) -> RunFolder:
    """Create a journal folder, and register its `flush` and `close` with `stack`. Raises `InputError` if `path`
    exists and is not an empty folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"journal: {path} already exists; use a new folder")
    places = {
        "questions": os.fspath(path / QUESTIONS),
        **({} if index is None else {"index": os.fspath(index.folder)}),
    }
    described = {ENGINE: {"is_journal": True}, "code": code_table(), **recorded_models(llms, places, path)}
    folder = RunFolder(path, described if index is None else {**described, "index": index_table(index)})
    stack.callback(folder.close)
    stack.callback(folder.flush)
    return folder


def _check_installed(system: str | System) -> None:
    """Raise `InputError` if no installed system has this name. A name `MODULE:NAME` may come from a request, and a
    request must not import modules."""
    if isinstance(system, str) and system not in (installed := names()):
        raise InputError(f"unknown system {system!r}; expected a System, or one of {', '.join(installed)}")


_Prepared = tuple[ConfiguredSystem, Ask]


def _opened(configured: ConfiguredSystem) -> _Prepared:
    return configured, configured.ask(configured.open(None))


async def _conversations(questions: ManyQuestions) -> AsyncGenerator[list[Question], None]:
    """Yield one list per conversation with all its turns, and one per single question."""
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
    """Yield the questions. `questions` is an iterable, an asynchronous iterable, a file path, or a string that is
    one question. Raises `InputError` for bytes and for a single mapping."""
    if isinstance(questions, bytes | Mapping):
        raise InputError("questions: expected a question as a string, a list of questions, or a question file")
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
            await asyncio.sleep(0)  # Let the event loop do other work while it reads a long list.
