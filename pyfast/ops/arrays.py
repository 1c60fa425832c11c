"""Check the arguments of ops, and convert them to arrays that the native core can read, mostly without a
copy."""

from __future__ import annotations

import ast
import operator
import os
import re
import reprlib
import sys
import warnings
from array import array as std_array
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import cache
from itertools import accumulate, chain
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import SparseEfficiencyWarning, csr_array, csr_matrix

import pyfast._native as native
from pyfast.errors import ArrayError, ConvergenceWarning
from pyfast.utils.processes import available_cores

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Float32: TypeAlias = npt.NDArray[np.float32]
UInt8: TypeAlias = npt.NDArray[np.uint8]
UInt64: TypeAlias = npt.NDArray[np.uint64]
Bool: TypeAlias = npt.NDArray[np.bool_]
Csr: TypeAlias = csr_array | csr_matrix
Ragged: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""A ragged list of lists: (offsets int64[n + 1], values). List i is `values[offsets[i]:offsets[i + 1]]`."""
ForwardArrays: TypeAlias = tuple[Int32 | Int64, Int32 | Int64, npt.NDArray[np.float32 | np.float64], int]
MOST_THREADS = max(os.cpu_count() or 1, 16)
P = ParamSpec("P")
T = TypeVar("T")


def array(name: str, value: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Convert `value` to a contiguous 1-D array of `dtype` for the native core.

    A contiguous value of this dtype is not copied: the array shares its memory.

    Args:
        name: The name of the argument, for error messages.
        value: An array of NumPy, DLPack or the buffer protocol, or a sequence.
        dtype: The dtype that the core reads.

    Raises:
        ArrayError: The value cannot become such an array. Examples: it has two dimensions, it has floats but
            `dtype` is an integer type, a number does not fit `dtype`, or it has booleans (a mask) where ids
            are expected.
    """
    # Most arguments are such arrays already. For them, the code below would take four times as long.
    if (
        type(value) is np.ndarray
        and value.dtype.type is dtype
        and value.dtype.isnative
        and value.ndim == 1
        and value.flags.c_contiguous
    ):
        return value
    given, wanted = readable(name, value), np.dtype(dtype)
    if given.ndim != 1:
        raise ArrayError(f"{name}: expected one dimension, got shape {given.shape}")
    if given.dtype == wanted:
        return np.ascontiguousarray(given)
    if given.dtype.kind == "b" and wanted.kind == "i":
        raise ArrayError(f"{name}: expected {wanted}, got a mask (bool); np.flatnonzero(mask) gives its ids")
    if given.size == 0:
        return np.empty(0, wanted)
    if given.dtype.kind not in ("iub" if wanted.kind in "iu" else "iubf"):
        raise ArrayError(f"{name}: expected {wanted}, got {given.dtype}")
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if int(given.min()) < limits.min or int(given.max()) > limits.max:
            raise ArrayError(f"{name}: contains a number that does not fit {wanted}")
    with np.errstate(over="ignore"):  # An overflow gives infinity, which the core refuses by name.
        return np.ascontiguousarray(given, dtype=wanted)


def integers(name: str, value: Any) -> Int32 | Int64:
    """Convert a column of integers to an array for the core. An int32 column stays int32. All other integers
    become int64.

    Raises `ArrayError` if the value is not a column of integers.
    """
    return array(name, value, np.int32 if getattr(value, "dtype", None) == np.int32 else np.int64)


def as_numpy(value: Any) -> npt.NDArray[Any]:
    """Return a NumPy view of an array that supports DLPack or the buffer protocol. A sequence is copied.

    Passes on the errors of the library that made the array.
    """
    if isinstance(value, bytes):  # NumPy would read bytes as a text.
        return np.frombuffer(value, np.uint8)
    # NumPy's own arrays do not use DLPack here: NumPy before 2.1 does not export read-only memory.
    foreign = not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")
    return np.from_dlpack(value) if foreign else np.asarray(value)


def readable(name: str, value: Any) -> npt.NDArray[Any]:
    """Return `as_numpy` of the argument `name`. Raises `ArrayError` if the value cannot be read as an array."""
    try:
        return as_numpy(value)
    except Exception as error:  # The other library may raise any exception.
        described = f"{type(value).__module__}.{type(value).__qualname__}"
        if hasattr(value, "dtype") and hasattr(value, "device"):
            described += f" of {value.dtype} on {value.device}"
        raise ArrayError(f"{name}: cannot be read as an array ({described}): {error}") from error


def forward(x: Any, name: str = "X") -> ForwardArrays:
    """Return the arrays of a SciPy CSR array or matrix (documents x terms), mostly without a copy.

    The core reads term ids in int32 or int64, and weights in float32 or float64. It sorts each row while it
    reads the row. An array with another dtype, or with gaps between its elements, is copied. Raises
    `ArrayError` if `X` is not a SciPy CSR array or matrix.
    """
    if getattr(x, "format", None) != "csr":
        raise ArrayError(f"{name}: expected a scipy.sparse csr_array, got {type(x).__name__}")
    if len(x.shape) != 2 or not 0 <= x.shape[1] <= np.iinfo(np.int32).max:
        raise ArrayError(f"{name}: expected documents x terms, with term ids that fit int32, got shape {x.shape}")
    for part, kinds in (("indptr", "i"), ("indices", "i"), ("data", "f")):
        dtype = getattr(getattr(x, part), "dtype", None)
        if dtype is None or dtype.kind not in kinds:
            raise ArrayError(f"{name}.{part}: expected {'integers' if kinds == 'i' else 'floats'}, got {dtype}")
    offset = x.indptr.dtype.type
    if offset not in (np.int32, np.int64):
        raise ArrayError(f"{name}.indptr: expected int64 or int32, got {x.indptr.dtype}")
    return (
        _entries(f"{name}.indptr", x.indptr, offset, offset),
        _entries(f"{name}.indices", x.indices, np.int32, np.int64),
        _entries(f"{name}.data", x.data, np.float32, np.float64),
        int(x.shape[1]),
    )


def _entries(name: str, part: Any, narrow: type[np.generic], wide: type[np.generic]) -> npt.NDArray[Any]:
    scattered = isinstance(part, np.ndarray) and part.ndim == 1 and not part.flags.c_contiguous
    if isinstance(part, np.ndarray) and part.dtype == narrow and part.ndim == 1 and not scattered:
        return part
    if part.dtype != narrow or scattered:
        tell_cost(name, f"{part.dtype}{', not contiguous' if scattered else ''}", np.dtype(narrow).name)
    return array(name, part, wide if part.dtype == wide else narrow)


def warn_of(op: str, converged: npt.NDArray[Any], max_iterations: int) -> None:
    """Issue a `ConvergenceWarning` to the caller of an iterative op if a pool has not converged.

    The text is always the same and does not name the pools, so that Python shows it only once for each line of
    code that calls the op.
    """
    pools = np.flatnonzero(~converged.astype(bool))
    if len(pools):
        message = (
            f"{op}: some pools (the warning's `pools`) did not converge with max_iterations={max_iterations}; "
            "use more iterations or a larger tolerance"
        )
        warnings.warn(ConvergenceWarning(message, tuple(pools.tolist())), stacklevel=3)


@cache
def tell_cost(name: str, given: str, wanted: str) -> None:
    """Warn that each call of the op converts the array `name` because of its dtype or strides.

    `given` describes the array, such as `int64` or `float32, not contiguous`. `wanted` is the dtype that
    needs no conversion. The warning appears only once per process for the same three arguments.
    """
    warnings.warn(
        f"{name} is {given}, which each call converts; {name} = {name}.astype(np.{wanted}) avoids this",
        SparseEfficiencyWarning,
        stacklevel=6,  # the caller of the op
    )


def graph_arrays(g: Any) -> tuple[Int64, Int64, Int32, Float32]:
    """Check a graph, and return its arrays for the core: (pool_offsets, indptr, indices, weights). Raises
    `ArrayError` if `g` is no graph, or an array has the wrong shape or dtype.
    """
    try:
        offsets, indptr, indices, weights = g.pool_offsets, g.indptr, g.indices, g.weights
    except AttributeError:
        raise ArrayError(f"g: expected an EvidenceGraph, got {type(g).__name__}") from None
    begins = array("g.pool_offsets", offsets, np.int64), array("g.indptr", indptr, np.int64)
    return *begins, array("g.indices", indices, np.int32), array("g.weights", weights, np.float32)


def ragged(
    name: str, value: Ragged | Sequence[Any], dtype: type[np.generic] = np.int32, values: str = "values"
) -> tuple[Int64, npt.NDArray[Any]]:
    """Check a ragged list, and return it as (offsets, values). The default is a list of term ids. `values` is the
    name of the values in error messages."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArrayError(f"{name}: expected a pair (offsets, {values})")
    return array(f"{name}[0]", value[0], np.int64), array(f"{name}[1]", value[1], dtype)


_TYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys(("pool_offsets", "list_offsets", "seed_offsets", "query_offsets"), np.int64),
    **dict.fromkeys(("sentence_offsets", "token_offsets", "lengths", "budgets"), np.int64),
    **dict.fromkeys(("offsets", "cited", "listed"), np.int64),
    **dict.fromkeys(("doc_ids", "seed_ids", "query_terms", "member_of"), np.int32),
    **dict.fromkeys(("semantic", "structural", "score", "scales", "personalization"), np.float32),
    **dict.fromkeys(("is_table", "dependent"), np.uint8),
}
"""The dtypes of the arrays that ops read, by argument name. A name means the same in all ops"""


def arguments(**given: Any) -> dict[str, Any]:
    """Check arguments of an op, and return them in the form that the core reads. The names of arrays are those in
    `_TYPES`. `X` and `XT` are forward indexes, `g` is an `EvidenceGraph`, and `question_terms` is a ragged list of
    term ids, which becomes the two arguments `question_offsets` and `question_ids`. `threads` can be None.

    Raises `ArrayError` if an argument is malformed.
    """
    made: dict[str, Any] = {}
    for name, value in given.items():
        if name in _TYPES:
            made[name] = array(name, value, _TYPES[name])
        elif name == "question_terms":
            made["question_offsets"], made["question_ids"] = ragged(name, value)
        elif name == "threads":
            made[name] = thread_count(value)
        else:
            made[name] = graph_arrays(value) if name == "g" else forward(value, name)
    return made


def ends(lists: Sequence[Sized]) -> Int64:
    """Return the offsets of lists in their concatenation: int64[len(lists) + 1]."""
    return np.fromiter(accumulate(map(len, lists), initial=0), np.int64, len(lists) + 1)


def stack(lists: Sequence[Sequence[float]], dtype: type[np.generic]) -> tuple[Int64, npt.NDArray[Any]]:
    """Join lists into one ragged array: (offsets int64[len(lists) + 1], all values)."""
    offsets = ends(lists)
    return offsets, np.fromiter(chain.from_iterable(lists), dtype, int(offsets[-1]))


def places_of(offsets: Int32 | Int64, lists: Int32 | Int64) -> tuple[Int64, Int64]:
    """Find where the values of some lists of a ragged array are. `lists` are the numbers of these lists.

    Returns (offsets, places). `places` are the positions of the values in the array, list after list. Those
    of the k-th list are `places[offsets[k]:offsets[k + 1]]`.
    """
    starts = offsets[lists]
    sizes = offsets[lists + 1] - starts
    chosen = np.append(0, np.cumsum(sizes, dtype=np.int64))
    return chosen, np.arange(chosen[-1]) + np.repeat(starts - chosen[:-1], sizes)


def utf8(texts: Iterable[str]) -> tuple[Int64, npt.NDArray[np.uint8]]:
    """Join texts into a ragged array in UTF-8: (offsets int64[texts + 1], bytes uint8). A lone surrogate
    becomes `?`."""
    offsets, joined = std_array("q", [0]), bytearray()
    for text in texts:
        joined += text.encode(errors="replace")
        offsets.append(len(joined))
    return np.frombuffer(offsets, np.int64), np.frombuffer(joined, np.uint8)


def call(op: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a native op and return its result.

    Pass arguments by keyword. Raises `ArrayError` if the op rejects an argument.
    """
    try:
        return op(*args, **kwargs)
    except native.Error as error:
        raise ArrayError(str(error)) from None
    except TypeError:  # The arrays have the right types, so pybind11 could not read a number or a string.
        raise ArrayError(unreadable(op, kwargs)) from None


def unreadable(op: Callable[..., Any], settings: dict[str, Any]) -> str:
    """Return the error message for a call that pybind11 rejected: which argument has the wrong type, and which
    type the op expects. The types come from the op's signature in its docstring.
    """
    (signature,) = ast.parse(f"def {str(op.__doc__).splitlines()[0]}: ...").body
    assert isinstance(signature, ast.FunctionDef)
    if settings.keys() - {parameter.arg for parameter in signature.args.args}:
        return f"{op.__name__}: the native library belongs to another version of pyfast; install pyfast again"
    for parameter in signature.args.args:
        wanted = ast.unparse(parameter.annotation) if parameter.annotation else ""
        kinds = {} if "numpy" in wanted else {kind: fits for kind, fits in _KINDS.items() if kind.search(wanted)}
        value = settings.get(parameter.arg)
        if kinds and not any(fits(value) for _, fits in kinds.values()):
            expected = " or ".join(name for name, _ in kinds.values())
            return f"{parameter.arg}: expected {expected}, got {value!r}"
    return f"{op.__name__}: a setting has the wrong type or is out of range: {reprlib.repr(settings)}"


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, str | bytes) and float(value) is not None
    except (TypeError, ValueError, OverflowError):
        return False


_KINDS: dict[re.Pattern[str], tuple[str, Callable[[Any], bool]]] = {
    re.compile(r"\b(int|SupportsInt)\b"): (
        "an integer of at most 64 bits",
        lambda value: hasattr(value, "__index__") and -(2**63) <= operator.index(value) < 2**63,
    ),
    re.compile(r"\b(float|SupportsFloat)\b"): ("a number", _is_number),
    re.compile(r"\bstr\b"): ("a string", lambda value: isinstance(value, str)),
    re.compile(r"\b(None|Optional)\b"): ("None", lambda value: value is None),
}
"""For each type of an argument: a pattern that finds the type in pybind11's signature, the name of the type
in error messages, and a function that tests if a value has the type"""


def thread_count(threads: int | None) -> int:
    """Return the number of threads that an op may use.

    This is the first of the following numbers that is set: `threads`, the environment variable PYFAST_THREADS, the
    first number in the environment variable OMP_NUM_THREADS, torch's number of threads (if torch is imported), and
    finally the number of cores that this process may use. The maximum is 16, or the number of the machine's cores
    if that is larger, as in the native core.

    Raises:
        ArrayError: `threads` or PYFAST_THREADS is not an integer of at least 1. (A bad value of
            OMP_NUM_THREADS is ignored, because the variable belongs to other programs too.)
    """
    if threads is None:
        threads = _threads_set() or available_cores()
    if not isinstance(threads, int | np.integer) or threads < 1:
        raise ArrayError(f"threads: expected an integer of at least 1, got {threads!r}")
    return min(int(threads), MOST_THREADS)


def _threads_set() -> int:
    """Return the number of threads from PYFAST_THREADS, OMP_NUM_THREADS or torch: the first that is set.
    Return 0 if no number is set."""
    if own := os.environ.get("PYFAST_THREADS", "").strip():
        if not own.isdecimal() or int(own) < 1:
            raise ArrayError(f"PYFAST_THREADS: expected an integer of at least 1, got {own!r}")
        return int(own)
    shared = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if shared.isdecimal() and int(shared):
        return int(shared)
    torch: Any = sys.modules.get("torch")
    return int(torch.get_num_threads()) if hasattr(torch, "get_num_threads") else 0
