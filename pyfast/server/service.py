"""A server's engines (one per index), the conversion of requests to questions, and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pyfast.api.engine import Engine
from pyfast.api.index import open_index
from pyfast.api.models import GivenLLM, opened
from pyfast.engine import Ledger, OnStep, Record
from pyfast.errors import InputError, LLMUnavailableError, OutageError
from pyfast.llm.protocol import OnText
from pyfast.retrieval import Index
from pyfast.retrieval.index.commit import parse_filter
from pyfast.server.errors import ApiError, llm_unavailable, stopping
from pyfast.server.limits import ApiKey, Limits, Queue
from pyfast.server.openai_objects import Titles, failure
from pyfast.server.schemas import ChatMessage, ChatRequest, RetrieveRequest
from pyfast.systems.registry import load_system, names
from pyfast.systems.system import OF_PASSAGES, Settings
from pyfast.utils.log import LOG
from pyfast.utils.options import ServerOptions

GivenIndex = Index | str | Path | Callable[[], Index]
Systems = Mapping[str, Mapping[str, Any]] | Sequence[str]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the metrics"""
_RETRY_S = 2.0  # seconds between two attempts to start the LLMs, unless an LLM's server asks for a longer pause
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request: the question, the earlier (question, answer) pairs, the system with its settings, and what
    to search."""

    question: str
    history: tuple[tuple[str, str], ...]
    system: str
    settings: Mapping[str, Any]
    index: str
    filter: tuple[str, ...]
    documents: Sequence[str] | None
    key: ApiKey


@dataclass(frozen=True, slots=True)
class Answered:
    """A question's record, and how many of its prompt tokens were in the LLM's prefix cache."""

    record: Record
    cached_tokens: int
    title: Titles
    """Returns the titles of documents in the searched index"""


class Metrics:
    """The metrics of one server."""

    def __init__(self, queue: Queue) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter("pyfast_requests", "Requests that ended", "path", "status")
        self.questions = self._counter("pyfast_questions", "Questions that ended", "system", "state")
        seconds = Histogram(
            "pyfast_question_seconds",
            "From a question's admission to its end",
            ["system"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.seconds: Callable[..., Histogram] = cache(seconds.labels)
        self.calls = self._counter("pyfast_llm_calls", "LLM calls", "system")
        kinds = "Tokens of LLM calls: prompt, cached (a part of prompt), completion"
        self.tokens = self._counter("pyfast_tokens", kinds, "system", "kind")
        what = "Unusable replies after which a question continued with a simpler step"
        self.fallbacks = self._counter("pyfast_fallbacks", what, "system", "prompt")
        self.key_requests = self._counter("pyfast_key_requests", "Requests by API key", "key", "state")
        self.key_tokens = self._counter("pyfast_key_tokens", "Tokens of LLM calls by API key", "key")
        admitted = Gauge("pyfast_questions_admitted", "Questions in progress or waiting", registry=self._registry)
        admitted.set_function(lambda: queue.admitted)
        waiting = Gauge("pyfast_questions_waiting", "Questions that wait in the queue", registry=self._registry)
        waiting.set_function(lambda: queue.waiting)

    def _counter(self, name: str, meaning: str, *labels: str) -> Callable[..., Counter]:
        """Create a counter, and return a function that takes a value for each of the `labels` and returns the
        counter for these values. It caches the counters, because prometheus_client's own method `labels` is
        slow."""
        return cache(Counter(name, meaning, labels, registry=self._registry).labels)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class Service:
    """The state shared by all requests: indexes, engines, systems, limits, the queue and the metrics."""

    def __init__(
        self,
        index: GivenIndex | Mapping[str, GivenIndex] | None,
        llm: GivenLLM,
        llm_options: Mapping[str, Any] | None,
        served: Systems | None,
        limits: Limits,
        concurrency: int,
        budget: Mapping[str, Any] | None,
        options: ServerOptions,
    ) -> None:
        self.limits = limits
        self.queue = Queue(concurrency, limits.queue)
        self.metrics = Metrics(self.queue)
        self.started_at = int(time.time())
        self.is_ready = False
        self.started = asyncio.Event()
        """Set when the LLMs have started"""
        self.down = ""
        """Why the LLMs have not started yet, despite repeated attempts. Empty: they have started"""
        self._pause = _RETRY_S
        indexes: Mapping[str, Index | None] = _opened(index) or {"": None}
        self._has_index = any(one is not None for one in indexes.values())
        self.systems = _served(served, self._has_index)
        self._client_settings = _of_clients(options.client_settings, self.systems)
        engine = partial(
            Engine,
            llm=opened(llm, llm_options).by_role,  # opened once and shared by all engines
            concurrency=concurrency,
            budget=budget,
            outage=options.outage,
            prompts=options.prompts,
            follow_ups=options.follow_ups,
            follow=True,
            views=options.views,
        )
        self._served = {name: engine(one) for name, one in indexes.items()}
        self._searching: dict[str, Engine] = {}
        """Engines for searches while the LLMs have not started"""
        self._views = options.views

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the LLMs, and keep them loaded while the `with` block runs. If an LLM server is unreachable,
        questions get status 503 until it answers, and only searches work. Raises `LLMUnavailableError` if an LLM
        of another kind cannot be started."""
        async with contextlib.AsyncExitStack() as stack:
            later: asyncio.Future[None] | None = None
            try:
                await self._start(stack)
            except OutageError as error:
                for name, engine in self._served.items():
                    one = Engine(engine.index, "instant", follow=True, views=self._views)
                    self._searching[name] = await stack.enter_async_context(one)
                self._note_down(error)
                LOG.warning("%s; questions get status 503 until the LLM answers", error)
                later = asyncio.ensure_future(self._start_later(stack))
            try:
                yield
            finally:
                self.is_ready, self.down = False, ""
                if later is not None:
                    later.cancel()
                    await asyncio.gather(later, return_exceptions=True)

    async def check_filters(self, keys: Iterable[ApiKey]) -> None:
        """Log a warning for each key whose filter matches no document of any index."""
        for key in keys if self._has_index else ():
            for name in self._served:
                async with self.engine(name, only_searches=True).view() as view:
                    if view.index is not None:
                        with contextlib.suppress(InputError):
                            await asyncio.to_thread(view.index.fitting, key.filter)
                            break
            else:
                LOG.warning("the filter of the key %s matches no document", key.name)

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start all engines, or none of them. They end with `stack`."""
        async with contextlib.AsyncExitStack() as trying:
            for engine in self._served.values():
                await trying.enter_async_context(engine)
            stack.push_async_exit(trying.pop_all())
        self.is_ready, self.down = True, ""
        self.started.set()

    def _note_down(self, error: OutageError) -> None:
        self.down, self._pause = str(error), max(_RETRY_S, error.retry_after)

    async def _start_later(self, stack: contextlib.AsyncExitStack) -> None:
        while not self.is_ready:
            await asyncio.sleep(self._pause)
            try:
                await self._start(stack)
                LOG.info("the LLM answers again; the server accepts questions")
            except OutageError as error:
                if str(error) != self.down:
                    LOG.warning("%s", error)
                self._note_down(error)
            except Exception as error:
                self.down = str(error)
                LOG.error("the LLM cannot be started", exc_info=error)

    @property
    def status(self) -> Literal["ready", "waiting", "stopping"]:
        """Whether the server accepts questions. If an LLM is out, reading this property sends it a test call from
        time to time."""
        if not self.is_ready:
            return "waiting" if self.down else "stopping"
        return "waiting" if any(engine.llm_is_out() for engine in self._served.values()) else "ready"

    @property
    def models(self) -> list[str]:
        """The names that clients can use for `model`: each system (`SYSTEM`), and each pair of a system and an
        index (`SYSTEM@INDEX`)."""
        indexes = [name for name, engine in self._served.items() if engine.index is not None]
        return [*self.systems, *(f"{name}@{index}" for index in indexes for name in self.systems)]

    def engine(self, index: str, only_searches: bool = False) -> Engine:
        """Return the engine of an index. With `only_searches`, it need not answer questions. Raises `ApiError` 404
        if there is no such index, and 503 if the LLM has not started yet or the server is stopping."""
        if index not in self._served:
            raise ApiError(404, f"there is no index {index!r}", "index_not_found", param="index")
        if self.down and only_searches:
            return self._searching[index]
        if self.down:
            raise llm_unavailable(self._pause)
        if not self.started.is_set():
            raise RuntimeError(
                "the application has not started: run its lifespan within that of the application that mounts it"
            )
        if not self.is_ready:
            raise stopping()
        return self._served[index]

    @property
    def first(self) -> str:
        """The name of the index for requests that name none."""
        return next(iter(self._served))

    def resolve(self, model: str) -> tuple[str, str]:
        """Return (system name, index name) for a model `SYSTEM` or `SYSTEM@INDEX`. `SYSTEM` alone means the first
        index. Raises `ApiError` 404 if there is no such model.
        """
        if model not in self.models:
            raise ApiError(
                404, f"there is no model {model!r}; /v1/models lists them", "model_not_found", param="model"
            )
        system, at, index = model.partition("@")
        return system, index if at else self.first

    def read(self, request: ChatRequest, key: ApiKey) -> Asked:
        """Parse a request for an answer. Raises `ApiError` if there is no such model, or if a field exceeds a
        limit or is not valid."""
        system, index = self.resolve(request.model)
        question, history = conversation(request.messages, self.limits)
        settings = self.settings(system, request.settings)
        narrowed = self.narrowed(request, key)
        return Asked(question, history, system, settings, index, narrowed, request.documents, key)

    def settings(self, system: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return a system's settings, with those from a request. Raises `ApiError` if a request may not change one
        of them, its value is not valid, or a search would return more passages than the limit `documents`."""
        if not given:
            return self.systems[system]
        if unknown := [name for name in given if f"{system}.{name}" not in self._client_settings]:
            fault = f"settings: requests to this server cannot change {unknown[0]} of {system}"
            raise ApiError(400, fault, "setting_not_allowed", param=f"settings.{unknown[0]}")
        try:
            configured = _check(system, settings := {**self.systems[system], **given}, True)
        except InputError as error:
            raise ApiError(400, str(error), "invalid_setting", param="settings") from None
        for name in given:
            is_count = OF_PASSAGES in type(configured).model_fields[name].metadata
            if is_count and getattr(configured, name) > self.limits.documents:
                fault = f"settings: {name}: expected at most {self.limits.documents}"
                raise ApiError(400, fault, "too_many", param=f"settings.{name}")
        return settings

    def described_settings(self, system: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return what `settings` returns, as JSON types."""
        settings = self.settings(system, given)
        described = load_system(system).configure(settings).model_dump(mode="json")
        # `preset` is not a setting itself.
        return {name: described.get(name, value) for name, value in settings.items()}

    def narrowed(self, request: ChatRequest | RetrieveRequest, key: ApiKey) -> tuple[str, ...]:
        """Return the key's conditions, followed by the request's. Raises `ApiError` if a condition cannot be read,
        or if there are too many documents or conditions."""
        given = [request.filter] if isinstance(request.filter, str) else request.filter or []
        if sum(map(len, given)) > self.limits.question_chars:
            fault = f"the filter is longer than {self.limits.question_chars} characters"
            raise ApiError(400, fault, "filter_too_long", param="filter")
        if len(request.documents or ()) > self.limits.documents:
            raise ApiError(
                400, f"documents: expected at most {self.limits.documents}", "too_many", param="documents"
            )
        for name in ("filter", "documents"):
            if getattr(request, name) is not None and not self._has_index:
                raise ApiError(400, f"{name}: this server has no index", "no_index", param=name)
        try:
            parse_filter(given)
        except InputError as error:
            raise ApiError(400, str(error), "invalid_filter", param="filter") from None
        return (*key.filter, *given)

    async def answer(
        self, asked: Asked, id: str, on_step: OnStep | None = None, on_text: OnText | None = None
    ) -> Answered:
        """Answer a question, and count it in the metrics. The two functions are those of `Engine.answer`.

        Raises `ApiError` if the queue is full or the question fails, `TimeoutError` if the time limit is
        reached, and the errors of `Engine.answer`.
        """
        metrics, ledger, state = self.metrics, Ledger(), "cancelled"
        with self.queue.place(), metrics.seconds(asked.system).time():
            try:
                engine = self.engine(asked.index)
                async with asyncio.timeout(self.limits.seconds), engine.view(asked.filter) as view:
                    record = await engine.answer(
                        {"id": id, "question": asked.question},
                        system=load_system(asked.system),  # The engine does not accept MODULE:NAME.
                        settings=asked.settings,
                        history=asked.history,
                        on_step=on_step,
                        ledger=ledger,
                        filter=view,
                        documents=asked.documents,
                        on_text=on_text,
                    )
                state = record.state
            except Exception as error:
                state = _state_of(error)
                raise
            finally:
                self.count(asked.system, asked.key, state, ledger)
        if record.state == "failed":
            raise failure(record)
        return Answered(record, ledger.cached_tokens, view.title)

    def count(self, system: str, key: ApiKey, state: str, used: Ledger) -> None:
        """Count an ended question, and what it used."""
        metrics = self.metrics
        metrics.questions(system, state).inc()
        metrics.calls(system).inc(used.llm_calls)
        counts = {"prompt": used.prompt_tokens, "cached": used.cached_tokens, "completion": used.completion_tokens}
        for kind, count in counts.items():
            metrics.tokens(system, kind).inc(count)
        for prompt, times in used.fall_backs.items():
            metrics.fallbacks(system, prompt).inc(times)
        key.use.add(tokens := used.prompt_tokens + used.completion_tokens)
        metrics.key_tokens(key.name).inc(tokens)


def _state_of(error: Exception) -> str:
    """Return the state of a question that ended with an error, for the metrics."""
    if isinstance(error, TimeoutError):
        return "timed_out"
    if isinstance(error, LLMUnavailableError | ApiError):
        return "unavailable"
    return "refused" if isinstance(error, InputError) else "failed"


def conversation(messages: Sequence[ChatMessage], limits: Limits) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split messages into the question and the earlier (question, answer) pairs.

    Several consecutive user messages are one question. Raises `ApiError` if there are too many messages, a
    message is too long, or the last message is not a user's question.
    """
    if len(messages) > limits.turns:
        raise ApiError(
            400, f"the conversation has more than {limits.turns} messages", "too_many_messages", param="messages"
        )
    history: list[tuple[str, str]] = []
    asked: list[str] = []
    for message in messages:
        text = message.text()
        if len(text) > limits.question_chars:
            fault = f"a message is longer than {limits.question_chars} characters"
            raise ApiError(400, fault, "message_too_long", param="messages")
        if message.role == "user":
            asked.append(text)
        elif message.role == "assistant" and asked:
            history.append(("\n".join(asked), text))
            asked = []
    question = "\n".join(asked)
    if not question.strip():
        raise ApiError(
            400, "the last message must come from the user and contain text", "no_question", param="messages"
        )
    return question, tuple(pair for pair in history if pair[0].strip())


def _opened(given: GivenIndex | Mapping[str, GivenIndex] | None) -> dict[str, Index]:
    """Open the indexes, and return them by name. A single index is named after its folder."""
    if given is None:
        return {}
    many = given if isinstance(given, Mapping) else {"": given}
    indexes: dict[str, Index] = {}
    for name, one in many.items():
        index = one if isinstance(one, Index) else one() if callable(one) else open_index(one)
        called = name or re.sub(r"[^\w.-]+", "-", index.folder.resolve().name)
        if not re.fullmatch(r"[\w.-]+", called):
            raise InputError(
                f"index {called!r}: its name may contain only letters, digits, dots, dashes and underscores"
            )
        indexes[called] = index
    if not indexes:
        raise InputError("no index was given; pass None for a server without an index")
    return indexes


def _served(given: Systems | None, has_index: bool) -> dict[str, Mapping[str, Any]]:
    """Return the systems to serve, with their settings. If `given` is None, these are all systems that can run
    with their default settings."""
    served = names() if given is None else given
    settings = dict(served) if isinstance(served, Mapping) else {name: {} for name in served}
    for name, values in list(settings.items()):
        try:
            _check(name, values, has_index)  # refuse it now rather than at the first request
        except InputError:
            if given is not None:
                raise
            del settings[name]  # such as graph_convqa, which needs a trained encoder
    if not settings:
        raise InputError("no system was given")
    return settings


def _of_clients(given: Sequence[str], systems: Mapping[str, Any]) -> frozenset[str]:
    """Check the settings that requests may change, and return them. Raises `InputError` for an unknown one."""
    known = {f"{system}.{name}" for system in systems for name in load_system(system).settings.offered()}
    for one in given:
        if one not in known:
            raise InputError(f"client_settings: {one!r} is not a setting of a served system; use SYSTEM.NAME")
    return frozenset(given)


def _check(name: str, values: Mapping[str, Any], has_index: bool) -> Settings:
    system = load_system(name)
    configured = system.configure(values)
    if system.needs_index and not has_index:
        raise InputError(f"{name} needs an index: pass one to the server")
    return configured
