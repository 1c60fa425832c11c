"""The path of a question: the passages that each step retrieved and kept, and where gold passages were lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyfast.engine import Record


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of segments at one point of the path, best first."""

    name: str
    segments: tuple[str, ...]
    chosen: bool = False
    """Whether this list has the segments that the step kept.

    A segment of an earlier list that is missing here was lost here
    """


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a system that searches for evidence."""

    name: str
    query: str
    lists: tuple[Listed, ...]
    """The lists of the step, in order"""


@dataclass(frozen=True, slots=True)
class GoldPath:
    """Where one gold document was found or lost."""

    uri: str
    ranks: tuple[tuple[str, str, int | None, int], ...]
    """(step, list, rank from 1 or None, length of the list) in the order of the path"""
    outcome: str
    """A sentence that says where the document was found or lost"""
    reached: bool
    """Whether the document is in the evidence of the answer"""
    lost: int | None = None
    """The place in `ranks` of the list that lost the document. None if it reached the answer, or if no step
    retrieved it
    """


Trace = Mapping[str, Any]


def steps_of(system: str, record: Record) -> list[Step]:
    """The steps of a record, in order. The last one is the evidence of the answer."""
    evidence = tuple(one.segment for one in record.evidence if one.segment)
    steps = _STEPS.get(system, _nothing)(record.trace)
    return [*steps, Step("answer", "", (Listed("evidence of the answer", evidence, chosen=True),))]


def gold_paths(steps: Sequence[Step], uris: Iterable[str], uri_of: Mapping[str, str]) -> list[GoldPath]:
    """Where each gold document was found or lost. `uri_of` has the uris of the segments that the steps name."""
    return [_gold_path(steps, uri, uri_of) for uri in dict.fromkeys(uris)]


def _gold_path(steps: Sequence[Step], uri: str, uri_of: Mapping[str, str]) -> GoldPath:
    lists = [(step.name, each) for step in steps for each in step.lists]
    ranks = tuple(
        (
            step,
            each.name,
            next((at for at, one in enumerate(each.segments, start=1) if uri_of.get(one) == uri), None),
            len(each.segments),
        )
        for step, each in lists
    )
    seen = [place for place, (_, _, rank, _) in enumerate(ranks) if rank is not None]
    if not seen:
        return GoldPath(uri, ranks, "no step retrieved it", False)
    step, name, rank, size = ranks[seen[-1]]
    if seen[-1] == len(ranks) - 1:
        return GoldPath(uri, ranks, f"reached the answer, at rank {rank} of {size}", True)
    lost = next(place for place in range(seen[-1] + 1, len(ranks)) if lists[place][1].chosen)
    where, kept, _, _ = ranks[lost]
    had = f"rank {rank} of {size} in {name}" + ("" if where == step else f" of {step}")
    return GoldPath(uri, ranks, f"lost in {where}: {had}, not in {kept}", False, lost)


def _ids(items: Any, key: str = "segment") -> tuple[str, ...]:
    """The ids in a list of a trace: texts, or objects that have them."""
    if not isinstance(items, list):
        return ()
    return tuple(str(one.get(key, "")) if isinstance(one, dict) else str(one) for one in items)


def _nothing(trace: Trace) -> list[Step]:
    return []


def _listed(fields: Trace, names: Mapping[str, str], kept: str = "") -> tuple[Listed, ...]:
    """The lists that a part of a trace has, by its keys and their names; `kept` is the key of what was kept."""
    return tuple(Listed(name, _ids(fields[key]), key == kept) for key, name in names.items() if key in fields)


def _n2n(trace: Trace) -> list[Step]:
    steps = []
    for number, hop in enumerate(trace.get("hops", ()), start=1):
        if "retrieved" in hop:
            lists = _listed(hop, {"retrieved": "retrieved", "evidence": "kept"}, kept="evidence")
        else:
            lists = _listed(hop, {"evidence": "retrieved"})
        steps.append(Step(f"hop {number}", str(hop.get("query", "")), lists))
    if "candidates" in trace:
        final = {"candidates": trace["candidates"], **trace.get("final", {})}
        lists = _listed(final, {"candidates": "candidates", "evidence": "kept"}, kept="evidence")
        steps.append(Step("final graph", "", lists))
    return steps


def _subqrag(trace: Trace) -> list[Step]:
    names = {"facts": "facts' sources", "documents": "documents", "used": "used"}
    steps = []
    for number, resolved in enumerate(trace.get("path", ()), start=1):
        for branch, one in enumerate(resolved, start=1):
            name = f"sub-question {number}" if len(resolved) == 1 else f"sub-question {number}.{branch}"
            steps.append(Step(name, str(one.get("question", "")), _listed(one, names, kept="used")))
    return steps


def _mtqa(trace: Trace) -> list[Step]:
    names = {"units": "for the thoughts", "correcting": "for the summary", "shown": "in prompts"}
    return [
        Step(f"column {number}", "", _listed(one, names, kept="shown"))
        for number, one in enumerate(trace.get("columns", ()), start=1)
    ]


def _hseq(trace: Trace) -> list[Step]:
    steps = []
    for number, one in enumerate(trace.get("steps", ()), start=1):
        picked = Listed("picked", _ids(one.get("picked"), "id"), chosen=True)
        steps.append(Step(f"step {number}", "", (Listed("window", _ids(one.get("window"))), picked)))
    return steps


def _graph_convqa(trace: Trace) -> list[Step]:
    return [Step("turn", str(trace.get("query", "")), _listed(trace, {"retrieved": "retrieved"}))]


_STEPS: dict[str, Callable[[Trace], list[Step]]] = {
    "n2n": _n2n,
    "decompose": _n2n,
    "subqrag": _subqrag,
    "mtqa": _mtqa,
    "hseq": _hseq,
    "graph_convqa": _graph_convqa,
}
