"""One seed: a run with its questions, its faults and its sessions, carried out until it is done."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import random
import signal
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import orjson

import pyfast.engine.run
import pyfast.engine.run_folder
from pyfast.commands import progress
from pyfast.engine import Budget, Job, Question, SessionResult, work_on
from pyfast.engine.events import Event
from pyfast.engine.questions import questions_from
from pyfast.errors import InputError, PyfastError, RunError
from pyfast.utils.options import RunOptions
from simulation.batches import Provider, over_batches
from simulation.disk import Disk, Image, with_flips
from simulation.llm import FELLS, POISONS, STALLED, SimulatedLLM, World, over_http
from simulation.loop import SimulatedLoop, SimulatedThreads
from simulation.systems import PROMPTS, STAGES, system

ENDINGS = {
    "end": 4,
    "kill": 4,
    "kill in a write": 3,
    "power cut": 5,
    "stop": 2,
    "stop at once": 1.5,
    "disk full": 1,
    "disk error": 1,
    "other settings": 0.5,
}
"""How a session can end, and how often it does"""
_FOREVER = 1 << 60
_ERRORS = (
    (1, ""),
    (1, "traces"),
    (1, ""),
    (1, "answers"),
    (3, ""),
    (1, "journal"),
    (_FOREVER, ""),
    (1, "traces"),
)
"""How many changes fail in an error of the disk, and of which files. Empty: of all"""


@dataclass
class Scenario:
    """What a seed means. A shrunk one has fewer sessions, questions or faults."""

    seed: int
    questions: list[Question]
    stages: tuple[str, ...]
    endings: list[str]
    concurrency: int
    slots: int
    sync: str
    keep_prompts: bool
    shuffles: bool
    moods: dict[str, float]
    poisoned: dict[str, str]
    budget: dict[str, Any]
    outages: list[tuple[float, float, str]]
    patience: float
    """Minutes that a session waits for the LLM"""
    flips: str = ""
    """Part of the names of the files of which bits change between sessions. Empty: none do"""
    jumps: bool = False
    """Whether the wall clock is set between sessions"""
    retries_failed: bool = False
    grows: bool = False
    """Whether the first sessions have only the first questions"""
    second: bool = False
    """Whether a second process tries the folder"""
    slow_disk: bool = False
    """Whether a write may take seconds before it is done, or fails"""
    http: bool = False
    """Whether the LLM is a server of the OpenAI protocol"""
    batches: dict[str, Any] = field(default_factory=dict)
    """Options of an LLM behind a Batch API. Empty: the LLM is not"""
    provider: dict[str, float] = field(default_factory=dict)
    """How likely what of its provider goes wrong (see `batches.MOODS`)"""
    takes: float = 0.0
    """How many seconds a batch takes"""

    def __str__(self) -> str:
        told = {name: value for name, value in vars(self).items() if value and name != "questions"}
        return f"{len(self.questions)} questions; " + "; ".join(f"{name}: {value}" for name, value in told.items())


def drawn(seed: int) -> Scenario:
    """The scenario of a seed."""
    chance = Random(seed)
    count, questions = chance.choice((1, 3, 12, 18, 20, 20, 20, 25, 30, 40)), list[Question]()
    conversations = chance.random() < 0.25
    while len(questions) < count:
        turns = chance.randint(1, 4) if conversations else 0
        of = f"c{len(questions)}" if turns else None
        questions += [
            Question(f"q{len(questions) + turn}", f"What is {chance.randrange(10**6)}?", of)
            for turn in range(turns or 1)
        ]
    stages = tuple(chance.choices(STAGES, k=chance.choice((1, 1, 1, 1, 2, 3))))
    poisoned = {}
    if chance.random() < 0.3:
        for question in chance.sample(questions, k=min(len(questions), chance.randint(1, 3))):
            poisoned[f"<{question.id}>"] = chance.choice(POISONS)
    moods: dict[str, float] = {}
    if chance.random() < 0.35:
        kinds = chance.sample(("busy", "down", "slow", "malformed", "empty", "cut", "listed", "broken"), k=2)
        moods = dict.fromkeys(kinds, chance.choice((0.02, 0.1, 0.2)))
    budget: dict[str, Any] = {}
    if chance.random() < 0.15:
        budget["call_seconds"] = 60.0
        moods["late"] = 0.02
    if chance.random() < 0.1:
        budget[chance.choice(("calls", "steps"))] = chance.randint(1, 4)
    if chance.random() < 0.08:
        budget["seconds"] = chance.choice((1.0, 3.0, 20.0, 1000.0))
    if chance.random() < 0.05:
        budget["strict"] = True
    if chance.random() < 0.05:
        budget["run_tokens"] = chance.randint(1, 1000)
    names, weights = list(ENDINGS), list(ENDINGS.values())
    endings = chance.choices(names, weights, k=chance.choice((0, 1, 1, 1, 1, 2, 3)))
    outages, patience = [], 30.0
    if chance.random() < 0.2:
        for _ in range(chance.randint(1, 3)):
            begins = chance.expovariate(1 / 10) + (outages[-1][1] if outages else 0.0)
            outages.append(
                (
                    begins,
                    begins + chance.choice((1.0, 20.0, 300.0, 4000.0)),
                    chance.choice(("down", "busy", "hangs")),
                )
            )
        patience = chance.choice((0.0, 1.0, 30.0, 120.0))
        if chance.random() < 0.3:  # Outages do not count.
            budget["seconds"] = 1000.0
    scenario = Scenario(
        seed,
        questions,
        stages,
        endings,
        concurrency=chance.choice((1, 2, 8, 16, 64)),
        slots=chance.choice((1, 4, 64)),
        sync=chance.choice(("normal", "full")),
        keep_prompts=chance.random() < 0.3,
        shuffles=chance.random() < 0.5,
        moods=moods,
        poisoned=poisoned,
        budget=budget,
        outages=outages,
        patience=patience,
        flips=chance.choice(("journal", "journal", "answers", "traces")) if chance.random() < 0.12 else "",
        jumps=chance.random() < 0.1,
        retries_failed=chance.random() < 0.1,
        grows=count > 3 and not conversations and chance.random() < 0.1,
        second=chance.random() < 0.05,
        slow_disk=chance.random() < (0.6 if {"disk full", "disk error"} & {*endings} else 0.1),
    )
    rare = chance.random()
    if rare < 0.05:  # What a session that ended well has not synced may be lost.
        scenario.endings = ["power cut later", *endings[1:]]
        scenario.grows = count > 3 and not conversations
    elif rare < 0.1:  # The journal of a run that is done is damaged.
        scenario.endings, scenario.flips, scenario.moods, scenario.budget = ["end", "end"], "journal", {}, {}
        scenario.retries_failed = False
    elif rare < 0.15:  # Outages that are each shorter than the patience, and together longer.
        scenario.patience, begins = chance.choice((1.0, 30.0, 120.0)), 0.0
        scenario.outages, scenario.moods = [], {}
        scenario.budget = {"seconds": 1000.0} if scenario.patience > 100 else {}  # Outages do not count.
        scenario.endings, scenario.concurrency = [chance.choice(("end", "stop"))], chance.choice((1, 2))
        for share in chance.choice(((0.9, 0.4), (0.7, 0.6, 0.5), (0.9, 0.0), (0.5, 0.0))):
            begins += chance.uniform(2.0, 6.0)
            ends = begins + (60 * scenario.patience * share or chance.uniform(1.0, 2.0))
            scenario.outages.append((begins, ends, chance.choice(("down", "busy"))))
            begins = ends
    elif rare < 0.17:  # Replies are damaged that a resumed run needs. A killed one's are in a log with checksums.
        scenario.stages, scenario.concurrency, scenario.slots = ("call", "call", "call"), 64, 4
        scenario.endings, scenario.flips, scenario.moods, scenario.budget = ["stop at once"], "journal", {}, {}
    # A server that hangs ends no call, and a call over HTTP has a time limit.
    scenario.http = chance.random() < 0.15 and not any(how == "hangs" for _, _, how in scenario.outages)
    if chance.random() < 0.06:  # What did not reach the LLM makes no question fail, however often it is killed.
        scenario.moods, scenario.poisoned, scenario.budget = {"down": 0.45}, {}, {}
        scenario.endings = chance.choices(("kill", "kill in a write"), k=chance.choice((1, 2)))
    elif not scenario.outages and chance.random() < 0.06:  # A call that is never answered.
        scenario.poisoned = {f"<{chance.choice(questions).id}>": chance.choice(STALLED)}
        is_late = "always late" in scenario.poisoned.values()
        scenario.http |= is_late and not seed % 3
        if is_late and not scenario.http:
            scenario.budget["call_seconds"] = 60.0
    elif not scenario.outages and chance.random() < 0.04:
        scenario.poisoned, scenario.moods, scenario.budget = {f"<{chance.choice(questions).id}>": FELLS}, {}, {}
    return scenario


@dataclass
class Session:
    """What happened in one process."""

    ending: str
    told: int
    """How many questions it was given"""
    result: SessionResult | None = None
    error: BaseException | None = None
    killed: bool = False
    flipped: bool = False
    began: float = 0.0
    ended: float = -1.0
    stopped: float = math.inf
    """When it was told to stop"""
    at_once: float = math.inf
    """When it was told to stop at once"""
    changes: int = 0
    events: list[Event] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Exceptions that nobody retrieved"""


@dataclass
class History:
    """Everything that happened to a scenario, for the rules."""

    scenario: Scenario
    world: World
    sessions: list[Session] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Errors of second processes and of sessions with other settings"""
    ends: list[str] = field(default_factory=list)
    """What was wrong when a session had answered everything"""
    cut: set[int] = field(default_factory=set)
    """The sessions that ended by a power cut"""
    folder: Path = Path()
    """The run's folder at the end"""


class ViolationError(Exception):
    """Something that pyfast promises does not hold."""


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


_LOG = _Log()
logging.getLogger("pyfast").addHandler(_LOG)
logging.getLogger("pyfast").propagate = False
_loop: list[SimulatedLoop] = []
_threads: list[SimulatedThreads] = []


_run_options, _budget = lru_cache(1000)(RunOptions), lru_cache(1000)(Budget)
_questions = lru_cache(4)(questions_from)


class _Toml:
    """tomllib that parses equal tables once. pyfast writes an empty line between two."""

    TOMLDecodeError = tomllib.TOMLDecodeError
    _parsed = staticmethod(lru_cache(1000)(tomllib.loads))

    def loads(self, text: str) -> dict[str, Any]:
        tables = [table for part in text.split("\n\n") for table in self._parsed(part).items()]
        assert len(dict(tables)) == len(tables), "a table has tables, which this would lose"
        return {name: dict(of) if isinstance(of, dict) else of for name, of in tables}


def threads(count: int = 4, *_: object, **__: object) -> SimulatedThreads:
    """Take the place of `ThreadPoolExecutor`."""
    made = SimulatedThreads(_loop[-1], count)
    _threads.append(made)
    return made


def install() -> None:
    """Let the engine's threads run in the simulated loop."""

    def wait(futures: Any, *_: object) -> None:
        for one in _threads:
            one.finish()

    pyfast.engine.run_folder.ThreadPoolExecutor = threads  # type: ignore[misc, assignment]
    pyfast.engine.run_folder.wait = wait  # type: ignore[assignment]
    pyfast.engine.run.ThreadPoolExecutor = threads  # type: ignore[misc, assignment]
    pyfast.engine.run._AHEAD = 4  # so that few questions fill the places for answers that wait
    # A session reads its run.toml a dozen times, and the next one writes the same.
    configuration: Any = import_module("pyfast.engine.configuration")
    configuration.tomllib = _Toml()
    in_toml = lru_cache(1000)(lambda described, real=configuration.in_toml: real(orjson.loads(described)))
    configuration.in_toml = lambda described: in_toml(orjson.dumps(described))


def in_loop(loop: SimulatedLoop) -> None:
    """Let threads that the engine makes from now on run in this loop."""
    _loop[:] = [loop]
    _threads.clear()


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("asyncio")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def carried_out(scenario: Scenario, disk: Disk, trace: bool = False) -> History:
    """Carry out all sessions of a scenario. The last one has no faults, and ends the run."""
    chance = Random(scenario.seed + 1_000_003)
    world = World(Random(scenario.seed + 2_000_003), 1.0, scenario.moods, scenario.poisoned, scenario.outages)
    history, image, now = History(scenario, world), Image(), 0.0
    disk.jump = 0.0
    disk.real_clock()
    _LOG.texts = history.logs
    if scenario.batches:
        world.provider = Provider(world, scenario.provider, scenario.takes)
    with _quiet():
        for number, ending in enumerate((*scenario.endings, "last")):
            world.session, world.in_flight = number, 0
            random.seed(scenario.seed + number)  # the engine draws its pauses
            if ending == "other settings" and not _has_begun(history):
                ending = "end"
            if ending == "last":
                world.outages, world.moods = (
                    [],
                    {name: share for name, share in world.moods.items() if name != "down"},
                )
                if world.provider:
                    world.provider.end_faults()
            flipped = bool(number and scenario.flips and chance.random() < 0.6)
            if flipped:
                image = with_flips(image, chance, scenario.flips)
            if scenario.jumps:
                disk.jump = chance.choice((0.0, -86400.0, 86400.0, 1e7))
            # Who makes a new folder syncs its name too.
            folder = disk.begin(image) / "RUN" if disk.is_strict else disk.begin(image)
            disk.set_clock(now)
            loop = SimulatedLoop(chance, disk, now, scenario.shuffles, scenario.slow_disk)
            in_loop(loop)
            few = scenario.grows and ending != "last" and number == 0
            count = len(scenario.questions)
            session = Session(ending, max(count // 2, 1) if few else count, flipped=flipped)
            session.began = now
            history.sessions.append(session)
            image = _session(scenario, session, history, disk, loop, chance, folder)
            now = loop.time() + chance.choice((0.0, 1.0, 100.0))
            if trace:
                at = f"{session.began:.3f} to {session.ended:.3f} s, {loop.steps} steps, {session.changes} changes"
                how = "killed" if session.killed else repr(session.error) if session.error else "ended"
                print(f"session {number} ({ending}{', bits flipped' if flipped else ''}): {at}: {how}")
            if ending != "last":
                disk.remove()
    history.folder = folder
    disk.end()
    return history


def _has_begun(history: History) -> bool:
    """Whether a run is surely in the folder, so that another run may not take its place."""
    ended = (event.kind == "answered" for session in history.sessions for event in session.events)
    return any(ended) and not history.cut


def _job(scenario: Scenario, session: Session, world: World, folder: Path, last: bool) -> Job:
    options = _run_options(
        outage=600.0 if last else scenario.patience,
        sync=scenario.sync,  # type: ignore[arg-type]
        keep_prompts=scenario.keep_prompts,
        retry_failed=scenario.retries_failed and last,
        strict=bool(scenario.budget.get("strict")),
    )
    budget = dict(scenario.budget)
    if last:
        budget.pop("run_tokens", None)
    settings = {"stages": "other" if session.ending == "other settings" else " ".join(scenario.stages)}
    return Job(
        folder=folder,
        questions=_questions(tuple(scenario.questions[: session.told])),
        system="simulated",
        ask=system(scenario.stages),
        settings=settings,
        prompts=PROMPTS,
        llm=_llm(scenario, world, 60 * options.outage),
        options=options,
        concurrency=scenario.concurrency,
        budget=_budget(**budget),
    )


def _llm(scenario: Scenario, world: World, patience_s: float) -> Any:
    if world.provider:
        return over_batches(world.provider, {**scenario.batches, "patience_s": patience_s})
    return over_http(world, scenario.slots) if scenario.http else SimulatedLLM(world, scenario.slots)


def _session(
    scenario: Scenario,
    session: Session,
    history: History,
    disk: Disk,
    loop: SimulatedLoop,
    chance: Random,
    folder: Path,
) -> Image:
    """Carry out one session. Return what its folder holds afterwards."""
    ending, stop, is_answering = session.ending, asyncio.Event(), threading.Event()
    step = int(10 ** chance.uniform(0, 3.3))
    if ending == "kill" and scenario.batches and chance.random() < 0.6:
        history.world.provider.kill_in = int(10 ** chance.uniform(0, 1.3))
        history.world.provider.kills_before = chance.random() < 0.4
    elif ending == "kill":
        loop.kill_at = step
    elif ending in ("kill in a write", "power cut"):
        disk.stop_at(int(10 ** chance.uniform(0, 2.5)), chance.randrange(1 << 20))
    elif ending == "disk full":
        disk.fail(int(10 ** chance.uniform(0, 2.5)), _FOREVER, errno.ENOSPC)
    elif ending == "disk error":
        first = int(10 ** chance.uniform(0, 2.5))
        count, part = chance.choice(_ERRORS)
        if part:  # Of one file, there are fewer changes.
            first = int(first**0.6)
        disk.fail(first, first + count, errno.EIO, part)

    async def process() -> SessionResult:
        job = _job(scenario, session, history.world, folder, ending == "last")
        await job.llm.start()  # type: ignore[union-attr]
        working = asyncio.ensure_future(work_on(job, stop, heard))
        working.add_done_callback(lambda _: vars(session).update(ended=loop.time()))

        def interrupt() -> None:
            """Press Ctrl-C."""
            if session.stopped < math.inf:
                session.at_once = loop.time()
            try:
                with redirect_stderr(StringIO()):
                    pressed(signal.SIGINT, None)  # type: ignore[operator, misc, arg-type]
            except KeyboardInterrupt:
                session.at_once = loop.time()
                working.cancel()
            else:
                session.stopped = min(session.stopped, loop.time())

        if ending in ("stop", "stop at once"):
            moment = chance.expovariate(1 / 5)
            loop.call_later(moment, interrupt)
            if ending == "stop at once":
                loop.call_later(moment + chance.choice((0.0, 0.01, 0.5, 3.0)), interrupt)
        if scenario.second:
            await asyncio.sleep(chance.expovariate(1 / 3))
            other = _job(scenario, session, history.world, folder, False)
            try:
                await other.llm.start()  # type: ignore[union-attr]
                if not working.done():
                    await work_on(other)
                    history.refused.append("")
            except (InputError, RunError) as error:
                history.refused.append(str(error))
        return await working

    def heard(event: Event) -> None:
        session.events.append(event)
        if event.kind == "started":
            is_answering.set()

    # An event of asyncio has the methods that the handler of Ctrl-C uses.
    with progress._interrupts(stop, is_answering, folder):  # type: ignore[arg-type]
        pressed = signal.getsignal(signal.SIGINT)
        task = loop.work(process())
    session.killed, session.ended, session.changes = task is None, session.ended, disk.changes
    if session.ended < 0:
        session.ended = loop.time()
    if task is not None and task.cancelled():
        session.error = asyncio.CancelledError()
    elif task is not None:
        session.error = task.exception()
        session.result = None if session.error else task.result()
    if session.result is not None and session.result.summary.left == 0:
        lines = (folder / "answers.jsonl").read_bytes().count(b"\n")
        if lines != session.told:
            history.ends.append(f"{lines} answers of {session.told}")
    session.killed |= ending == "power cut later"
    if session.killed and ending in ("power cut", "power cut later"):
        history.cut.add(history.world.session)
        image = disk.image_after_power_cut(chance)
    elif ending == "last":
        image = Image()
    else:
        image = disk.image()
    disk.end()
    loop.bury()  # asyncio.run too cancels what is left.
    if session.error is not None and not isinstance(session.error, PyfastError | asyncio.CancelledError):
        raise ViolationError(f"a session ended with {session.error!r}") from session.error
    if not session.killed:
        session.lost = loop.faults
    loop.close()
    return image
