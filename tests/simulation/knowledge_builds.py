"""One seed of another kind: a knowledge graph that an LLM extracts, while the builds are killed, the disk fails,
and the documents of the index change between the builds."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from word_vectors import WordVectors

import pyfast
from pyfast.engine import Job, work_on
from pyfast.errors import CallError, LLMUnavailableError, PyfastError, RunError
from pyfast.knowledge import Knowledge, build_knowledge, has_knowledge, open_knowledge
from pyfast.knowledge.build import extracts_of
from pyfast.knowledge.snapshots import contents_digest
from pyfast.knowledge.store import FILE, SEARCHED
from pyfast.retrieval.vectors import vector_search
from pyfast.utils.options import RunOptions
from simulation import index_changes, scenario
from simulation.disk import Disk, Image
from simulation.llm import SimulatedLLM, World
from simulation.loop import SimulatedLoop, StuckError
from simulation.seeds import without_one_step

FAULTS = {
    "none": 2,
    "kill": 4,
    "kill in a write": 4,
    "power cut": 4,
    "power cut later": 1,
    "stop": 2,
    "disk full": 1,
    "disk error": 1,
}
"""How a build can end, and how often it does"""
NAMES = ("Ariel", "Dione", "Eris", "Io", "Juno", "Leda", "Mimas", "Oberon", "Phoebe", "Rhea", "Titan", "Triton")
_TOKENS, _FOREVER = 50, 1 << 60
State = dict[str, str]
"""The texts of documents by their uris"""


@dataclass
class Step:
    """One build, after a change of the documents, and the fault that it meets."""

    changed: State
    """Documents that are new, or have a new text"""
    removed: list[str]
    fault: str
    seed: int
    limit: int | None
    moods: dict[str, float]

    def __str__(self) -> str:
        changes = f"{', '.join(self.changed)} changed, {', '.join(self.removed)} removed"
        return f"{changes} ({self.fault} {self.moods or ''})"


@dataclass
class Builds:
    """What a seed means. A shrunk one has fewer steps."""

    seed: int
    documents: State
    steps: list[Step]
    packed: bool
    """Whether the LLM reads several documents in one call"""
    passes: int
    concurrency: int
    shuffles: bool
    poisoned: dict[str, str]

    def __str__(self) -> str:
        told = {name: value for name, value in vars(self).items() if value and name not in ("documents", "steps")}
        return f"{len(self.documents)} documents, {told}, {len(self.steps)} steps: " + "; ".join(
            map(str, self.steps)
        )


def drawn(seed: int) -> Builds:
    """The builds of a seed."""
    chance = Random(seed)
    packed = chance.random() < 0.3

    def text(uri: str) -> str:
        paragraphs = []
        for number in range(chance.randint(1, 3)):
            # Of several chunks that are read in one call, a triple comes from only one.
            own = f"{uri}{'abc'[number]}" if packed else ""
            met = [chance.sample(NAMES, 3) for _ in range(chance.randint(1, 5))]
            paragraphs.append(" ".join(" met ".join(name + own for name in names) + "." for names in met))
        return "\n\n".join(paragraphs)

    uris = [f"d{number}" for number in range(chance.choice((1, 4, 8, 12)))]
    documents = {uri: text(uri) for uri in uris}
    steps = []
    for number in range(chance.choice((1, 1, 2, 3))):
        changed, removed = State(), list[str]()
        if number and chance.random() < 0.6:
            some = [*chance.sample(uris, k=min(len(uris), chance.randint(0, 2))), f"n{number}"]
            changed = {uri: text(uri) for uri in some}
            if len(uris) > 1 and chance.random() < 0.5:
                removed = [uri for uri in [chance.choice(uris)] if uri not in changed]
            uris = [uri for uri in dict.fromkeys((*uris, *changed)) if uri not in removed]
        [fault] = chance.choices(list(FAULTS), list(FAULTS.values()))
        limit = chance.randint(1, 5) if chance.random() < 0.2 else None
        moods = {chance.choice(("busy", "down", "malformed", "empty")): 0.1} if chance.random() < 0.2 else {}
        steps.append(Step(changed, removed, fault, chance.randrange(1 << 30), limit, moods))
    poisoned = {f"\n{chance.choice(uris)}\n": chance.choice(("error", "refused", "always malformed"))}
    return Builds(
        seed,
        documents,
        steps,
        packed,
        passes=chance.choice((1, 1, 2)),
        concurrency=chance.choice((1, 2, 8)),
        shuffles=chance.random() < 0.5,
        poisoned=poisoned if chance.random() < 0.1 and not packed else {},
    )


smaller = without_one_step


def install() -> None:
    """Let the threads of the engine and of the index take turns with the rest."""
    scenario.install()
    index_changes.install()


def graph(user: str) -> dict[str, Any]:
    """What the LLM reads in a text: names that follow each other met. It sees some only when it reads again."""
    text, is_second, _ = user.partition("\n\nThe graph has these already:")
    found = re.findall(r"\b([A-Z][a-z]+)([dn]\d+[abc])?\b", text.partition("\n\nThe graph of")[0])
    names = [name + own for name, own in dict.fromkeys(found) if name in NAMES]
    relations = [
        {"head": a, "relation": "met", "tail": b, "description": f"{a}, {b}", "keys": ["saw"], "strength": 5}
        for a, b in pairwise(names)
        if a[-3:] == b[-3:] or a in NAMES
        if bool(is_second) == (a[0] < "L")
    ]
    entities = [{"name": name, "kind": "moon", "description": f"{name} is a moon"} for name in names]
    return {"relations": relations, "entities": [] if is_second else entities, "themes": []}


class _KilledError(BaseException):
    """Ends the build of a process that was killed between two steps of its event loop."""


class _Process:
    """One process that builds the graph."""

    def __init__(self, builds: Builds, step: Step | None, disk: Disk, world: World, now: float) -> None:
        self._builds, self._step, self._disk, self._world = builds, step, disk, world
        self._chance = Random(step.seed if step else builds.seed)
        self.now = now
        self.killed = False
        self.lost: list[str] = []
        self._left = int(10 ** self._chance.uniform(0, 3)) if step and step.fault == "kill" else 0

    def build(self, folder: Path) -> Knowledge:
        builds, step = self._builds, self._step
        return build_knowledge(
            pyfast.open_index(folder),
            SimulatedLLM(self._world, 4),
            embedder=WordVectors(),  # type: ignore[arg-type]
            run_job=self._run,
            chunk_tokens=_TOKENS,
            packed=builds.packed,
            passes=builds.passes,
            limit=step.limit if step else None,
            retry_failed=step is None,
        )

    def _run(self, job: Job) -> None:
        loop = SimulatedLoop(self._chance, self._disk, self.now, self._builds.shuffles, False)
        scenario.in_loop(loop)
        loop.kill_at = self._left or -1
        stop = asyncio.Event()
        if self._step and self._step.fault == "stop":
            loop.call_later(self._chance.expovariate(1 / 3), stop.set)
        job = replace(
            job, options=RunOptions(outage=1.0, keep_prompts=False), concurrency=self._builds.concurrency
        )
        task = loop.work(work_on(job, stop))
        self.now, self._left = loop.time(), self._left - loop.steps
        if task is None:
            self.killed = True
            self._disk.stop_at(self._disk.changes, 0)
        loop.bury()
        loop.close()
        if task is None:
            raise _KilledError
        self.lost += loop.faults
        if task.result().summary.left:
            raise RunError("stopped")


def fault_of(builds: Builds, disk: Disk, trace: bool = False) -> str:
    """Carry out all builds, and a last one without a fault. Return what is wrong, or an empty text."""
    world = World(Random(builds.seed + 1), 1.0, poisoned=builds.poisoned, reply=graph)
    index_changes.seed_names(builds.seed)
    image, state, now, lossy = Image(), dict(builds.documents), 0.0, set[int]()
    disk.real_clock()
    try:
        for number, step in enumerate((*builds.steps, None)):
            folder = disk.begin(image) / "IDX"
            _change(folder, state, step, is_first=not number)
            world.session, world.moods = number, step.moods if step else {}
            disk.set_clock(now)
            process = _Process(builds, step, disk, world, now)
            image, fault, is_whole = _session(process, folder, step, disk)
            if not is_whole:
                lossy.add(number)
            now = process.now + 1.0
            if trace:
                print(f"build {number}: {step}: {'whole' if is_whole else 'broken off'}")
            if not fault and process.lost:
                fault = f"exceptions that nobody sees: {process.lost}"
            if fault:
                return f"build {number} ({step.fault if step else 'last'}): {fault}"
            if step:
                disk.remove()
        cut = any(step.fault.startswith("power cut") for step in builds.steps)  # It may take many replies.
        return next(_faults(builds, state, disk.folder / "IDX", world, lossy, cut), "")
    except StuckError as error:
        return str(error)
    finally:
        disk.end()
        disk.remove()


def _change(folder: Path, state: State, step: Step | None, is_first: bool) -> None:
    if is_first:
        pyfast.build_index(_documents(state), folder)
    if step is None:
        return
    for uri in step.removed:
        if uri in state and len(state) > 1:
            pyfast.delete_documents(folder, uri)
            del state[uri]
    if step.changed:
        pyfast.update_documents(folder, _documents(step.changed))
        state |= step.changed


def _documents(state: State) -> list[dict[str, str]]:
    return [{"id": uri, "title": uri, "text": text} for uri, text in state.items()]


def _session(process: _Process, folder: Path, step: Step | None, disk: Disk) -> tuple[Image, str, bool]:
    """Build once, as a process does. Returns (the files, what is wrong, whether the build ended)."""
    chance, fault = Random(step.seed + 1 if step else 0), step.fault if step else "none"
    first = disk.changes + int(10 ** chance.uniform(0, 2.6))
    if fault in ("kill in a write", "power cut"):
        disk.stop_at(first, chance.randrange(1 << 20))
    elif fault == "disk full":
        disk.fail(first, _FOREVER, errno.ENOSPC)
    elif fault == "disk error":
        disk.fail(first, first + chance.choice((1, 3, _FOREVER)), errno.EIO)
    error: BaseException | None = None
    try:
        process.build(folder)
    except (Exception, _KilledError) as raised:
        error = raised
    process.killed |= bool(disk.stopped.value)
    if process.killed or error is None:
        wrong = ""
    else:
        text, moods = str(error), step.moods if step else {}
        expected = {
            "stop": fault == "stop" and text == "stopped",
            "disk": fault in ("disk full", "disk error") and isinstance(error, PyfastError | OSError),
            "LLM": isinstance(error, LLMUnavailableError) and {"busy", "down"} & moods.keys(),
            "chunks": isinstance(error, CallError) and (moods or process._builds.poisoned),
        }
        wrong = "" if any(expected.values()) else f"ended with {error!r}"
    is_cut = fault == "power cut later" or (fault == "power cut" and disk.stopped.value)
    image = disk.image_after_power_cut(chance) if is_cut else disk.image()
    disk.end()
    return image, wrong, error is None and not is_cut


def _faults(builds: Builds, state: State, folder: Path, world: World, lossy: set[int], cut: bool) -> Iterator[str]:
    index = pyfast.open_index(folder)
    if not has_knowledge(index):
        yield "there is no graph"
        return
    verification = pyfast.verify(folder)
    if not verification.passed:
        yield f"verify: {[one.detail for one in verification.checks if not one.passed]}"
    store = open_knowledge(index)
    with sqlite3.connect(store.folder / FILE) as database:
        if not store.fingerprint.startswith(contents_digest(database)):
            yield "the digest of the graph is wrong"
    noted = [one["questions"] for one in store.extractions]
    if any(one == other for one, other in pairwise(noted)):
        yield "an extraction is listed twice"
    for name in SEARCHED:
        texts, known = store.texts(name), vector_search.load(store.folder, name)
        if len(texts) != len(known) or not np.allclose(known.matrix[: len(texts)], WordVectors().encode(texts)):
            yield f"the vectors of {name} are not those of its texts"
    calls: dict[str, list[int]] = {}
    for call in world.asked:
        if call.outcome == "good":
            calls.setdefault(call.request, []).append(call.session)
    for request, sessions in calls.items():
        if len(sessions) > 1 + len(lossy & {*sessions}) or len({*sessions}) < len(sessions):
            yield f"{request[:8]} was extracted in the builds {sessions}, of which {lossy} were broken off"
    repeats = sum(len(sessions) - 1 for sessions in calls.values())
    if not cut and repeats > builds.concurrency * len(lossy):
        yield f"{repeats} calls were made again after {len(lossy)} builds that were broken off"
    alone = folder.with_name("NEW")
    pyfast.build_index(_documents(state), alone)
    process = _Process(builds, None, _NoDisk(), replace(world, asked=[], chance=Random(0)), 0.0)  # type: ignore[arg-type]
    try:
        process.build(alone)
    except CallError:
        if not builds.poisoned:
            raise
    ours, theirs = (_contents(pyfast.open_index(one)) for one in (folder, alone))
    for digest in ours.keys() ^ theirs.keys():
        yield f"the chunk {digest} is only in {'this' if digest in ours else 'the undisturbed'} graph"
    for digest in ours.keys() & theirs.keys():
        if ours[digest] != theirs[digest]:
            yield f"the chunk {digest} has {ours[digest]}, in an undisturbed build {theirs[digest]}"


class _NoDisk:
    """Of a build that nothing disturbs."""

    changes = 0
    stopped = ctypes.c_int(0)
    set_clock = staticmethod(lambda _: None)


def _contents(index: pyfast.Index) -> dict[str, Any]:
    """What each chunk of a graph says, in an order that does not depend on when it was added."""
    store = open_knowledge(index)
    of = {
        one.digest: (sorted(map(str, one.statements)), sorted(map(str, one.mentions)))
        for one in extracts_of(store)
    }
    return {**of, **dict.fromkeys((digest for digest, _ in store.failed_chunks()), None)}
