"""Choose where an op runs: on the CPU, or on the GPU that has its arrays.

With `backend="auto"`, an op runs where its arrays are. For arrays of CuPy or torch on a GPU, the op runs on
this GPU, in the current stream of the library and with the library's allocator. If all arrays are on the CPU,
no op copies them to a GPU. If some arrays are on a GPU, the op copies small arrays such as `pool_offsets`
there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np

import pyfast._native as native
from pyfast.errors import ArrayError, DeviceError
from pyfast.ops.arrays import P, T, array, call

Backend: TypeAlias = Literal["auto", "cpu", "cuda"]
Memory: TypeAlias = tuple[int, int]
"""The address of an array on the GPU, and its number of elements"""

GPU_OPS = ("evidence_graph", "gatv2", "graph_rank", "hseq_stream", "maxsim", "pagerank", "weighted_degree")


@dataclass(slots=True)
class _Pending:
    """The status words of a block of `errors_at_end`. A status word tells which errors an op found.

    At the end of the block, all these status words are checked, and `words` becomes None. An op that runs
    after that checks its own status word.
    """

    words: list[tuple[Gpu, Any]] | None = field(default_factory=list)


_PENDING: ContextVar[_Pending | None] = ContextVar("pending", default=None)


def on_gpu(backend: Backend, *given: Any) -> bool:
    """Return whether the op runs on the GPU: always with the backend "cuda", never with "cpu". With "auto",
    the op runs on the GPU if one of the arrays in `given` is on a GPU.

    Raises `DeviceError` if the op should run on the GPU but cannot. Raises `ArrayError` for an unknown `backend`.
    """
    there = meant_for_gpu(backend, *given)
    if there:
        require_gpu()
    return there


def meant_for_gpu(backend: Backend, *given: Any) -> bool:
    """Like `on_gpu`, but do not check that there is a GPU."""
    if backend == "auto":
        return any(type(value) is not np.ndarray and _is_device_array(value) for value in given)
    if backend not in ("cpu", "cuda"):
        raise ArrayError(f"backend: expected 'auto', 'cpu' or 'cuda', got {backend!r}")
    return backend == "cuda"


def require_gpu() -> None:
    """Raise `DeviceError` if no op can run on a GPU."""
    if problem := gpu_problem():
        raise DeviceError(problem)


def gpu_problem() -> str:
    """Return the one-line reason why ops cannot run on a GPU here. The string is empty if they can."""
    if not hasattr(native, "cuda"):
        return (
            "this pyfast was built without GPU ops. To build them, with nvcc 12 or newer: "
            "CMAKE_ARGS=-DPYFAST_CUDA=on pip install ."
        )
    count, problem = native.cuda.devices()
    if not count:
        return f"no GPU can be used: {problem}"
    names = [gpu_name(native.cuda, number) for number in range(count)]
    return "" if any(fits for _, fits in names) else f"no GPU can be used: {'; '.join(name for name, _ in names)}"


@cache
def gpu_name(cuda: Any, number: int) -> tuple[str, bool]:
    """Return the name of the GPU with this number, and whether pyfast supports it (compute capability 8.0 or
    newer)."""
    name = cuda.device_name(number)
    capability = re.search(r"compute capability (\d+)", name)
    fits = capability is None or int(capability[1]) >= 8
    return name if fits else f"{name} (too old: the ops need 8.0 or newer)", fits


def _is_device_array(value: Any) -> bool:
    is_cuda = getattr(value, "is_cuda", None)  # for torch; a tensor that requires gradients has no array interface
    return bool(is_cuda) if is_cuda is not None else hasattr(value, "__cuda_array_interface__")


def _number(device: Any) -> int | None:
    """Return the CUDA device number of a torch or CuPy device object, or None if it has none."""
    number = getattr(device, "index", getattr(device, "id", None))  # the attribute of torch, or of CuPy
    return number if isinstance(number, int) else None


class Gpu:
    """The array library and the GPU for one call of an op. The library is torch if an array is a torch tensor
    on a GPU, otherwise CuPy.

    Raises `ArrayError` if the arrays are on several GPUs, or no array is on a GPU.
    """

    def __init__(self, *given: Any) -> None:
        on_device = [value for value in given if _is_device_array(value)]
        if not on_device:
            names = ", ".join(sorted({type(value).__name__ for value in given}))
            raise ArrayError(f"backend: 'cuda' needs arrays on a GPU (CuPy's or torch's), got {names}")
        tensors = [value for value in on_device if hasattr(value, "is_cuda")]
        self.torch = bool(tensors)
        try:
            self.library = sys.modules["torch"] if self.torch else import_module("cupy")
        except ImportError as error:
            raise DeviceError(f"arrays on a GPU that are not torch's need CuPy: {error}") from None
        self.device = tensors[0].device if tensors else getattr(on_device[0], "device", None)
        for value in on_device:
            self.must_hold("the arrays", value)

    def current(self) -> AbstractContextManager[Any]:
        """Make the GPU of the arrays the current GPU while the `with` block runs."""
        if self.torch:
            return self.library.cuda.device(self.device)
        return self.device if self.device is not None else self.library.cuda.Device()

    def stream(self) -> int:
        """Return the address of the library's current CUDA stream."""
        if self.torch:
            return int(self.library.cuda.current_stream(self.device).cuda_stream)
        return int(self.library.cuda.get_current_stream().ptr)

    def must_hold(self, name: str, value: Any) -> None:
        """Raise `ArrayError` if `value` is on a different GPU from the arrays of this call."""
        device = getattr(value, "device", None)
        if device == self.device:
            return
        device, own = _number(device), _number(self.device)
        if device is not None and own is not None and device != own:
            raise ArrayError(f"{name}: expected arrays on a single GPU, got GPU {device} and GPU {own}")

    def empty(self, shape: int | tuple[int, ...], dtype: str, make: str = "empty") -> Any:
        new = getattr(self.library, make)
        if self.torch:
            return new(shape, dtype=getattr(self.library, dtype), device=self.device)
        return new(shape, dtype=dtype)

    def zeros(self, shape: int | tuple[int, ...], dtype: str) -> Any:
        return self.empty(shape, dtype, "zeros")

    def array(self, name: str, value: Any, dtype: str) -> Any:
        """Convert `value` to a contiguous 1-D array of `dtype` on the GPU. The result is an array of the
        library of this call: torch or CuPy. `value` is copied only if necessary."""
        if _is_device_array(value):
            self.must_hold(name, value)
            fits = self.torch and value.dtype is getattr(self.library, dtype)
            if fits and value.ndim == 1 and value.is_contiguous():
                return value  # The usual case: the conversions below would take longer than some kernels.
        else:
            value = array(name, value, np.dtype(dtype).type)
        try:
            converted = self._asarray(value)
        except Exception as error:  # The library may raise any exception.
            raise ArrayError(f"{name}: cannot be read as an array on the GPU: {error}") from error
        if converted.ndim != 1:
            raise ArrayError(f"{name}: expected one dimension, got shape {tuple(converted.shape)}")
        return self.cast(name, converted, dtype)

    def cast(self, name: str, array: Any, dtype: str) -> Any:
        """Convert an array on the GPU to a contiguous array of `dtype`. Raises `ArrayError` if the array has
        floats and `dtype` is an integer type."""
        kind = str(array.dtype).removeprefix("torch.")
        if kind == dtype:
            return array.contiguous() if self.torch else self.library.ascontiguousarray(array)
        if (dtype.startswith(("int", "uint")) and "float" in kind) or (dtype.startswith("int") and kind == "bool"):
            raise ArrayError(f"{name}: expected {dtype}, got {kind}")
        if dtype == "int32" and "int64" in kind:
            # The native ops refuse the limits like larger numbers, and a check here would wait for the GPU.
            array = array.clip(-(2**31), 2**31 - 1)
        return array.to(getattr(self.library, dtype)) if self.torch else array.astype(dtype)

    def _asarray(self, value: Any) -> Any:
        if not self.torch:
            return self.library.asarray(value)
        if getattr(value, "is_cuda", False):
            return value
        if isinstance(value, np.ndarray):
            value = np.require(value, requirements="W")  # torch warns about memory that it must not write.
        return self.library.as_tensor(value, device=self.device)

    def memory(self, array: Any) -> Memory:
        """Return an array's address and number of elements."""
        return (array.data_ptr(), array.numel()) if self.torch else (array.data.ptr, array.size)

    def places(self, value: Any) -> Any:
        """Return the `memory` of an array, or of each array in a tuple. Any other value is returned unchanged."""
        if isinstance(value, tuple):
            return tuple(map(self.places, value))
        return self.memory(value) if _is_device_array(value) else value

    def numpy(self, array: Any) -> Any:
        """Wait until the stream has finished, and copy an array to the CPU."""
        return array.cpu().numpy() if self.torch else self.library.asnumpy(array)

    @contextmanager
    def queue(self, workspace: int) -> Iterator[tuple[int, int, Memory]]:
        """Yield what one call of native ops needs: a stream, the address of a status word, and a workspace of
        `workspace` bytes.

        The status word tells which errors the ops found. The `with` block raises such an error at its end.
        Inside a block of `errors_at_end`, the error comes at the end of that block.
        """
        status = self.zeros(1, "int32")
        memory = self.empty(workspace, "uint8") if workspace else None
        yield self.stream(), self.memory(status)[0], (0, 0) if memory is None else self.memory(memory)
        pending = _PENDING.get()
        if pending is None or pending.words is None:
            self.look_at(status)
        else:
            pending.words.append((self, status))

    def run(self, op: Callable[..., None], workspace: int = 0, /, **arguments: Any) -> None:
        """Call one native op as `call_gpu` does, with a `queue` of its own. Arrays are passed as `places`."""
        with self.queue(workspace) as queue:
            call_gpu(op, **{name: self.places(value) for name, value in arguments.items()}, queue=queue)

    def look_at(self, status: Any) -> None:
        """Wait until the stream has finished. Raise `ArrayError` if the status word `status` says that an op
        found a malformed array."""
        call_gpu(native.cuda.raise_faults, status=int(self.numpy(status)[0]))


@contextmanager
def errors_at_end() -> Iterator[None]:
    """Delay the errors of GPU ops to the end of the `with` block, so that ops in the block need not wait until
    the GPU has checked their arrays.

    Until the end of the block, results of malformed arrays are meaningless. A backward pass does not wait if
    its forward pass ran in the block. Some ops still wait for a result that they need: `evidence_graph` for the
    sizes of the pools and the number of its edges, and `pagerank` to learn which pools converged. If
    `max_iterations` is large enough for `tolerance`, every pool surely converges, and `pagerank` does not wait.
    `pyfast.ops.gpu.evidence_graph` does not wait if the sizes are given.

    Example:
        >>> from pyfast.ops.backend import errors_at_end
        >>> with errors_at_end():
        ...     pass  # ops on a GPU
    """
    pending = _Pending()
    token = _PENDING.set(pending)
    try:
        yield
    finally:
        _PENDING.reset(token)
        words, pending.words = pending.words, None
    for gpu, status in words or ():
        gpu.look_at(status)


def errors_pending() -> _Pending | None:
    """Return the object that collects the errors of the current `errors_at_end` block, for `errors_wait_for` in
    another thread, or None outside such a block."""
    return _PENDING.get()


@contextmanager
def errors_wait_for(pending: _Pending | None) -> Iterator[None]:
    """Collect the errors of the GPU ops in this `with` block, for an `errors_at_end` block in another thread.

    The other thread raises the errors at the end of its block. `pending` is the object that `errors_pending`
    returned inside of that block.

    gatv2 needs this, because torch computes derivatives in a thread of its own.
    """
    token = _PENDING.set(_PENDING.get() or pending)
    try:
        yield
    finally:
        _PENDING.reset(token)


def call_gpu(op: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a native op and return its result.

    Pass arguments by keyword. Raises `ArrayError` if the op refuses an argument, and `DeviceError` if the GPU
    fails.
    """
    try:
        return call(op, *args, **kwargs)
    except native.cuda.DeviceError as error:
        raise DeviceError(str(error)) from None
