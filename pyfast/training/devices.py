"""Let several processes train one model together. Each process has its own device. `accelerate launch` starts
the processes. Estimate the time and memory of a training on these devices.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import torch

T = TypeVar("T")
_ADAM = 8
"""The bytes that Adam stores for each trained number"""


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


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate for the remaining steps of a training."""

    steps: int
    """The number of remaining steps"""
    tokens: int
    """The number of tokens in these steps, in all processes together. Padding counts too"""
    longest: int
    """The number of tokens of the largest batch, including padding"""
    memory: int
    """The maximum memory of one process, in bytes: GPU memory, or main memory if it trains on the CPU"""
    seconds: float
    """The time of all remaining steps"""

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.tokens} tokens, at most {self.longest} in a batch; about"
            f" {self.memory / 2**30:.1f} GiB of memory and {self.seconds / 3600:.1f} hours"
        )


def estimated(
    steps: Sequence[Sequence[Sequence[T]]],
    loss: Callable[[Sequence[T]], torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    size: Callable[[T], int],
    devices: Devices,
) -> Estimate:
    """Estimate time and memory of training steps from two trials: with the largest batch, and with the batch
    of median size.

    A trial computes the gradients of a batch, and then removes them. `steps` has the batches of each step.
    `size(example)` is the number of tokens of an example.

    Raises torch's error if the largest batch does not fit into memory.
    """
    batches = sorted((batch for step in steps for batch in step), key=lambda batch: tokens_of(batch, size))
    sizes = [tokens_of(batch, size) for batch in batches]

    def trial(batch: Sequence[T]) -> float:
        started = perf_counter()
        torch.autograd.backward(loss(batch))
        for parameter in parameters.values():
            parameter.grad = None
        if devices.device.type == "cuda":
            torch.cuda.synchronize(devices.device)
        return perf_counter() - started

    trial(batches[-1])
    middle = len(batches) // 2
    seconds = trial(batches[middle]) / sizes[middle] * sum(sizes) / devices.count
    memory = _peak(devices.device) + _ADAM * sum(it.numel() for it in parameters.values())
    return Estimate(len(steps), sum(sizes), sizes[-1], memory, seconds)


def tokens_of(batch: Sequence[T], size: Callable[[T], int]) -> int:
    """Return the number of tokens of a batch. Every example is padded to the length of the longest
    example."""
    return len(batch) * max(map(size, batch))


def _peak(device: torch.device) -> int:
    """Return the largest number of bytes that this process has used at one time so far. On a GPU, only memory
    of the GPU counts, otherwise main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used
