"""The driver's other end: calls in a process that emulates the GPU."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


PATIENCE_S = 120
MOST_BLOCKS = 1 << 30
"""As csrc/cuda/gpu.cuh has it."""


class CallError(Exception):
    """What the call threw."""


class Caught(Exception):
    """The emulator or a sanitizer ended the program; holds its report."""


@dataclass(frozen=True)
class Out:
    """An array that the call fills; it begins as poison."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class InOut:
    """An array that the call changes."""

    array: Array


@dataclass(frozen=True)
class Scratch:
    """Memory for the call to use, of so many bytes; it begins as poison."""

    bytes: int


Argument = int | float | Array | Out | InOut | Scratch


@dataclass(frozen=True)
class Recorded:
    """A call's launches, in the driver's bytes, and where its arrays would have been."""

    log: bytes
    places: list[int]


class Driver:
    """A running driver; started again after each report."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._report = tempfile.TemporaryFile()  # noqa: SIM115

    @property
    def driver(self) -> Driver:
        return self

    def call(
        self, name: str, *arguments: Argument, seed: int = 0, poison: int = 0xFF, most_blocks: int = MOST_BLOCKS
    ) -> list[Array]:
        """The arrays that the call filled or changed, in the order of its arguments.

        Args:
            seed: 0 runs threads and blocks in their order; another number, in an order that it determines.
            poison: what each byte holds that was not written yet.
            most_blocks: how many blocks a kernel has at most that loops over what is left.

        Raises:
            CallError: the call threw.
            Caught: the emulator or a sanitizer found a fault.
        """
        return self._ask(name, arguments, (seed, poison, most_blocks), False)[1]

    def record(self, name: str, *arguments: Argument) -> Recorded:
        """The launches of the call, which are not run."""
        return self._ask(name, arguments, (0, 0, MOST_BLOCKS), True)[0]

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def _ask(
        self, name: str, arguments: Sequence[Argument], schedule: tuple[int, int, int], record: bool
    ) -> tuple[Recorded, list[Array]]:
        head = struct.pack("<I", len(name)) + name.encode() + struct.pack("<QBQ?", *schedule, record)
        request = [head, struct.pack("<I", len(arguments)), *(_sent(a) for a in arguments)]
        process = self._running()
        patience = Timer(PATIENCE_S, process.kill)
        patience.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(b"".join(request))
            process.stdin.flush()
            message, log = self._text().decode(), self._text()
            places, results = [], []
            for argument in arguments:
                if not isinstance(argument, int | float):
                    places.append(*struct.unpack("<Q", self._read(8)))
                    if isinstance(argument, Out | InOut) and not record:
                        results.append(self._array(argument))
        except (BrokenPipeError, EOFError):
            raise Caught(self._ended()) from None
        finally:
            patience.cancel()
        if message:
            raise CallError(message)
        return Recorded(log, places), results

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._report.seek(0)
            self._report.truncate()
            environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0"}
            self._process = subprocess.Popen(
                [self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._report, env=environment
            )
        return self._process

    def _ended(self) -> str:
        assert self._process is not None
        self._process.wait(60)
        self._process = None
        self._report.seek(0)
        return self._report.read().decode(errors="replace") or f"no answer within {PATIENCE_S} seconds"

    def _read(self, size: int) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        found = self._process.stdout.read(size)
        if len(found) < size:
            raise EOFError
        return found

    def _text(self) -> bytes:
        return self._read(*struct.unpack("<I", self._read(4)))

    def _array(self, wanted: Out | InOut) -> Array:
        shape, dtype = wanted_type(wanted)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self._read(size), dtype).reshape(shape)


def wanted_type(wanted: Out | InOut) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of a result."""
    return (wanted.shape, wanted.dtype) if isinstance(wanted, Out) else (wanted.array.shape, wanted.array.dtype)


def content(argument: Array | Out | InOut | Scratch) -> bytes | int:
    """The bytes an array begins with, or how many there are where it begins with none."""
    if isinstance(argument, Scratch):
        return argument.bytes
    if isinstance(argument, Out):
        return int(np.prod(argument.shape)) * np.dtype(argument.dtype).itemsize
    return np.ascontiguousarray(argument.array if isinstance(argument, InOut) else argument).tobytes()


def _sent(argument: Argument) -> bytes:
    if isinstance(argument, int):
        return b"i" + struct.pack("<q", argument)
    if isinstance(argument, float):
        return b"r" + struct.pack("<d", argument)
    held = content(argument)
    filled, size = (True, len(held)) if isinstance(held, bytes) else (False, held)
    head = b"a" + struct.pack("<??Q", filled, isinstance(argument, Out | InOut), size)
    return head + (held if isinstance(held, bytes) else b"")
