"""Carry out seeds, and shrink those that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from simulation.disk import Disk
from simulation.loop import StuckError
from simulation.rules import check
from simulation.scenario import Scenario, ViolationError, carried_out, drawn


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


def simulated(seed: int, disk: Disk) -> str:
    """Carry out a seed. Return what is wrong with it, or an empty text."""
    return fault_of(drawn(seed), disk)


def told(seed: int, disk: Disk, shrinks: bool) -> str:
    """Carry out a seed, and print what happens: its shortest history that still fails, if `shrinks`."""
    scenario = drawn(seed)
    print(scenario)
    fault = fault_of(scenario, disk, trace=not shrinks)
    if fault and shrinks:
        scenario = _shrunk(scenario, disk)
        print(f"still fails: {scenario}")
        fault = fault_of(scenario, disk, trace=True)
    return fault


def _shrunk(scenario: Scenario, disk: Disk) -> Scenario:
    """Leave out, again and again, what is not needed for a failure."""
    while True:
        for smaller in _smaller(scenario):
            if fault_of(smaller, disk):
                scenario = smaller
                break
        else:
            return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
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
