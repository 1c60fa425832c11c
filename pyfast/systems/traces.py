"""The traces of systems: the steps of a question, with the passages that each step retrieved and kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SEGMENT = re.compile("[0-9a-f]{16}")
"""The form of a segment's id: 16 hexadecimal digits"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of segments that a step produced, best first."""

    name: str
    segments: tuple[str, ...]
    chosen: bool = False
    """Whether this list contains the segments that the step kept.

    Only such a list can lose segments: a lost segment is in an earlier list but not in this one
    """
    items: Sequence[Any] = ()
    """The items of the trace's list: ids or objects. Empty if the list does not come from the trace"""

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The score of each segment, None if it has no score. Empty if no segment has a score"""
        found = [one.get("score") if isinstance(one, dict) else None for one in self.items]
        scores = tuple(float(score) if isinstance(score, int | float) else None for score in found)
        return scores if any(score is not None for score in scores) else ()


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a system, such as a hop."""

    name: str
    query: str
    lists: tuple[Listed, ...]
    """The lists of the step, in order"""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """All other values of the step in the trace, by name"""

    def as_json(self) -> dict[str, Any]:
        """The step as JSON values, without its notes and scores."""
        lists = [{"name": each.name, "segments": each.segments} for each in self.lists]
        return {"name": self.name, "query": self.query, "lists": lists}


def segments_in(steps: Sequence[Step]) -> list[str]:
    """Return the ids of all segments in these steps' lists."""
    return [id for step in steps for each in step.lists for id in each.segments]


Trace = Mapping[str, Any]


def steps_of(system: str, trace: Trace, evidence: Sequence[tuple[str, float | None]]) -> list[Step]:
    """Return the steps of a question, in order. The last step is the answer's evidence: segments and their scores.

    Lists in the trace that belong to no step become the lists of an additional first step, named `trace`, or
    `turn` in a conversation.
    """
    first = "turn" if system == "graph_convqa" else "trace"
    make, used = _STEPS.get(system, (_nested, None))
    if used is None:
        whole = _step(first, {name: value for name, value in trace.items() if not _are_steps(value)})
    else:
        whole = _step(first, {name: value for name, value in trace.items() if name not in used}, {})
    items = [{"segment": segment, "score": score} for segment, score in evidence if segment]
    return [
        *([whole] if whole.notes or whole.lists else []),
        *make(trace),
        Step("answer", "", (Listed("evidence of the answer", _ids(items), True, items),)),
    ]


def _ids(items: Any, key: str = "segment") -> tuple[str, ...]:
    """Return the ids in a list of a trace. An item of the list is an id, or an object with the id under
    `key`.
    """
    if not isinstance(items, list):
        return ()
    return tuple([str(one.get(key, "")) if isinstance(one, dict) else str(one) for one in items])


def _are_segments(value: Any) -> bool:
    """Whether a value of a trace is a list of segments: ids of segments, or objects with such an id."""
    return isinstance(value, list) and bool(value) and all(map(SEGMENT.fullmatch, _ids(value)))


def _step(name: str, fields: Trace, names: Mapping[str, str] | None = None, kept: str = "") -> Step:
    """Make a step from a part of a trace. `names` maps the keys of its lists in the trace to their names in
    the report. None: every list of segments becomes a list of the step. `kept` is the key of the list with
    the segments that the step kept.
    """
    if names is None:
        names = {key: key for key, value in fields.items() if _are_segments(value)}
    query = next((key for key in ("query", "question") if isinstance(fields.get(key), str)), "")
    notes = {key: value for key, value in fields.items() if key != query and key not in names}
    items = [(key, names[key], fields[key]) for key in names if key in fields]
    lists = (Listed(shown, _ids(of), key == kept, of if isinstance(of, list) else ()) for key, shown, of in items)
    return Step(name, fields.get(query, ""), tuple(lists), notes)


def _are_steps(value: Any) -> bool:
    """Whether a value of a trace is a list of objects, and not a list of segments."""
    objects = isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
    return objects and not _are_segments(value)


def _nested(trace: Trace) -> list[Step]:
    """Return the steps of a system that is not pyfast's own: each object in the trace's object lists is a step."""
    return [
        _step(f"{name} {number}", one)
        for name, value in trace.items()
        if _are_steps(value)
        for number, one in enumerate(value, start=1)
    ]


def _n2n(trace: Trace) -> list[Step]:
    steps = []
    for number, hop in enumerate(trace.get("hops", ()), start=1):
        if "retrieved" in hop:
            steps.append(_step(f"hop {number}", hop, {"retrieved": "retrieved", "evidence": "kept"}, "evidence"))
        else:
            steps.append(_step(f"hop {number}", hop, {"evidence": "retrieved"}))
    if "candidates" in trace:
        final = {"candidates": trace["candidates"], **trace.get("final", {})}
        steps.append(_step("final graph", final, {"candidates": "candidates", "evidence": "kept"}, "evidence"))
    return steps


def _subqrag(trace: Trace) -> list[Step]:
    names = {"facts": "facts' sources", "documents": "documents", "used": "used"}
    steps = []
    for number, resolved in enumerate(trace.get("path", ()), start=1):
        for branch, one in enumerate(resolved, start=1):
            name = f"sub-question {number}" if len(resolved) == 1 else f"sub-question {number}.{branch}"
            searched = any(one.get(key) for key in ("facts", "documents"))
            steps.append(_step(name, {**one, "used": one.get("used", [])} if searched else one, names, "used"))
    return steps


def _mtqa(trace: Trace) -> list[Step]:
    names = {"units": "for the thoughts", "correcting": "for the summary", "shown": "in prompts"}
    columns = enumerate(trace.get("columns", ()), start=1)
    return [_step(f"column {number}", one, names, "shown") for number, one in columns]


def _hseq(trace: Trace) -> list[Step]:
    steps = []
    for number, one in enumerate(trace.get("steps", ()), start=1):
        picked = Listed("picked", _ids(one.get("picked"), "id"), chosen=True)
        notes = {key: value for key, value in one.items() if key not in ("window", "picked")}
        steps.append(Step(f"step {number}", "", (Listed("window", _ids(one.get("window"))), picked), notes))
    return steps


_STEPS: dict[str, tuple[Callable[[Trace], list[Step]], frozenset[str]]] = {
    "n2n": (_n2n, frozenset({"hops", "candidates", "final"})),
    "decompose": (_n2n, frozenset({"hops", "candidates", "final"})),
    "subqrag": (_subqrag, frozenset({"path"})),
    **dict.fromkeys(("mtqa", "tot", "rat", "ratt", "coa"), (_mtqa, frozenset({"columns"}))),
    "hseq": (_hseq, frozenset({"steps"})),
}
"""For each of pyfast's own systems: the function that turns a trace into steps, and the trace keys that it uses
"""
