"""Write an Arrow record batch to files, piece by piece, and then memory-map the files. The batch may be larger
than the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


class BatchFiles:
    """Files to which rows of record batches are appended. All batches have the same schema, and no column has
    nulls.
    """

    def __init__(self, folder: Path, columns: pa.Schema) -> None:
        """`folder` is a new folder for the files."""
        folder.mkdir(parents=True)
        self._schema = columns
        self._columns = [_Column(folder / field.name, field.type) for field in columns]

    def append(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        for column, array in zip(self._columns, batch.columns, strict=True):
            column.append(array)

    def mapped(self) -> pa.RecordBatch:
        """Return all rows as one batch. After this call, no rows can be appended, and the files can be removed."""
        return pa.RecordBatch.from_arrays([column.mapped() for column in self._columns], schema=self._schema)


class _Column:
    """The buffers of a column, each in its own file."""

    def __init__(self, path: Path, kind: pa.DataType) -> None:
        self._kind, self._length, self._end = kind, 0, 0
        is_list = pa.types.is_large_list(kind)
        self._inner: list[_Column] = []
        if is_list or pa.types.is_struct(kind):
            fields = [kind.value_field] if is_list else [kind.field(k) for k in range(kind.num_fields)]
            self._inner = [_Column(path.with_name(f"{path.name}.{field.name}"), field.type) for field in fields]
        self._has_offsets = is_list or pa.types.is_large_string(kind)
        self._offsets, self._data = (path.with_name(f"{path.name}-{name}") for name in ("offsets", "data"))
        if self._has_offsets:
            np.zeros(1, np.int64).tofile(self._offsets)
        self._data.touch()

    def append(self, array: pa.Array) -> None:
        if not len(array):
            return
        self._length += len(array)
        if pa.types.is_struct(self._kind):
            for k, inner in enumerate(self._inner):
                inner.append(array.field(k))
            return
        buffers, first, last = array.buffers(), array.offset, array.offset + len(array)
        if self._has_offsets:
            offsets = np.frombuffer(buffers[1], np.int64)[first : last + 1]
            _write(self._offsets, offsets[1:] - offsets[0] + self._end)
            first, last = int(offsets[0]), int(offsets[-1])
            self._end += last - first
            if self._inner:
                self._inner[0].append(array.values.slice(first, last - first))
                return
            width, data = 1, buffers[2]
        else:
            width, data = self._kind.bit_width // 8, buffers[1]
        _write(self._data, np.frombuffer(data or b"", np.uint8)[first * width : last * width])

    def mapped(self) -> pa.Array:
        buffers = [None, *([_map(self._offsets)] if self._has_offsets else [])]
        if not self._inner:
            buffers.append(_map(self._data))
        inner = [column.mapped() for column in self._inner]
        return pa.Array.from_buffers(self._kind, self._length, buffers, children=inner)


def _write(path: Path, array: np.ndarray[Any, Any]) -> None:
    with path.open("ab") as file:
        array.tofile(file)


def _map(path: Path) -> pa.Buffer:
    return pa.py_buffer(np.memmap(path, np.uint8, "r") if path.stat().st_size else b"")
