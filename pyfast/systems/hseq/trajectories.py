"""Make the training targets of HSEQ's iterator: the correct action for each step of algorithm 1 (A.2). Choose
steps from several data sets, and order them: later steps of trajectories come later in the training (A.3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from pyfast.engine import Prompt
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems.hseq.actions import Action, action_text, select_prompt
from pyfast.systems.hseq.guidance import template
from pyfast.systems.hseq.iterator import Decision, Progress, state_of, step
from pyfast.systems.hseq.state import State, prompt_fields
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.weak_positives import Gold, Positives
from pyfast.systems.hseq.windows import Move, move_on, open_window


@dataclass(frozen=True, slots=True)
class Target:
    """One step of a trajectory: the state, and the action that the iterator should learn. The action also
    says whether the evidence is sufficient."""

    question: str
    """The id of the question"""
    t: int
    """The number of the step, from 1"""
    state: State
    labels: tuple[int, ...]
    """The labels of the segments to pick. A label is a segment's place in the window, from 1"""
    sufficient: bool
    """Whether the evidence is sufficient after this step"""
    weight: float
    """The mean weight of the positives to pick. 1 if there is nothing to pick"""

    def prompt(self, settings: Settings) -> tuple[Prompt[Action], dict[str, str]]:
        """Make the prompt for this state as the system does. Returns the prompt, and the values of its fields."""
        fields = prompt_fields(self.state, settings.k, settings.characters)
        return select_prompt(len(self.state.window), settings.k), fields

    def answer(self, settings: Settings) -> str:
        """Write the reply that the iterator should give."""
        return action_text(self.labels, self.sufficient, settings.k)


def target(question: str, t: int, state: State, positives: Positives, k: int) -> Target:
    """Choose the correct action in a state: pick at most `k` positives (correct segments) from the window, in
    order of descending weight.

    The evidence counts as sufficient when all positives are picked.
    """
    places = [it.position for it in state.window]
    new = sorted((it for it in places if it in positives), key=lambda it: -positives[it])[:k]
    have = {it.position for it in state.selected} | set(new)
    weight = sum(positives[it] for it in new) / len(new) if new else 1.0
    labels = tuple(places.index(it) + 1 for it in new)
    return Target(question, t, state, labels, set(positives) <= have, weight)


def trajectories(
    index: Index,
    golds: Sequence[Gold],
    positives: Sequence[Positives],
    settings: Settings,
    head: Mapping[str, str] = MappingProxyType({}),
) -> list[list[Target]]:
    """Make the steps of each question. A question without positives (correct segments) or with an empty first
    window has no steps.

    All questions advance together, window by window. A question ends when its positives are picked, the maximum
    number of steps is reached, or the stream ends.

    `head` contains the guidance that the head wrote for each question, by the question's text. For questions
    not in `head`, the guidance comes from the template. If the setting `guidance` is `off`, there is no
    guidance.
    """
    limits = settings.limits()
    texts = [gold.question for gold in golds]
    views = open_window(index, texts, limits.width, settings.prior, limits.priority, settings.unread())
    targets: list[list[Target]] = [[] for _ in golds]
    walks = {
        at: Progress("" if settings.guidance == "off" else head.get(texts[at]) or template(texts[at]), view)
        for at, view in enumerate(views)
        if positives[at] and view.window
    }
    for t in range(1, limits.max_steps + 1):
        moves: dict[int, Move] = {}
        for at, walk in walks.items():
            aim = target(golds[at].id, t, state_of(walk), positives[at], limits.k)
            targets[at].append(aim)
            walks[at] = step(walk, Decision(aim.labels, float(aim.sufficient)), limits.k)
            if not aim.sufficient and (move := walks[at].next):
                moves[at] = move
        seen = move_on(index, list(moves.values()), limits.width, limits.priority) if moves else []
        walks = {
            at: replace(walks[at], view=view, next=None)
            for at, view in zip(moves, seen, strict=True)
            if view.window
        }
    return targets


def quotas(weights: Sequence[float], size: int) -> list[int]:
    """Divide `size` into whole numbers in proportion to the weights, by the largest remainder method.

    Raises `InputError` if a weight is negative or no weight is positive.
    """
    if min(weights, default=0.0) < 0 or sum(weights) <= 0:
        raise InputError(f"weights: expected no negative number and at least one above 0, got {list(weights)}")
    exact = [size * weight / sum(weights) for weight in weights]
    floors = [int(it) for it in exact]
    rest = sorted(range(len(exact)), key=lambda at: floors[at] - exact[at])[: size - sum(floors)]
    return [floor + (at in rest) for at, floor in enumerate(floors)]


def mixed(sources: Sequence[Sequence[Target]], weights: Sequence[float], size: int, seed: int) -> list[Target]:
    """Draw a total of `size` steps from all sources, and return them in the order of `curriculum`. A source
    is the list of steps from one data set.

    The number of steps from a source is proportional to its weight. Without weights, all sources have the
    same weight. A step is drawn again only after all other steps of its source have been drawn.

    Raises `InputError` if a source from which steps are drawn has none, if the numbers of weights and sources
    differ, or if `quotas` rejects the weights.
    """
    generator = np.random.default_rng(seed)
    chosen: list[Target] = []
    shares = weights or [1.0] * len(sources)
    if len(shares) != len(sources):
        raise InputError(f"weights: expected one for each source ({len(sources)}), got {len(shares)}")
    for number, (source, quota) in enumerate(zip(sources, quotas(shares, size), strict=True), start=1):
        if quota and not source:
            raise InputError(f"source {number}: the searches found no evidence for any question")
        order: list[int] = []
        while len(order) < quota:
            order += generator.permutation(len(source)).tolist()
        chosen += [source[at] for at in order[:quota]]
    return curriculum(chosen, generator)


def curriculum(chosen: Sequence[Target], generator: np.random.Generator) -> list[Target]:
    """Order the steps by random times.

    Let t be the number of a step in its trajectory (from 1), and T the largest t of all these steps. The
    step's time is random, but after the first (t - 1) / T of training. Later steps of trajectories therefore
    tend to come later in training, but first steps occur until the end.
    """
    longest = max((target.t for target in chosen), default=1)
    first = np.array([(target.t - 1) / longest for target in chosen])
    times = first + (1 - first) * generator.random(len(chosen))
    return [chosen[at] for at in np.argsort(times, kind="stable").tolist()]
