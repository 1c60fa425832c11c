"""As much of CuPy as the ops need, over the emulator's memory: arrays that say they are on the second of two GPUs.

The first GPU is the current one, as long as nobody says otherwise, and has a stream of its own. So an op that does
not make the GPU of its arrays the current one takes the wrong stream, which the emulator refuses, or memory of the
wrong GPU, which is refused here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

OTHER, OWN = 0, 1
"""The GPU that is current by default, and that of the arrays"""


def emulated_cupy(native: Any) -> Any:
    """The module, of arrays whose memory `native.allocate` gives."""
    blocks: dict[int, int] = {}
    streams = {OTHER: 0x5000, OWN: 0x5100}
    current = [OTHER]

    class Device:
        def __init__(self, number: int | None = None) -> None:
            self.id = current[-1] if number is None else number

        def __enter__(self) -> Device:
            current.append(self.id)
            return self

        def __exit__(self, *_: object) -> None:
            current.pop()

    class Array(np.ndarray):  # type: ignore[type-arg]
        _on: Any

        def __array_finalize__(self, of: Any) -> None:
            self._on = of._on if isinstance(of, Array) else Device()

        @property
        def device(self) -> Any:  # type: ignore[override]
            return self._on

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": self.shape, "typestr": self.dtype.str, "version": 3}

        @property
        def data(self) -> Any:  # type: ignore[override]
            assert self.device.id == OWN, "memory of another GPU than that of the arrays"
            address = self.ctypes.data
            if not any(first <= address <= first + size for first, size in blocks.items()):
                moved = empty(self.shape, self.dtype)  # what NumPy computed is in its own memory
                moved[...] = self
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
        """On the GPU of the arrays, if it comes from the CPU."""
        if isinstance(value, Array):
            return value
        with Device(OWN):
            made = empty(np.shape(value), np.asarray(value).dtype)
        made[...] = value
        return made

    @contextmanager
    def side_stream() -> Iterator[None]:
        """Another stream of the arrays' GPU is the current one, and the emulator expects work there."""
        before, streams[OWN] = streams[OWN], 0x5200
        native.expect_stream(streams[OWN])
        try:
            yield
        finally:
            streams[OWN] = before
            native.expect_stream(before)

    native.expect_stream(streams[OWN])
    return SimpleNamespace(
        empty=empty,
        zeros=zeros,
        asarray=asarray,
        ascontiguousarray=lambda value: value if value.flags.c_contiguous else asarray(np.array(value)),
        asnumpy=lambda value: np.array(value),
        signbit=np.signbit,
        side_stream=side_stream,
        cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=streams[current[-1]]), Device=Device),
    )
