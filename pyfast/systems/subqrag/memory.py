"""Section 2.4: the graph memory (equation 5), and what is told of the path to the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pyfast.knowledge import Session
from pyfast.knowledge.recall import in_room, listed
from pyfast.retrieval import Evidence
from pyfast.systems.subqrag.steps import Step


def memory(steps: Iterable[Step], room: int) -> list[str]:
    """Equation 5's T_used, each fact on a line with what was used of it, in about `room` characters.

    Answers that no triple says stand there as they were found.
    """
    told: dict[str, Callable[[int | None], str]] = {}
    for step in steps:
        found = [fact.line for fact in step.used] or [partial(_found, step)] * bool(step.answers)
        told.update((tell(None), tell) for tell in found)
    return within(in_room([*told.values()], room), room)


def _found(step: Step, room: int | None) -> str:
    told = f"{step.question} -> "
    return told + listed(step.answers, room and room - len(told))


def within(lines: Iterable[str], room: int) -> list[str]:
    """As many lines, from the first on, as fit; at least the first."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return kept


def evidence(steps: Sequence[Step], session: Session) -> Evidence:
    """The segments that say the triples used, in the order of the path."""
    ids = dict.fromkeys(
        segment for step in steps for fact in step.used for segment in fact.segments(session.store)
    )
    places = session.segments(list(ids))
    return Evidence(places, np.ones(len(places), np.float32))


def trace(steps: Sequence[Sequence[Step]], **faults: str | int | None) -> dict[str, Any]:
    """The path: each sub-question as it was asked, with its answers and triples; and what was learned.

    `faults`: what was wrong with replies that it had to be done without, and what was left out, if anything was.
    """
    path = [
        [
            {
                "question": step.question,
                "source": step.source,
                "answers": step.answers,
                "triples": [list(triple) for fact in step.used for triple in fact.triples],
                **({"degraded": step.degraded} if step.degraded else {}),
            }
            for step in found
        ]
        for found in steps
    ]
    learned = [
        {"head": said.head, "relation": said.relation, "tail": said.tail, "segment": f"{said.segment:016x}"}
        for found in steps
        for step in found
        for said in step.learned
    ]
    told = {"path": path, **({"learned": learned} if learned else {})}
    return told | {name: fault for name, fault in faults.items() if fault is not None}
