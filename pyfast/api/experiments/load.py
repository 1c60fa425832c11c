"""The load of a benchmark: the times at which questions arrive, the questions that are asked at these times (open
loop) or from several clients (closed loop), and the figures of the measured questions. Figures have the same
names as in `vllm bench serve`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pyfast.api.engine import Engine
from pyfast.engine import Ledger, Question
from pyfast.engine.journal.ledger import JOURNALLING
from pyfast.engine.telemetry import RETRIEVAL
from pyfast.errors import InputError
from pyfast.systems import System

Float64 = npt.NDArray[np.float64]
Arrivals = Literal["poisson", "gamma", "constant"]
GRAPH = frozenset({"rerank_pools", "bridge_select", "build_graph", "encode_graph", "apply_memory"})
"""The batched functions whose time counts for the stage `graph`"""
_KINDS = dict.fromkeys(RETRIEVAL, "retrieval") | dict.fromkeys(GRAPH, "graph") | {JOURNALLING: "journal"}
STAGES = ("queue", "retrieval", "graph", "llm", "journal", "other")
PERCENTILES = (50, 90, 95, 99)
LATENCIES = ("mean_e2el_ms", *(f"p{p}_e2el_ms" for p in PERCENTILES))
"""The figures of latencies that exist even if all questions failed (as None)"""


def arrival_times(arrivals: Arrivals, rate: float, count: int, seed: int, burstiness: float = 1.0) -> Float64:
    """Draw the times at which questions arrive.

    Args:
        arrivals: The distribution of the gaps between questions. `constant`: equal gaps. `poisson`: exponential
            gaps. `gamma`: a gamma distribution with the shape `burstiness`, the same parameter as in
            `vllm bench serve`.
        rate: Questions per second, on average.
        count: The number of questions.
        seed: The seed of the random gaps. The same seed always gives the same times.
        burstiness: The shape of `gamma`. Below 1, arrivals come in bursts. Above 1, the gaps are more even
            than with `poisson`.

    Returns:
        float64[count], seconds from the start, ascending. The first question arrives at 0.

    Raises:
        InputError: A number is out of range.

    Example:
        >>> from pyfast.api.experiments.load import arrival_times
        >>> arrival_times("constant", 4.0, 3, seed=0).tolist()
        [0.0, 0.25, 0.5]
    """
    for name, value in (("rate", rate), ("burstiness", burstiness)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a number above 0, got {value}")
    draws = np.random.default_rng(seed)
    if arrivals == "constant":
        gaps = np.full(count, 1 / rate)
    elif arrivals == "poisson":
        gaps = draws.exponential(1 / rate, count)
    elif arrivals == "gamma":
        gaps = draws.gamma(burstiness, 1 / (rate * burstiness), count)
    else:
        raise InputError(f"arrivals: expected poisson, gamma or constant, got {arrivals!r}")
    times: Float64 = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
    return times


def read_trace(path: Path) -> Float64:
    """Read arrival times from a file, which has a number of seconds on each line. Returns the seconds from
    the first arrival to each arrival (float64).

    Raises:
        InputError: The file cannot be read or is empty, a line is not a number, or a number is smaller than the
            previous number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    times = []
    for number, line in enumerate(lines, start=1):
        try:
            times.append(float(line))
        except ValueError:
            raise InputError(f"{path}, line {number}: expected a number of seconds, got {line[:80]!r}") from None
        if not math.isfinite(times[-1]) or (len(times) > 1 and times[-1] < times[-2]):
            raise InputError(f"{path}, line {number}: expected ascending numbers, got {line[:80]!r}")
    if not times:
        raise InputError(f"{path} contains no arrival times")
    return np.array(times) - times[0]


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


def asker(engine: Engine, system: System, settings: Mapping[str, Any] | None) -> Ask:
    """Return a function that lets the engine answer one question, and measures it."""

    async def ask(question: Question, due: float) -> Sample:
        clock = asyncio.get_running_loop().time
        ledger = Ledger()
        record = await engine.answer(question, system=system, settings=settings, ledger=ledger)
        latency = clock() - due
        stages = dict.fromkeys(STAGES, 0.0)
        for name, stage in ledger.stages.items():
            stages["llm" if stage.role else _KINDS.get(name, "other")] += stage.running_us / 1e6
            stages["queue"] += stage.queued_us / 1e6
        stages["queue"] += max(0.0, latency - ledger.seconds)  # the time before the engine started the question
        stages["other"] += max(0.0, latency - sum(stages.values()))
        tokens = ledger.prompt_tokens, ledger.cached_tokens, ledger.completion_tokens
        return Sample(due, latency, stages, record.state, ledger.llm_calls, *tokens)

    return ask


def repeated(questions: Sequence[Question], count: int, name: str) -> Iterator[Question]:
    """Yield `count` questions with the ids `NAME-0`, `NAME-1` and so on. If there are fewer questions, they are
    repeated."""
    for number, question in enumerate(islice(cycle(questions), count)):
        yield replace(question, id=f"{name}-{number}")


async def open_loop(ask: Ask, questions: Iterator[Question], times: Float64) -> list[Sample]:
    """Ask each question when it is due, even if earlier questions are not answered yet. `times` contains the time
    at which each question is due, in seconds from the start.

    A question's latency counts from the time when it was due, even if it was asked later, so the latencies show
    when the engine stalls.
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
    """Let `clients` clients ask questions at the same time. Each client asks its next question when its previous
    one has ended."""
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


def figures(samples: Sequence[Sample], objective: float | None) -> dict[str, Any]:
    """Compute the figures of one repetition of a load (a number of clients, or a rate of arrivals).

    Args:
        samples: The measured questions of the repetition. Latencies and `request_throughput` leave out failed
            questions, but the duration of the repetition includes them.
        objective: The goodput counts only questions whose latency is at most this many seconds. None: no goodput.

    Returns:
        Latencies in milliseconds, rates per second, counts, and the time of each stage in milliseconds.
    """
    ended = [sample for sample in samples if sample.state != "failed"]
    begins = min((sample.arrival for sample in samples), default=0.0)
    duration = max((sample.arrival + sample.latency for sample in samples), default=0.0) - begins
    tokens_in = sum(sample.prompt_tokens for sample in samples)
    tokens_out = sum(sample.completion_tokens for sample in samples)
    good = None if objective is None else sum(sample.latency <= objective for sample in ended) / duration
    return {
        "duration": duration,
        "completed": len(ended),
        "failed": len(samples) - len(ended),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "total_cached_tokens": (cached := sum(sample.cached_tokens for sample in samples)),
        "total_computed_tokens": tokens_in - cached,
        "llm_calls": sum(sample.llm_calls for sample in samples),
        "request_throughput": len(ended) / duration,
        "request_goodput": good,
        "output_throughput": tokens_out / duration,
        "total_token_throughput": (tokens_in + tokens_out) / duration,
        **_latency([sample.latency for sample in ended]),
        "stages": {stage: _latency([sample.stages[stage] for sample in ended]) for stage in STAGES},
    }


def _latency(seconds: Sequence[float]) -> dict[str, float | None]:
    if not seconds:
        return dict.fromkeys(LATENCIES)
    values = 1e3 * np.array(seconds)
    spread = {"mean_e2el_ms": values.mean(), "median_e2el_ms": np.median(values), "std_e2el_ms": values.std()}
    spread |= zip(LATENCIES[1:], np.percentile(values, PERCENTILES), strict=True)
    return {name: float(value) for name, value in spread.items()}


def summary(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compute the median, the smallest and the largest value of each figure over the repetitions."""
    names = [name for name, value in repeats[0].items() if isinstance(value, int | float)]
    values = {name: [repeat[name] for repeat in repeats] for name in names}
    values = {name: of for name, of in values.items() if None not in of}
    each = {stage: [repeat["stages"][stage] for repeat in repeats] for stage in STAGES}
    return {
        **{name: float(np.median(of)) for name, of in values.items()},
        "ranges": {name: [min(of), max(of)] for name, of in values.items()},
        "stages": {
            stage: {name: float(np.median([one[name] or 0.0 for one in of])) for name in of[0]}
            for stage, of in each.items()
        },
    }
