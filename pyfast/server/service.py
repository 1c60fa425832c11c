"""The engines of a server, one for each index, the conversion of requests to questions, and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pyfast.api.engine import Engine
from pyfast.api.index import open_index
from pyfast.api.models import GivenLLM, opened
from pyfast.engine import Ledger, OnStep, Record
from pyfast.errors import InputError, PyfastError
from pyfast.llm.protocol import OnText
from pyfast.retrieval import Index
from pyfast.retrieval.index.manifest import state_of
from pyfast.server.errors import ApiError
from pyfast.server.limits import Limits, Queue
from pyfast.server.openai_objects import Titles, failure
from pyfast.server.schemas import ChatMessage, ChatRequest
from pyfast.systems.registry import load_system, names
from pyfast.utils.options import ServerOptions

GivenIndex = Index | str | Path | Callable[[], Index]
_LOG = logging.getLogger("pyfast")
Systems = Mapping[str, Mapping[str, Any]] | Sequence[str]
_FORGOTTEN_S = 1.0
_TITLES = 1 << 14  # the number of titles of an index that stay in memory, because finding a title takes long

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The format of the metrics, as an HTTP header says it"""
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request: the question, the earlier (question, answer) pairs, and the names of system and
    index."""

    question: str
    history: tuple[tuple[str, str], ...]
    system: str
    index: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The record of a question, and how many tokens of its prompts were in the LLM's prefix cache."""

    record: Record
    cached_tokens: int
    title: Titles
    """Returns the titles of documents of the index that was searched"""


@dataclass(slots=True, eq=False)
class Served:
    """An index at one commit, and its engine."""

    name: str
    index: Index | None
    engine: Engine
    title: Titles
    """Returns the title of a document of the index, by its uri. Without an index, all titles are empty"""
    users: int = 0
    """The number of requests that use it"""
    state: object = None
    """The state of the folder (`state_of`) when `index` was last known to be at the current commit"""


class Metrics:
    """The metrics of one server."""

    def __init__(self, queue: Queue) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter("pyfast_requests", "Requests that ended", "path", "status")
        self.questions = self._counter("pyfast_questions", "Questions that ended", "system", "state")
        seconds = Histogram(
            "pyfast_question_seconds",
            "From a question's admission to its answer",
            ["system"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.seconds: Callable[..., Histogram] = cache(seconds.labels)
        self.calls = self._counter("pyfast_llm_calls", "LLM calls", "system")
        kinds = "Tokens of LLM calls: prompt, cached (a part of prompt), completion"
        self.tokens = self._counter("pyfast_tokens", kinds, "system", "kind")
        admitted = Gauge("pyfast_questions_admitted", "Questions in progress or waiting", registry=self._registry)
        admitted.set_function(lambda: queue.admitted)
        waiting = Gauge("pyfast_questions_waiting", "Questions that wait for a place", registry=self._registry)
        waiting.set_function(lambda: queue.waiting)

    def _counter(self, name: str, meaning: str, *labels: str) -> Callable[..., Counter]:
        """Make a counter. Returns a function that takes a value for each of the `labels` and returns the
        counter for these values. The function caches the counters, because prometheus's own method `labels`
        is slow."""
        return cache(Counter(name, meaning, labels, registry=self._registry).labels)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        text: bytes = generate_latest(self._registry)
        return text


class Service:
    """The state that all requests share: indexes, engines, systems, limits, the queue and the metrics."""

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
        indexes: Mapping[str, Index | None] = _opened(index) or {"": None}
        self.systems = _served(served, any(indexes.values()))
        self._engine = partial(
            Engine,
            llm=opened(llm, llm_options).by_role,  # opened once: all engines share them
            concurrency=concurrency,
            budget=budget,
            outage=options.outage,
            prompts=options.prompts,
            follow_ups=options.follow_ups,
        )
        self._served = {name: self._serving(name, one) for name, one in indexes.items()}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def _serving(self, name: str, index: Index | None) -> Served:
        title: Titles = (lambda uri: "") if index is None else lru_cache(_TITLES)(index.title)
        return Served(name, index, self._engine(index), title)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the LLMs, and keep them loaded while the `with` block runs. Raises `LLMUnavailableError` if
        an LLM cannot be started."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_exit(self._end)
            for name in self._served:  # A local variable would keep what it names open.
                await self._served[name].engine.__aenter__()
            self.is_ready = True
            try:
                yield
            finally:
                self.is_ready = False

    @property
    def models(self) -> list[str]:
        """The names that clients can use for `model`: the name of each system (`SYSTEM`), and the names of
        each pair of a system and an index (`SYSTEM@INDEX`)."""
        indexes = [name for name, served in self._served.items() if served.index is not None]
        return [*self.systems, *(f"{name}@{index}" for index in indexes for name in self.systems)]

    @contextlib.asynccontextmanager
    async def using(self, index: str | None) -> AsyncIterator[Served]:
        """Yield an index at its current commit, and keep it open while the `with` block runs, even if there are
        newer commits. If `index` is None, the first index is used.

        Raises `ApiError` 404 if there is no such index.
        """
        name = next(iter(self._served)) if index is None else index
        if name not in self._served:
            raise ApiError(404, f"there is no index {name!r}", "index_not_found", param="index")
        while self._is_changed(self._served[name]):
            if name not in self._opening:
                self._opening[name] = asyncio.ensure_future(self._follow(name))
            await asyncio.shield(self._opening[name])  # Other requests need it too.
        served = self._served[name]
        served.users += 1
        try:
            yield served
        finally:
            served.users -= 1
            self._close_unused(served)

    def _is_changed(self, served: Served) -> bool:
        state = None if served.index is None else state_of(served.index.folder)
        return state is not None and state != served.state

    async def _follow(self, name: str) -> None:
        """Open the current commit of an index. If it cannot be opened, the server keeps the commit that it has."""
        served = self._served[name]
        assert served.index is not None
        served.state = state_of(served.index.folder)
        try:
            index = await asyncio.to_thread(served.index.newest)
            if index is not served.index:
                new = self._serving(name, index)
                new.state = served.state
                await new.engine.__aenter__()
                self._served[name] = new
                _LOG.info("%s: commit %d", index.folder, index.commit)
                self._close_unused(served)
        except PyfastError as error:
            _LOG.error("the server stays at commit %d: %s", served.index.commit, error)
        finally:
            del self._opening[name]

    def _close_unused(self, served: Served) -> None:
        if served.users or self._served[served.name] is served:
            return

        async def close() -> None:
            await served.engine.__aexit__(None)

        closing = asyncio.ensure_future(close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        # Objects of an index refer to each other, so only the collector frees its files. It waits until the last
        # request and the threads have forgotten the index.
        loop = asyncio.get_running_loop()
        closing.add_done_callback(lambda _: loop.call_later(_FORGOTTEN_S, gc.collect))

    async def _end(self, *error: Any) -> None:
        """Close all engines, as their own `__aexit__` does."""
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for served in self._served.values():
            await served.engine.__aexit__(*error)
        await asyncio.gather(*self._closing)

    def resolve(self, model: str) -> tuple[str, str]:
        """Return (the name of the system, the name of the index) for a model `SYSTEM` or `SYSTEM@INDEX`.
        `SYSTEM` alone means the first index. Raises `ApiError` 404 if there is no such model.
        """
        if model not in self.models:
            raise ApiError(
                404, f"there is no model {model!r}; /v1/models lists them", "model_not_found", param="model"
            )
        system, at, index = model.partition("@")
        return system, index if at else next(iter(self._served))

    def read(self, request: ChatRequest) -> Asked:
        """Parse a request for an answer. Raises `ApiError` if there is no such model, or if the messages
        exceed a limit or have no question."""
        system, index = self.resolve(request.model)
        question, history = conversation(request.messages, self.limits)
        return Asked(question, history, system, index)

    async def answer(
        self, asked: Asked, id: str, on_step: OnStep | None = None, on_text: OnText | None = None
    ) -> Answered:
        """Answer a question, and count it in the metrics. The two functions are those of `Engine.answer`.

        Raises `ApiError` if the queue is full or the question fails, `TimeoutError` if the time limit is
        reached, and the errors of `Engine.answer`.
        """
        metrics, ledger = self.metrics, Ledger()
        with self.queue.place(), metrics.seconds(asked.system).time():
            async with asyncio.timeout(self.limits.seconds), self.using(asked.index) as served:
                record = await served.engine.answer(
                    {"id": id, "question": asked.question},
                    system=asked.system,
                    settings=self.systems[asked.system],
                    history=asked.history,
                    on_step=on_step,
                    ledger=ledger,
                    on_text=on_text,
                )
        usage = record.usage
        metrics.questions(asked.system, record.state).inc()
        metrics.calls(asked.system).inc(usage.llm_calls)
        cached = ledger.cached_tokens
        counts = {"prompt": usage.prompt_tokens, "cached": cached, "completion": usage.completion_tokens}
        for kind, count in counts.items():
            metrics.tokens(asked.system, kind).inc(count)
        if record.state == "failed":
            raise failure(record)
        return Answered(record, cached, served.title)


def conversation(messages: Sequence[ChatMessage], limits: Limits) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split messages into the question and the earlier (question, answer) pairs.

    Several consecutive user messages are one question. Raises `ApiError` if there are too many messages, a
    message is too long, or the last message is not a user's question.
    """
    if len(messages) > limits.turns:
        raise ApiError(400, f"more than {limits.turns} messages", "too_many_messages", param="messages")
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
        raise ApiError(400, "the last message needs to be a user's, with text", "no_question", param="messages")
    return question, tuple(pair for pair in history if pair[0].strip())


def _opened(given: GivenIndex | Mapping[str, GivenIndex] | None) -> dict[str, Index]:
    """The indexes by name. A single index has the name of its folder."""
    if given is None:
        return {}
    many = given if isinstance(given, Mapping) else {"": given}
    indexes: dict[str, Index] = {}
    for name, one in many.items():
        index = one if isinstance(one, Index) else one() if callable(one) else open_index(one)
        called = name or re.sub(r"[^\w.-]+", "-", index.folder.resolve().name)
        if not re.fullmatch(r"[\w.-]+", called):
            raise InputError(f"index {called!r}: its name may have letters, digits, dots, dashes and underscores")
        indexes[called] = index
    if not indexes:
        raise InputError("no index is given: give None for a server without one")
    return indexes


def _served(given: Systems | None, has_index: bool) -> dict[str, Mapping[str, Any]]:
    """The systems to serve, with their settings. If `given` is None: all systems that can run with their
    default settings."""
    served = names() if given is None else given
    settings = dict(served) if isinstance(served, Mapping) else {name: {} for name in served}
    for name, values in list(settings.items()):
        try:
            _check(name, values, has_index)  # refused now, and not by the first request
        except InputError:
            if given is not None:
                raise
            del settings[name]  # graph_convqa, for one, needs what was trained
    if not settings:
        raise InputError("no system is given")
    return settings


def _check(name: str, values: Mapping[str, Any], has_index: bool) -> None:
    system = load_system(name)
    system.configure(values)
    if system.needs_index and not has_index:
        raise InputError(f"{name} retrieves: give the server an index")
