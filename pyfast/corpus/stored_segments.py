"""Store the columns of segments. For a table cell, only the position where its content ends is stored.

All other columns of a cell follow from its row and its place in the row. In a memory-mapped corpus, pyfast
computes these columns when they are first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyfast.blocks import ComputedFile, MappedFile
from pyfast.corpus import schema
from pyfast.corpus.levels import Level
from pyfast.errors import IndexFormatError


def split(segments: pa.RecordBatch, first: int = 0) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Divide segments into two groups. Returns (the segments that are not cells, the cells).

    The segments that are not cells get one more column: their positions in the corpus. The cells have only one
    column: where their content ends. `first` is the position of `segments[0]` in the corpus.
    """
    is_cell = np.from_dlpack(segments.column("level")) == Level.TABLE_CELL
    ends = segments.select(["byte_end"])
    place = pa.array(np.flatnonzero(~is_cell) + first, pa.int32())
    stored = segments.filter(pa.array(~is_cell))
    columns = pa.schema([*stored.schema, schema.PLACE])
    return pa.RecordBatch.from_arrays([*stored.columns, place], schema=columns), ends.filter(pa.array(is_cell))


def without_places(stored: pa.RecordBatch, ends: pa.RecordBatch) -> pa.RecordBatch:
    """Return `stored`, the segments that are not cells. `ends` are the cells. If there are no cells, the column of
    positions is left out, because it is not needed."""
    return stored if len(ends) else stored.select(stored.schema.names[:-1])


class StoredSegments:
    """The stored columns of segments. The columns of all segments are computed from them."""

    def __init__(
        self, folder: Path, stored: pa.RecordBatch, ends: pa.RecordBatch, files: Sequence[MappedFile] = ()
    ) -> None:
        """Make the columns of all segments available.

        `files` are the mapped files of segments and cells. Their blocks are checked when they are read.
        Raises `IndexFormatError` if there are cells, but `stored` has no column of positions.
        """
        self._folder, self._stored, self._files = folder, stored, files
        self._column: dict[str, NDArray[Any]] = {
            field.name: np.from_dlpack(stored.column(field.name)) for field in stored.schema
        }
        self._place: NDArray[np.int32] | None = self._column.pop(schema.PLACE.name, None)
        self._ends: NDArray[Any] = np.from_dlpack(ends.column("byte_end"))
        self._size = len(stored) + len(ends)
        if self._place is None and len(ends):
            raise self._damaged()

    def all(self) -> pa.RecordBatch:
        """Return the columns of all segments."""
        if self._place is None:
            return self._stored
        return schema.of_arrays({name: self.compute(name, 0, self._size) for name in self._column})

    def mapped(self) -> tuple[pa.RecordBatch, dict[str, MappedFile]]:
        """Return the columns of all segments, and the file of each column. A block of a column is checked or
        computed when it is first read.
        """
        if self._place is None:
            return self._stored, dict.fromkeys(self._column, self._files[0])
        arrays = {name: np.zeros(self._size, values.dtype) for name, values in self._column.items()}
        files: dict[str, MappedFile] = {
            name: ComputedFile(self._folder, array, partial(self.compute, name)) for name, array in arrays.items()
        }
        return schema.of_arrays(arrays), files

    def compute(self, name: str, first: int, stop: int) -> NDArray[Any]:
        """Compute a column of the segments from `first` to before `stop`."""
        place = self._place
        assert place is not None
        low, high = int(np.searchsorted(place, first, "right")) - 1, int(np.searchsorted(place, stop))
        if low < 0 or low >= high:
            raise self._damaged()
        self._check(0, place[low : min(high + 1, len(place))])
        at = place[low:high].astype(np.int64)
        after = int(place[high]) if high < len(place) else self._size
        if at[0] > first or (np.diff(at) <= 0).any() or at[-1] >= stop or after < stop or at[0] < low:
            raise self._damaged()
        node = np.repeat(np.arange(low, high), np.diff(np.append(np.maximum(at, first), stop)))
        position = np.arange(first, stop)
        row = at[node - low]
        cells = np.flatnonzero(position > row)
        cell = (position - node - 1)[cells]  # the cell's number among all cells
        if cells.size and cell[-1] >= len(self._ends):
            raise self._damaged()
        self._check(0, self._column[name][low:high])
        values: NDArray[Any] = self._column[name][node]
        match name:
            case "level":
                values[cells] = Level.TABLE_CELL
            case "parent":
                values[cells] = row[cells]
            case "subtree_end":
                values[cells] = position[cells] + 1
            case "end":
                values[cells] = (position - row - 1)[cells]
            case "byte_end":
                values[cells] = self._ends_of(cell)
            case "byte_start":
                later = (position - row)[cells] > 1
                values[cells[later]] = self._ends_of(cell[later] - 1)
            case "passage":
                values[cells] = 0
        return values

    def _ends_of(self, cells: NDArray[np.int64]) -> NDArray[Any]:
        if cells.size:
            self._check(1, self._ends[cells[0] : cells[-1] + 1])
        return self._ends[cells]

    def _check(self, file: int, array: NDArray[Any]) -> None:
        if self._files:
            self._files[file].check_array(array)

    def _damaged(self) -> IndexFormatError:
        return IndexFormatError(f"{self._folder}: the corpus is damaged: segments overlap; build the index again")
