"""The levels of segments, the columns of a stored corpus, and its text buffer.

The columns have no nulls, so that a memory-mapped column is a plain array. The buffer has all strings of a corpus
as UTF-8, one after another.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sized
from enum import IntEnum
from os import SEEK_END
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyfast.errors import InputError
from pyfast.utils.blocks import write_array

Integers = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
"""The columns of one of the schemas in this module, by name. Some columns may be missing."""

_LARGEST = (1 << 31) - 1
_HELD = 1 << 20
"""The maximum number of bytes that a buffer of a `GrowingColumn` has in memory"""
_AT_ONCE = 1 << 20


class Kind(IntEnum):
    """The kind of a document."""

    TEXT = 0
    MARKDOWN = 1
    TABLE = 2
    GRAPH = 3


class Level(IntEnum):
    """The level of a segment.

    In a text: document > section (if there are headings) > paragraph > sentence. In a table: table > table_row >
    table_cell. In a knowledge graph: document > subgraph > triplet.
    """

    DOCUMENT = 0
    SECTION = 1
    PARAGRAPH = 2
    SENTENCE = 3
    TABLE = 4
    TABLE_ROW = 5
    TABLE_CELL = 6
    SUBGRAPH = 7
    TRIPLET = 8


# For each level, the levels that may be directly below it. A level that stands below no other is a root.
CHILDREN = {
    Level.DOCUMENT: (Level.SECTION, Level.PARAGRAPH, Level.SUBGRAPH),
    Level.SECTION: (Level.PARAGRAPH,),
    Level.PARAGRAPH: (Level.SENTENCE,),
    Level.TABLE: (Level.TABLE_ROW,),
    Level.TABLE_ROW: (Level.TABLE_CELL,),
    Level.SUBGRAPH: (Level.TRIPLET,),
}
ROOTS = (Level.DOCUMENT, Level.TABLE)
PASSAGE_LEVELS = (Level.PARAGRAPH, Level.TABLE_ROW, Level.SUBGRAPH)

_DEPTH = np.array([0, 1, 2, 3, 0, 1, 2, 1, 2], dtype=np.int8)


def parents(level: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Compute the parent of each segment from the levels of all segments. The segments are in depth-first order.

    The parent of a segment is the last earlier segment whose level is higher, that is, nearer to the
    document. The result has the positions of parents (int64), -1 for documents. Levels are uint8.
    """
    depth = _DEPTH[level]
    position = np.arange(level.size, dtype=np.int64)
    parent = np.full(level.size, -1, dtype=np.int64)
    for shallower in range(3):
        last = np.maximum.accumulate(np.where(depth == shallower, position, -1))
        np.maximum(parent, last, out=parent, where=depth > shallower)
    return parent


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


# One row per segment, parents before children. `pyfast.corpus.Corpus` explains the names.
SEGMENTS = _schema(
    level=pa.uint8(),
    parent=pa.int32(),
    subtree_end=pa.int32(),
    source=pa.int32(),
    start=pa.int32(),
    end=pa.int32(),
    byte_start=pa.int32(),
    byte_end=pa.int32(),
    passage=pa.uint8(),
)

# The file holds the segments that are not cells, their positions if there are cells, and the end of each cell: see
# `pyfast.corpus.storage`.
PLACE = pa.field("place", pa.int32(), nullable=False)
CELLS = _schema(byte_end=pa.int32())


def wide(columns: pa.Schema) -> pa.Schema:
    """Change the byte positions of columns to 64 bits, for a corpus with more than 2 GB of text."""
    position = pa.int64()
    return pa.schema([it.with_type(position) if it.name.startswith("byte") else it for it in columns])


WIDE_SEGMENTS = wide(SEGMENTS)

# One row per document. Only tables have a header, links, and a place (their page, the numbers of their rows and
# their metadata, as JSON). `section` is the section of a table, the outline of a text, and the metadata of a
# graph. `digest` is the digest of all of the document's data.
# `hash` is the hash of its uri, from which the ids of its segments are computed. `passages` is the number of its
# passages.
_LINK = _schema(row=pa.int64(), column=pa.int64(), uri=pa.large_string())
DOCUMENTS = _schema(
    uri=pa.large_string(),
    title=pa.large_string(),
    kind=pa.uint8(),
    section=pa.large_string(),
    header=pa.large_list(pa.field("item", pa.large_string(), nullable=False)),
    links=pa.large_list(pa.field("item", pa.struct(_LINK), nullable=False)),
    place=pa.large_string(),
    digest=pa.binary(16),
    passages=pa.int64(),
    hash=pa.uint64(),
)

# One row per triple, in the order of the sequence. `ordinal` is the triple's position in its document. Head,
# relation and tail are contiguous in the text buffer; the columns have the starts of the last two.
TRIPLES = _schema(
    ordinal=pa.int64(), relation_start=pa.int64(), tail_start=pa.int64(), timed=pa.uint8(), time=pa.large_string()
)


def empty(columns: pa.Schema) -> pa.RecordBatch:
    """Make a record batch without rows."""
    return pa.RecordBatch.from_pylist([], schema=columns)


def record(columns: pa.Schema, values: Mapping[str, object]) -> pa.RecordBatch:
    """Make a record batch with these columns. `values` maps each column name to a NumPy array or a list."""
    arrays = [pa.array(values[field.name], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def arrays_of(batch: pa.RecordBatch, *names: str) -> list[NDArray[Any]]:
    """Return these columns of a record batch as NumPy arrays, which share its memory. Without names: all."""
    return [np.from_dlpack(batch.column(name)) for name in names or batch.schema.names]


def segments_schema(size: int) -> pa.Schema:
    """Return the columns of segments, for a text buffer of `size` bytes."""
    return SEGMENTS if size <= _LARGEST else WIDE_SEGMENTS


def segments(values: Mapping[str, NDArray[Any]], size: int) -> pa.RecordBatch:
    """Make a record batch of segments, for a text buffer of `size` bytes. The byte positions have the smallest
    type that is large enough.

    Raises InputError if there are too many segments for one corpus.
    """
    try:
        return record(segments_schema(size), values)
    except pa.ArrowInvalid as error:
        raise InputError(
            "the corpus has more than 2,147,483,647 segments, or a document has more than 2,147,483,647 characters"
        ) from error


class GrowingColumn:
    """A column without nulls to which rows are appended piece by piece. A record batch is a column of structs.

    A buffer of more than 1 MB is a temporary file that is memory-mapped in the end, so a column may be larger than
    the memory.
    """

    def __init__(self, kind: pa.DataType, folder: str | None = None) -> None:
        """The temporary files are in `folder`. None: in the folder `TMPDIR`."""
        self._kind, self._length, self._end = kind, 0, 0
        is_list = pa.types.is_large_list(kind)
        fields = [kind.value_field] if is_list else list(kind) if pa.types.is_struct(kind) else []
        self.inner = {field.name: GrowingColumn(field.type, folder) for field in fields}
        self._has_offsets = is_list or pa.types.is_large_string(kind)
        files = (SpooledTemporaryFile(_HELD, dir=folder) for _ in range(2))  # noqa: SIM115 they live as long
        self._offsets, self._data = files
        if self._has_offsets:
            write_array(self._offsets, np.zeros(1, np.int64))

    def append(self, array: pa.Array) -> None:
        """Add rows."""
        if not len(array):
            return
        self._length += len(array)
        if pa.types.is_struct(self._kind):
            for k, column in enumerate(self.inner.values()):
                column.append(array.field(k))
            return
        buffers, first, last = array.buffers(), array.offset, array.offset + len(array)
        if self._has_offsets:
            offsets = np.frombuffer(buffers[1], np.int64)[first : last + 1]
            write_array(self._offsets, offsets[1:] - offsets[0] + self._end)
            first, last = int(offsets[0]), int(offsets[-1])
            self._end += last - first
            if self.inner:
                (column,) = self.inner.values()
                column.append(array.values.slice(first, last - first))
                return
            width, data = 1, buffers[2]
        else:
            width, data = self._kind.bit_width // 8, buffers[1]
        write_array(self._data, np.frombuffer(data or b"", np.uint8)[first * width : last * width])

    def set(self, row: int, value: int) -> None:
        """Change a number."""
        self._data.seek(row * self._kind.bit_width // 8)
        write_array(self._data, np.array(value, self._kind.to_pandas_dtype()))
        self._data.seek(0, SEEK_END)

    def mapped(self) -> pa.Array:
        """Return the column. Nothing can be added to it afterwards."""
        buffers = [None, *([_buffer(self._offsets)] if self._has_offsets else [])]
        if not self.inner:
            buffers.append(_buffer(self._data))
        inner = [column.mapped() for column in self.inner.values()]
        return pa.Array.from_buffers(self._kind, self._length, buffers, children=inner)


def _buffer(file: SpooledTemporaryFile[bytes]) -> pa.Buffer:
    size = file.tell()
    if size <= _HELD:
        file.seek(0)
        return pa.py_buffer(file.read())
    file.flush()
    return pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


class GrowingSegments:
    """Segments to which more can be appended. They can take several times as much space as their text."""

    def __init__(self) -> None:
        self._fields = SEGMENTS
        self._columns = GrowingColumn(pa.struct(list(SEGMENTS)))

    def append(self, values: Mapping[str, NDArray[Any]], size: int) -> None:
        """Add segments. `size` is the current size of the text buffer in bytes. Raises `InputError` as `segments`
        does."""
        if segments_schema(size) is not self._fields:
            before, self._fields = self.batch(), segments_schema(size)
            self._columns = GrowingColumn(pa.struct(list(self._fields)))
            for first in range(0, len(before), _AT_ONCE):
                some = arrays_of(before.slice(first, _AT_ONCE))
                self.append(dict(zip(SEGMENTS.names, some, strict=True)), size)
        self._columns.append(segments(values, size).to_struct_array())

    def set(self, segment: int, **values: int) -> None:
        """Change columns of one segment."""
        for name, value in values.items():
            self._columns.inner[name].set(segment, value)

    def batch(self) -> pa.RecordBatch:
        """Return all segments as one record batch. Nothing can be added or changed afterwards."""
        return pa.RecordBatch.from_struct_array(self._columns.mapped())


def of_arrays(columns: Columns) -> pa.RecordBatch:
    """Make a record batch of segments from these arrays, without copying them."""
    fields = SEGMENTS if columns["byte_end"].dtype == "int32" else WIDE_SEGMENTS
    held = [(field.type, columns[field.name]) for field in fields]
    arrays = [pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)]) for kind, values in held]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join record batches with the same schema, at least one."""
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined[0] if joined else batches[0]


def lengths(things: Iterable[Sized]) -> Integers:
    """Return the length of each string, as int64."""
    return np.fromiter(map(len, things), dtype=np.int64)


def append_text(text: str, buffer: bytearray) -> Callable[[Integers], Integers]:
    """Append a text to the buffer. Returns a function that converts positions in the text (characters) to
    positions in the buffer (bytes).

    That function takes and returns int64 arrays. A position in the text is a number from 0 to `len(text)`. Raises
    UnicodeEncodeError if the text has a lone surrogate.
    """
    utf8 = text.encode()
    base = len(buffer)
    buffer += utf8
    if len(utf8) == len(text):
        return lambda positions: positions + base
    # For each continuation byte of UTF-8: the number of characters that start before it, including its own.
    continuing = np.flatnonzero(np.frombuffer(utf8, dtype=np.int8) < -64)
    continuing -= np.arange(continuing.size)
    return lambda positions: positions + base + np.searchsorted(continuing, positions, side="right")
