"""Memory-mapped files, divided into blocks. Each block is compared with its checksum when it is first read."""

from __future__ import annotations

import io
import mmap
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import xxhash

from pyfast.errors import IndexFormatError

BLOCK = 1 << 18
"""The number of bytes in a block"""
_SHIFT = 18
_LAST = 64
"""When at most this many blocks of a file, and at most half of its blocks, are still unchecked, pyfast checks all
of them at once, so that reading the file needs no more checks"""
CHECKSUMS = "checksums.bin"
"""A file with a checksum (XXH3, 64 bits) for each block of each other file in its folder. The checksums are sorted
by file name"""

# NumPy reads headers with `ast`. In CPython 3.11, that sometimes fails if two threads use it at once.
_HEADERS = threading.Lock()

Int64 = npt.NDArray[np.int64]
Sums = npt.NDArray[np.uint64]


def block_sums(path: Path) -> Sums:
    """Compute the checksum of each block of a file."""
    with path.open("rb") as file:
        sums = [xxhash.xxh3_64_intdigest(block) for block in iter(lambda: file.read(BLOCK), b"")]
    return np.array(sums, np.uint64)


def write_checksums(folder: Path) -> None:
    """Write the checksum of each block of each file in a folder to the folder's file `CHECKSUMS`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    paths.sort(key=lambda path: path.relative_to(folder).as_posix())
    sums = [block_sums(path) for path in paths if path.name != CHECKSUMS]
    write_array(folder / CHECKSUMS, np.concatenate([np.empty(0, np.uint64), *sums]).astype("<u8"))


def write_array(path: Path | IO[bytes], values: npt.NDArray[Any]) -> None:
    """Write the values of an array, without a header, into a new file or at the end of an open one.

    On a full disk, NumPy's own functions raise an error that does not say so.
    """
    if isinstance(path, Path):
        with path.open("wb") as file:
            write_array(file, values)
        return
    path.write(np.asarray(values, order="C").reshape(-1).view(np.uint8).data)


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Write a `.npy` file."""
    values = np.asarray(values, order="C")
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        write_array(file, values)


class MappedFile:
    """A memory-mapped file. Its blocks are compared with their checksums when they are first read."""

    def __init__(self, path: Path, size: int, sums: Sums) -> None:
        """Map the file. `size` is its size in bytes, and `sums` has the checksums of its blocks. Raises
        `IndexFormatError` if the file is missing or has another size."""
        self.path = path
        if not path.is_file():
            raise IndexFormatError(f"{path} is missing; build the index again")
        if path.stat().st_size != size:
            raise IndexFormatError(f"{path} is damaged (wrong size); build the index again")
        self._hold(_map(path, size) if size else np.empty(0, np.uint8))
        self._bytes, self._sums = self.data.data, sums

    def _hold(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self._sound = bytearray(-(-len(data) // BLOCK))
        self._is_sound = np.frombuffer(self._sound, np.uint8)
        self._base = _address(data)
        self.is_whole = not len(data)
        """Whether all blocks were compared with their checksums"""
        self.is_ordered = False
        """Whether all blocks were compared with their checksums, and the numbers in the file are valid
        offsets: they start at 0 and never become smaller"""
        self._checked: dict[tuple[npt.DTypeLike, ...], CheckedArray] = {}

    def check(self, first: int, last: int) -> None:
        """Check the blocks that contain the bytes from `first` to `last` (excluded).

        Raises `IndexFormatError` if a checksum is wrong.
        """
        if self.is_whole or first >= last:
            return
        self._check_blocks(range(first >> _SHIFT, (last - 1 >> _SHIFT) + 1))

    def check_ranges(self, first: Int64, last: Int64) -> None:
        """Check the blocks that contain the bytes from `first[k]` to `last[k]` (excluded), for each k, as
        `check` does for one range."""
        if self.is_whole or not len(first):
            return
        some = last > first
        low, high = first[some] >> _SHIFT, (last[some] - 1) >> _SHIFT
        if (high - low <= 1).all() and self._is_sound[low].all() and self._is_sound[high].all():
            return
        wide = np.flatnonzero(high - low > 1)
        inner = [np.arange(low[k] + 1, high[k]) for k in wide.tolist()]
        self._check_blocks(np.unique(np.concatenate([low, high, *inner])).tolist())

    def check_all(self) -> None:
        """Check all blocks of the file, as `check` does for some blocks."""
        self.check(0, len(self.data))

    def check_array(self, array: npt.NDArray[Any]) -> None:
        """Check the blocks that contain an array in the file, as `check` does."""
        first = self.place(array)
        self.check(first, first + array.nbytes)

    def place(self, array: npt.NDArray[Any]) -> int:
        """Return the position of an array's first byte in the file."""
        return _address(array) - self._base if array.nbytes else 0

    def _check_blocks(self, blocks: Iterable[int]) -> None:
        left = [block for block in blocks if not self._sound[block]]
        while left:
            for block in left:
                self._compare(block)
                self._sound[block] = 1
            are_few = self._sound.count(0) <= min(_LAST, len(self._sound) // 2)
            left = [block for block, is_sound in enumerate(self._sound) if not is_sound] if are_few else []
            self.is_whole = are_few and not left

    def _compare(self, block: int) -> None:
        if xxhash.xxh3_64_intdigest(self._bytes[block << _SHIFT : block + 1 << _SHIFT]) != int(self._sums[block]):
            raise IndexFormatError(f"{self.path} is damaged (wrong checksum); build the index again")

    def array(self, *dtypes: npt.DTypeLike, dimensions: int = 1) -> npt.NDArray[Any]:
        """Return the array of a mapped `.npy` file. `dtypes` are the allowed types. Only the file's header is read
        and checked, not the items of the array.

        Raises `IndexFormatError` if the header is not valid, or the array has another type or another number
        of dimensions.
        """
        self.check(0, min(len(self.data), 128))
        try:
            header = io.BytesIO(self.data[:4096].tobytes())
            version = np.lib.format.read_magic(header)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            with _HEADERS:
                shape, is_fortran, found = read[version](header)
        except (ValueError, KeyError, EOFError) as error:
            raise IndexFormatError(f"{self.path} is damaged (wrong header); build the index again") from error
        begin, types = header.tell(), [np.dtype(one) for one in dtypes]
        wanted = found if found in types else types[0]
        size = int(np.prod(shape, dtype=object)) * wanted.itemsize
        if found != wanted or is_fortran or len(shape) != dimensions or begin + size != len(self.data):
            raise IndexFormatError(
                f"{self.path} is damaged: expected {wanted} with {dimensions} dimensions, got {found} {shape}"
            )
        if not size:
            return np.empty(shape, wanted)
        return self.data[begin:].view(wanted).reshape(shape)

    def checked(self, *dtypes: npt.DTypeLike) -> Any:
        """Return the array of a mapped `.npy` file as a `CheckedArray`, which checks blocks when they are read."""
        if dtypes not in self._checked:
            self._checked[dtypes] = CheckedArray(self.array(*dtypes), self)
        return self._checked[dtypes]


class ComputedFile(MappedFile):
    """An array in memory that behaves like a memory-mapped file whose blocks are computed when they are first
    read."""

    def __init__(
        self, path: Path, array: npt.NDArray[Any], compute: Callable[[int, int], npt.NDArray[Any]]
    ) -> None:
        """`compute(first, last)` returns the items from `first` to `last` (excluded). `path` is the file from
        which `compute` reads.
        """
        self.path = path
        self._array, self._compute = array, compute
        self._hold(array.view(np.uint8))

    def _compare(self, block: int) -> None:
        size = BLOCK // self._array.itemsize
        first, stop = block * size, min(block * size + size, len(self._array))
        self._array[first:stop] = self._compute(first, stop)


class CheckedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in a memory-mapped file, which you can use like a NumPy array, and which checks blocks when they
    are read.

    Indexing checks only the blocks that it reads. All other operations read and check the whole array.
    """

    __slots__ = ("_file", "_place", "raw")

    def __init__(self, raw: npt.NDArray[Any], file: MappedFile) -> None:
        """`raw` is the NumPy array, whose memory lies in `file`."""
        self.raw = raw
        self._file, self._place = file, file.place(raw)

    dtype = property(lambda self: self.raw.dtype)
    shape = property(lambda self: self.raw.shape)
    size = property(lambda self: self.raw.size)
    nbytes = property(lambda self: self.raw.nbytes)
    ndim = property(lambda self: self.raw.ndim)

    def __len__(self) -> int:
        return len(self.raw)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self._file.check_array(self.raw)
        return np.array(self.raw, dtype) if copy else np.asarray(self.raw, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        plain = (np.asarray(one) if isinstance(one, CheckedArray) else one for one in inputs)
        return getattr(ufunc, method)(*plain, **settings)

    def __getitem__(self, key: Any) -> Any:
        if key.__class__ is np.ndarray and key.dtype == np.int32:
            key = key.astype(np.int64)  # For int32, NumPy releases Python's lock, and then waits to get it back.
        if self._file.is_whole:
            return self.raw[key]
        size = self.raw.strides[0] if self.raw.ndim else 0  # bytes of a row
        if isinstance(key, int | np.integer):
            at = self._place + (int(key) % len(self.raw) if len(self.raw) else 0) * size
            self._file.check(at, at + size)
        elif isinstance(key, slice):
            first, last, step = key.indices(len(self.raw))
            if step < 0:
                first, last = 0, len(self.raw)
            self._file.check(self._place + first * size, self._place + last * size)
        elif isinstance(key, tuple):
            return np.asarray(self)[key]
        else:
            key = np.asarray(key)
            if not key.size:
                return self.raw[key.astype(np.int64)]
            if key.dtype.kind not in "iu" or int(key.min()) < 0:
                return np.asarray(self)[key]
            at = self._place + np.minimum(key.ravel().astype(np.int64), max(len(self.raw) - 1, 0)) * size
            self._file.check_ranges(at, at + size)
        return self.raw[key]

    def damaged(self, fault: str) -> IndexFormatError:
        """Return an `IndexFormatError` about the folder of the array's file. `fault` names the damage."""
        return IndexFormatError(f"{self._file.path.parent} is damaged ({fault}); build the index again")

    @property
    def is_whole(self) -> bool:
        """Whether all blocks of the array's file were already checked."""
        return self._file.is_whole

    @property
    def is_ordered(self) -> bool:
        """Whether all blocks of the array's file were already checked, and the items are valid offsets: they
        start at 0 and never become smaller.
        """
        if self.is_whole and not self._file.is_ordered:
            self._file.is_ordered = bool((self.raw[:1] == 0).all() and (self.raw[1:] >= self.raw[:-1]).all())
        return self._file.is_ordered

    def check_ranges(self, first: Int64, last: Int64) -> None:
        """Check the items of the array from `first[k]` to `last[k]` (excluded), for each k."""
        if self._file.is_whole:
            return
        size = self.raw.strides[0]
        first, last = first.astype(np.int64), last.astype(np.int64)
        self._file.check_ranges(self._place + size * first, self._place + size * last)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __iter__(self) -> Any:
        return iter(np.asarray(self))


def checked(array: npt.NDArray[Any], file: MappedFile | None) -> Any:
    """Return the array as a `CheckedArray`. An array that is not in a file is returned unchanged."""
    return array if file is None else CheckedArray(array, file)


def raw(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as a NumPy array, without a check. Before a native op reads it, check its items, for example
    with `check_lists`."""
    return array.raw if isinstance(array, CheckedArray) else array


def are_checked(offsets: npt.NDArray[Any], *values: npt.NDArray[Any]) -> bool:
    """Return whether a ragged array (an array of lists) needs no more checks: it is in memory, or all of it has
    been checked."""
    return not isinstance(offsets, CheckedArray) or (
        offsets.is_ordered and all(one.is_whole for one in values if isinstance(one, CheckedArray))
    )


def check_lists(offsets: npt.NDArray[Any], which: npt.NDArray[Any], *values: npt.NDArray[Any]) -> None:
    """Check some lists of a ragged array (an array of lists): their offsets and their values. `which` contains the
    numbers of the lists. Raises `IndexFormatError` if a checksum or an offset is wrong."""
    if isinstance(offsets, CheckedArray) and not are_checked(offsets, *values):
        which = np.unique(which).astype(np.int64)
        which = which[(which >= 0) & (which < len(offsets) - 1)]
        first, last = offsets[which], offsets[which + 1]
        for one in values:
            if isinstance(one, CheckedArray):
                if (first < 0).any() or (last < first).any() or (last > len(one)).any():
                    raise one.damaged("offsets")
                one.check_ranges(first, last)


class MappedFolder:
    """The files of a folder, as `MappedFile` objects. Their blocks are checked when they are first read."""

    def __init__(self, folder: Path, sizes: dict[str, int]) -> None:
        """Open a folder. `sizes` maps the names of its files to their sizes in bytes.

        Raises `IndexFormatError` if a file is missing or has another size.
        """
        self.folder = folder
        self.names = sorted(name for name in sizes if name != CHECKSUMS)
        blocks = [-(-sizes[name] // BLOCK) for name in self.names]
        sums = np.fromfile(folder / CHECKSUMS, "<u8")
        if len(sums) != sum(blocks):
            raise IndexFormatError(f"{folder}: {CHECKSUMS} is damaged; build the index again")
        parts = np.split(sums.astype(np.uint64), np.cumsum(blocks)[:-1]) if blocks else []
        self._files = {
            name: MappedFile(folder / name, sizes[name], part)
            for name, part in zip(self.names, parts, strict=True)
        }

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def file(self, name: str) -> MappedFile:
        """Return the file with this name. Raises `IndexFormatError` if the folder has no such file."""
        if name not in self._files:
            raise IndexFormatError(f"{self.folder} has no file {name}; build the index again")
        return self._files[name]

    def check_all(self, names: Sequence[str] | None = None) -> None:
        """Compare all blocks of the files `names` with their checksums. None: all files."""
        for name in self.names if names is None else names:
            self.file(name).check_all()


def map_folder(folder: Path) -> MappedFolder:
    """Memory-map the files of a folder that this process has just written. The folder must also have the file
    `CHECKSUMS`."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return MappedFolder(folder, {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths})


def _map(path: Path, size: int) -> npt.NDArray[np.uint8]:
    """Memory-map a file as an ordinary array of bytes, because a `numpy.memmap` takes longer to open and to
    slice."""
    with path.open("rb", buffering=0) as file:
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
