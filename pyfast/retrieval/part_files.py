"""The files of a part: their names, and how arrays are written, checked and divided."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyfast.blocks import MappedFolder
from pyfast.errors import IndexFormatError
from pyfast.ops.arrays import Int32, Int64, places_of

PASSAGES = "passages.npy"
TERMS, TERM_COUNTS, CELLS, WEIGHTS, TEXTS, URIS = "terms", "bm25", "cells", "forward", "rendered_passages", "uris"
"""The names of a file and of folders in the folder of a part"""
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def below(files: MappedFolder, *folders: str) -> list[str]:
    """Return the names of the files in these folders of a part."""
    return [name for name in files.names if name.startswith(tuple(f"{folder}/" for folder in folders))]


def save_arrays(folder: Path, **arrays: npt.NDArray[Any]) -> None:
    """Write arrays into a folder, which is made if it does not exist. Each array gets a file with its name."""
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


@contextlib.contextmanager
def new_array(path: Path, kind: npt.DTypeLike, *shape: int) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """Create a `.npy` file for an array of this shape. Yields a function that appends values to the file."""
    with path.open("wb") as file:
        header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda values: values.astype(kind, copy=False).tofile(file)


def fit_together(files: MappedFolder, folder: str, offsets: Any, lists: int, *values: Any) -> None:
    """Raise `IndexFormatError` if the offsets do not match the number of lists and the number of values."""
    if len(offsets) != lists + 1 or any(len(one) != int(offsets[-1]) for one in values):
        raise IndexFormatError(f"{files.folder}: the arrays of {folder} do not go together; build the index again")


def pieces(offsets: Int64, size: int) -> Iterator[tuple[int, int]]:
    """Divide many lists into ranges of consecutive lists. The lists of a range have about `size` values in
    total. `offsets` has the start of each list, and the end of the last one.

    Yields (the first list, the list after the last) of each range.
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1, first + 1)
        yield first, last
        first = last


def narrow(x: csr_array) -> csr_array:
    """Convert a sparse array to 32-bit column numbers and 64-bit offsets, the types in an opened index."""
    return to_csr(x.data, x.indices.astype(np.int32), x.indptr.astype(np.int64), x.shape[1])


def to_csr(data: Any, indices: Any, indptr: Any, columns: int) -> csr_array:
    """Make a sparse array from its three arrays without copying them."""
    x: Any = csr_array((len(indptr) - 1, columns), dtype=np.float32)
    # Set one by one. If SciPy gets them together, it copies the indices to int64, the dtype of indptr.
    x.data, x.indices, x.indptr = data, indices, indptr
    # They are sorted by construction. Without this, SciPy would read all of them to find out.
    x.has_sorted_indices = x.has_canonical_format = True
    return cast(csr_array, x)


def take_rows(x: csr_array, rows: Int32) -> csr_array:
    """Copy some rows of `x`, in the order of `rows`.

    SciPy's `x[rows]` first copies the indices of all of `x` to int64: gigabytes for millions of passages.
    """
    indptr, places = places_of(x.indptr, rows)
    return to_csr(x.data[places], x.indices[places], indptr, x.shape[1])
