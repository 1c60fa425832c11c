"""Store a corpus as a folder with four Arrow files and the text buffer. An opened corpus memory-maps these files.
This module can also join several corpora into one, leaving out deleted documents.

It checks that the files belong together and that every position lies inside its file, so that a damaged
file cannot cause out-of-bounds reads. `read` checks all data before it returns. In an index, `map_parts`
reads only the beginning and the end of each file, and `Corpus` compares each block of a file with its checksum
when it first reads the block.

For a table cell, only the end position of its content is stored. Its other columns follow from its row and its
place in that row. In a memory-mapped corpus, pyfast computes these columns when they are first read.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pyfast.corpus.schema as schema
from pyfast.corpus.schema import CHILDREN, PASSAGE_LEVELS, ROOTS, Kind, Level
from pyfast.errors import IndexFormatError, of_another_build
from pyfast.utils.blocks import ComputedFile, MappedFile, MappedFolder
from pyfast.utils.files import written_aside

Mask = NDArray[np.bool_]
Int64 = NDArray[np.int64]
_LANES = 1 << 64
_AT_ONCE = 1 << 20  # segments in a block
_NAME = "pyfast corpus "
FORMAT = f"{_NAME}1"

_FILES = {
    "segments.arrow": schema.SEGMENTS,
    "cells.arrow": schema.CELLS,
    "documents.arrow": schema.DOCUMENTS,
    "triples.arrow": schema.TRIPLES,
}
"""The columns of each Arrow file"""
CONTENT = "content.bin"
"""The file of the text buffer"""
FOLDER = "corpus"
"""The folder of the corpus in a part of an index"""
_EDGE = 1 << 16  # bytes at each end of an Arrow file: they have its schema and the positions of its columns
_BLOCK = 1 << 20  # segments in one step of the check, so that it takes little memory
_DEEPEST = 4  # the maximum number of ancestors of a segment

Parts = tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch, memoryview]
Files = tuple[Mapping[str, MappedFile], MappedFile, MappedFile, MappedFile]
"""The mapped files of the corpus: the file of each column of the segments, by name; then the files of the
documents, the triples and the text
"""

# Which level may be below which: [child, parent]. The last column is for segments without a parent.
_ALLOWED = np.zeros((len(Level), len(Level) + 1), dtype=bool)
for _parent, _children in CHILDREN.items():
    _ALLOWED[list(_children), _parent] = True
_ALLOWED[list(ROOTS), len(Level)] = True


def write(folder: Path, parts: Parts) -> None:
    """Write the parts of a corpus (segments, documents, triples and text) into a folder.

    The files are first written under other names. When all files are complete, they are renamed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    segments, documents, triples, buffer = parts
    with written_aside(folder / CONTENT) as aside:
        aside.write_bytes(buffer)
        write_stored(folder, (*split(segments), documents, triples), len(buffer))
    pa.default_memory_pool().release_unused()  # Otherwise Arrow keeps the memory of the divided columns.


def write_stored(folder: Path, stored: Sequence[pa.RecordBatch], size: int) -> None:
    """Write the four Arrow files of a corpus: cells, all other segments, documents and triples.

    `size` is the number of bytes of the text. The files are first written under other names. When all files are
    complete, they are renamed.
    """
    segments, *others = stored
    if not len(others[0]):  # Without cells, the positions of the others are not needed.
        segments = segments.select(segments.schema.names[:-1])
    stored = segments, *others
    with contextlib.ExitStack() as asides:
        for name, batch in zip(_FILES, stored, strict=True):
            batch = batch.replace_schema_metadata({"format": FORMAT, "sizes": _sizes(*stored, range(size))})
            path = str(asides.enter_context(written_aside(folder / name)))
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)


def read(folder: Path) -> Parts:
    """Memory-map the files of a corpus, and check all data.

    Raises IndexFormatError if a file is missing, cut off, damaged or of another kind, and OtherBuildError if it
    has another format.
    """
    for name in (*_FILES, CONTENT):
        if not (folder / name).is_file():
            raise IndexFormatError(f"{folder} is not a complete corpus: the file {name} is missing")
    batches = [_read_batch(folder / name, columns) for name, columns in _FILES.items()]
    buffer = memoryview(pa.memory_map(str(folder / CONTENT)).read_buffer())
    _check_sizes(folder, batches, buffer)
    stored, cells, documents, triples = batches
    parts = (_StoredSegments(folder, stored, cells).all(), documents, triples, buffer)
    if fault := fault_of(parts):
        raise IndexFormatError(f"{folder}: the corpus is damaged: {fault}")
    return parts


def map_parts(folder: MappedFolder) -> tuple[Parts, Files]:
    """Memory-map the corpus files of an index part, checking only their sizes, beginnings and ends.

    Raises IndexFormatError if a file is cut off or of another kind.
    """
    *files, text = (folder.file(f"{FOLDER}/{name}") for name in (*_FILES, CONTENT))
    batches = []
    for file, columns in zip(files, _FILES.values(), strict=True):
        # The positions of the columns are at the beginning and the end of the file.
        size = len(file.data)
        file.check(0, min(size, _EDGE))
        file.check(max(size - _EDGE, 0), size)
        batches.append(_read_batch(file.path, columns, pa.BufferReader(pa.py_buffer(file.data))))
    _check_sizes(folder.folder, batches, text.data.data)
    stored, cells, documents, triples = batches
    segments, of_segments = _StoredSegments(folder.folder, stored, cells, files[:2]).mapped()
    return (segments, documents, triples, text.data.data), (of_segments, files[2], files[3], text)


def _sizes(*parts: Sized) -> str:
    """Return the lengths of all parts (rows of batches, bytes of the text buffer) as a string.

    Every file contains this string, so that files of different corpora cannot be mixed up.
    """
    return " ".join(str(len(part)) for part in parts)


def _check_sizes(folder: Path, batches: Sequence[pa.RecordBatch], buffer: memoryview) -> None:
    if any(batch.schema.metadata[b"sizes"] != _sizes(*batches, buffer).encode() for batch in batches):
        fault = "its files do not match: one of them is incomplete or comes from another corpus"
        raise IndexFormatError(f"{folder}: {fault}")


def _read_batch(path: Path, expected: pa.Schema, mapped: Any = None) -> pa.RecordBatch:
    """Return the record batch in a file. If `mapped` is None, the function maps the file and checks all values.

    Otherwise `mapped` is the memory-mapped file, and the function checks only its schema, without reading the
    values.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)) if mapped is None else mapped)
        metadata = reader.schema.metadata or {}
        found = metadata.get(b"format", b"").decode(errors="replace")
        if not found.startswith(_NAME) or b"sizes" not in metadata:
            raise IndexFormatError(f"{path} is not a corpus file: build the index again")
        if found != FORMAT:
            raise of_another_build(path, found, FORMAT, "build the index again")
        if reader.num_record_batches != 1 or not _is(reader.schema, expected):
            raise IndexFormatError(f"{path} is damaged: it does not have the columns of a corpus")
        batch = reader.get_batch(0)
        batch.validate(full=mapped is None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise IndexFormatError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    if any(map(_nulls, batch.columns)):
        raise IndexFormatError(f"{path} is damaged: a column contains nulls")
    return batch


def _is(found: pa.Schema, expected: pa.Schema) -> bool:
    place = found.get_field_index(schema.PLACE.name)
    found = found.remove(place) if expected is schema.SEGMENTS and place >= 0 else found
    return bool(found.equals(expected) or found.equals(schema.wide(expected)))


def _nulls(column: pa.Array) -> int:
    nested = 0
    if pa.types.is_large_list(column.type):
        nested = _nulls(column.values)
    elif pa.types.is_struct(column.type):
        nested = sum(_nulls(column.field(k)) for k in range(column.type.num_fields))
    return int(column.null_count) + nested


def fault_of_segments(parts: Parts, first: int, stop: int) -> str:
    """Find the first inconsistency in the segments `first` to `stop` (exclusive). Returns "" if there is none."""
    segments, documents, _, buffer = parts
    names = ("level", "parent", "source", "byte_start", "byte_end", "passage", "subtree_end")
    level, parent, source, byte_start, byte_end, passage, end = schema.arrays_of(segments, *names)
    block = slice(first, stop)
    position = np.arange(first, stop)
    above = parent[block]
    if (level[block] >= len(Level)).any() or (above < -1).any() or (above >= position).any():
        return "a level is unknown, or a parent does not come before its child"
    root = above < 0
    if (level[above[~root]] >= len(Level)).any():
        return "a level is unknown"
    if not _ALLOWED[level[block], np.where(root, len(Level), level[above])].all():
        return "a segment has a parent of the wrong level"
    if (source[block] != np.where(root, source[block], source[above])).any():
        return "a segment is not in its parent's document"
    before = np.concatenate([[-1] if not first else source[first - 1 : first], source[first : stop - 1]])
    if (source[block] != before + root).any() or source[first] < 0 or source[stop - 1] >= len(documents):
        return "the documents are not in order"
    of_table = np.from_dlpack(documents.column("kind"))[source[block][root]] == Kind.TABLE
    if not np.array_equal(level[block][root] == Level.TABLE, of_table):
        return "a document has the wrong kind"
    low, high = np.where(root, 0, byte_start[above]), np.where(root, len(buffer), byte_end[above])
    begins, ends = byte_start[block], byte_end[block]
    if ((low > begins) | (begins > ends) | (ends > high)).any():
        return "a segment's content extends beyond that of its parent"
    if not np.isin(level[block][passage[block] != 0], PASSAGE_LEVELS).all():
        return "a segment of the wrong level is a passage"
    # The segments before a segment, up to those directly below its parent, must end where the segment begins.
    ended, start = position - 1, position
    if stop == level.size:
        above, ended, start = np.append(above, -1), np.append(ended, stop - 1), np.append(start, stop)
    for _ in range(_DEEPEST):
        inside = ended != above
        if (ended[inside] < 0).any() or (end[ended[inside]] != start[inside]).any():
            break
        ended = np.where(inside, parent[np.maximum(ended, 0)], above)
        if (ended >= start).any() or (ended < above).any():
            break
    return "" if (ended == above).all() else "a segment does not end where its last part ends"


def fault_of(parts: Parts) -> str:
    """Find the first inconsistency in the files of a corpus. Returns "" if there is none."""
    segments, documents, *_ = parts
    for first in range(0, len(segments), _BLOCK):
        if fault := fault_of_segments(parts, first, min(first + _BLOCK, len(segments))):
            return fault
    level, source = schema.arrays_of(segments, "level", "source")
    if (source[-1] + 1 if len(source) else 0) != len(documents):
        return "the documents are not in order"
    return fault_of_triples(parts, np.flatnonzero(level == Level.TRIPLET))


def fault_of_triples(parts: Parts, triplets: Any) -> str:
    """Find the first inconsistency in the triples. `triplets` has the position of each triple's segment.
    Returns "" if there is none."""
    segments, _, triples, _ = parts
    relation, tail = schema.arrays_of(triples, "relation_start", "tail_start")
    byte_start, byte_end = schema.arrays_of(segments, "byte_start", "byte_end")
    if triplets.size != len(triples):
        return "triples and triplets do not match"
    if ((relation < byte_start[triplets]) | (tail < relation) | (tail > byte_end[triplets])).any():
        return "a triple extends beyond its content"
    return ""


def split(segments: pa.RecordBatch, first: int = 0) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split segments into (all segments except cells, cells).

    The first batch has an additional column with the segments' positions in the corpus. The cells keep only one
    column, the end positions of their contents. `first` is the position of `segments[0]` in the corpus.
    """
    is_cell = np.from_dlpack(segments.column("level")) == Level.TABLE_CELL
    ends = segments.select(["byte_end"])
    place = pa.array(np.flatnonzero(~is_cell) + first, pa.int32())
    stored = segments.filter(pa.array(~is_cell))
    columns = pa.schema([*stored.schema, schema.PLACE])
    return pa.RecordBatch.from_arrays([*stored.columns, place], schema=columns), ends.filter(pa.array(is_cell))


class _StoredSegments:
    """The stored columns of segments, from which the columns of all segments are computed."""

    def __init__(
        self, folder: Path, stored: pa.RecordBatch, ends: pa.RecordBatch, files: Sequence[MappedFile] = ()
    ) -> None:
        """Make the columns of all segments available.

        `files` are the mapped files of segments and cells. Their blocks are checked when they are read.
        Raises `IndexFormatError` if there are cells, but `stored` has no column of positions.
        """
        self._folder, self._stored, self._files = folder, stored, files
        self._column = dict(zip(stored.schema.names, schema.arrays_of(stored), strict=True))
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
        files = [ComputedFile(self._folder, array, partial(self.compute, name)) for name, array in arrays.items()]
        return schema.of_arrays(arrays), dict(zip(arrays, files, strict=True))

    def compute(self, name: str, first: int, stop: int) -> NDArray[Any]:
        """Compute a column of the segments `first` to `stop` (exclusive)."""
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


def add_sums(a: int, b: int, sign: int = 1) -> int:
    """Add two sums of digests. If `sign` is -1, subtract the second sum."""
    low, high = (a + sign * b) % _LANES, (a // _LANES + sign * (b // _LANES)) % _LANES
    return high * _LANES + low


def join(corpora: Iterable[Parts], live: Sequence[Mask], folder: Path, size: int) -> tuple[Int64, pa.RecordBatch]:
    """Write the documents of several corpora into a new folder, in order, leaving out deleted documents.

    Segments, bytes and triples get new positions. Only about a million segments are in memory at once.

    Args:
        corpora: The corpora. Only one of them is open at a time.
        live: For each corpus, which documents to keep.
        folder: The folder to create.
        size: The total number of bytes of the texts, including those of deleted documents. Byte positions in
            the new files have 32 bits if this is enough for `size` bytes, otherwise 64 bits.

    Returns:
        The positions of the passages, and the table of the documents.
    """
    folder.mkdir(parents=True)
    segments = schema.segments_schema(size)
    cells = pa.schema([segments.field("byte_end")])
    kinds = (segments.append(schema.PLACE), cells, schema.DOCUMENTS, schema.TRIPLES)
    files = [schema.GrowingColumn(pa.struct(list(columns)), str(folder)) for columns in kinds]
    passages = [np.empty(0, np.int64)]
    done = documents = written = 0
    with (folder / CONTENT).open("wb") as content:
        for parts, keep in zip(corpora, live, strict=True):
            for piece in _pieces(parts, keep):
                column, *others, starts, ends = _moved(*piece, done, documents, written)
                passages.append(np.flatnonzero(column["passage"]) + done)
                batches = [*split(schema.segments(column, size), done), *others]
                for file, batch in zip(files, batches, strict=True):
                    file.append(batch.to_struct_array())
                done, documents = done + len(column["level"]), documents + len(batches[2])
                written += sum(map(content.write, _runs(parts[3], starts, ends)))
    batches = [pa.RecordBatch.from_struct_array(file.mapped()) for file in files]
    write_stored(folder, batches, written)
    return np.concatenate(passages), batches[2]


def _pieces(parts: Parts, keep: Mask) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch, Mask]]:
    """Divide a corpus into pieces of about `_AT_ONCE` segments each. A piece consists of segments, their
    documents, their triples, and which of the documents to keep."""
    level, source = schema.arrays_of(parts[0], "level", "source")
    number = first = fact = 0
    while first < len(source):
        beyond = first + _AT_ONCE
        last = len(parts[1]) if beyond >= len(source) else max(int(source[beyond]), number + 1)
        stop = int(np.searchsorted(source, last))
        facts = int(np.count_nonzero(level[first:stop] == Level.TRIPLET))
        places = (first, stop - first), (number, last - number), (fact, facts)
        some, described, triples = (batch.slice(*at) for batch, at in zip(parts[:3], places, strict=True))
        yield some, described, triples, keep[number:last]
        number, first, fact = last, stop, fact + facts


def _moved(
    segments: pa.RecordBatch,
    documents: pa.RecordBatch,
    triples: pa.RecordBatch,
    keep: Mask,
    segments_before: int,
    documents_before: int,
    written: int,
) -> tuple[schema.Columns, pa.RecordBatch, pa.RecordBatch, Int64, Int64]:
    """Leave out the deleted documents of a piece, and compute the new positions of the others. `segments_before`,
    `documents_before` and `written` count the segments, documents and bytes of text that come before the piece in
    the new files.

    Returns (segment columns, documents, triples, where each document's text begins in the old buffer, where it
    ends).
    """
    names = schema.SEGMENTS.names
    column = dict(zip(names, schema.arrays_of(segments, *names), strict=True))
    # The piece begins with its first document, and its last segment ends where the piece does.
    parent, source = column["parent"], column["source"] - column["source"][0]
    first = int(column["subtree_end"][-1]) - len(parent)
    kept = keep[source]
    place = np.concatenate([[0], np.cumsum(kept)]) + segments_before

    # The bytes of a document are contiguous and keep their order. Bytes between documents are dropped.
    roots = np.flatnonzero(parent < 0)[keep]
    starts, ends = (column[name][roots].astype(np.int64) for name in ("byte_start", "byte_end"))
    moved = np.zeros(len(keep), np.int64)
    moved[keep] = np.concatenate([[0], np.cumsum(ends - starts)])[:-1] + written - starts
    shift = moved[source]

    triplets = np.flatnonzero(column["level"] == Level.TRIPLET)
    stays = kept[triplets]
    facts = triples.filter(pa.array(stays))
    starts_of_facts = {
        name: np.from_dlpack(facts.column(name)) + shift[triplets[stays]]
        for name in ("relation_start", "tail_start")
    }
    known = {name: facts.column(name) for name in schema.TRIPLES.names}
    column |= {
        "parent": np.where(parent < 0, -1, place[np.maximum(parent - first, 0)]),
        "subtree_end": place[column["subtree_end"] - first],
        "source": (np.cumsum(keep) - 1 + documents_before)[source].astype(np.int32),
        "byte_start": column["byte_start"] + shift,
        "byte_end": column["byte_end"] + shift,
    }
    columns = {name: values[kept] for name, values in column.items()}
    moved_facts = schema.record(schema.TRIPLES, known | starts_of_facts)
    return columns, documents.filter(pa.array(keep)), moved_facts, starts, ends


def _runs(buffer: memoryview, starts: Int64, ends: Int64) -> list[memoryview]:
    """Return the ranges of the buffer from each start to its end, merging adjacent ranges."""
    if not starts.size:
        return []
    cuts = [0, *(np.flatnonzero(ends[:-1] != starts[1:]) + 1).tolist(), len(starts)]
    return [buffer[int(starts[a]) : int(ends[b - 1])] for a, b in pairwise(cuts)]
