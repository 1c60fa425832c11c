"""The iterator of HSEQ (algorithm 1), for any policy. In each step, it shows the policy the next window of
segments, and the policy decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyfast.engine import Answer, Context
from pyfast.ops.hseq_stream import Neighbors
from pyfast.retrieval import Index
from pyfast.systems.hseq.evidence_package import canonicalize
from pyfast.systems.hseq.state import State, chosen
from pyfast.systems.hseq.windows import Candidate, Move, Priority, View, move_on

STEP_COST = 3
"""The maximum number of batch points in a step: one for the window, one for the LLM, and one for the lexical
policy as the LLM's fallback"""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the policy in one step."""

    labels: tuple[int, ...]
    """The labels of the picked segments, best first. Only the first `Limits.k` labels count"""
    score: float
    """How sufficient the evidence seems, including the picked segments, from 0 (not at all) to 1 (fully)"""
    expand: Neighbors | None = None
    note: str | None = None
    """If the lexical policy decided in place of the LLM: the reason, for the trace. Otherwise None"""
    last: bool = False
    """Whether the iterator must stop after this step, because the budget is spent"""


Policy = Callable[[State], Awaitable[Decision]]
"""A policy: a function that takes the state and returns a decision"""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on one question's steps (HSEQ's paper, A.3.5)."""

    width: int
    k: int
    max_steps: int
    min_steps: int
    priority: Priority
    threshold: float = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one question, between two steps."""

    guidance: str
    view: View
    selected: tuple[Candidate, ...] = ()
    """The picked segments, in the order of picking"""
    next: Move | None = None
    """The move to the next window, with which the next step starts"""
    steps: tuple[dict[str, Any], ...] = ()
    """A record of each step, for the trace"""
    ended: str = ""
    """Why the iteration ended. `sufficient`: the evidence is sufficient. `steps`: the maximum number of steps
    was reached. `exhausted`: the stream has no more segments. `budget`: the budget is spent. `off`: there was
    no iteration"""
    source: str = ""
    """The source of the guidance, for the trace: `head`, `template` or `off`. If the head's reply was
    unusable: `template: ` and the error message"""


async def iterate(progress: Progress, policy: Policy, ctx: Context, limits: Limits, reserve: int) -> Progress:
    """Take steps until the evidence is sufficient, the maximum number of steps is reached, the stream ends, or the
    budget is spent.

    `reserve` is how many steps of the budget are reserved for the head's answer. If a policy picks fewer than
    k segments, all segments leave the window. Otherwise only the picked segments leave, and new segments fill
    the window. Each step therefore picks or skips at least k segments, from which lemma 1 of the paper
    follows: if all evidence is among the first L segments, a policy that picks all of it needs at most ceil(L
    / k) steps, after which the iterator stops (proposition 1 of the paper). Steps that pick neighbours of
    earlier picks (an expansion) do not count in this lemma.
    """
    for t in range(1, limits.max_steps + 1):
        if ctx.remaining().steps < STEP_COST + reserve:
            return replace(progress, ended="budget")
        if progress.next is not None:
            view = await ctx.call(move_on, progress.next, limits.width, limits.priority)
            progress = replace(progress, view=view, next=None)
        if not progress.view.window:
            return replace(progress, ended="exhausted")
        decision = await policy(state_of(progress))
        progress = step(progress, decision, limits.k)
        ctx.so_far(partial(so_far, ctx.index, progress))
        if decision.last:
            return replace(progress, ended="budget")
        if decision.score >= limits.threshold and t >= limits.min_steps:
            return replace(progress, ended="sufficient")
    return replace(progress, ended="steps")


def so_far(index: Index, progress: Progress) -> Answer:
    """Return the answer to record if the question fails: no text, and the segments picked so far as evidence."""
    (package,) = canonicalize(index, [[it.position for it in progress.selected]])
    guidance = {"source": progress.source, "text": progress.guidance}
    return Answer(None, package.json(), {"guidance": guidance, "steps": progress.steps})


def state_of(progress: Progress) -> State:
    """Return the state that the policy sees."""
    view = progress.view
    return State(view.question, progress.guidance, progress.selected, view.window)


def step(progress: Progress, decision: Decision, k: int) -> Progress:
    """Carry out a decision of the policy: add the picked segments to the evidence, and prepare the move to
    the next window."""
    view = progress.view
    picked = chosen(state_of(progress), decision.labels, k)
    done = picked if len(picked) == k else view.window
    places = tuple(it.position for it in picked)
    move = Move(view, tuple(it.position for it in done), decision.expand if picked else None, places)
    labels = {it.position: label for label, it in enumerate(view.window, start=1)}
    record: dict[str, Any] = {
        "window": [it.id for it in view.window],
        "picked": [{"label": labels[it.position], "id": it.id} for it in picked],
        "score": round(decision.score, 6),
    }
    record |= {"expand": decision.expand} if move.expand else {}
    record |= {"note": decision.note} if decision.note else {}
    return replace(progress, selected=(*progress.selected, *picked), next=move, steps=(*progress.steps, record))
