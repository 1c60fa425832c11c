"""What instructions read and write: registers, immediates, addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.memory import EPOCH, Generic, Space
from ptx.parsing import Unsupported

Array = npt.NDArray[Any]
Act = Any
"""Which threads an instruction is for: an index array, or slice(None) for all."""

TYPES: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (32, 64)},
    "pred": np.dtype(bool),
}


@dataclass
class Threads:
    """The registers of a block's threads, and what they can see of memory.

    Registers are bits: an instruction says how to take them.
    """

    count: int
    registers: dict[str, Array]
    special: dict[str, Array]
    symbols: dict[str, int]
    """Addresses of shared variables and of parameters."""
    spaces: dict[str, Space | Generic]
    epochs: Array = field(init=False)
    """int64[threads]: how many times a thread's warp was synchronised."""
    numbers: Array = field(init=False)
    committed: Array = field(init=False)
    """How many groups of asynchronous copies each thread has committed."""
    copies: list[tuple[Array, Array, Array, Array]] = field(default_factory=list)
    """Those on their way: the numbers of threads, of their groups, the addresses and what these will hold."""

    def __post_init__(self) -> None:
        self.numbers = np.arange(self.count, dtype=np.int64)
        self.epochs = np.zeros(self.count, np.int64)
        self.committed = np.zeros(self.count, np.int64)

    @property
    def shared(self) -> Space:
        shared = self.spaces["shared"]
        assert isinstance(shared, Space)
        return shared

    def who(self, act: Act) -> Array:
        """Threads as memory marks them."""
        marks: Array = self.numbers[act] | self.epochs[act] << EPOCH
        return marks

    def lanes(self, act: Act) -> int:
        return self.count if isinstance(act, slice) else len(act)


def source(threads: Threads, operand: str, dtype: Any) -> Callable[[Act], Array]:
    """Reads an operand as an array of that type, one value a thread."""
    if operand.startswith("!"):
        read = source(threads, operand[1:], dtype)
        return lambda act: ~read(act)
    if operand.startswith("%"):
        register = threads.special[operand] if operand in threads.special else threads.registers[operand]
        if register.dtype == bool or register.dtype.itemsize == dtype.itemsize:
            values = register if register.dtype == bool else register.view(dtype)
            return lambda act: values[act]
        if register.dtype.itemsize > dtype.itemsize:  # its lower part
            part = register.view(dtype)[:: register.dtype.itemsize // dtype.itemsize]
            return lambda act: part[act]
        return lambda act: register[act].astype(dtype)
    constant = np.full(threads.count, immediate(threads, operand, dtype))
    return lambda act: constant[act]


def immediate(threads: Threads, operand: str, dtype: Any) -> Any:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
        bits: int = int(operand[2:], 16)
        number = struct.unpack("<f", struct.pack("<I", bits))[0]
        return dtype.type(number) if dtype.kind == "f" else np.uint32(bits).view(dtype)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
        bits = int(operand[2:], 16)
        return np.uint64(bits).view(np.float64) if dtype.kind == "f" else np.uint64(bits).view(dtype)
    if operand in threads.symbols:
        return dtype.type(threads.symbols[operand])
    try:
        value = int(operand.rstrip("U"), 0)
    except ValueError:
        raise Unsupported(f"operand {operand}") from None
    if dtype.kind == "b":
        return bool(value)
    size = dtype.itemsize
    return np.frombuffer((value % (1 << 8 * size)).to_bytes(size, "little"), dtype)[0]


def target(threads: Threads, operand: str, dtype: Any) -> Callable[[Act, Any], None]:
    """Writes values to a register; a wider one is extended as the type has a sign or not."""
    if operand == "_":
        return lambda act, values: None
    register = threads.registers[operand]
    if register.dtype == bool:
        typed = register
    elif register.dtype.itemsize >= dtype.itemsize:
        same = register.dtype.itemsize == dtype.itemsize
        typed = register.view(dtype if same else f"{'i' if dtype.kind == 'i' else 'u'}{register.dtype.itemsize}")
    else:
        raise Unsupported(f"{dtype} into {operand}")

    def write(act: Act, values: Any) -> None:
        typed[act] = values

    return write


def address(threads: Threads, operand: str) -> Callable[[Act], Array]:
    """int64 addresses of `[register + offset]` or `[symbol + offset]`."""
    found = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
    if not found:
        raise Unsupported(f"address {operand}")
    base, offset = found[1], int(found[2] or "0", 0)
    if not base.startswith("%"):
        fixed = np.full(threads.count, threads.symbols[base] + offset, np.int64)
        return lambda act: fixed[act]
    register = threads.registers[base]
    return lambda act: register[act].astype(np.int64) + offset


def elements(operand: str) -> list[str]:
    """Of `{a, b}`; else the operand alone."""
    return [part.strip() for part in operand.strip("{}").split(",")]
