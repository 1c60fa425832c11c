"""One seed of the first kind: a run (see `scenario` and `rules`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from simulation.disk import Disk
from simulation.loop import StuckError
from simulation.rules import check
from simulation.scenario import Scenario, ViolationError, carried_out, drawn, install

__all__ = ["drawn", "fault_of", "install", "smaller"]


def fault_of(scenario: Scenario, disk: Disk, trace: bool = False) -> str:
    """Carry out a scenario. Return what is wrong, or an empty text."""
    try:
        history = carried_out(scenario, disk, trace)
        check(history)
    except (ViolationError, StuckError) as error:
        return str(error)
    finally:
        disk.end()
        disk.remove()
    return ""


def smaller(scenario: Scenario) -> Iterator[Scenario]:
    """The same with fewer sessions, questions or faults."""
    endings, questions = scenario.endings, scenario.questions
    for place in range(len(endings)):
        yield replace(scenario, endings=endings[:place] + endings[place + 1 :])
    for count in dict.fromkeys((1, len(questions) // 2, len(questions) - 1)):
        if 0 < count < len(questions):
            yield replace(scenario, questions=questions[:count])
    if len(scenario.stages) > 1:
        yield replace(scenario, stages=scenario.stages[:-1])
    plain: dict[str, Any] = {
        "moods": {},
        "poisoned": {},
        "budget": {},
        "outages": [],
        "flips": "",
        "concurrency": 1,
    }
    plain |= dict.fromkeys(("jumps", "retries_failed", "grows", "second", "keep_prompts", "shuffles"), False)
    for name, value in plain.items():
        if getattr(scenario, name) != value:
            yield replace(scenario, **{name: value})
