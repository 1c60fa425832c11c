"""Let several processes train one model together. Each process has its own device. `accelerate launch` starts
the processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Devices:
    """The device of this process, and the number of processes that train together."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    """The number of this process, from 0"""
    count: int = 1
    """The number of processes"""

    @property
    def first(self) -> bool:
        """Whether this process is the first. Only the first process writes files."""
        return self.rank == 0

    def share(self, things: Sequence[T]) -> Sequence[T]:
        """Return this process's share of a list. Each item is in the share of exactly one process."""
        return things[self.rank :: self.count]

    def either(self, here: bool) -> bool:
        """Return whether `here` is true in at least one process. All processes must call this method."""
        return bool(self.total(torch.tensor([float(here)])).item())

    def total(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the sum of `numbers` over all processes, for each element. All processes must call this
        method."""
        if self.count > 1:
            numbers = numbers.to(self.device)
            torch.distributed.all_reduce(numbers)
        return numbers

    def add_gradients(self, parameters: Iterable[torch.Tensor], value: float) -> float:
        """Give each parameter the sum of its gradients in all processes. Return the sum of `value` over all
        processes.

        If no process has a gradient for a parameter, the parameter gets no gradient. All processes must call
        this method.
        """
        if self.count == 1:
            return value
        learnt = list(parameters)
        flags = torch.tensor([value, *(float(it.grad is not None) for it in learnt)], device=self.device)
        gradients = [(torch.zeros_like(it) if it.grad is None else it.grad).flatten().float() for it in learnt]
        added = self.total(torch.cat([flags, *gradients]))
        sums = added[len(flags) :].split([it.numel() for it in learnt])
        for it, summed, own in zip(learnt, added[1 : len(flags)].tolist(), sums, strict=True):
            it.grad = own.view_as(it).to(it.dtype).clone() if summed else None
        return added[0].item()


ALONE = Devices()


def open_devices() -> Devices:
    """Find the device of this process, and how many processes train together. The device is the CPU if the
    machine has no GPU or the environment variable `ACCELERATE_USE_CPU` is set. Otherwise it is a GPU.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    state = PartialState(cpu=not torch.cuda.is_available() or parse_flag_from_env("ACCELERATE_USE_CPU"))
    return Devices(state.device, state.process_index, state.num_processes)
