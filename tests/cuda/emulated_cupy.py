"""As much of CuPy as the ops want, over the emulator's memory: arrays that say they are on a GPU."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np


def emulated_cupy(native: Any) -> Any:
    """The module, of arrays whose memory `native.allocate` gives."""
    blocks: dict[int, int] = {}

    class Array(np.ndarray):  # type: ignore[type-arg]
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": self.shape, "typestr": self.dtype.str, "version": 3}

        @property
        def device(self) -> Any:
            return nullcontext()

        @property
        def data(self) -> Any:  # type: ignore[override]
            address = self.ctypes.data
            if not any(first <= address <= first + size for first, size in blocks.items()):
                moved = asarray(np.array(self))  # what NumPy computed is in its own memory
                kept.append(moved)
                address = moved.ctypes.data
            return SimpleNamespace(ptr=address)

    kept: list[Any] = []

    def empty(shape: Any, dtype: Any) -> Any:
        count = int(np.prod(shape))
        size = count * np.dtype(dtype).itemsize
        address = native.allocate(size)
        blocks[address] = size
        memory = (ctypes.c_char * max(size, 1)).from_address(address)
        return np.frombuffer(memory, dtype, count).reshape(shape).view(Array)

    def zeros(shape: Any, dtype: Any) -> Any:
        made = empty(shape, dtype)
        made[...] = 0
        return made

    def asarray(value: Any) -> Any:
        if isinstance(value, Array):
            return value
        made = empty(np.shape(value), np.asarray(value).dtype)
        made[...] = value
        return made

    return SimpleNamespace(
        empty=empty,
        zeros=zeros,
        asarray=asarray,
        ascontiguousarray=lambda value: value if value.flags.c_contiguous else asarray(np.array(value)),
        asnumpy=lambda value: np.array(value),
        signbit=np.signbit,
        cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0), Device=nullcontext),
    )
