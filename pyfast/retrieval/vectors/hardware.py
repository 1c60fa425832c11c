"""Where models encode texts and vectors are searched: the device, and how long a GPU works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast.errors import DeviceError
from pyfast.llm.protocol import ON_GPU, ServerCall, count_calls
from pyfast.utils.extras import explained
from pyfast.utils.options import Hardware
from pyfast.utils.text_forms import counted

_ROWS = 1 << 16  # the number of rows of an array that are copied to a device in one step


def torch_device(hardware: Hardware) -> str:
    """Return torch's name of the device on which models run: a GPU or `cpu`.

    Raises `DeviceError` if the user chose a GPU that torch cannot use.
    """
    if hardware.device == "cpu":
        return "cpu"
    with explained():
        import torch

    seen = torch.cuda.device_count()
    if hardware.device == "auto":
        return "cuda" if seen else "cpu"
    if (torch.device(hardware.device).index or 0) >= seen:
        cause = "" if torch.version.cuda else ": this torch was built without CUDA"
        raise DeviceError(f"device {hardware.device}: torch finds {counted(seen, 'GPU')}{cause}; use --device cpu")
    return hardware.device


def torch_gpus() -> tuple[str, ...]:
    """Describe the GPUs that torch can use: their names for torch, their models and their memory."""
    try:
        import torch
    except ImportError:
        return ()
    described = []
    for number in range(torch.cuda.device_count()):
        free, size = (part / 1e9 for part in torch.cuda.mem_get_info(number))
        described.append(f"cuda:{number}, {torch.cuda.get_device_name(number)}, {free:.1f} of {size:.1f} GB free")
    return tuple(described)


def search_device(hardware: Hardware) -> str:
    """Return torch's name of the device on which vectors are searched: `cpu`, unless the user chose a GPU. Raises
    `DeviceError` as `torch_device` does."""
    return "cpu" if hardware.device == "auto" else torch_device(hardware)


def copied(array: npt.NDArray[Any], device: str, dtype: Any = None) -> Any:
    """Copy an array, which can be memory-mapped and larger than the memory, to a device. `dtype` is torch's; None:
    that of the array.

    Raises `DeviceError` if the array does not fit into the memory of a GPU.
    """
    import torch

    kind = dtype or torch.from_numpy(np.empty(0, array.dtype)).dtype
    with Stopwatch(device).running():
        tensor = torch.empty(array.shape, dtype=kind, device=device)
    for start in range(0, len(array), _ROWS):
        tensor[start : start + _ROWS] = torch.from_numpy(np.array(array[start : start + _ROWS]))
    return tensor


class Stopwatch:
    """Measures how long a GPU works, without waiting for it. On the CPU it measures nothing."""

    def __init__(self, device: str) -> None:
        """`device` is torch's name of a device."""
        self._device = device
        self._work: list[tuple[Any, Any]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the work that the `with` block gives to the GPU. Raises `DeviceError` if its memory is too
        small."""
        if self._device == "cpu":
            yield
            return
        import torch

        event: Callable[..., Any] = torch.cuda.Event
        began, ended = event(enable_timing=True), event(enable_timing=True)
        stream = torch.cuda.current_stream(self._device)
        began.record(stream)
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceError(f"{self._device} has too little free memory: use --device cpu ({error})") from None
        ended.record(stream)
        self._work.append((began, ended))

    def count(self, work: str, texts: int) -> None:
        """Count the measured time as one call, for the ledger of a run. This waits for the end of the work."""
        if self._work:
            self._work[-1][1].synchronize()
            seconds = sum(began.elapsed_time(ended) for began, ended in self._work) / 1000
            count_calls([ServerCall(f"{work}{ON_GPU}{self._device}", texts, 0, seconds)])
