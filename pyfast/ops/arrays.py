"""Arguments of ops as the arrays that the core reads: checked, of the right dtype, seldom copied."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence, Sized
from itertools import accumulate, chain
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.errors import ArrayError

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Float32: TypeAlias = npt.NDArray[np.float32]
Ragged: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""A ragged list of lists: (offsets int64[n + 1], values)."""
ForwardArrays: TypeAlias = tuple[Int32 | Int64, Int32, Float32, int]
P = ParamSpec("P")
T = TypeVar("T")


# SciPy releases the GIL while it sorts, and another thread would sort the same rows at the same time.
_ORDERING = threading.Lock()


def array(name: str, value: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """`value` (NumPy, DLPack, the buffer protocol, or a sequence) as a contiguous 1-D array of `dtype`.

    It is the caller's own memory where dtype and strides fit, read-only or not, and else a copy. Floats are never
    truncated to integers, and integers that do not fit are refused.
    """
    try:
        if isinstance(value, bytes):  # to NumPy a text
            given: npt.NDArray[Any] = np.frombuffer(value, np.uint8)
        elif isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
            given = np.asarray(value)
        else:
            given = np.from_dlpack(value)
    except Exception as error:  # of whatever kind the other library's are
        described = f"{type(value).__module__}.{type(value).__qualname__}"
        if hasattr(value, "dtype") and hasattr(value, "device"):
            described += f" of {value.dtype} on {value.device}"
        raise ArrayError(f"{name}: cannot be read as an array ({described}): {error}") from error
    wanted = np.dtype(dtype)
    if given.ndim != 1:
        raise ArrayError(f"{name}: expected one dimension, got shape {given.shape}")
    if given.dtype == wanted:
        return np.ascontiguousarray(given)
    if given.size == 0:
        return np.empty(0, wanted)
    if given.dtype.kind not in ("iub" if wanted.kind in "iu" else "iubf"):
        raise ArrayError(f"{name}: expected {wanted}, got {given.dtype}")
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if int(given.min()) < limits.min or int(given.max()) > limits.max:
            raise ArrayError(f"{name}: holds a number that does not fit {wanted}")
    with np.errstate(over="ignore"):  # becomes inf, which the core refuses by name
        return np.ascontiguousarray(given, dtype=wanted)


def forward(x: Any, name: str = "X") -> ForwardArrays:
    """A SciPy CSR array (documents x terms) as the core reads it.

    The core wants each row's term ids in order. Where they are not (scikit-learn leaves them so), they are put in
    order in place, once, as SciPy's own solvers do: it is the same matrix, and a copy at each call would cost
    more than the op.
    """
    if getattr(x, "format", None) != "csr":
        raise ArrayError(f"{name}: expected a scipy.sparse csr_array, got {type(x).__name__}")
    if len(x.shape) != 2 or not 0 <= x.shape[1] <= np.iinfo(np.int32).max:
        raise ArrayError(f"{name}: expected documents x terms, with term ids that fit int32, got shape {x.shape}")
    for part, kinds in (("indptr", "i"), ("indices", "i"), ("data", "f")):
        dtype = getattr(getattr(x, part), "dtype", None)
        if dtype is None or dtype.kind not in kinds:
            raise ArrayError(f"{name}.{part}: expected {'integers' if kinds == 'i' else 'floats'}, got {dtype}")
    if not getattr(x, "_has_canonical_format", False):  # SciPy's property would look for itself, see _in_order
        with _ORDERING:
            x = _in_order(x, name)
    indptr = np.asarray(x.indptr)
    if indptr.dtype not in (np.int32, np.int64):
        raise ArrayError(f"{name}.indptr: expected int64 or int32, got {indptr.dtype}")
    return (
        np.ascontiguousarray(indptr),
        array(f"{name}.indices", x.indices, np.int32),
        array(f"{name}.data", x.data, np.float32),
        int(x.shape[1]),
    )


def _in_order(x: Any, name: str) -> Any:
    """`x`, or a copy where it cannot be written to, with each row's term ids in order and once."""
    indptr = np.asarray(x.indptr)
    nnz = min(len(x.indices), len(x.data))
    # SciPy checks the ends only, and would follow the rest wherever it points.
    if indptr.ndim != 1 or not len(indptr) or indptr[0] < 0 or indptr[-1] > nnz or np.any(np.diff(indptr) < 0):
        raise ArrayError(f"{name}.indptr: expected offsets that never decrease, within the {nnz} entries")
    if not x.has_canonical_format:
        if not (x.indices.flags.writeable and x.data.flags.writeable and x.indptr.flags.writeable):
            x = x.copy()
        x.sum_duplicates()
    return x


def pools(pool_offsets: npt.ArrayLike, doc_ids: npt.ArrayLike) -> tuple[Int64, Int32]:
    """The ragged pools: offsets int64[P + 1] and document ids int32[N]."""
    return array("pool_offsets", pool_offsets, np.int64), array("doc_ids", doc_ids, np.int32)


def ragged(name: str, value: Ragged | Sequence[Any]) -> tuple[Int64, Int32]:
    """A pair (offsets, term ids)."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArrayError(f"{name}: expected a pair (offsets, values)")
    return array(f"{name}[0]", value[0], np.int64), array(f"{name}[1]", value[1], np.int32)


def ends(lists: Sequence[Sized]) -> Int64:
    """The offsets of a ragged array of these lists: int64[len(lists) + 1]."""
    return np.fromiter(accumulate(map(len, lists), initial=0), np.int64, len(lists) + 1)


def stack(lists: Sequence[Sequence[float]], dtype: type[np.generic]) -> tuple[Int64, npt.NDArray[Any]]:
    """Lists as one ragged array: (offsets int64[len(lists) + 1], all values)."""
    offsets = ends(lists)
    return offsets, np.fromiter(chain.from_iterable(lists), dtype, int(offsets[-1]))


def call(op: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The native op's result; what it refuses is raised as `ArrayError`. Pass its arguments by keyword."""
    try:
        return op(*args, **kwargs)
    except _native.Error as error:
        raise ArrayError(str(error)) from None
    except TypeError:  # the arrays have their types by now: pybind11 could not read a number or a string
        plain = [a for a in kwargs.values() if not isinstance(a, np.ndarray | tuple)]
        raise ArrayError(f"{op.__name__}: a setting has the wrong type or is out of range: {plain}") from None


def thread_count(threads: int | None) -> int:
    """The argument, else the environment's PYFAST_THREADS, else the cores that this process may use."""
    if threads is None:
        setting = os.environ.get("PYFAST_THREADS", "")
        threads = int(setting) if setting.isdigit() else len(os.sched_getaffinity(0))
    if not isinstance(threads, int | np.integer) or threads < 1:
        raise ArrayError(f"threads: expected an integer of at least 1, got {threads!r}")
    return int(threads)
