"""Let several processes train together, one for each device. `accelerate launch` starts them."""

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
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the files. Of several processes, only the first does."""
        return self.rank == 0

    def share(self, things: Sequence[T]) -> Sequence[T]:
        """Return this process's share of a list."""
        return things[self.rank :: self.count]

    def either(self, here: bool) -> bool:
        """Return whether the condition is true in at least one process. All processes must call this method."""
        return bool(self.total(torch.tensor([float(here)])).item())

    def total(self, numbers: torch.Tensor) -> torch.Tensor:
        """Add up the values of all processes. Each process gets the same sum."""
        if self.count > 1:
            numbers = numbers.to(self.device)
            torch.distributed.all_reduce(numbers)
        return numbers

    def add_gradients(self, parameters: Iterable[torch.Tensor], value: float) -> float:
        """Give each parameter the sum of its gradients in all processes, and return the sum of the processes'
        values.

        If no process has a gradient for a parameter, the parameter gets no gradient.
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
    """Find the device of this process, and how many processes were started together. The device is a GPU if
    there are GPUs, otherwise the CPU.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    state = PartialState(cpu=not torch.cuda.is_available() or parse_flag_from_env("ACCELERATE_USE_CPU"))
    return Devices(state.device, state.process_index, state.num_processes)
