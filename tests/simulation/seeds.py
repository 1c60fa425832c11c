"""Carry out seeds of any kind, and shrink those that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from simulation.disk import Disk


class Kind(Protocol):
    """A module that knows what a seed of one kind means."""

    def install(self) -> None:
        """Prepare this process."""

    def drawn(self, seed: int) -> Any:
        """What a seed means."""

    def fault_of(self, drawn: Any, disk: Disk, trace: bool = False) -> str:
        """Carry it out. Return what is wrong, or an empty text."""

    def smaller(self, drawn: Any) -> Iterator[Any]:
        """The same with one thing left out, each time another one."""


def without_one_step(drawn: Any) -> Iterator[Any]:
    """Leave out each of its `steps`."""
    for place in range(len(drawn.steps)):
        yield replace(drawn, steps=drawn.steps[:place] + drawn.steps[place + 1 :])


def fault_of(kind: Kind, drawn: Any, disk: Disk, trace: bool = False) -> str:
    """Carry out what a seed means. Of some seeds, a power cut takes every name that was not synced."""
    disk.is_strict = drawn.seed % 7 in (3, 4)
    return kind.fault_of(drawn, disk, trace)


def told(kind: Kind, seed: int, disk: Disk, shrinks: bool) -> str:
    """Carry out a seed, and print what happens: its shortest history that still fails, if `shrinks`."""
    drawn = kind.drawn(seed)
    print(drawn)
    fault = fault_of(kind, drawn, disk, trace=not shrinks)
    if fault and shrinks:
        drawn = _shrunk(kind, drawn, disk)
        print(f"still fails: {drawn}")
        fault = fault_of(kind, drawn, disk, trace=True)
    return fault


def _shrunk(kind: Kind, drawn: Any, disk: Disk) -> Any:
    """Leave out, again and again, what is not needed for a failure."""
    while True:
        for smaller in kind.smaller(drawn):
            if fault_of(kind, smaller, disk):
                drawn = smaller
                break
        else:
            return drawn
