"""Join several corpora into one, and leave out deleted documents."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pyfast.corpus.schema as schema
from pyfast.corpus.levels import Level
from pyfast.corpus.storage import CONTENT, Parts, split, write_stored

Mask = NDArray[np.bool_]
Int64 = NDArray[np.int64]
_LANES = 1 << 64
_AT_ONCE = 1 << 20  # segments in a block


def digests_of(documents: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return the digest (checksum) of each document: an array [documents, 2]."""
    buffer = documents.column("digest").buffers()[1] or b""
    return np.frombuffer(buffer, "<u8")[: 2 * len(documents)].reshape(-1, 2)


def digest_sum(digests: NDArray[np.uint64]) -> int:
    """Add digests (checksums). The result is a number of 128 bits. Its low and its high 64 bits are added
    separately, and overflow is ignored.
    """
    low, high = digests.sum(axis=0, dtype=np.uint64).tolist()
    return int(high) * _LANES + int(low)


def add_sums(a: int, b: int, sign: int = 1) -> int:
    """Add two sums of digests. If `sign` is -1, subtract the second sum."""
    low, high = (a + sign * b) % _LANES, (a // _LANES + sign * (b // _LANES)) % _LANES
    return high * _LANES + low


def join(corpora: Iterable[Parts], live: Sequence[Mask], folder: Path, size: int) -> tuple[Int64, pa.RecordBatch]:
    """Write the documents of several corpora into a new folder, in order. Deleted documents are left out.

    Segments, bytes and triples get new positions. Only about a million segments are in memory at once.

    Args:
        corpora: The corpora. Only one of them is open at a time.
        live: For each corpus, which documents to keep.
        folder: The folder to make.
        size: The total number of bytes of the texts, including those of deleted documents. Byte positions in
            the new files have 32 bits if this is enough for `size` bytes, otherwise 64 bits.

    Returns:
        The positions of the passages, and the table of the documents.
    """
    scratch = folder / "scratch"
    segments = schema.segments_schema(size)
    cells = pa.schema([segments.field("byte_end")])
    kinds = (segments.append(schema.PLACE), cells, schema.DOCUMENTS, schema.TRIPLES)
    files = [_BatchFiles(scratch / str(number), columns) for number, columns in enumerate(kinds)]
    passages = [np.empty(0, np.int64)]
    done = _Sizes()
    with (folder / CONTENT).open("wb") as content:
        for parts, keep in zip(corpora, live, strict=True):
            facts_before = 0
            for some in _pieces(parts):
                first = done.segments
                column, documents, facts, facts_before = _piece(parts, keep, some, facts_before, done)
                passages.append(np.flatnonzero(column["passage"]) + first)
                written = (*split(schema.segments(column, size), first), documents, facts)
                for file, batch in zip(files, written, strict=True):
                    file.append(batch)
                for run in _runs(parts[3], *_bytes_of(parts, keep, *some)):
                    content.write(run)
    batches = [file.mapped() for file in files]
    write_stored(folder, batches, done.bytes)
    shutil.rmtree(scratch)
    return np.concatenate(passages), batches[2]


@dataclass(slots=True)
class _Sizes:
    """How many segments, documents and bytes of text were written so far."""

    segments: int = 0
    documents: int = 0
    bytes: int = 0


_Piece = tuple[int, int, int, int]
"""(first document, document after the last, first segment, segment after the last) of a piece"""


def _pieces(parts: Parts) -> Iterator[_Piece]:
    """Yield ranges of documents with about `_AT_ONCE` segments each."""
    source = np.from_dlpack(parts[0].column("source"))
    document = segment = 0
    while segment < len(source):
        beyond = segment + _AT_ONCE
        last = len(parts[1]) if beyond >= len(source) else max(int(source[beyond]), document + 1)
        stop = int(np.searchsorted(source, last))
        yield document, last, segment, stop
        document, segment = last, stop


def _bytes_of(parts: Parts, keep: Mask, first: int, last: int, begin: int, stop: int) -> tuple[Int64, Int64]:
    """Return the positions in the text buffer at which the documents of a piece begin and end. Deleted documents
    are left out. `first`, `last`, `begin` and `stop` are the parts of a `_Piece`."""
    parent, start, end = schema.arrays_of(parts[0], "parent", "byte_start", "byte_end")
    roots = begin + np.flatnonzero(parent[begin:stop] < 0)[keep[first:last]]
    return start[roots].astype(np.int64), end[roots].astype(np.int64)


def _piece(
    parts: Parts, keep: Mask, some: _Piece, facts_before: int, done: _Sizes
) -> tuple[schema.Columns, pa.RecordBatch, pa.RecordBatch, int]:
    """Prepare a piece for writing: leave out deleted documents, and compute the new positions.

    Returns (columns of the segments, documents, triples, `facts_before` for the next piece). `facts_before` is
    how many triples of the old corpus come before the piece. The function adds the sizes of the piece to `done`.
    """
    first, last, begin, stop = some
    column = {field.name: np.from_dlpack(parts[0].column(field.name))[begin:stop] for field in schema.SEGMENTS}
    keep = keep[first:last]
    source = column["source"] - first
    kept = keep[source]
    place = np.concatenate([[0], np.cumsum(kept)]) + done.segments
    number = np.cumsum(keep) - 1 + done.documents

    # The bytes of a document are contiguous and keep their order. Bytes between documents are dropped.
    starts, ends = _bytes_of(parts, keep, 0, last - first, begin, stop)
    moved = np.zeros(len(keep), np.int64)
    moved[keep] = np.concatenate([[0], np.cumsum(ends - starts)])[:-1] + done.bytes - starts
    shift = moved[source]

    triplets = np.flatnonzero(column["level"] == Level.TRIPLET)
    stays = kept[triplets]
    remaining = parts[2].slice(facts_before, len(triplets)).filter(pa.array(stays))
    shifts = shift[triplets[stays]]
    moving = ("relation_start", "tail_start")
    moved_by = {name: np.from_dlpack(remaining.column(name)) + shifts for name in moving}
    facts = schema.record(
        schema.TRIPLES, {name: remaining.column(name) for name in schema.TRIPLES.names} | moved_by
    )
    parent = column["parent"]
    column["parent"] = np.where(parent < 0, -1, place[np.maximum(parent - begin, 0)])
    column["subtree_end"] = place[column["subtree_end"] - begin]
    column["source"] = number[source].astype(np.int32)
    column["byte_start"] = column["byte_start"] + shift
    column["byte_end"] = column["byte_end"] + shift
    documents = parts[1].slice(first, last - first).filter(pa.array(keep))
    done.segments += int(np.count_nonzero(kept))
    done.documents += len(documents)
    done.bytes += int((ends - starts).sum())
    columns = {name: values[kept] for name, values in column.items()}
    return columns, documents, facts, facts_before + len(triplets)


def _runs(buffer: memoryview, starts: Int64, ends: Int64) -> list[memoryview]:
    """Return the ranges of the buffer from each start to its end. Ranges without a gap between them become
    one range.
    """
    if not starts.size:
        return []
    cuts = [0, *(np.flatnonzero(ends[:-1] != starts[1:]) + 1).tolist(), len(starts)]
    return [buffer[int(starts[a]) : int(ends[b - 1])] for a, b in pairwise(cuts)]


class _BatchFiles:
    """Files to which rows of record batches are appended, piece by piece, and which are then memory-mapped. The
    batches may be larger than the memory. All have the same schema, and no column has nulls.
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
