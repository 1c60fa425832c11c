"""Ask an engine questions, at given times (open loop) or from several clients (closed loop), and measure the
time of each question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from pyfast.api.engine import Engine
from pyfast.engine import Ledger, Question, Record
from pyfast.engine.ledger import JOURNALLING
from pyfast.engine.telemetry import RETRIEVAL
from pyfast.experiments.arrivals import Float64
from pyfast.systems import System

GRAPH = frozenset({"rerank_pools", "bridge_select", "build_graph", "encode_graph", "apply_memory"})
"""The batched functions whose time counts for the stage `graph`"""
_KINDS = dict.fromkeys(RETRIEVAL, "retrieval") | dict.fromkeys(GRAPH, "graph") | {JOURNALLING: "journal"}
STAGES = ("queue", "retrieval", "graph", "llm", "journal", "other")


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of one question under load."""

    arrival: float
    """When the question was due, in seconds on the event loop's clock"""
    latency: float
    """The seconds from `arrival` to the end of the question"""
    stages: Mapping[str, float]
    """The seconds of each stage in `STAGES`. They add up to the latency if the system does one thing at a
    time"""
    state: str
    llm_calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


Ask = Callable[[Question, float], Awaitable[Sample]]
"""A function that asks a question and measures it. Its arguments are the question, and the time when the
question is due, on the event loop's clock"""


def asker(engine: Engine, system: str | System, settings: Mapping[str, Any] | None) -> Ask:
    """Make a function that asks the engine one question and measures it."""

    async def ask(question: Question, due: float) -> Sample:
        clock = asyncio.get_running_loop().time
        ledger = Ledger()
        record = await engine.answer(question, system=system, settings=settings, ledger=ledger)
        return _sample(record, ledger, due, clock() - due)

    return ask


def _sample(record: Record, ledger: Ledger, due: float, latency: float) -> Sample:
    stages = dict.fromkeys(STAGES, 0.0)
    for name, stage in ledger.stages.items():
        stages["llm" if stage.role else _KINDS.get(name, "other")] += stage.running_us / 1e6
        stages["queue"] += stage.queued_us / 1e6
    stages["queue"] += max(0.0, latency - ledger.seconds)  # the time before the engine started with the question
    stages["other"] += max(0.0, latency - sum(stages.values()))
    return Sample(
        due,
        latency,
        stages,
        record.state,
        ledger.llm_calls,
        ledger.prompt_tokens,
        ledger.cached_tokens,
        ledger.completion_tokens,
    )


def repeated(questions: Sequence[Question], count: int, name: str) -> Iterator[Question]:
    """Make `count` questions from the texts of `questions`. Their ids are `NAME-0`, `NAME-1` and so on.

    If there are fewer than `count` questions, the texts are repeated.
    """
    for number, question in enumerate(islice(cycle(questions), count)):
        yield Question(f"{name}-{number}", question.text)


async def open_loop(ask: Ask, questions: Iterator[Question], times: Float64) -> list[Sample]:
    """Ask each question when it is due, even if earlier questions are not answered yet. `times` has the
    seconds from the start at which the questions are due.

    The latency of a question counts from the time when it was due, even if it was asked later. So the
    latencies show when the engine stalls.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    tasks = []
    for question, after in zip(questions, times.tolist(), strict=True):
        if (wait := start + after - loop.time()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.ensure_future(ask(question, start + after)))
    return await _all(tasks)


async def closed_loop(ask: Ask, questions: Iterator[Question], clients: int) -> list[Sample]:
    """Ask questions from several clients at the same time. Each client asks its next question when its
    previous question has ended. `clients` is the number of clients.
    """
    clock = asyncio.get_running_loop().time
    samples: list[Sample] = []

    async def client() -> None:
        for question in questions:
            samples.append(await ask(question, clock()))

    await _all([asyncio.ensure_future(client()) for _ in range(clients)])
    return samples


async def _all(tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Wait for all tasks, and return their results. If a task raises an error, all other tasks are
    cancelled."""
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
