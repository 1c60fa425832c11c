"""One seed of the other kind: an index that is built and changed while the disk fails."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pyfast
import pyfast.retrieval.index.changes
import pyfast.retrieval.index.manifest
from pyfast.api.search import retrieve
from pyfast.errors import InputError, PyfastError
from simulation.disk import Disk, Image, with_flips
from simulation.seeds import without_one_step
from simulation.turns import Turns

FAULTS = {"none": 4, "kill in a write": 4, "power cut": 4, "power cut later": 2, "disk full": 2, "disk error": 2}
"""What happens to a change of the index, and how often it does"""
CHANGES = ("add", "add", "add", "update", "update", "delete", "compact", "erase", "build")
WORDS = [
    f"{first}{last}" for first in ("mo", "ti", "rhe", "plu", "ura") for last in ("ons", "tan", "as", "to", "nus")
]
State = dict[str, str]
"""The texts of documents by their uris, in the order of the index"""


@dataclass
class Step:
    """One change of the index, and the fault that it meets."""

    change: str
    documents: State
    """What is given: for "delete", only the uris count"""
    fault: str
    seed: int
    stemmer: str = "english"
    """Of an index that is built"""
    other: Step | None = None
    """What another process does at the same time. Its fault and its seed do not count"""

    def __str__(self) -> str:
        beside = f" beside {self.other.change} {', '.join(self.other.documents)}" if self.other else ""
        return f"{self.change} {', '.join(self.documents)}{beside} ({self.fault})"


@dataclass
class Changes:
    """What a seed means. A shrunk one has fewer steps."""

    seed: int
    steps: list[Step]
    flips: bool

    def __str__(self) -> str:
        return f"{len(self.steps)} steps: " + "; ".join(map(str, self.steps)) + "; bits flipped" * self.flips


def drawn(seed: int) -> Changes:
    """The changes of a seed."""
    chance = Random(seed)

    def text() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(3, 12)))

    uris = [f"d{number}" for number in range(chance.choice((3, 8, 20)))]
    steps = [
        Step("build", {uri: text() for uri in uris}, chance.choice(("none", *FAULTS)), chance.randrange(1 << 30))
    ]

    def step(number: int, changes: Sequence[str]) -> Step:
        change = chance.choice(changes)
        some = chance.sample(uris, k=chance.randint(1, 3)) if change in ("update", "delete") else []
        if change in ("add", "update", "build"):
            some += [f"n{number}.{at}" for at in range(chance.randint(1, 3))]
        uris[:] = dict.fromkeys(uris + some)
        stemmer = chance.choice(("english", "none")) if change == "build" else "english"
        [fault] = chance.choices(list(FAULTS), list(FAULTS.values()))
        return Step(change, {uri: text() for uri in some}, fault, chance.randrange(1 << 30), stemmer)

    for number in range(chance.randint(1, 6)):
        steps.append(step(number, CHANGES))
        if chance.random() < 0.3:
            steps[-1].other = step(number if chance.random() < 0.3 else 10 + number, (*CHANGES, "read"))
            steps[-1].fault = chance.choice(("none", "none", "none", "kill"))
    return Changes(seed, list(_with_more(steps, Random(seed + 2))), flips=chance.random() < 0.2)


def _with_more(steps: Sequence[Step], chance: Random) -> Iterator[Step]:
    """Add so many documents to some new indexes, one by one, that their parts are merged. After some deletions,
    give the index the same documents again."""
    texts = State()
    for place, step in enumerate(steps):
        yield step
        for number in range(3 if not place and chance.random() < 0.2 else 0):
            yield Step("add", {f"m{number}": chance.choice(WORDS)}, "none", chance.randrange(1 << 30))
        if step.change == "delete" and chance.random() < 0.4:
            back = {uri: texts[uri] for uri in step.documents if uri in texts}
            yield Step("update", back, "none", chance.randrange(1 << 30))
        elif step.change != "delete":
            texts |= step.documents


def after(state: State, step: Step) -> State:
    """The documents of the index after a change: each new version comes last."""
    if step.change == "build":
        return dict(step.documents)
    if step.change == "delete":
        return {uri: text for uri, text in state.items() if uri not in step.documents}
    changed = {uri: text for uri, text in step.documents.items() if state.get(uri) != text}
    return {uri: text for uri, text in state.items() if uri not in changed} | changed


smaller = without_one_step


def install() -> None:
    """Let the threads that sync files take turns with the rest, and temporary names come from the seed."""
    pyfast.retrieval.index.manifest.ThreadPoolExecutor = _Inline  # type: ignore[misc, assignment]
    _index._SMALLEST = 2
    secrets.token_hex = lambda count=None: f"{_names.getrandbits(8 * (count or 4)):0{2 * (count or 4)}x}"


_names = Random(0)
_index: Any = pyfast.retrieval.index.changes


def seed_names(seed: int) -> None:
    """Let temporary names come from this seed."""
    _names.seed(seed)


class _Inline:
    """Takes the place of a ThreadPoolExecutor."""

    def __init__(self, *_: object) -> None: ...

    map = staticmethod(map)

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None: ...


def _carry_out(folder: Path, step: Step, state: State) -> set[str] | None:
    _index._TIER = 2 if step.seed % 2 else 8  # so that few parts are merged: all of them, or the last ones
    documents = [{"id": uri, "text": text} for uri, text in step.documents.items()]
    match step.change:
        case "build":
            pyfast.build_index(
                documents, folder, overwrite=True, options=pyfast.IndexOptions(stemmer=step.stemmer)
            )
        case "add":
            pyfast.add_documents(folder, documents)
        case "update":
            pyfast.update_documents(folder, documents)
        case "delete":
            pyfast.delete_documents(folder, [uri for uri in step.documents if uri in state])
        case "read":
            return {one.uri for found in retrieve(WORDS, folder, k=100) for one in found}
        case _:
            pyfast.compact_index(folder, erase=step.change == "erase")
    return None


def fault_of(changes: Changes, disk: Disk, trace: bool = False) -> str:
    """Carry out all steps, and a last one without a fault. Return what is wrong, or an empty text."""
    chance, image, states = Random(changes.seed + 1), Image(), list[State]()
    seed_names(changes.seed)
    last = Step("build" if not changes.steps else "add", {"last": "the last one"}, "none", 0)
    disk.real_clock()
    try:
        for step in (*changes.steps, last):
            if not states and step.change != "build":
                continue  # The first build failed.
            before = states[-1] if states else {}
            if step.change == "delete" and not any(uri in before for uri in step.documents):
                continue
            if step.change == "delete" and before.keys() <= step.documents.keys():
                continue
            change = _changed_by_two if step.other and states else _changed
            fault, image, states = change(step, states, image, disk, chance)
            if trace:
                print(f"{step}: {len(states[-1]) if states else 'no'} documents")
            if fault:
                return f"{step}: {fault}"
        if changes.flips and states:
            return _flipped(image, disk, chance)
        return _same_as_new(disk.folder / "IDX", states[-1]) if states else ""
    finally:
        disk.end()
        disk.remove()


def _changed(
    step: Step, states: list[State], image: Image, disk: Disk, chance: Random
) -> tuple[str, Image, list[State]]:
    """Carry out one step, as a process does, and look at the index as the next process does.

    Returns (what is wrong, the files, the state that the index is in, if there is an index)."""
    disk.remove()
    folder = disk.begin(image) / "IDX"
    at = Random(step.seed)
    first = int(10 ** at.uniform(0, 2.2))
    if step.fault in ("kill in a write", "power cut"):
        disk.stop_at(first, at.randrange(1 << 20))
    elif step.fault == "disk full":
        disk.fail(first, 1 << 60, errno.ENOSPC)
    elif step.fault == "disk error":
        disk.fail(first, first + at.choice((1, 1, 3, 1 << 60)), errno.EIO)
    error: BaseException | None = None
    given = states[-1] if states else {}
    try:
        _carry_out(folder, step, given)
    except (PyfastError, OSError) as raised:
        error = raised
    except Exception as raised:
        if not disk.stopped.value:
            return f"ended with {raised!r}", image, states
        error = raised
    stopped = bool(disk.stopped.value)
    if error is not None and not stopped and step.fault in ("none", "power cut later"):
        return f"ended with {error!r}", image, states
    if error is not None and not stopped and not any(word in str(error) for word in ("space", "Input/output")):
        return f"does not say what the disk said: {error!r}", image, states
    if (step.fault == "power cut" and stopped) or step.fault == "power cut later":
        image = disk.image_after_power_cut(chance)
    else:
        image = disk.image()
    disk.end()
    disk.remove()
    folder = disk.begin(image) / "IDX"
    disk.end()  # Who only reads is not watched.
    may = [after(given, step)] if error is None and not stopped else [*states[-1:], after(given, step)]
    # An index that is built again is for a moment under another name, as the docs of `built_aside` say.
    is_aside = step.change == "build" and any(name.startswith("IDX.old-") for name in image)
    if not folder.exists() and (error is not None or stopped) and (not states or is_aside):
        return "", image, []
    found, fault = _documents(folder)
    if fault:
        return fault, image, states
    for state in may:
        if list(state.items()) == list(found.items()):
            return "", image, [state]
    return f"has {found}, not one of {may}", image, states


def _changed_by_two(
    step: Step, states: list[State], image: Image, disk: Disk, chance: Random
) -> tuple[str, Image, list[State]]:
    """Do as `_changed`, with two processes at the same time. One may be killed. What they do must be as if one had
    come after the other, or one is refused."""
    assert step.other is not None
    disk.remove()
    folder, before = disk.begin(image) / "IDX", states[-1]
    steps = [step, step.other]
    if not all(state for state, _ in _outcomes(before, steps)):  # An index has documents.
        return "", image, states
    turns = Turns(Random(step.seed), kill_first=step.fault == "kill")
    works = [partial(_carry_out, folder, one, before) for one in steps]
    with turns.carried_out(works) as results:
        image = disk.image()
        disk.end()
    disk.remove()
    folder = disk.begin(image) / "IDX"
    disk.end()
    errors = [result if isinstance(result, BaseException) else None for result in results]
    if wrong := [error for error in errors if error is not None and not isinstance(error, InputError)]:
        return f"ended with {wrong[0]!r}", image, states
    refused = frozenset(at for at, error in enumerate(errors) if error is not None)
    may = list(_outcomes(before, steps))
    for at in refused:
        if "another process is building this folder" in str(errors[at]):
            may += [(state, refused) for state, _ in _outcomes(before, [steps[1 - at]])]
    if step.fault == "kill":
        may += [(state, refused) for state, _ in _outcomes(before, steps[1:])]
        is_aside = "build" in (one.change for one in steps) and any(name.startswith("IDX.old-") for name in image)
        if is_aside and not folder.exists():
            return "", image, []
    found, fault = _documents(folder)
    if fault:
        return fault, image, states
    seen = isinstance(results[1], set) and results[1]
    if seen and seen not in [{*state} for state in (before, *(state for state, _ in may))]:
        return f"the reader finds {seen}", image, states
    for state, which in may:
        if list(state.items()) == list(found.items()) and (which == refused or step.fault == "kill"):
            return "", image, [state]
    return f"has {found} with the errors {errors}, not one of {may}", image, states


def _outcomes(before: State, steps: Sequence[Step]) -> Iterator[tuple[State, frozenset[int]]]:
    """The states after these changes in each order, and which of them are refused."""
    for order in permutations(range(len(steps))):
        state, refused = before, set[int]()
        for at in order:
            step = steps[at]
            gone = [uri for uri in step.documents if uri in before]
            is_there = step.change == "add" and step.documents.keys() & state.keys()
            if is_there or (step.change == "delete" and not {*gone} <= state.keys()):
                refused.add(at)
            elif step.change != "read":
                # A process deletes only what it had found before, not what the other one has added meanwhile.
                given = dict.fromkeys(gone, "") if step.change == "delete" else step.documents
                state = after(state, replace(step, documents=given))
        yield state, frozenset(refused)


def _documents(folder: Path) -> tuple[State, str]:
    """What an index has, and what is wrong with it."""
    try:
        index = pyfast.open_index(folder)
        verification = pyfast.verify(folder)
        if not verification.passed:
            return {}, f"verify: {[one.detail for one in verification.checks if not one.passed]}"
        described = pyfast.describe_index(folder)
        for number in described.commits:
            index.at(number)
        if described.commits[-1] != described.commit:
            return {}, f"commit {described.commit} is current, and there are {described.commits}"
        uris = [one.uri for one in pyfast.list_documents(folder)]
    except (PyfastError, OSError) as error:
        return {}, f"cannot be opened: {error!r}"
    texts: State = {}
    for part, entry in zip(index.parts, index.manifest["parts"], strict=True):
        live = pyfast.retrieval.index.manifest.live_documents(folder, entry)
        texts |= {part.corpus.uri(at): part.corpus.document(at).text for at in range(len(live)) if live[at]}
    return {uri: texts[uri] for uri in uris}, ""


def _same_as_new(folder: Path, state: State) -> str:
    """Whether the index counts and finds what a new one of the same documents does, with the same scores."""
    new = folder.with_name("NEW")
    stemmer = pyfast.open_index(folder).manifest["parameters"]["analysis"]["stemmer"]
    documents = [{"id": uri, "text": text} for uri, text in state.items()]
    pyfast.build_index(documents, new, options=pyfast.IndexOptions(stemmer=stemmer))
    counted, right = (
        {name: pyfast.open_index(one).manifest[name] for name in ("documents", "passages", "corpus")}
        for one in (folder, new)
    )
    if counted != right:
        return f"has {counted}, a new index {right}"
    ours, theirs = (
        [[(one.uri, one.score) for one in found] for found in retrieve(WORDS, one, k=10)] for one in (folder, new)
    )
    return "" if ours == theirs else f"finds {ours}, a new index {theirs}"


def _flipped(image: Image, disk: Disk, chance: Random) -> str:
    """A bit of a file has changed: the index cannot be opened, or `verify` finds it."""
    names = [name for name in image if name.startswith("IDX/parts/") and image[name]]
    current = {f"IDX/{name}" for name in pyfast.open_index(disk.folder / "IDX").manifest["files"]}
    name = chance.choice(sorted(current & {*names}))
    disk.remove()
    folder = disk.begin({**image, **with_flips({name: image[name]}, chance, name)})
    disk.end()
    try:
        passed = pyfast.verify(folder / "IDX").passed
    except PyfastError:
        return ""
    return f"a bit of {name} changed, and verify passes" if passed else ""
