"""Calls whose kernels are run by the interpreter of PTX.

The launcher, which is host code, is run by the driver; what it would launch is written down and done here. So
all of the launches must be known before the first has run: a launcher that waited for results would not pass.
Nothing else is common to the two ways: how a kernel runs, and what is checked, is written twice.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from emulated import Argument, Array, Driver, InOut, Out, content, wanted_type
from ptx.machine import Launch, Size, run
from ptx.memory import Clock, Space
from ptx.parsing import Kernel, parse

ALIGNMENT = 256
"""Of the arrays that are carved from a workspace."""


class Interpreter:
    """Calls of a driver, its kernels taken from PTX."""

    def __init__(self, driver: Driver, modules: Iterable[str]) -> None:
        self.driver = driver
        self.kernels: dict[str, Kernel] = {k.name: k for module in modules for k in parse(module)}
        self._names = _symbols(driver.program)

    def call(self, name: str, *arguments: Argument) -> list[Array]:
        """As Driver.call.

        Raises:
            CallError: the call threw.
            Fault: a kernel does what CUDA leaves undefined.
        """
        recorded = self.driver.record(name, *arguments)
        arrays = [argument for argument in arguments if not isinstance(argument, int | float)]
        held = [content(array) for array in arrays]
        sizes = [len(c) if isinstance(c, bytes) else c for c in held]
        names = [f"array {number}" for number in range(len(arrays))]
        memory = Space("global", Clock(), list(zip(recorded.places, sizes, names, strict=True)))
        for place, c in zip(recorded.places, held, strict=True):
            if isinstance(c, bytes):
                memory.fill(place, c)
        self._replay(recorded.log, memory)
        results = []
        for place, array, size in zip(recorded.places, arrays, sizes, strict=True):
            if isinstance(array, Out | InOut):
                shape, dtype = wanted_type(array)
                results.append(memory.bytes[memory.span(place, size)].view(dtype).reshape(shape).copy())
        return results

    def _replay(self, log: bytes, memory: Space) -> None:
        at = 0
        while at < len(log):
            kind, at = chr(log[at]), at + 1
            if kind == "L":
                launch, at = self._launch(log, at)
                run(self.kernels, launch, memory)
            elif kind == "A":
                array, size = struct.unpack_from("<QQ", log, at)
                memory.fence_off(array + size, ALIGNMENT - size % ALIGNMENT)
                at += 16
            elif kind == "F":
                to, value, size = struct.unpack_from("<QqQ", log, at)
                memory.fill(to, bytes([value & 255]) * size)
                at += 24
            else:
                to, of, size = struct.unpack_from("<QQQ", log, at)
                written = memory.written[memory.span(of, size)]
                memory.fill(to, memory.bytes[memory.span(of, size)].tobytes())
                memory.written[memory.span(to, size)] = written
                at += 24

    def _launch(self, log: bytes, at: int) -> tuple[Launch, int]:
        kernel, *sizes, shared, count = struct.unpack_from("<q6IQI", log, at)
        at += struct.calcsize("<q6IQI")
        arguments = []
        for _ in range(count):
            (size,) = struct.unpack_from("<I", log, at)
            arguments.append(log[at + 4 : at + 4 + size])
            at += 4 + size
        grid: Size = (sizes[0], sizes[1], sizes[2])
        block: Size = (sizes[3], sizes[4], sizes[5])
        return Launch(self._names[kernel], grid, block, shared, arguments), at


def _symbols(program: Path) -> dict[int, str]:
    """The functions of a program, as C++ writes their names, by how far they are from main."""
    done = subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    functions = {name: int(place, 16) for place, kind, name in lines if kind in "tTwWV"}
    plain = subprocess.run(["c++filt"], input="\n".join(functions), capture_output=True, text=True, check=True)
    places = [place - functions["main"] for place in functions.values()]
    return dict(zip(places, plain.stdout.splitlines(), strict=True))
