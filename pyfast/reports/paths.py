"""The path of a question: what each step of its system retrieved and kept, and where gold passages were lost."""

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


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a system that looks for evidence."""

    name: str
    query: str
    lists: tuple[Listed, ...]
    """In order: each is what is left of the one before, or adds to it"""


@dataclass(frozen=True, slots=True)
class GoldPath:
    """What became of one gold document."""

    uri: str
    ranks: tuple[tuple[str, str, int | None, int], ...]
    """(step, list, rank from 1 or None, length of the list) in the order of the path"""
    outcome: str
    """One sentence"""
    reached: bool
    """Whether it is among the evidence of the answer"""


Trace = Mapping[str, Any]


def steps_of(system: str, record: Record) -> list[Step]:
    """The steps of a record, in order; last the evidence that the answer rests on."""
    evidence = Listed("evidence of the answer", tuple(one.segment for one in record.evidence if one.segment))
    steps = _STEPS.get(system, _nothing)(record.trace)
    return [*steps, Step("answer", "", (evidence,))]


def gold_paths(steps: Sequence[Step], uris: Iterable[str], uri_of: Mapping[str, str]) -> list[GoldPath]:
    """What became of each gold document. `uri_of` has the uris of the segments that the steps name."""
    return [_gold_path(steps, uri, uri_of) for uri in dict.fromkeys(uris)]


def _gold_path(steps: Sequence[Step], uri: str, uri_of: Mapping[str, str]) -> GoldPath:
    ranks: list[tuple[str, str, int | None, int]] = []
    for step in steps:
        for each in step.lists:
            rank = next((at for at, one in enumerate(each.segments, start=1) if uri_of.get(one) == uri), None)
            ranks.append((step.name, each.name, rank, len(each.segments)))
    *before, (_, _, last, size) = ranks
    if last is not None:
        return GoldPath(uri, tuple(ranks), f"reached the answer, at rank {last} of {size}", True)
    seen = [place for place, one in enumerate(before) if one[2] is not None]
    if not seen:
        return GoldPath(uri, tuple(ranks), "no step retrieved it", False)
    had, name, rank, size = ranks[seen[-1]]
    lost_in, lost_from, _, _ = ranks[seen[-1] + 1]
    outcome = f"{had}: {name}, rank {rank} of {size}; lost in {lost_in}: not in {lost_from}"
    return GoldPath(uri, tuple(ranks), outcome, False)


def _ids(items: Any, key: str = "segment") -> tuple[str, ...]:
    """The ids in a list of a trace: texts, or objects that have them."""
    if not isinstance(items, list):
        return ()
    return tuple(str(one.get(key, "")) if isinstance(one, dict) else str(one) for one in items)


def _nothing(trace: Trace) -> list[Step]:
    return []


def _n2n(trace: Trace) -> list[Step]:
    steps = []
    for number, hop in enumerate(trace.get("hops", ()), start=1):
        lists = [Listed("retrieved", _ids(hop["retrieved"]))] if "retrieved" in hop else []
        kept = _ids(hop.get("evidence"))
        lists += [Listed("kept" if lists else "retrieved", kept)] if kept else []
        steps.append(Step(f"hop {number}", str(hop.get("query", "")), tuple(lists)))
    if "candidates" in trace:
        steps.append(Step("final graph", "", (Listed("candidates", _ids(trace["candidates"])),)))
    return steps


def _subqrag(trace: Trace) -> list[Step]:
    steps = []
    for number, resolved in enumerate(trace.get("path", ()), start=1):
        for branch, one in enumerate(resolved, start=1):
            name = f"sub-question {number}" if len(resolved) == 1 else f"sub-question {number}.{branch}"
            named = (("facts", "facts' sources"), ("documents", "documents"), ("used", "used"))
            lists = tuple(Listed(label, _ids(one[key])) for key, label in named if key in one)
            steps.append(Step(name, str(one.get("question", "")), lists))
    return steps


def _mtqa(trace: Trace) -> list[Step]:
    named = (("units", "knowledge units"), ("correcting", "units for the summary"), ("shown", "in prompts"))
    return [
        Step(f"column {number}", "", tuple(Listed(label, _ids(one[key])) for key, label in named if key in one))
        for number, one in enumerate(trace.get("columns", ()), start=1)
    ]


def _hseq(trace: Trace) -> list[Step]:
    return [
        Step(
            f"step {number}",
            "",
            (Listed("window", _ids(one.get("window"))), Listed("picked", _ids(one.get("picked"), "id"))),
        )
        for number, one in enumerate(trace.get("steps", ()), start=1)
    ]


def _graph_convqa(trace: Trace) -> list[Step]:
    lists = (Listed("retrieved", _ids(trace["retrieved"])),) if "retrieved" in trace else ()
    return [Step("turn", str(trace.get("query", "")), lists)]


_STEPS: dict[str, Callable[[Trace], list[Step]]] = {
    "n2n": _n2n,
    "decompose": _n2n,
    "subqrag": _subqrag,
    "mtqa": _mtqa,
    "hseq": _hseq,
    "graph_convqa": _graph_convqa,
}
