"""Carry out seeds, and shrink those that fail."""

from __future__ import annotations

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


def simulated(seed: int, disk: Disk, trace: bool = False) -> str:
    """Carry out a seed. Return what is wrong with it, or an empty text."""
    scenario = drawn(seed)
    if trace:
        print(scenario)
    return fault_of(scenario, disk, trace)
