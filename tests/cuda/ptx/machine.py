"""Runs kernels: block after block, its threads in step.

Of the threads of a block those at the lowest instruction go on, all warps together, until they meet others or
part; so lanes that took different ways come together again. Which order threads take makes no difference to what
is found: races are judged by what orders two accesses, not by what they did.

It finds, in what nvcc made of a kernel: races; reads of memory that was never written; accesses out of bounds of
any array, or misaligned; barriers that part of a block does not reach, or reaches elsewhere; lanes named in a
mask that do not come; shuffles from lanes that take no part; constant loads of what the launch writes. It is
blind to what ptxas makes of the PTX, to weak memory beyond the rules above, to approximations (ex2.approx and
its like are exact here), and to speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ptx import accesses
from ptx.faults import Fault
from ptx.instructions import Step, translate
from ptx.memory import Clock, Generic, Space
from ptx.operands import TYPES, Array, Threads, source, target
from ptx.parsing import Instruction, Kernel, Unsupported
from ptx.warps import Meeting, complete, mask_operand, meeting

PARAMETERS_BEGIN, MOST_PARAMETER = 1 << 40, 1 << 12
SHARED_BEGINS, SHARED_ENDS = 1 << 16, 1 << 32
GAP = 256
"""Between shared arrays, so that what runs off one meets no other."""
MOST_SHARED = 163 * 1024

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    kernel: str
    grid: Size
    block: Size
    shared_bytes: int
    arguments: list[bytes]


@dataclass
class Operation:
    """An instruction, ready to be done; it has one of the kinds."""

    instruction: Instruction
    guard: Callable[[Any], Array] | None
    jump: int = -1
    ends: bool = False
    barrier: Callable[[Array], None] | None = None
    meet: Meeting | None = None
    mask: Callable[[Any], Array] | None = None
    step: Step | None = None


def run(kernels: Mapping[str, Kernel], launch: Launch, memory: Space) -> None:
    """Runs a launch on global memory, whose clock goes on.

    Raises:
        Fault: the kernel does what is undefined.
        Unsupported: it has something that the interpreter does not know.
    """
    kernel = kernels[launch.kernel]
    memory.clock.begin_launch()
    count = int(np.prod(launch.block))
    if count > kernel.most_threads:
        raise Fault(f"{kernel.name}: more threads than its launch bounds")
    if [len(argument) for argument in launch.arguments] != [parameter.bytes for parameter in kernel.parameters]:
        raise Fault(f"{kernel.name}: arguments of other sizes than its parameters")
    threads = _threads(kernel, launch, memory, count)
    operations = [_operation(threads, kernel, instruction) for instruction in kernel.instructions]
    with np.errstate(all="ignore"):  # infinities and NaN are a kernel's own affair
        for z, y, x in np.ndindex(*launch.grid[::-1]):
            memory.clock.begin_block()
            for axis, number in zip("xyz", (x, y, z), strict=True):
                threads.special[f"%ctaid.{axis}"][:] = number
            threads.shared.forget()
            threads.epochs[:] = 0
            threads.committed[:] = 0
            threads.copies.clear()
            Block(threads, operations, memory.clock).run()


def _threads(kernel: Kernel, launch: Launch, memory: Space, count: int) -> Threads:
    symbols, places, at = {}, [], SHARED_BEGINS
    for variable in kernel.shared:
        symbols[variable.name] = at = -(-at // variable.alignment) * variable.alignment
        size = variable.bytes or launch.shared_bytes
        places.append((at, size, variable.name))
        at += size + GAP
    if sum(size for _, size, _ in places) > MOST_SHARED:
        raise Fault(f"{kernel.name}: too much shared memory")
    number = np.arange(count, dtype=np.uint32)
    width, height, _ = launch.block
    special = {"%tid.x": number % width, "%tid.y": number // width % height, "%tid.z": number // (width * height)}
    special |= {"%laneid": number % 32, "%warpid": number // 32}
    for axis, block, grid in zip("xyz", launch.block, launch.grid, strict=True):
        special[f"%ntid.{axis}"] = np.full(count, block, np.uint32)
        special[f"%nctaid.{axis}"] = np.full(count, grid, np.uint32)
        special[f"%ctaid.{axis}"] = np.zeros(count, np.uint32)
    registers = {name: np.zeros(count, _bits(kind)) for name, kind in kernel.registers.items()}
    for place, parameter in enumerate(kernel.parameters):
        symbols[parameter.name] = PARAMETERS_BEGIN + place * MOST_PARAMETER
    parameters = [(symbols[p.name], p.bytes, p.name) for p in kernel.parameters]
    held = Space("parameter", memory.clock, parameters)
    for parameter, value in zip(kernel.parameters, launch.arguments, strict=True):
        held.fill(symbols[parameter.name], value)
    shared = Space("shared", memory.clock, places)
    spaces = {"param": held, "global": memory, "shared": shared, "generic": Generic(shared, memory, SHARED_ENDS)}
    return Threads(count, registers, special, symbols, spaces)


def _bits(kind: str) -> Any:
    return bool if kind == "pred" else np.dtype(f"u{TYPES[kind].itemsize}")


def _operation(threads: Threads, kernel: Kernel, instruction: Instruction) -> Operation:
    guard = None
    if instruction.guard:
        guard = source(threads, ("!" if instruction.negated else "") + instruction.guard, TYPES["pred"])
    made = Operation(instruction, guard)
    name = instruction.opcode[0]
    if name == "bra":
        made.jump = kernel.labels[instruction.operands[-1]]
    elif name in ("ret", "exit"):
        made.ends = True
    elif operand := mask_operand(instruction):
        made.meet, made.mask = meeting(threads, instruction), source(threads, operand, TYPES["u32"])
    elif name in ("bar", "barrier"):
        made.barrier = _barrier(threads, instruction)
    elif name in accesses.BUILDERS:
        made.step = accesses.BUILDERS[name](threads, instruction)
    else:
        made.step = translate(threads, instruction)
    return made


def _barrier(threads: Threads, instruction: Instruction) -> Callable[[Array], None]:
    """What is done when all threads are there: nothing, or a count of a predicate."""
    kinds = [part for part in instruction.opcode if part in ("popc", "and", "or")]
    if "sync" in instruction.opcode and not kinds and instruction.operands == ("0",):
        return lambda act: None
    if "red" not in instruction.opcode or len(kinds) != 1 or instruction.operands[1] != "0":
        raise Unsupported(instruction.where)
    predicate = source(threads, instruction.operands[-1], TYPES["pred"])
    write = target(threads, instruction.operands[0], TYPES["u32" if kinds[0] == "popc" else "pred"])

    def finish(act: Array) -> None:
        held = predicate(act)
        write(act, {"popc": held.sum(), "and": held.all(), "or": held.any()}[kinds[0]])

    return finish


class Block:
    """The threads of one block on their way."""

    def __init__(self, threads: Threads, operations: list[Operation], clock: Clock) -> None:
        self.threads, self.operations, self.clock = threads, operations, clock
        self.at = np.zeros(threads.count, np.int64)
        """The next operation of each thread."""
        self.alive = np.ones(threads.count, bool)
        self.waits = np.zeros(threads.count, bool)
        """At a barrier, or for lanes of its mask."""

    def run(self) -> None:
        while self.alive.any():
            moving = self.alive & ~self.waits
            if not moving.any():
                self._pass_barrier()
                continue
            lowest = int(self.at[moving].min())
            others = self.at[moving & (self.at != lowest)]
            self._go(lowest, int(others.min()) if len(others) else len(self.operations))

    def _go(self, place: int, end: int) -> None:
        """Lets the threads at `place` go on until they part, wait, or come to where others are."""
        act = np.flatnonzero(self.alive & ~self.waits & (self.at == place))
        everyone = slice(None) if len(act) == self.threads.count else act
        while place < end:
            operation = self.operations[place]
            if operation.meet is not None:
                self.at[act] = place
                self._meet(place)
                return
            chosen = act if operation.guard is None else act[operation.guard(everyone)]
            if operation.step is not None:
                if operation.guard is None:
                    operation.step(everyone)
                elif len(chosen):
                    operation.step(chosen)
                place += 1
            elif operation.jump >= 0 and len(chosen) in (0, len(act)):
                place = operation.jump if len(chosen) else place + 1
            else:
                self.at[act] = place + 1
                if operation.jump >= 0:
                    self.at[chosen] = operation.jump
                elif operation.ends:
                    self.alive[chosen] = False
                else:
                    self.at[chosen] = place
                    self.waits[chosen] = True
                return
        self.at[act] = place

    def _meet(self, place: int) -> None:
        """A rendezvous of lanes: those whose mask is complete go on, the others wait."""
        operation = self.operations[place]
        assert operation.meet is not None and operation.mask is not None
        here = np.flatnonzero(self.alive & (self.at == place))
        if operation.guard is not None:
            passes = ~operation.guard(here)
            self.at[here[passes]] += 1
            here = here[~passes]
        if not len(here):
            return
        whole = complete(self.threads, here, operation.mask(here), self.alive, operation.instruction.where)
        self.waits[here] = ~whole
        if whole.any():
            operation.meet(here[whole])
            self.at[here[whole]] += 1

    def _pass_barrier(self) -> None:
        """All that live wait: let them go on where that is at one barrier of the whole block."""
        places = np.unique(self.at[self.alive])
        first = self.operations[int(places[0])]
        where = first.instruction.where
        for place in places:
            if self.operations[int(place)].meet is not None:
                raise Fault(f"lanes of a mask do not come: {self.operations[int(place)].instruction.where}")
        if len(places) > 1:
            other = self.operations[int(places[1])].instruction.where
            raise Fault(f"divergent barrier: {where}; other threads wait at {other}")
        if not self.alive.all():
            raise Fault(f"divergent barrier, other threads have ended: {where}")
        assert first.barrier is not None
        first.barrier(np.flatnonzero(self.alive))
        self.at += 1
        self.waits[:] = False
        self.clock.next_interval()
