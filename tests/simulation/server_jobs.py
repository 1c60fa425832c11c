"""One seed of another kind: a server's batches of questions, while the server is killed and starts again, and
clients create batches, ask again, and cancel."""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyfast.api.engine
import pyfast.server.batches
from pyfast.server.batches import Batches
from pyfast.server.errors import ApiError
from pyfast.server.limits import ApiKey, Limits
from pyfast.server.schemas import BatchObject, BatchRequest
from pyfast.server.service import Service
from pyfast.utils.options import ServerOptions
from simulation import index_changes, scenario
from simulation.disk import Disk, Image
from simulation.llm import SimulatedLLM, World, good
from simulation.loop import SimulatedLoop, StuckError
from simulation.seeds import without_one_step

ENDINGS = {"end": 3, "kill": 4, "kill in a write": 4, "power cut": 4, "disk full": 2, "disk error": 2}
"""How the server can end, and how often it does"""
ENDED = ("completed", "failed", "cancelled")
_URL, _FOREVER = "/v1/chat/completions", 1 << 60
_HEEDS_S = 1.5
"""How many seconds after a batch is cancelled questions may still start"""
_TAKES_OVER_S = 60.0
"""How many seconds a second server may take to notice that the first one has ended a batch"""


@dataclass
class Step:
    """One life of the server: when which batch is created, asked for again, or cancelled, and how it ends."""

    actions: list[tuple[float, str, int]]
    ending: str
    ends: float
    seed: int
    second: float = 0.0
    """When a second server starts on the folder, as in a rolling restart. 0: none does"""

    def __str__(self) -> str:
        second = f"; a second server at {self.second:.1f} s" if self.second else ""
        return f"{', '.join(f'{what} {batch}' for _, what, batch in self.actions)}{second} ({self.ending})"


@dataclass
class Jobs:
    """What a seed means. A shrunk one has fewer steps."""

    seed: int
    steps: list[Step]
    lines: list[int]
    """How many questions each batch has"""
    faulty: set[int]
    """Batches whose file has a line that cannot be read"""
    keyed: set[int]
    """Batches that are created with an `Idempotency-Key`"""
    poisoned: dict[str, str]
    moods: dict[str, float]
    concurrency: int
    shuffles: bool

    def __str__(self) -> str:
        told = {name: value for name, value in vars(self).items() if value and name != "steps"}
        return f"{told}, {len(self.steps)} steps: " + "; ".join(map(str, self.steps))


@dataclass
class Client:
    """What the clients know of the batches, by their numbers."""

    files: dict[int, str] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    """Of batches that the server has accepted"""
    tried: set[int] = field(default_factory=set)
    """Batches that somebody tried to cancel"""
    cancelled: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Batches that the server is about to cancel, as it has said: in which of its lives, and when"""
    life: int = 0
    servers: list[Batches] = field(default_factory=list)
    """Those that run: a client goes to any"""
    seen: dict[str, BatchObject] = field(default_factory=dict)
    """Batches that have ended, as the server has said"""
    faults: list[str] = field(default_factory=list)


def drawn(seed: int) -> Jobs:
    """The batches of a seed."""
    chance = Random(seed)
    lines = [chance.choice((1, 3, 8, 20)) for _ in range(chance.choice((1, 1, 2, 3)))]
    steps = []
    for number in range(chance.choice((1, 1, 2, 3))):
        actions = []
        for batch in range(len(lines)):
            if not number or chance.random() < 0.4:
                actions.append((chance.uniform(0, 3), "create", batch))
            if chance.random() < 0.2:
                actions.append((chance.expovariate(1 / 6), "cancel", batch))
        [ending] = chance.choices(list(ENDINGS), list(ENDINGS.values()))
        steps.append(Step(sorted(actions), ending, chance.expovariate(1 / 20), chance.randrange(1 << 30)))
    moods = {chance.choice(("busy", "down", "malformed", "empty")): 0.1} if chance.random() < 0.2 else {}
    for step in steps:
        others = Random(step.seed + 1)
        step.second = others.choice((0.01, others.expovariate(1 / 3))) if others.random() < 0.2 else 0.0
    poisoned = {f"b0q{chance.randrange(lines[0])}?": chance.choice(("error", "refused", "always malformed"))}
    return Jobs(
        seed,
        steps,
        lines,
        faulty={batch for batch in range(len(lines)) if chance.random() < 0.1},
        keyed={batch for batch in range(len(lines)) if chance.random() < 0.6},
        poisoned=poisoned if chance.random() < 0.2 else {},
        moods=moods,
        concurrency=chance.choice((1, 2, 8)),
        shuffles=chance.random() < 0.5,
    )


smaller = without_one_step


def install() -> None:
    """Let the server's threads run in the simulated loop, and ids come from the seed."""
    scenario.install()
    index_changes.install()
    pyfast.api.engine.ThreadPoolExecutor = scenario.threads  # type: ignore[misc, assignment]
    pyfast.server.batches.token_hex = secrets.token_hex


def fault_of(jobs: Jobs, disk: Disk, trace: bool = False) -> str:
    """Carry out all lives of the server, and a last one without a fault. Return what is wrong."""
    world = World(Random(jobs.seed + 1), 1.0, jobs.moods, jobs.poisoned)
    index_changes.seed_names(jobs.seed)
    client, image, now, lossy = Client(), Image(), 0.0, set[int]()
    disk.real_clock()
    try:
        for number, step in enumerate((*jobs.steps, None)):
            folder, chance = disk.begin(image), Random(step.seed if step else jobs.seed)
            disk.set_clock(now)
            world.session, world.in_flight, client.life, client.servers = number, 0, number, []
            is_slow = step is not None and Random(step.seed + 3).random() < 0.3
            loop = SimulatedLoop(chance, disk, now, jobs.shuffles, is_slow)
            scenario.in_loop(loop)
            ending = step.ending if step else "end"
            first = int(10 ** chance.uniform(0, 2.6))
            if ending == "kill":
                loop.kill_at = int(10 ** chance.uniform(0, 3.3))
            elif ending in ("kill in a write", "power cut"):
                disk.stop_at(first, chance.randrange(1 << 20))
            elif ending == "disk full":
                disk.fail(first, _FOREVER, errno.ENOSPC)
            elif ending == "disk error":
                disk.fail(first, first + chance.choice((1, 3, _FOREVER)), errno.EIO)
            life = _life(jobs, step, client, world, folder, is_healthy=not ending.startswith("disk"))
            task = loop.work(life, most=1_000_000)
            killed, now = task is None or bool(disk.stopped.value), loop.time() + 1.0
            image = disk.image_after_power_cut(chance) if killed and ending == "power cut" else disk.image()
            disk.end()
            loop.bury()
            loop.close()
            if killed or ending.startswith("disk"):
                lossy.add(number)
            error = task.exception() if task and not killed and not ending.startswith("disk") else None
            if trace:
                told = "killed" if killed else repr(error) if error else "ended"
                print(f"life {number}: {step}: {told}; accepted {client.ids}, cancelled {client.cancelled}")
            faults = [*([repr(error)] if error else []), *client.faults, *([] if killed else loop.faults)]
            if faults:
                return f"life {number} ({ending}): {'; '.join(faults)}"
            if step:
                disk.remove()
        return next(_faults(jobs, client, world, disk.folder, lossy), "")
    except StuckError as error:
        return str(error)
    finally:
        disk.end()
        disk.remove()


async def _life(
    jobs: Jobs, step: Step | None, client: Client, world: World, folder: Path, is_healthy: bool
) -> None:
    """One process of the server, and what clients ask of it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    has_ended, second = asyncio.Event(), None
    if step and step.second:
        second = loop.create_task(_second(jobs, step, client, world, folder, has_ended, is_healthy))
    async with _server(jobs, client, world, folder) as batches:
        known = {batch.id for batch in batches.all()}
        client.faults += [f"the accepted batch {id} is gone" for id in {*client.ids.values()} - known]
        chance = Random(step.seed + 2 if step else 0)
        last = [(0.0, "create", batch) for batch in range(len(jobs.lines)) if batch in jobs.keyed]
        for moment, what, batch in step.actions if step else last:
            await asyncio.sleep(max(began + moment - loop.time(), 0.0))
            try:
                await _ask(jobs, client, chance.choice(client.servers), what, batch)
            except OSError:
                if is_healthy:
                    raise
        if step:
            await asyncio.sleep(max(began + step.ends - loop.time(), 0.0))
        while not step and any(batch.status not in ENDED for batch in batches.all()):
            await asyncio.sleep(1.0)
            if loop.time() > began + 10_000:
                client.faults += [f"{batch.id} is {batch.status}" for batch in batches.all()]
                return
        _look(client, batches)
    has_ended.set()
    if second:
        await second


@asynccontextmanager
async def _server(jobs: Jobs, client: Client, world: World, folder: Path) -> AsyncIterator[Batches]:
    """The batches of a server that runs."""
    llm: Any = SimulatedLLM(world, 4)
    service = Service(None, llm, None, {"direct": {}}, Limits(), jobs.concurrency, None, ServerOptions())
    batches = Batches(folder / "jobs", service, 10.0, ApiKey(""), asyncio.Lock())
    async with service.running(), batches.running():
        client.servers.append(batches)
        yield batches
        client.servers.remove(batches)


async def _second(
    jobs: Jobs, step: Step, client: Client, world: World, folder: Path, has_ended: asyncio.Event, is_healthy: bool
) -> None:
    """The process of a second server. It ends long after the first one."""
    await asyncio.sleep(step.second)
    try:
        async with _server(jobs, client, world, folder) as batches:
            await has_ended.wait()
            await asyncio.sleep(step.ends + _TAKES_OVER_S)
            _look(client, batches)
    except OSError:
        if is_healthy:
            raise


def _look(client: Client, batches: Batches) -> None:
    """Ask a server for its batches. What has ended stays as it is."""
    for batch in batches.all():
        before = client.seen.get(batch.id, batch)
        if before != batch:
            client.faults.append(f"{before} is later {batch}")
        if batch.status in ENDED:
            client.seen[batch.id] = batch.model_copy(deep=True)


async def _ask(jobs: Jobs, client: Client, batches: Batches, what: str, number: int) -> None:
    """Do what a client asks."""
    if what == "create" and (number in jobs.keyed or number not in client.ids):
        if number not in client.files:
            with batches.files.new() as out:
                out.write(_content(jobs, number))
                client.files[number] = (await batches.files.add(out, "questions.jsonl")).id
        asked = BatchRequest(
            input_file_id=client.files[number], endpoint=_URL, completion_window="24h", metadata={"n": str(number)}
        )
        id = batches.create(asked, f"key {number}" if number in jobs.keyed else None).id
        if client.ids.setdefault(number, id) != id:
            client.faults.append(f"batch {number} is {client.ids[number]} and {id}")
    elif what == "cancel" and number in client.ids:
        client.tried.add(number)
        try:
            if batches.cancel(client.ids[number]).status == "cancelling":
                now = asyncio.get_running_loop().time()
                client.cancelled.setdefault(number, (client.life, now))
        except ApiError as error:
            if error.code != "batch_ended":
                raise


def _content(jobs: Jobs, number: int) -> bytes:
    lines = []
    for place in range(jobs.lines[number]):
        body = {"model": "direct", "messages": [{"role": "user", "content": _question(number, place)}]}
        lines.append(json.dumps({"custom_id": f"q{place}", "method": "POST", "url": _URL, "body": body}))
    return "\n".join(lines + ["{"] * (number in jobs.faulty)).encode()


def _question(number: int, place: int) -> str:
    return f"What is b{number}q{place}?"


def _faults(jobs: Jobs, client: Client, world: World, folder: Path, lossy: set[int]) -> Iterator[str]:
    """What is wrong with the batches and their results at the end."""
    files = folder / "jobs" / "files"
    for batch in client.seen.values():
        number = int((batch.metadata or {})["n"])
        count = jobs.lines[number]
        may_be = {"failed"} if number in jobs.faulty else {"completed"}
        if client.ids.get(number) == batch.id and number in client.tried:
            may_be = may_be - {"completed"} if number in client.cancelled else may_be
            may_be |= {"cancelled"}
        if batch.status not in may_be:
            yield f"batch {number} is {batch.status}: {batch.errors}"
            continue
        if number in jobs.faulty:
            continue
        found = {}
        for name in ("output_file_id", "error_file_id"):
            id = getattr(batch, name)
            told = [json.loads(line) for line in (files / id).read_bytes().splitlines()] if id else []
            if id and not (files / f"{id}.json").exists():
                yield f"batch {number}: {name} is not listed"
            for one in told:
                if one["custom_id"] in found:
                    yield f"batch {number} has {one['custom_id']} twice"
                found[one["custom_id"]] = one["response"]
        counts = batch.request_counts
        if batch.status == "completed" and (len(found), counts.total) != (count, count):
            yield f"batch {number} has {len(found)} results of {count}: {counts}"
        if counts.completed + counts.failed != len(found):
            yield f"batch {number} has {len(found)} results, and counts {counts}"
        for id, response in found.items():
            question = _question(number, int(id[1:]))
            may_fail = bool(jobs.moods) or any(part in question for part in jobs.poisoned)
            if response["status_code"] != 200:
                if not may_fail:
                    yield f"batch {number}: {id} failed: {response}"
            elif response["body"]["choices"][0]["message"]["content"] != good(f"Question: {question}"):
                yield f"batch {number}: {id} has {response}"
    named = {id for batch in client.seen.values() for id in (batch.output_file_id, batch.error_file_id)}
    for path in files.glob("*.json"):
        if json.loads(path.read_bytes()).get("purpose") == "batch_output" and path.stem not in named:
            yield f"no batch names the results {path.stem}"
    calls: dict[str, list[int]] = {}
    for call in world.asked:
        for number, (life, since) in client.cancelled.items():
            # A question in progress may ask again, and one that waits for the LLM may have asked nothing yet.
            starts = call.prompt not in calls and not jobs.moods
            is_late = call.session > life or (starts and call.began > since + _HEEDS_S)
            if is_late and f"b{number}q" in call.prompt:
                yield f"batch {number} was cancelled in life {life}, and {call.prompt} asked in {call.session}"
        sessions = calls.setdefault(call.prompt, [])
        if call.outcome == "good":
            sessions.append(call.session)
    twice = {(batch.metadata or {})["n"] for batch in client.seen.values() if batch.id not in client.ids.values()}
    for prompt, sessions in calls.items():
        if len(sessions) > 1 + len(lossy & {*sessions}) and not twice:
            yield f"{prompt} was answered in the lives {sessions}, of which {lossy} were broken off"
