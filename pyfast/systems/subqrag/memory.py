"""Section 2.4: the graph memory (equation 5), and what is told of the path to the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pyfast.knowledge import Session
from pyfast.retrieval import Evidence
from pyfast.systems.subqrag.steps import Step


def memory_of(step: Step) -> list[str]:
    """What a step puts into the graph memory; answers that no triple says stand as they were found."""
    if step.used:
        return [fact.line() for fact in step.used]
    return [f"{step.question} -> {'; '.join(step.answers)}"] if step.answers else []


def within(lines: Iterable[str], room: int) -> list[str]:
    """As many lines, from the first on, as fit; at least one."""
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


def trace(steps: Sequence[Sequence[Step]], degraded: str | None) -> dict[str, Any]:
    """The path: each sub-question as it was asked, with its answers and triples; and what was learned."""
    path = [
        [
            {
                "question": step.question,
                "source": step.source,
                "answers": step.answers,
                "triples": [list(triple) for fact in step.used for triple in fact.triples],
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
    return told if degraded is None else {**told, "chain_degraded": degraded}
