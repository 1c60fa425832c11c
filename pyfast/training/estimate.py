"""Estimate the time and memory of a training from two trials: with the largest batch (in tokens), and with
the batch of median size.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import torch

from pyfast.training.devices import Devices

E = TypeVar("E")
_ADAM = 8
"""The bytes that Adam stores for each trained number"""


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
    steps: Sequence[Sequence[Sequence[E]]],
    loss: Callable[[Sequence[E]], torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    size: Callable[[E], int],
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

    def trial(batch: Sequence[E]) -> float:
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


def tokens_of(batch: Sequence[E], size: Callable[[E], int]) -> int:
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
