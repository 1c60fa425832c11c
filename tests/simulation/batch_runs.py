"""One seed of another kind: a run whose LLM is behind a provider's Batch API (see `batches`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from simulation import runs, scenario
from simulation.batches import MOODS
from simulation.llm import FELLS, WRONG
from simulation.scenario import Scenario
from simulation.systems import STAGES

__all__ = ["drawn", "fault_of", "install", "smaller"]

fault_of, install = runs.fault_of, scenario.install


def drawn(seed: int) -> Scenario:
    """The scenario of a seed: that of a run, with other LLMs."""
    of, chance = scenario.drawn(seed), Random(seed + 3_000_003)
    budget = dict(of.budget)
    if budget.get("seconds") == 1000.0:
        del budget["seconds"]  # A batch may take that long.
    options: dict[str, Any] = {
        "attempts": chance.choice((2, 5)),
        "online_calls": chance.choice((None, None, 2)),
        "max_calls": chance.choice((3, 10, 10_000)),
        "wait_s": chance.choice((1.0, 600.0)),
    }
    moods = chance.sample(list(MOODS), k=chance.choice((0, 1, 1, 2, 3)))
    return replace(
        of,
        stages=tuple(chance.choices((*STAGES, "twins", "twins"), k=chance.choice((1, 1, 2, 3)))),
        moods={mood: share for mood, share in of.moods.items() if mood in WRONG},
        outages=[(begins, ends, "down" if how == "hangs" else how) for begins, ends, how in of.outages],
        poisoned={part: "always down" if what == FELLS else what for part, what in of.poisoned.items()},
        budget=budget,
        patience=chance.choice((5.0, 30.0)),
        concurrency=chance.choice((2, 8, 64)),
        http=False,
        second=of.second and not of.outages,
        batches=options,
        provider={mood: MOODS[mood] for mood in moods},
        takes=chance.choice((1.0, 30.0, 300.0)),
    )


def smaller(of: Scenario) -> Iterator[Scenario]:
    """The same with fewer sessions, questions or faults."""
    yield from runs.smaller(of)
    for mood in of.provider:
        yield replace(of, provider={name: share for name, share in of.provider.items() if name != mood})
