"""The files of a part: their names, and how arrays are written, checked and divided. The documents of a part are
found by the hashes of their uris.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

from pyfast.corpus import Corpus
from pyfast.corpus.sequence import hash_uris
from pyfast.errors import IndexFormatError
from pyfast.ops.arrays import Int32, Int64, UInt8, places_of
from pyfast.utils.blocks import MappedFolder, check_lists, checked, raw, save_array, write_array

PASSAGES = "passages.npy"
TERMS, TERM_COUNTS, CELLS, WEIGHTS, TEXTS, URIS = "terms", "bm25", "cells", "forward", "rendered_passages", "uris"
"""The names of a file and of folders in the folder of a part"""
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
RenderedPassages = tuple[Int64, UInt8]
"""(offsets [passages + 1], the texts of passages in UTF-8)"""


def below(files: MappedFolder, *folders: str) -> list[str]:
    """Return the names of the files in these folders of a part."""
    return [name for name in files.names if name.startswith(tuple(f"{folder}/" for folder in folders))]


def save_arrays(folder: Path, **arrays: npt.NDArray[Any]) -> None:
    """Write arrays into a folder, which is made if it does not exist. Each array gets a file with its name."""
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        save_array(folder / f"{name}.npy", array)


@contextlib.contextmanager
def new_array(path: Path, kind: npt.DTypeLike, *row: int) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """Create a `.npy` file for an array whose rows have the shape `row`. Yields a function that appends rows."""
    rows = 0

    def write_header() -> None:
        header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (rows, *row)}
        np.lib.format.write_array_header_1_0(file, header)

    def append(values: npt.NDArray[Any]) -> None:
        nonlocal rows
        rows += len(values)
        write_array(file, values.astype(kind, copy=False))

    with path.open("wb") as file:
        write_header()
        yield append
        file.seek(0)
        write_header()  # NumPy pads a header so that it keeps its size when the array grows.


def mapped_array(path: Path, kind: npt.DTypeLike, size: int) -> npt.NDArray[Any]:
    """Create a `.npy` file for `size` numbers, and memory-map it for writing.

    The space on the disk is reserved first. Otherwise, a process that writes through memory is killed if the disk
    becomes full.
    """
    array = np.lib.format.open_memmap(path, "w+", kind, (size,))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def offset_type(largest: int) -> npt.DTypeLike:
    """Return the type of stored offsets, none of which is above `largest`."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def fit_together(files: MappedFolder, folder: str, offsets: Any, lists: int, *values: Any) -> None:
    """Raise `IndexFormatError` if the offsets do not match the number of lists and the number of values."""
    if len(offsets) != lists + 1 or any(len(one) != int(offsets[-1]) for one in values):
        raise IndexFormatError(f"{files.folder}: the arrays of {folder} do not match; build the index again")


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


def save_documents(folder: Path, passages: Int64, documents: pa.RecordBatch) -> None:
    """Write the segments of a part's passages into the part's folder, with the sorted hashes of its uris and the
    document of each hash.
    """
    save_array(folder / PASSAGES, passages)
    hashes = np.asarray(documents.column("hash"))
    order = np.argsort(hashes, kind="stable")
    save_arrays(folder / URIS, hashes=hashes[order], documents=order.astype(np.int32))


def shared_document(corpus: Corpus, files: MappedFolder) -> str:
    """Find a uri that a document of the corpus and a document of a part both have. Returns "" if there is
    none. `files` are the files of the part.
    """
    hashes = files.file(f"{URIS}/hashes.npy").array(np.uint64)
    wanted = np.asarray(corpus.document_table.column("hash"))
    if len(hashes) and len(wanted):
        places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        for document in np.flatnonzero(hashes[places] == wanted).tolist():
            uri = corpus.uri(document)
            if find_documents(Corpus.mapped(files), files, [uri]):
                return uri
    return ""


def find_documents(corpus: Corpus, files: MappedFolder | None, uris: Sequence[str]) -> dict[str, int]:
    """Find the documents of a part that have these uris. Returns their numbers in the part, by uri. Unknown uris
    are left out. Only a few blocks of the files are read.
    """
    if files is None:
        return {uri: at for uri in uris if (at := corpus.find(uri)) is not None}
    hashes = files.file(f"{URIS}/hashes.npy").checked(np.uint64)
    documents = files.file(f"{URIS}/documents.npy").checked(np.int32)
    if not len(hashes) == len(documents) == corpus.documents:
        raise IndexFormatError(f"{files.folder}: {URIS} does not match the documents; build the index again")
    if not len(hashes):
        return {}
    wanted = hash_uris(uris)
    places = np.searchsorted(raw(hashes), wanted)
    # The search reads some values unchecked. It was right if checked neighbours enclose what it looked for.
    before, after = hashes[np.maximum(places - 1, 0)], hashes[np.minimum(places, len(hashes) - 1)]
    if (((before >= wanted) & (places > 0)) | ((after < wanted) & (places < len(hashes)))).any():
        files.check_all([f"{URIS}/hashes.npy"])
        raise IndexFormatError(f"{files.folder}: {URIS} is damaged; build the index again")
    found = {}
    for uri, place, is_there in zip(uris, places.tolist(), (after == wanted).tolist(), strict=True):
        if is_there:
            document = int(documents[place])
            if not 0 <= document < corpus.documents or corpus.uri(document) != uri:
                raise IndexFormatError(f"{files.folder}: {URIS} is damaged; build the index again")
            found[uri] = document
    return found


def save_rendered(folder: Path, rendered: RenderedPassages) -> None:
    """Write the texts of passages and their offsets into the folder of a part."""
    offsets, text = rendered
    (folder / TEXTS).mkdir()
    write_array(folder / TEXTS / "text.bin", text)
    save_array(folder / TEXTS / "offsets.npy", offsets)


def open_rendered(files: MappedFolder, passages: int) -> RenderedPassages:
    """Memory-map the texts of passages. The files are checked when they are read."""
    offsets = files.file(f"{TEXTS}/offsets.npy").checked(np.int64)
    file = files.file(f"{TEXTS}/text.bin")
    fit_together(files, TEXTS, offsets, passages, file.data)
    return cast(RenderedPassages, (offsets, checked(file.data, file)))


def lines_of(rendered: RenderedPassages, passages: npt.NDArray[Any]) -> RenderedPassages:
    """Return the texts of all passages in the form that ops read. Only the texts of `passages` are checked."""
    check_lists(rendered[0], passages, rendered[1])
    return cast(RenderedPassages, (raw(rendered[0]), raw(rendered[1])))
