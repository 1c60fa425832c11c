"""A training loop that resumes from checkpoints. The caller passes the loss function.

The random numbers of a step depend only on the seed and the step, so a resumed training ends with the same weights
as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from pyfast.errors import InputError, RunError
from pyfast.llm.local import digest as digest_of
from pyfast.utils.files import written_aside
from pyfast.utils.text_forms import counted

E = TypeVar("E")
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

    def share(self, things: Sequence[E]) -> Sequence[E]:
        """Return this process's share of a list. Each item belongs to exactly one process's share."""
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
        """Set each parameter's gradient to the sum of its gradients in all processes, and return the sum of
        `value` over all processes.

        A parameter that has a gradient in no process gets none. All processes must call this method.
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
    """Find the device of this process, and how many processes train together. The device is a GPU, unless the
    machine has none or the environment variable `ACCELERATE_USE_CPU` is set.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    state = PartialState(cpu=not torch.cuda.is_available() or parse_flag_from_env("ACCELERATE_USE_CPU"))
    return Devices(state.device, state.process_index, state.num_processes)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate for a training's remaining steps."""

    steps: int
    """The number of remaining steps"""
    tokens: int
    """The number of tokens in these steps over all processes, including padding"""
    longest: int
    """The number of tokens of the largest batch, including padding"""
    memory: int
    """The maximum memory of one process, in bytes: GPU memory, or main memory if it trains on the CPU"""
    seconds: float
    """The time for all remaining steps"""

    def __str__(self) -> str:
        return (
            f"{counted(self.steps, 'step')}, {self.tokens} tokens, at most {self.longest} in a batch; about"
            f" {self.memory / 2**30:.1f} GiB of memory and {self.seconds / 3600:.1f} hours"
        )


def estimated(
    steps: Sequence[Sequence[Sequence[E]]],
    loss: Callable[[Sequence[E]], torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    size: Callable[[E], int],
    devices: Devices,
) -> Estimate:
    """Estimate the time and memory of training steps from two trials, one with the largest batch and one with the
    batch of median size.

    A trial computes the gradients of a batch, and then discards them. `steps` contains the batches of each step,
    and `size(example)` returns the number of tokens of an example.

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
    """Return the number of tokens of a batch, in which every example is padded to the length of the longest
    one."""
    return len(batch) * max(map(size, batch))


def _peak(device: torch.device) -> int:
    """Return this process's peak memory so far, in bytes: GPU memory on a GPU, otherwise main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


CHECKPOINT, CURVE = "checkpoint.safetensors", "curve.jsonl"
_STATE = ("step", "exp_avg", "exp_avg_sq")
"""The names of the values that Adam stores for a parameter. `step` counts only the steps in which the
parameter had a gradient"""

Parameters = Mapping[str, torch.Tensor]
"""The trained parameters by name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The length and the learning rate of training with Adam.

    The defaults come from table 4 of the graph_convqa paper.
    """

    epochs: int = 1
    accumulation: int = 4
    """The number of examples per step of the optimizer, over all processes"""
    learning_rate: float = 5e-5
    rate: Literal["constant", "cosine"] = "constant"
    """How the learning rate changes after the warm-up. `constant`: it stays at `learning_rate`. `cosine`: it
    falls from `learning_rate` to 0, along half a cosine wave"""
    warmup: float = 0.0
    """The share of the steps in which the learning rate rises from almost 0 to `learning_rate`: 0.1 means the
    first tenth of the steps"""
    order: Literal["shuffled", "given"] = "shuffled"
    """`shuffled`: each epoch has its own random order. `given`: the examples keep their order, as a
    curriculum needs"""
    clip: float = 1.0
    """The maximum norm of a step's gradient. A larger gradient is scaled down"""
    seed: int = 0
    autocast: bool = False
    """Whether to compute in bfloat16 where torch's autocast supports it. The trained weights stay in float32"""
    save_every: int = 50
    """The number of steps between checkpoints. There is always a checkpoint after the last step"""

    def steps(self, examples: int) -> int:
        """Return the number of steps of the whole training for this number of examples. The last step of an epoch
        may have fewer examples than the others.
        """
        return self.epochs * math.ceil(examples / self.accumulation)

    def learning_rate_of(self, step: int, total: int) -> float:
        """Return the learning rate of step number `step` (from 0) of `total` steps."""
        rising = math.ceil(self.warmup * total)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        if self.rate == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (step - rising) / (total - rising))) / 2


@dataclass(frozen=True, slots=True)
class Batches(Generic[E]):
    """How to divide the examples of a step into batches, each with examples of similar length."""

    size: Callable[[E], int]
    """A function that returns an example's number of tokens"""
    most: int = 1
    """The maximum number of examples in a batch"""

    def of(self, examples: Sequence[E]) -> list[list[int]]:
        """Divide the examples of a step into batches. A batch is a list of positions in `examples`.

        If `most` is 1, the examples stay in order; otherwise, they are sorted by length, the longest first.
        """
        places = list(range(len(examples)))
        if self.most > 1:
            places.sort(key=lambda at: -self.size(examples[at]))
        return [places[at : at + self.most] for at in range(0, len(places), self.most)]


@dataclass(frozen=True, slots=True)
class Point:
    """One step of the learning curve: a line of curve.jsonl."""

    step: int
    epoch: int
    loss: float
    """The mean loss of the step's examples"""
    gradient: float
    """The norm of the gradient before clipping"""
    seconds: float


def fit(
    examples: Sequence[E],
    loss: Callable[[Sequence[E]], torch.Tensor],
    parameters: Parameters,
    folder: Path,
    schedule: Schedule,
    described: Mapping[str, Any],
    *,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Point, int], None] = lambda point, total: None,
    batches: Batches[E] | None = None,
    devices: Devices = ALONE,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> list[Point]:
    """Train with Adam, or resume from the checkpoint in the folder.

    Args:
        examples: The examples.
        loss: A function that returns the sum of the losses of a batch.
        parameters: The parameters to train, by name. They change in place.
        folder: The folder of the checkpoint and the learning curve.
        schedule: The length and the learning rate.
        described: Everything else on which the training depends, such as the data and the model. Training resumes
            only if `schedule`, `described` and the number of examples are the same as before.
        stop: A function to call before each step. If it returns true, training stops, and can be resumed later.
        on_step: A function to call after each step, with its point of the curve and the number of all steps.
        batches: How to divide a step's examples into batches. None: each example is a batch.
        devices: This process among those that train together. Each one computes its share of a step's batches, and
            the first one writes the files and calls `on_step` and `on_estimate`.
        on_estimate: A function to call before the first step, if any step remains, with an estimate for the
            remaining steps.

    Returns:
        The learning curve.

    Raises:
        InputError: There is no example, or the checkpoint is damaged or belongs to another training run.
        RunError: The loss or its gradient is not finite, or the processes have different checkpoints.
    """
    if not examples:
        raise InputError("there are no examples to train on")
    folder.mkdir(parents=True, exist_ok=True)
    batches = batches or Batches(lambda example: 1)
    loss = casting(loss, schedule, parameters)
    optimizer = torch.optim.Adam(parameters.values(), lr=schedule.learning_rate)
    digest = digest_of({"schedule": asdict(schedule), "examples": len(examples), **described})
    done = _restore(folder / CHECKPOINT, parameters, optimizer, digest)
    if devices.total(torch.tensor(done)).item() != done * devices.count:
        raise RunError(f"{folder}: the processes start at different steps; they must all use the same folder")
    curve = _curve(folder / CURVE, done)
    total, reached = schedule.steps(len(examples)), done
    if on_estimate and done < total:
        ahead = steps_of(examples, schedule, batches, done)
        estimate = estimated(ahead, loss, parameters, batches.size, devices)
        if devices.first:
            on_estimate(estimate)
    if devices.first:
        (folder / CURVE).write_text("".join(map(_line, curve)), encoding="utf-8")

    def carry_out(step: int) -> Point:
        started = perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = schedule.learning_rate_of(step, total)
        epoch, chosen = batch(len(examples), schedule, step)
        losses = 0.0
        for places in devices.share(batches.of([examples[i] for i in chosen])):
            seed = blake2b(repr((schedule.seed, step, places[0])).encode()).digest()[:7]
            torch.manual_seed(int.from_bytes(seed))
            value = loss([examples[chosen[place]] for place in places])
            torch.autograd.backward(value / len(chosen))
            losses += value.item()
        mean = devices.add_gradients(parameters.values(), losses) / len(chosen)
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), schedule.clip).item()
        if not math.isfinite(mean) or not math.isfinite(norm):
            raise RunError(f"step {step}: loss {mean:g}, gradient norm {norm:g}; try a lower learning rate")
        optimizer.step()
        optimizer.zero_grad()
        return Point(step, epoch, mean, norm, perf_counter() - started)

    for step in range(done, total):
        if devices.either(stop()):
            break
        point = carry_out(step)
        curve.append(point)
        reached = step + 1
        if devices.first:
            with (folder / CURVE).open("a", encoding="utf-8") as file:
                file.write(_line(point))
            on_step(point, total)
            if reached % schedule.save_every == 0:
                _save(folder / CHECKPOINT, parameters, optimizer, digest, reached)
    if reached > done and devices.first:
        _save(folder / CHECKPOINT, parameters, optimizer, digest, reached)
    return curve


def casting(
    loss: Callable[[Sequence[E]], torch.Tensor], schedule: Schedule, parameters: Parameters
) -> Callable[[Sequence[E]], torch.Tensor]:
    """Wrap the function `loss` in torch's autocast if the schedule asks for it."""
    device = next(iter(parameters.values())).device.type

    def computed(examples: Sequence[E]) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=schedule.autocast):
            return loss(examples)

    return computed


def batch(examples: int, schedule: Schedule, step: int) -> tuple[int, list[int]]:
    """Return (the number of a step's epoch, from 0; the positions of the step's examples). `examples` is the
    number of all examples.
    """
    epoch, place = divmod(step, math.ceil(examples / schedule.accumulation))
    if schedule.order == "given":
        order = np.arange(examples)
    else:
        order = np.random.default_rng((schedule.seed, epoch)).permutation(examples)
    first = place * schedule.accumulation
    return epoch, order[first : first + schedule.accumulation].tolist()


def steps_of(
    examples: Sequence[E], schedule: Schedule, batches: Batches[E], first: int = 0
) -> list[list[list[E]]]:
    """List the steps of a training run, beginning with step `first`. A step is a list of batches, and a batch is a
    list of examples."""
    steps = []
    for step in range(first, schedule.steps(len(examples))):
        chosen = [examples[i] for i in batch(len(examples), schedule, step)[1]]
        steps.append([[chosen[at] for at in places] for places in batches.of(chosen)])
    return steps


def _save(path: Path, parameters: Parameters, optimizer: torch.optim.Optimizer, digest: str, step: int) -> None:
    """Write the checkpoint to a temporary file, and then rename it. The checkpoint contains all tensors that a
    step changes: the parameters, and Adam's values for each parameter that has ever had a gradient."""
    tensors = {name: parameter.detach().contiguous() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        stored = optimizer.state[parameter]
        tensors |= {f"{part}:{name}": stored[part].contiguous() for part in _STATE if part in stored}
    with written_aside(path) as aside:
        save_file(tensors, aside, {"training": digest, "step": str(step)})


def _restore(path: Path, parameters: Parameters, optimizer: torch.optim.Optimizer, digest: str) -> int:
    """Load the checkpoint, if there is one. Returns the number of finished steps."""
    if not path.exists():
        return 0
    try:
        with safe_open(path, framework="pt") as file:
            metadata, names = file.metadata() or {}, set(file.keys())
            if metadata.get("training") != digest:
                raise InputError(
                    f"{path} belongs to another training run (other data, model or schedule); use another folder"
                )
            step = int(metadata["step"])
            for name, parameter in parameters.items():
                parameter.data.copy_(file.get_tensor(name))
                if f"{_STATE[0]}:{name}" in names:
                    state = {part: file.get_tensor(f"{part}:{name}") for part in _STATE}
                    moments = {part: state[part].to(parameter.device) for part in _STATE[1:]}
                    optimizer.state[parameter] = state | moments
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}; remove it to start again") from None
    return step


def _curve(path: Path, done: int) -> list[Point]:
    """Read the learning curve up to the step of the checkpoint. Later points are dropped, because their steps run
    again.

    If a line is damaged, for example by a power cut, it and all lines after it are dropped too, so the curve may
    lack points of steps before the checkpoint, which do not run again.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    curve: list[Point] = []
    for line in lines:
        try:
            point = Point(**json.loads(line))
        except (TypeError, ValueError):
            break
        if point.step >= done:
            break
        curve.append(point)
    return curve


def _line(point: Point) -> str:
    return f"{json.dumps(asdict(point))}\n"


def write_recipe(
    folder: Path, recipe: Mapping[str, Any], schedule: Schedule, curve: Sequence[Point], **counts: int
) -> None:
    """Write recipe.json, which says how a model was trained, in how many steps, and on how many examples
    (`counts`)."""
    summary = {"recipe": recipe, "schedule": asdict(schedule), "steps": len(curve), **counts}
    (folder / "recipe.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
