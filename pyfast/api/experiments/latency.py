"""`pyfast.bench`: measure the latency and throughput of a system under load. The system runs in this
process."""

from __future__ import annotations

import platform
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

import pyfast.api.experiments.load as generator
from pyfast.api.engine import Engine
from pyfast.api.experiments.load import Sample, arrival_times, closed_loop, open_loop, repeated
from pyfast.api.experiments.plots import plot_bench
from pyfast.api.jobs import read_in
from pyfast.api.models import GivenLLM, opened
from pyfast.engine import Question
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems import System, load_system
from pyfast.utils.event_loop import run_blocking
from pyfast.utils.files import free_name, write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.options import Load, at_least_one
from pyfast.utils.version import __version__

_FORMAT = {"format": "pyfast-bench", "version": 1}
_HIGHER_IS_BETTER = ("request_throughput", "request_goodput")
_SAME = (
    *("system", "settings", "model_id", "corpus", "questions", "documents", "num_prompts", "warm_up", "repeats"),
    *("concurrency", "journal", "machine"),
)
_GAIN = 1.05  # Saturation: twice as many clients raise the throughput by less than this factor.
_MOST_CLIENTS = 4096
_SHARES = (0.5, 0.7, 0.8, 0.9)  # shares of the throughput at saturation


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in an earlier and in a later result, at the same load."""

    load: str
    figure: str
    before: float
    after: float
    is_real: bool
    """Whether the values of all later repetitions are above the values of all earlier repetitions, or all are
    below. Otherwise the difference may be noise
    """
    is_better: bool
    """Whether the later value is better than the earlier value"""

    @property
    def ratio(self) -> float:
        """The later value, divided by the earlier value."""
        return self.after / self.before if self.before else float("inf")


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of `pyfast.bench`: the figures of each load.

    Example:
        >>> import pyfast
        >>> asked = ["Who discovered Titan?"]
        >>> before = pyfast.bench(asked, pyfast.Load(clients=[2], count=8), llm="instant", system="direct")
        >>> after = pyfast.bench(asked, pyfast.Load(clients=[2], count=8), llm="instant", system="direct")
        >>> [change.figure for change in after.compare(before.as_json())][:2]
        ['mean_e2el_ms', 'p50_e2el_ms']
    """

    about: Mapping[str, Any]
    """The date, the machine, the version of pyfast, and most arguments of `bench`, such as the system and the
    model"""
    loads: list[dict[str, Any]]
    """For each load: the median, the smallest and the largest value of each figure over the repetitions; the
    time of each stage; and the figures of each repetition"""
    saturation: float | None = None
    """The highest number of questions per second that a sweep found. None without a sweep"""

    def as_json(self) -> dict[str, Any]:
        """The result in JSON types. Figures have the names of `vllm bench serve`."""
        return {**_FORMAT, **self.about, "saturation": self.saturation, "loads": self.loads}

    def compare(self, before: str | Path | Mapping[str, Any]) -> list[Change]:
        """Compare each load with the same load of the same system in an earlier result (a file that `bench` wrote,
        or the result of `as_json`). If each result has only one system, these two systems are compared. Warnings
        name what differs between the two measurements, such as the system, its settings, or the corpus.

        `bench` renames an earlier `bench.json` in its `out`. To compare with that file, read it before the
        measurement, with `read_bench`.

        Raises:
            InputError: The file is not a result of `bench`, or the two results share no load.
        """
        earlier = before if isinstance(before, Mapping) else read_bench(before)
        _check_format(earlier, "`before`")
        system, other = str(self.about["system"]), str(earlier["system"])
        of_two = ", " not in system + other
        for name in _SAME:
            if name in earlier and earlier[name] != self.about.get(name) and (of_two or name != "system"):
                values = (name.replace("_", " "), earlier[name], self.about.get(name))
                LOG.warning("the two measurements differ in their setup: %s was %s and is now %s", *values)
        loads = {old["load"] if of_two else _of_system(other, old["load"]): old for old in earlier["loads"]}
        changes = []
        for new in self.loads:
            old = loads.get(new["load"] if of_two else _of_system(system, new["load"]), {"ranges": {}})
            for name in (*generator.LATENCIES, *_HIGHER_IS_BETTER):
                if name in new["ranges"] and name in old["ranges"]:
                    (low, high), (old_low, old_high) = new["ranges"][name], old["ranges"][name]
                    better = new[name] < old[name] if name in generator.LATENCIES else new[name] > old[name]
                    is_real = low > old_high or high < old_low
                    changes.append(Change(new["load"], name, old[name], new[name], is_real, better))
        if not changes:
            raise InputError(
                "the results have no combination of system and load in common; use the same rates and clients"
            )
        return changes


def read_bench(file: str | Path) -> dict[str, Any]:
    """Read a `bench.json`, for `Bench.compare`.

    Args:
        file: A file that `bench` wrote.

    Returns:
        The result, as `Bench.as_json` returns it.

    Raises:
        InputError: The file cannot be read, or is not a result of `bench`.

    Example:
        >>> import pyfast
        >>> from pyfast.api.experiments.latency import read_bench
        >>> load = pyfast.Load(clients=[2], count=8)
        >>> result = pyfast.bench(["Who discovered Titan?"], load, llm="instant", system="direct", out="BENCH")
        >>> read_bench("BENCH/bench.json")["system"]
        'direct'
    """
    try:
        result = orjson.loads(Path(file).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"{file}: {error}") from None
    _check_format(result, file)
    return dict(result)


def _check_format(result: object, what: object) -> None:
    if not isinstance(result, Mapping) or any(result.get(name) != it for name, it in _FORMAT.items()):
        raise InputError(f"{what} is not a result of `pyfast bench` in format {_FORMAT['version']}")


def _of_system(systems: str, load: str) -> str:
    """Return the name of a load with its system, which a result with several systems has already."""
    return load if ", " in systems else f"{systems}, {load}"


def bench(
    questions: Sequence[str | Mapping[str, Any] | Question] | str | Path,
    load: Load,
    *,
    index: Index | str | Path | None = None,
    llm: GivenLLM = "embedded",
    llm_options: Mapping[str, Any] | None = None,
    system: str | System | Sequence[str | System] = "n2n",
    settings: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    concurrency: int = 256,
    journal: bool = False,
    out: str | Path | None = None,
) -> Bench:
    """Measure latency and throughput of one or more systems under load.

    The load generator and the system share this process and one event loop. In an open loop (`rates`, `trace`),
    questions arrive at times that are fixed in advance, even if the system is slower. The latency of a
    question counts from its arrival time. In a closed loop (`clients`), each client asks its next question
    after it gets an answer.

    Args:
        questions: Texts, mappings with `id` and `question`, or a file of questions. Conversations are not
            allowed.
        load: The loads to measure, and how often.
        index: An index, or its folder. None: the system needs no index.
        llm: As in `pyfast.answer`.
        llm_options: As in `pyfast.answer`.
        system: As in `pyfast.answer`, or several systems, which get the same loads one after another. The name
            of a load then begins with the name of its system.
        settings: As in `pyfast.answer`, for every system.
        budget: Limits of each question, as in `pyfast.Engine`.
        concurrency: How many questions the engine works on at the same time. All other questions wait in its
            queue.
        journal: Whether to write a journal, as a run does. After each LLM call, a question continues only
            when the completion is stored. The journal is in a temporary folder in `out` or, if `out` is None,
            in the operating system's folder for temporary files.
        out: A folder for `bench.json` and, if matplotlib is installed, `bench.png`. None: nothing is written.

    Returns:
        The figures of each load.

    Raises:
        InputError: An argument is not valid, no load is given, or several systems are given with `sweep`.
        LLMUnavailableError: The model cannot be reached.

    Example:
        >>> import pyfast
        >>> asked = ["Who discovered Titan?", "Which moon did Huygens discover?"]
        >>> load = pyfast.Load(clients=[4], count=8, repeats=1)
        >>> result = pyfast.bench(asked, load, index="IDX", llm="instant", system="rag")
        >>> result.loads[0]["load"], result.loads[0]["completed"]
        ('4 clients', 8.0)
    """
    at_least_one("concurrency", concurrency)
    if not (load.rates or load.clients or load.sweep or load.trace):
        raise InputError("no load was given: set rates, clients, trace or sweep")
    for number in load.clients:
        at_least_one("clients", number)
    systems = [system] if isinstance(system, str | System) else list(system)
    names = [one if isinstance(one, str) else one.name for one in systems]
    if not systems or len(set(names)) < len(names) or (load.sweep and len(names) > 1):
        raise InputError(f"system: expected one system{'' if load.sweep else ' or more, each only once'}")
    loaded = [one if isinstance(one, System) else load_system(one) for one in systems]
    for one in loaded:
        one.configure(settings or {})
    asked, given = _questions(questions, load.documents), opened(llm, llm_options)

    def open_load(rate: float, name: str = "") -> _Load:
        seeds = range(load.seed, load.seed + load.repeats)
        times = [arrival_times(load.arrivals, rate, load.count, seed, load.burstiness) for seed in seeds]
        shape = {"poisson": 1.0, "gamma": load.burstiness}.get(load.arrivals)
        return _Load(name or f"{rate:g}/s {load.arrivals}", times=times, rate=rate, burstiness=shape)

    plans: list[_Load] = [_Load(f"{number} clients", clients=number) for number in load.clients]
    plans += [open_load(rate) for rate in load.rates]
    if load.trace is not None:
        times = generator.read_trace(Path(load.trace))
        rate = (len(times) - 1) / float(times[-1]) if times[-1] > 0 else None
        plans.append(_Load(f"trace {Path(load.trace).name}", times=[times] * load.repeats, rate=rate))
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)

    async def measured(folder: str | None) -> Bench:
        engine = Engine(index, given.by_role, concurrency=concurrency, budget=budget, journal=folder)
        async with engine:
            loads: list[dict[str, Any]] = []

            async def measure(ask: generator.Ask, plan: _Load) -> dict[str, Any]:
                LOG.info("measuring %s", re.sub(r"\b1 clients", "1 client", plan.name))
                await closed_loop(ask, repeated(asked, load.warm_up, "warm-up"), min(load.warm_up, 16) or 1)
                samples = [await plan.once(ask, asked, load.count, repeat) for repeat in range(load.repeats)]
                loads.append(_result(plan, samples, load.objective))
                return loads[-1]

            most = None
            for name, one in zip(names, loaded, strict=True):
                ask = generator.asker(engine, one, settings)
                if load.sweep:
                    most = await _saturation(partial(measure, ask))
                    plans.extend(open_load(share * most, f"{share:.0%} of saturation") for share in _SHARES)
                for plan in plans:
                    await measure(ask, replace(plan, name=f"{name}, {plan.name}") if len(names) > 1 else plan)
            corpus = None if engine.index is None else engine.index.manifest["corpus"]
            return Bench({**about, "corpus": corpus}, loads, most)

    about = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "backend": "pyfast",
        "pyfast": __version__,
        "model_id": ", ".join(dict.fromkeys(model.spec for model in given.full().values())),
        "system": ", ".join(names),
        "settings": dict(settings or {}),
        "questions": len(asked),
        "documents": load.documents,
        "num_prompts": load.count,
        "warm_up": load.warm_up,
        "repeats": load.repeats,
        "objective_s": load.objective,
        "concurrency": concurrency,
        "journal": journal,
        "seed": load.seed,
        "machine": {"processor": platform.processor() or platform.machine(), "system": platform.platform()},
    }
    with tempfile.TemporaryDirectory(prefix="journal-", dir=out) if journal else nullcontext() as folder:
        result = run_blocking(measured(folder))
    if out is not None:
        file = Path(out) / "bench.json"
        if file.exists():
            kept = file.rename(free_name(file, "old"))
            LOG.info("the earlier measurement is kept as %s", kept)
        write_atomically(file, orjson.dumps(result.as_json(), option=orjson.OPT_INDENT_2))
        plot_bench(result.as_json(), Path(out) / "bench.png")
    return result


@dataclass(frozen=True, slots=True)
class _Load:
    """One load: the number of clients of a closed loop, or the arrival times of an open loop for each
    repetition."""

    name: str
    clients: int | None = None
    times: Sequence[generator.Float64] = ()
    rate: float | None = None
    burstiness: float | None = None

    async def once(
        self, ask: generator.Ask, questions: Sequence[Question], count: int, repeat: int
    ) -> list[Sample]:
        """Carry out one repetition of the load. Returns a sample for each question. `repeat` is the number of
        the repetition, from 0."""
        if self.clients is not None:
            return await closed_loop(ask, repeated(questions, count, f"r{repeat}"), self.clients)
        times = self.times[repeat]
        return await open_loop(ask, repeated(questions, len(times), f"r{repeat}"), times)


def _result(plan: _Load, samples: Sequence[Sequence[Sample]], objective: float | None) -> dict[str, Any]:
    each = [generator.figures(some, objective) for some in samples]
    latencies = [[round(1e3 * sample.latency, 3) for sample in some] for some in samples]
    return {
        "load": plan.name,
        "request_rate": "inf" if plan.rate is None else plan.rate,
        "burstiness": plan.burstiness,
        "max_concurrency": plan.clients,
        **generator.summary(each),
        "each": [{**repeat, "e2els": values} for repeat, values in zip(each, latencies, strict=True)],
    }


async def _saturation(measure: Callable[[_Load], Awaitable[dict[str, Any]]]) -> float:
    """Double the number of clients until the throughput hardly rises. Return the highest throughput, in
    questions per second."""
    clients, most = 1, 0.0
    while clients <= _MOST_CLIENTS:
        result = await measure(_Load(f"{clients} clients", clients=clients))
        reached = float(result["request_throughput"])
        if reached < most * _GAIN:
            return max(reached, most)
        clients, most = 2 * clients, reached
    return most


def _questions(given: Sequence[str | Mapping[str, Any] | Question] | str | Path, documents: str) -> list[Question]:
    read = read_in(given, None)
    asked = list(read.read())
    if any(question.conversation is not None for question in asked):
        raise InputError("questions: expected single questions, got the turns of a conversation")
    if documents == "all":
        return [replace(question, documents=()) for question in asked]
    read.tell_limited()
    return asked
