"""The graph memory (SubQRAG's paper, section 2.4, equation 5), the evidence, and the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pyfast.knowledge import Session
from pyfast.retrieval import ScoredSegments
from pyfast.systems.subqrag.steps import Step
from pyfast.utils.token_budget import fit, join, share


def memory(steps: Iterable[Step], budget: int) -> list[str]:
    """Write the facts that answered sub-questions, one per line, in about `budget` characters, with only the
    triples that were used.

    For a sub-question whose answers are in no triple, the line contains the sub-question and its answers.
    """
    lines: dict[str, Callable[[int | None], str]] = {}
    for step in steps:
        facts = [fact.line for fact in step.used] or [partial(_answers, step)] * bool(step.answers)
        lines.update((line(None), line) for line in facts)
    return fit(share([*lines.values()], budget), budget, first="whole")


def _segments(step: Step, session: Session) -> dict[str, list[int]]:
    """Return segment ids for the trace. `facts`: the segments that state the retrieved facts.
    `documents`: the retrieved segments. `used`: the segments of both kinds from which the answers come."""
    return {"facts": step.facts, "documents": step.documents, "used": _used(step, session)}


def _used(step: Step, session: Session) -> list[int]:
    stating = [segment for fact in step.used for segment in fact.segments(session.store)]
    return list(dict.fromkeys((*stating, *step.read)))


def _answers(step: Step, budget: int | None) -> str:
    start = f"{step.question} -> "
    return start + join(step.answers, budget and budget - len(start))


def evidence(steps: Sequence[Step], session: Session) -> ScoredSegments:
    """Collect the evidence for the answers, in sub-question order.

    A segment is evidence if it states a used triple, or if the LLM cited it for an answer.
    """
    ids: dict[int, None] = {}
    for step in steps:
        ids.update(dict.fromkeys(_used(step, session)))
    places = session.index.passages[session.passages(list(ids))]
    return ScoredSegments(places, np.ones(len(places), np.float32))


def trace(steps: Sequence[Sequence[Step]], session: Session, **faults: str | int | None) -> dict[str, Any]:
    """Make the trace: each sub-question with its answers and triples, and the learned triples.

    The entries of `faults` that are not None (error messages for unusable replies, and the number of omitted
    questions) are added.
    """
    path = [
        [
            {
                "question": step.question,
                "source": step.source,
                "answers": step.answers,
                "triples": [list(triple) for fact in step.used for triple in fact.triples],
                **{name: [f"{id:016x}" for id in ids] for name, ids in _segments(step, session).items() if ids},
                **({"degraded": step.degraded} if step.degraded else {}),
            }
            for step in resolved
        ]
        for resolved in steps
    ]
    learned = [
        {"head": one.head, "relation": one.relation, "tail": one.tail, "segment": f"{one.segment:016x}"}
        for resolved in steps
        for step in resolved
        for one in step.learned
    ]
    fields = {"path": path, **({"learned": learned} if learned else {})}
    return fields | {name: fault for name, fault in faults.items() if fault is not None}
