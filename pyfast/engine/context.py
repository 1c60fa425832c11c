"""`Context`: the functions that a system uses while it answers a question. When many questions await the same
function, their calls become one batch."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from inspect import signature
from time import perf_counter
from typing import Any, TypeVar, TypeVarTuple, Unpack, overload

from pydantic import BaseModel

from pyfast.engine.batch_points import BatchPoint
from pyfast.engine.budget import Budget, Remaining, profile_of, within
from pyfast.engine.events import OnStep, Step
from pyfast.engine.journal.journal import Key, Outcome, call_name
from pyfast.engine.journal.ledger import JOURNALLING, Ledger, Stage
from pyfast.engine.models import Models
from pyfast.engine.outages import Clock, cancel
from pyfast.engine.prompt import Prompt, PromptOverrides, with_sampling
from pyfast.engine.questions import Question
from pyfast.engine.record import Answer, Cited, cite, reply_begins
from pyfast.engine.replies import fields_so_far
from pyfast.engine.run_folder import RunFolder
from pyfast.engine.telemetry import RETRIEVAL, Tracing, tracing
from pyfast.errors import (
    AnswerError,
    BudgetError,
    CallError,
    CutOffError,
    FallBackError,
    FilteredError,
    InputError,
    QuestionError,
    TransportError,
)
from pyfast.llm import DEFAULT_ROLE, Completion, Request, Role
from pyfast.llm.protocol import OnText, Progress, device_of, weights_of
from pyfast.llm.reply_cleaning import check_size, cut_at, without_controls, without_controls_in, without_reasoning
from pyfast.retrieval.evidence import ScoredSegments, evidence_of, narrate, narrate_sentences
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.own_documents import TOGETHER, OwnDocuments, own_documents, together
from pyfast.retrieval.pools import Pool
from pyfast.retrieval.rerank import PassageList, search, search_and_fuse
from pyfast.utils.options import GREEDY, Sampling
from pyfast.utils.text_forms import counted
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN, CHARACTERS_PER_TOKEN_OF_LISTS

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

Past = tuple[tuple[Question, Answer | None], ...]
"""The earlier turns of a conversation, in order, each with its answer, or None if the turn failed"""

_TOKENS_FOR_INSTRUCTIONS = 500
_TOKENS_OF_STEP = ("prompt_tokens", "cached_tokens", "completion_tokens")
_NOTHING_YET = partial(Answer, None)
_TOGETHER = TOGETHER | {cite}
_KEPT = 256  # the number of indexes over single questions' documents that stay in memory


@dataclass(slots=True, eq=False)
class Runtime:
    """The objects that all questions of a run or a service share: index, LLMs, batch points, budget and
    journal."""

    index: Index | None
    models: Models
    executor: Executor
    budget: Budget = field(default_factory=Budget)
    folder: RunFolder | None = None
    on_step: OnStep | None = None
    sampling: Sampling = GREEDY
    tokens: int = 0
    """The tokens that the run has used in this session, or in all sessions if the budget limits the run's tokens
    """
    progress: Progress | None = None
    """Counts the run's questions that are waiting for an LLM that collects calls into batches. None: no LLM
    collects calls"""
    tracing: Tracing | None = field(default_factory=tracing)
    """The object that creates OpenTelemetry spans. None: the process has no tracer provider"""
    asked: dict[str, asyncio.Future[Outcome]] = field(default_factory=dict)
    """The calls in flight whose replies other questions may share, by request"""
    in_flight: set[asyncio.Future[Any]] = field(default_factory=set)
    """The calls that `kept` has started and that have not ended"""
    _points: dict[Hashable, BatchPoint[Any, Any]] = field(default_factory=dict)
    _within: dict[tuple[str, ...], asyncio.Future[OwnDocuments]] = field(default_factory=dict)
    """For questions that name their own documents: an index of only these, by their uris. Questions with the same
    uris share one index"""

    def __post_init__(self) -> None:
        """Count the tokens of earlier sessions, if they are limited."""
        if self.folder is not None and self.budget.run_tokens is not None:
            self.tokens = self.folder.journal.tokens()

    async def kept(self, call: Coroutine[Any, Any, T], request: str = "") -> T:
        """Await a call that continues even if its caller is cancelled, so that a paid reply is stored. With
        `request`, the call is in `asked` until it ends."""
        task: asyncio.Task[Any] = asyncio.create_task(call)
        waiting = asyncio.get_running_loop().create_future()
        self.in_flight.add(task)
        if request:
            self.asked[request] = task

        def ended(task: asyncio.Task[Any]) -> None:
            self.in_flight.discard(task)
            if self.asked.get(request) is task:
                del self.asked[request]
            if not task.cancelled():
                task.exception()  # Read the exception, because the caller may be gone.
            if not waiting.done():
                waiting.set_result(None)

        task.add_done_callback(ended)  # `asyncio.shield` would call back twice more.
        await waiting
        result: T = task.result()
        return result

    async def finish_calls(self, seconds: float) -> None:
        """Wait at most `seconds` for the calls in flight, then cancel the rest."""
        if self.in_flight:
            _, late = await asyncio.wait(self.in_flight, timeout=seconds)
            await cancel(late)

    def required_index(self) -> Index:
        """Return the index. Raises `InputError` if the run has no index."""
        if self.index is None:
            raise InputError("this system needs an index, but the run has none")
        return self.index

    def batched(
        self,
        work: Callable[..., Sequence[Any]],
        item: Any,
        stage: Stage,
        *parameters: Hashable,
        own: OwnDocuments | None = None,
        ledger: Ledger | None = None,
    ) -> asyncio.Future[Any]:
        """Put an item into the next batch of all calls of `work` with the same parameters.

        `own` is the index of a question with its own documents. The functions in `_TOGETHER` serve many such
        questions with one call; any other function that takes an index serves them one by one.
        """
        first: Callable[..., Sequence[Any]] = work
        before: tuple[Any, ...] = (self.required_index(),) if _takes_index(work) else ()
        if own is not None and before:
            # A parameter whose `expand` is a string names another retriever.
            expands = any(isinstance(getattr(one, "expand", None), str) for one in parameters)
            if expands or not own.arrays or work not in _TOGETHER:
                return BatchPoint(lambda items: work(own, items, *parameters), self.executor)(item, stage, ledger)
            first, before, item = together, (work, *before), (own, item)
        key = (first, work, parameters)
        point = self._points.get(key)
        if point is None:
            point = BatchPoint(lambda items: first(*before, items, *parameters), self.executor)
            self._points[key] = point
        return point(item, stage, ledger)

    async def index_within(self, uris: tuple[str, ...], ledger: Ledger) -> OwnDocuments:
        """Return an index of only the documents with these uris. The indexes of many questions are built together.

        Raises `QuestionError` if a document is missing.
        """
        made = self._within.get(uris)
        if made is None:
            made = self.batched(own_documents, uris, ledger.stage(own_documents.__name__))
            self._within[uris] = made
            if len(self._within) > _KEPT:
                self._within.pop(next(iter(self._within)))
        try:
            return await asyncio.shield(made)
        except InputError as error:  # The question is at fault, not the run.
            raise QuestionError(str(error)) from None

    async def ask(self, request: Request, role: Role, stage: Stage, clock: Clock | None) -> Outcome:
        """Send a request to the LLM of a role, and return its reply. If the call fails, return its
        `CallError`.

        Raises `LLMUnavailableError` if the LLM has become unreachable, and `TimeoutError` if the question's time
        is up.
        """
        asked = perf_counter()
        model = self.models.of(role)
        if clock is not None:
            # `Outages.complete` checks the question's time itself, because it knows whether the LLM is out.
            clock.stop(1)
        try:
            await model.admission.enter(request)
            started = perf_counter()
            try:
                check_size(request, model.llm.context_window)
                completion = await model.outages.complete(request, self.budget.call_seconds, clock)
                completion = without_controls_in(completion)
                completion = cut_at(completion, request.stop) if request.stop else without_reasoning(completion)
                self.tokens += completion.prompt_tokens + completion.completion_tokens
                return completion
            except CallError as error:
                error.args = (without_controls(str(error)),)
                return error
            finally:
                stage.add_call(started - asked, perf_counter() - started, model.admission.running)
                model.admission.leave()
        finally:
            if clock is not None:
                clock.stop(-1)


@cache
def _takes_index(work: Callable[..., Any]) -> bool:
    return next(iter(signature(work).parameters), None) == "index"


class Context:
    r"""The values and methods that a system may use while it answers one question. When many questions await
    the same method, their calls become one batch.

    Systems can rely on these members: `question`, `past`, `index`, `context_window`, `attempts`,
    `answer_tokens` and `ledger`; `generate`, `complete`, `call`, `retrieve`, `retrieve_all`, `evidence`,
    `narrative`, `remaining`, `fell_back`, `so_far`, `hold_text`, `text_budget`, `text_budget_to_repeat`,
    `repeating`, `context_window_of`, `weights_of` and `device_of`. These are stable between releases.

    Example:
        >>> from pydantic import BaseModel
        >>> from pyfast.engine import Answer, Context, Prompt, Question
        >>> class Reply(BaseModel):
        ...     answer: str
        >>> ANSWER = Prompt("answer", "Reply in JSON.", "Evidence:\n$context\n\nQuestion: $question", Reply, 64)
        >>> async def ask(question: Question, ctx: Context) -> Answer:
        ...     pool = await ctx.retrieve(question.text, 10)
        ...     context = await ctx.narrative(pool, ANSWER)
        ...     reply = await ctx.generate(ANSWER, context=context, question=question.text)
        ...     return Answer(reply.answer, ctx.evidence(pool))
    """

    def __init__(
        self,
        runtime: Runtime,
        question: Question,
        number: int = 0,
        past: Past = (),
        replaced: PromptOverrides | None = None,
        on_step: OnStep | None = None,
        system: str = "",
        on_text: OnText | None = None,
    ) -> None:
        """Prepare the context of one question. The engine creates it; a system only uses it.

        Args:
            runtime: The objects that all questions share.
            question: The question.
            number: The position of the question in the run.
            past: The earlier turns of its conversation, if any.
            replaced: Prompts that replace the system's own.
            on_step: A function to call for each step of this question. None: the function for all questions.
            system: The name of the system, for the question's OpenTelemetry span.
            on_text: A function to call with the answer so far, while the LLM writes it.
        """
        self._runtime = runtime
        self.system = system
        self.seconds = runtime.budget.seconds
        """The time limit of the question in seconds. None: no limit"""
        self.tracing = runtime.tracing
        self._on_step = on_step or runtime.on_step
        self._on_text = on_text
        self._replaced = replaced
        self._number = number
        self._asked = defaultdict[str, int](int)  # how often each request was made
        self.ledger = Ledger()
        self._past: dict[Key, Outcome] = {}
        self._reused: set[Key] = set()  # the keys of replies that come from an earlier run or another question
        if runtime.folder is not None and runtime.folder.replaying:
            self._past, self._reused, self.ledger.earlier = runtime.folder.journal.past(number)
        self.question = question
        self._own: OwnDocuments | None = None
        self.past = past
        self.until_now: Callable[[], Answer] = _NOTHING_YET
        """A function that returns the evidence and trace so far, which the record contains if the question fails
        (see `so_far`)"""
        self._searches: list[tuple[Any, asyncio.Future[Any]]] = []
        self._clock: Clock | None = None
        self._waiting = 0  # calls that wait for a batch of the LLM

    @contextlib.asynccontextmanager
    async def timed(self) -> AsyncIterator[None]:
        """Limit the question's time in the `with` block to `seconds`.

        Time in an outage, when the LLM does not answer, does not count. Raises `TimeoutError` when the time is up.
        """
        progress = self._runtime.progress
        async with within(self.seconds) as timeout:
            with (
                self._runtime.models.clocks.timed(timeout) as self._clock,
                contextlib.nullcontext() if progress is None else progress.question(),
            ):
                yield

    @property
    def index(self) -> Index:
        """The index that the question searches: the run's index or, if the question has its own documents, an
        index of only these. Raises `InputError` if the run has no index.
        """
        return self._own or self._runtime.required_index()

    async def restrict(self) -> None:
        """From now on, search only the question's own documents, if it has any. Called by the engine."""
        if self.question.documents and self._runtime.index is not None:
            self._own = await self._runtime.index_within(self.question.documents, self.ledger)

    @property
    def context_window(self) -> int:
        """The size of the default LLM's context window in tokens (prompt plus completion)."""
        return self.context_window_of(DEFAULT_ROLE)

    def context_window_of(self, role: Role) -> int:
        """Return the size of the context window, in tokens, of the LLM that answers a role.

        A role is the purpose of a prompt, such as `plan` or `answer`.
        """
        return self._runtime.models.of(role).llm.context_window

    @property
    def answer_tokens(self) -> int | None:
        """How many tokens a final answer may have. None: the prompt's limit applies."""
        return self._runtime.budget.answer_tokens

    def weights_of(self, role: Role) -> str:
        """Return a checksum of the weights of the LLM that answers a role, or an empty string if they are
        unknown."""
        return weights_of(self._runtime.models.of(role).llm)

    def device_of(self, role: Role) -> str:
        """Return the device of the LLM that answers a role: `cuda` or `cpu`."""
        return device_of(self._runtime.models.of(role).llm)

    @property
    def attempts(self) -> int:
        """How many attempts the LLM has to reply in the right form. A prompt can allow fewer."""
        return self._runtime.budget.attempts

    async def generate(self, prompt: Prompt[M], sampling: Sampling = GREEDY, /, **fields: str) -> M:
        """Call the LLM with a prompt, and parse its answer.

        If the answer is malformed, pyfast sends it back to the LLM with the error, and asks again.

        Args:
            prompt: The prompt, with the pydantic model of the answer.
            sampling: The temperature and the seed. Default: temperature 0.
            **fields: The texts for the prompt's placeholders.

        Returns:
            The answer, an instance of `prompt.answer`.

        Raises:
            CallError: The call failed. If all answers were malformed, the error is an `AnswerError`.
            BudgetError: The question has used up its calls, tokens or steps. Do not catch it.
        """
        if self._replaced is not None:
            prompt = self._replaced.apply(prompt)
        prompt = self._sized(prompt)
        request = prompt.request(fields, sampling.temperature, sampling.seed)
        if (tell := self._on_text) is not None and (streamed := prompt.streamed) is not None:

            def on_text(reply: str) -> None:
                if text := streamed(fields_so_far(reply)):
                    tell(text)

            request = replace(request, on_text=on_text)
        attempts = self.attempts if prompt.attempts is None else min(prompt.attempts, self.attempts)
        refused: AnswerError | None = None
        for attempt in range(1, attempts + 1):
            try:
                completion = await self.complete(request, prompt.name, prompt.role)
            except CallError as error:
                if refused is None or isinstance(error, TransportError):
                    raise
                raise AnswerError(f"{refused}; when asked again: {error}") from None
            try:
                return prompt.parse(completion, self.ledger.repaired)
            except AnswerError as error:
                if isinstance(error, FilteredError) or (prompt.cut_is_final and isinstance(error, CutOffError)):
                    raise
                refused = error
                if attempt < attempts:
                    request = prompt.again(request, completion, error)
        assert refused is not None  # There is at least one attempt.
        refused.args = (f"{refused}{reply_begins(completion.text)}",)
        try:
            raise refused
        finally:
            del refused  # as in `_complete`

    async def complete(self, request: Request, name: str, role: Role = DEFAULT_ROLE) -> Completion:
        """Make one LLM call. In a resumed run, the reply comes from the journal if it is there.

        Args:
            request: The request to send.
            name: The name under which the ledger counts the call.
            role: The role, which determines the LLM.

        Returns:
            The reply.

        Raises:
            CallError: The call failed.
            BudgetError: The question has used up its calls, tokens or steps. Do not catch it.
        """
        self._step(name)
        if self._on_step is None:
            return await self._complete(request, name, role)
        step = Step(self.question.id, name, role)
        end = self._begin(step)
        try:
            completion = await self._complete(request, name, role)
        except Exception as error:
            end(replace(step, error=_why(error)))
            raise
        tokens = {name: getattr(completion, name) for name in _TOKENS_OF_STEP}
        end(replace(step, reply=completion.text, **tokens))
        return completion

    async def _complete(self, request: Request, name: str, role: Role) -> Completion:
        request = with_sampling(request, self._runtime.sampling)
        ledger, budget = self.ledger, self._runtime.budget
        if budget.calls is not None and ledger.llm_calls >= budget.calls:
            raise BudgetError(f"{name}: the question has reached its limit of {counted(budget.calls, 'LLM call')}")
        if budget.tokens is not None and ledger.tokens >= budget.tokens:
            limit = counted(budget.tokens, "token")
            raise BudgetError(f"{name}: the question has reached its limit of {limit} ({ledger.tokens} used)")
        ledger.llm_calls += 1
        folder, stage = self._runtime.folder, ledger.stage(name, role)
        if folder is None:
            outcome = await self._ask(request, role, stage, name)
        else:
            digest = f"{role}:{request.digest().hex()}"  # Another role may have another LLM.
            key = (digest, self._asked[digest])
            self._asked[digest] += 1
            found = self._past.get(key)
            is_new, asks_once = found is None, folder.asks_once and not request.temperature
            if found is None:
                found = folder.journal.reusable(key, self.question.id, request.temperature > 0)
            if found is None and asks_once:
                found = await self._shared(digest, role, folder)
            if found is not None:
                outcome = found
                if is_new:
                    storing = folder.store_completion(
                        self._number, key, outcome, name, request.messages, reused=True
                    )
                    await self._runtime.kept(storing)
                if isinstance(outcome, Completion) and (is_new or key in self._reused):
                    ledger.reused += 1
                    ledger.reused_prompt_tokens += outcome.prompt_tokens
                    ledger.reused_completion_tokens += outcome.completion_tokens
                else:
                    ledger.replayed += 1
                stage.add_call(0.0, 0.0, 0)
                # Calls made at the same time run at the same time again, so that budgets run out at the same
                # calls.
                await asyncio.sleep(0)
            else:
                asked = self._ask_and_store(request, role, stage, name, folder, key)
                outcome = await self._runtime.kept(asked, digest if asks_once else "")
        if isinstance(outcome, CallError):
            try:
                raise outcome
            finally:
                del outcome  # The error references this frame, so the frame must not reference the error.
        ledger.count(outcome, stage)
        return outcome

    async def _ask_and_store(
        self, request: Request, role: Role, stage: Stage, name: str, folder: RunFolder, key: Key
    ) -> Outcome:
        if self._runtime.progress is not None:
            request = replace(request, call=call_name(self._number, key))
        outcome = await self._ask(request, role, stage, name)
        began = perf_counter()
        # The journal stores the reply before any caller sees it.
        together = await folder.store_completion(self._number, key, outcome, name, request.messages)
        self.ledger.stage(JOURNALLING).add_call(0.0, perf_counter() - began, together)
        return outcome

    async def _ask(self, request: Request, role: Role, stage: Stage, name: str) -> Outcome:
        with self._waits_for(role):
            if self.tracing is None:
                return await self._runtime.ask(request, role, stage, self._clock)
            with self.tracing.llm_call(self._runtime.models.of(role).llm.spec, request, name) as ended:
                outcome = await self._runtime.ask(request, role, stage, self._clock)
                ended(outcome)
            return outcome

    def _waits_for(self, role: Role) -> contextlib.AbstractContextManager[None]:
        """If the LLM of a role collects calls, count the question as waiting for a batch in the `with` block."""
        progress = self._runtime.progress
        if progress is None or self._runtime.models.of(role).collecting is None:
            return contextlib.nullcontext()
        return self._waits(progress)

    @contextlib.contextmanager
    def _waits(self, progress: Progress) -> Iterator[None]:
        progress.waiting += not self._waiting
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            progress.waiting -= not self._waiting

    async def _shared(self, request: str, role: Role, folder: RunFolder) -> Completion | None:
        """Return the reply that the run received to an identical request from any question, waiting for a call in
        flight, or None if there is no such reply or the call failed, so that this question must make the call
        itself."""
        asked = self._runtime.asked.get(request)
        if asked is None:
            return folder.journal.reply_to(request)
        with self._waits_for(role):
            await asyncio.wait([asked])  # The time limit of this question applies: only calls stop its clock.
        has_reply = not asked.cancelled() and asked.exception() is None
        outcome = asked.result() if has_reply else None
        return outcome if isinstance(outcome, Completion) else None

    @overload
    def call(
        self, work: Callable[[Index, Sequence[T], Unpack[Ts]], Sequence[R]], item: T, /, *parameters: *Ts
    ) -> Awaitable[R]: ...

    @overload
    def call(
        self, work: Callable[[Sequence[T], Unpack[Ts]], Sequence[R]], item: T, /, *parameters: *Ts
    ) -> Awaitable[R]: ...

    def call(self, work: Callable[..., Sequence[Any]], item: Any, /, *parameters: *Ts) -> Awaitable[Any]:
        """Compute `work([item], *parameters)[0]`. One call of `work` serves all questions that are waiting for it.

        If the first parameter of `work` is named `index`, `work` receives the index that the question searches
        (`Context.index`) before the items.

        Args:
            work: A function that takes a list of items, and returns a list with one result per item. It runs in a
                thread. No result may depend on the other items.
            item: This question's item.
            *parameters: Hashable values. Only calls with the same parameters share a batch.

        Returns:
            The result for `item`.

        Raises:
            BudgetError: The question has used up its steps. Do not catch it.
        """
        self._step(work.__name__)
        stage = self.ledger.stage(work.__name__)
        result = self._runtime.batched(work, item, stage, *parameters, own=self._own, ledger=self.ledger)
        if self.tracing is not None and work.__name__ in RETRIEVAL:
            self.tracing.retrieval(work.__name__, _queries(item), self._own or self._runtime.index, result)
        if work in (search, search_and_fuse):
            self._searches.append((item, result))
        if self._on_step is not None:
            step = Step(self.question.id, work.__name__, asked=_queries(item))
            end = self._begin(step)
            result.add_done_callback(lambda done: end(_of_result(step, done)))
        return result

    @property
    def nothing_retrieved(self) -> set[str]:
        """The queries for which a search found no passage."""
        ended = ((item, done) for item, done in self._searches if done.done() and not done.cancelled())
        return {_queries(item) for item, done in ended if done.exception() is None and not len(done.result())}

    def retrieve(self, query: str, k: int) -> Awaitable[Pool]:
        """Find the `k` best passages for a query. One search serves the waiting queries of all questions.

        Args:
            query: The query.
            k: The maximum number of passages.

        Returns:
            The passages with their scores, best first.

        Raises:
            BudgetError: As in `call`.
        """
        return self.call(search, query, k)

    def retrieve_all(self, queries: str | Sequence[str], k: int, before: Sequence[Pool] = ()) -> Awaitable[Pool]:
        """Find the `k` best passages for several queries together, as one pool without duplicates.

        Args:
            queries: The queries. A string is one query.
            k: The maximum number of passages.
            before: Pools from earlier searches, whose passages are ranked together with the new ones.

        Returns:
            The passages with their scores, best first.

        Raises:
            BudgetError: As in `call`.
        """
        return self.call(search_and_fuse, ((queries,) if isinstance(queries, str) else queries, before), k)

    def evidence(self, pool: Pool) -> ScoredSegments:
        """Turn a pool's passages into evidence for an answer."""
        return evidence_of(self.index, pool)

    async def narrative(self, pool: Pool, answer: Prompt[Any], question: str = "", share: float = 1.0) -> str:
        """Return as many of a pool's passages as fit into the prompt `answer`, as numbered lines, best first.

        Passages that do not fit are counted in the trace and the run's summary.

        Args:
            pool: The passages.
            answer: The prompt.
            question: The question to choose sentences for, if `share` is below 1.
            share: The share of the passages' text to write. Below 1, sentences are left out (see
                `pyfast.retrieval.narrate_sentences`).

        Returns:
            The numbered lines.

        Raises:
            BudgetError: As in `call`.
        """
        most = profile_of(self.context_window_of(answer.role), self._runtime.budget).passages
        characters, written = max(self.text_budget(answer), 200), len(pool)
        if share == 1.0:
            text = await self.call(narrate, pool.head(most), characters)
        else:
            text, kept = await self.call(narrate_sentences, (pool.head(most), question), characters, share)
            written += kept - len(pool.head(most))
        if (left_out := written - text.count("\n") - 1) > 0:
            self.ledger.left_out[answer.name] += left_out
        return text

    def so_far(self, answer: Callable[[], Answer]) -> None:
        """Register a function that returns the evidence and trace so far, which go into the record if the question
        fails.

        Args:
            answer: A function that returns an `Answer`, whose text is ignored. It is called only if the question
                fails. A later call of `so_far` replaces it.
        """
        self.until_now = answer

    def hold_text(self) -> None:
        """From now on, send clients only the complete answer. A system that may replace the LLM's answer calls
        this method before the LLM call."""
        self._on_text = None

    def forget(self) -> None:
        """Drop the `so_far` function. Called by the engine when the question has ended.

        That function usually refers to this context, and the context to the function; without this method, only
        Python's garbage collector could free them.
        """
        self.until_now = _NOTHING_YET

    async def cited(self, evidence: ScoredSegments, lists: Sequence[PassageList], counted: bool) -> Cited:
        """Return evidence as JSON, and write out the passage lists in the trace.

        If `counted` is False, the call does not count as a step, so that it works even if the question has used up
        its steps.
        """
        item = evidence, lists
        if counted:
            return await self.call(cite, item)
        stage = self.ledger.stage(cite.__name__)
        cited: Cited = await self._runtime.batched(cite, item, stage, own=self._own)
        return cited

    def fell_back(self, prompt: Prompt[Any], why: object) -> None:
        """Report that the LLM returned no usable reply to `prompt`, and the system falls back to a simpler step.

        The run's summary counts fallbacks by prompt name. `on_step` receives a step with the error in the field
        `fell_back`.

        Args:
            prompt: The prompt without a usable reply.
            why: The error in the reply. In a strict run, the question fails, and its reason begins with this
                error.

        Raises:
            FallBackError: The run is `strict`. Do not catch this error.
        """
        self.ledger.fall_backs[prompt.name] += 1
        if self._runtime.budget.strict:
            raise FallBackError(f"{why}; the system could continue without this reply, but the run is strict")
        if self._on_step is not None:
            self._on_step(Step(self.question.id, prompt.name, prompt.role, seconds=0.0, fell_back=str(why)))

    def remaining(self) -> Remaining:
        """Return the calls, tokens and steps that the question may still use.

        This lets a system stop before its budget is spent.
        """
        budget, ledger = self._runtime.budget, self.ledger
        limits = budget.calls, budget.tokens, budget.steps
        used = ledger.llm_calls, ledger.tokens, ledger.steps
        return Remaining(
            *(math.inf if most is None else most - so_far for most, so_far in zip(limits, used, strict=True))
        )

    def text_budget(self, prompt: Prompt[Any], tokens: float = math.inf) -> int:
        """Return how many characters the texts in a prompt may have in total. 0: there is no room for any text.

        This is an estimate: a token counts as three characters.

        Args:
            prompt: The prompt.
            tokens: The maximum number of tokens (prompt plus reply). The context window limits them too.
        """
        free = min(self.context_window_of(prompt.role), tokens) - _TOKENS_FOR_INSTRUCTIONS
        free -= self._sized(prompt).max_tokens
        return max(int(min(free, 2**31) * CHARACTERS_PER_TOKEN), 0)

    def text_budget_to_repeat(self, prompt: Prompt[Any] | None = None) -> int:
        """Return how many characters the texts in a prompt may have in total, if the reply must have room to
        repeat them all.

        Args:
            prompt: The prompt. The result depends only on the context window of the LLM that answers it. None:
                the default LLM answers it.
        """
        role = DEFAULT_ROLE if prompt is None else prompt.role
        free = max(self.context_window_of(role) - _TOKENS_FOR_INSTRUCTIONS, 0)
        return int(free / (1 / CHARACTERS_PER_TOKEN + 1 / CHARACTERS_PER_TOKEN_OF_LISTS))

    def repeating(self, prompt: Prompt[M], text: str) -> Prompt[M]:
        """Return the prompt with a larger token limit, so that a reply can repeat all of `text` if the context
        window is large enough.
        """
        window = self.context_window_of(prompt.role)
        left = window - _TOKENS_FOR_INSTRUCTIONS - math.ceil(len(text) / CHARACTERS_PER_TOKEN)
        wanted = max(prompt.max_tokens, math.ceil(len(text) / CHARACTERS_PER_TOKEN_OF_LISTS))
        return prompt.sized(max(min(wanted, left), 1))

    def _sized(self, prompt: Prompt[M]) -> Prompt[M]:
        """Return the prompt with the token limit that applies: for a prompt that asks for an answer, the budget's
        `answer_tokens`, if set."""
        wanted = self.answer_tokens if prompt.role in ("answer", "draft") else None
        return prompt if wanted is None else prompt.sized(wanted)

    def _begin(self, step: Step) -> OnStep:
        """Report the start of a step, and return the function that reports its end."""
        tell, began = self._on_step, perf_counter()
        assert tell is not None
        tell(step)
        return lambda ended: tell(replace(ended, seconds=perf_counter() - began))

    def _step(self, name: str) -> None:
        self.ledger.steps += 1
        limit = self._runtime.budget.steps
        if limit is not None and self.ledger.steps > limit:
            raise BudgetError(f"{name}: the question has reached its limit of {counted(limit, 'step')}")


Ask = Callable[[Question, Context], Awaitable[Answer]]
"""A system with its settings: a function that answers one question"""


def _queries(item: object) -> str:
    """Return the query in an item of batched work: several queries joined, or an empty string if there is none."""
    if isinstance(item, str):
        return item
    first = item[0] if isinstance(item, tuple) and item else None
    texts = [text for text in first if isinstance(text, str)] if isinstance(first, list | tuple) else []
    return "; ".join(texts)


def _of_result(step: Step, done: asyncio.Future[Any]) -> Step:
    """Return the step with the result of its work: an error, or the number of passages that a search found.
    Otherwise, return it unchanged."""
    if done.cancelled():
        return replace(step, error="cancelled")
    error = done.exception()
    if error is not None:
        return replace(step, error=_why(error))
    result = done.result()
    return replace(step, passages=len(result)) if isinstance(result, Pool) else step


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
