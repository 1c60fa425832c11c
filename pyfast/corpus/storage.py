"""A corpus as a folder: three Arrow files and the text buffer, all memory-mapped when opened.

The index compares the checksums. This module checks that the files belong together and that every view is inside
its buffer, so that a damaged file cannot make a reader read out of bounds.
"""

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyfast.corpus import schema
from pyfast.corpus.levels import CHILDREN, PASSAGE_LEVELS, ROOTS, Level
from pyfast.corpus.schema import Kind
from pyfast.corpus.segment_ids import hash_uris
from pyfast.errors import ArrayError, IndexFormatError
from pyfast.files import written_aside
from pyfast.ops.hseq_stream import check_subtree_ends

FORMAT = "pyfast corpus 5"

_FILES = {
    "segments.arrow": schema.SEGMENTS,
    "documents.arrow": schema.DOCUMENTS,
    "triples.arrow": schema.TRIPLES,
}
_FORMATS = {
    "pyfast corpus 2": {"segments.arrow": schema.SEGMENTS_2, "documents.arrow": schema.DOCUMENTS_3},
    "pyfast corpus 3": {"segments.arrow": schema.SEGMENTS_4, "documents.arrow": schema.DOCUMENTS_3},
    "pyfast corpus 4": {"segments.arrow": schema.SEGMENTS_4, "documents.arrow": schema.DOCUMENTS_4},
    FORMAT: _FILES,
}
"""The columns of each readable format"""
_TEXT = "content.bin"
_BLOCK = 1 << 20  # segments checked at a time, so that checking takes little memory

Parts = tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch, memoryview]

# Which level may lie under which: [child, parent]; the last column stands for no parent.
_ALLOWED = np.zeros((len(Level), len(Level) + 1), dtype=bool)
for _parent, _children in CHILDREN.items():
    _ALLOWED[list(_children), _parent] = True
_ALLOWED[list(ROOTS), len(Level)] = True


def write(folder: Path, parts: Parts) -> None:
    """Write the parts of a corpus.

    Each file is written beside its place. All are renamed when they are complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    *batches, buffer = parts
    with contextlib.ExitStack() as asides:
        for name, batch in zip(_FILES, batches, strict=True):
            _write_batch(asides.enter_context(written_aside(folder / name)), batch, _sizes(parts))
        asides.enter_context(written_aside(folder / _TEXT)).write_bytes(buffer)


def _write_batch(path: Path, batch: pa.RecordBatch, sizes: str) -> None:
    batch = batch.replace_schema_metadata({"format": FORMAT, "sizes": sizes})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def read(folder: Path, format_: str = FORMAT) -> Parts:
    """Map the parts of a corpus, of the current format or an older one.

    Raises IndexFormatError if something is missing, truncated or not ours.
    """
    for name in (*_FILES, _TEXT):
        if not (folder / name).is_file():
            raise IndexFormatError(f"{folder}: not a corpus, or an incomplete one: it has no file {name}")
    segments, documents, triples = (
        _read_batch(folder / name, {**_FILES, **_FORMATS[format_]}[name], format_) for name in _FILES
    )
    parts = (segments, documents, triples, memoryview(pa.memory_map(str(folder / _TEXT)).read_buffer()))
    for name, batch in zip(_FILES, parts, strict=False):
        if batch.schema.metadata[b"sizes"].decode() != _sizes(parts):
            raise IndexFormatError(
                f"{folder}: {name} does not go with the other files: one is truncated or foreign"
            )
    if format_ != FORMAT:
        old = zip(schema.SEGMENTS_4.names, segments.columns, strict=True)
        segments = schema.segments({name: column.to_numpy() for name, column in old}, len(parts[3]))
        described = {
            "digest": [bytes(16)] * len(documents),
            "passages": np.zeros(len(documents), np.int64),
            **{field.name: documents.column(field.name) for field in documents.schema},
            "hash": hash_uris(documents.column("uri").to_pylist()),
        }
        parts = (segments, schema.record(schema.DOCUMENTS, described), triples, parts[3])
    if fault := _fault(parts):
        raise IndexFormatError(f"{folder}: the corpus is damaged: {fault}")
    return parts


def read_documents(folder: Path) -> pa.RecordBatch:
    """Read only the columns of a corpus's documents. Raises IndexFormatError."""
    return _read_batch(folder / "documents.arrow", schema.DOCUMENTS, FORMAT)


def _sizes(parts: Parts) -> str:
    """The sizes of all parts. Each file records them, so that files of different corpora cannot be mixed."""
    return " ".join(str(len(part)) for part in parts)


def _read_batch(path: Path, expected: pa.Schema, format_: str) -> pa.RecordBatch:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        metadata = reader.schema.metadata or {}
        if metadata.get(b"format") != format_.encode() or b"sizes" not in metadata:
            raise IndexFormatError(f"{path}: not a file of the format {format_!r}: build the index again")
        if reader.num_record_batches != 1 or not _is(reader.schema, expected):
            raise IndexFormatError(f"{path}: damaged: it does not have the columns of the format {format_!r}")
        batch = reader.get_batch(0)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise IndexFormatError(f"{path}: damaged: {' '.join(str(error).split())}") from error
    if any(map(_nulls, batch.columns)):
        raise IndexFormatError(f"{path}: damaged: a column contains nulls")
    return batch


def _is(found: pa.Schema, expected: pa.Schema) -> bool:
    wide = expected is schema.SEGMENTS and found.equals(schema.WIDE_SEGMENTS)
    return bool(wide or found.equals(expected))


def _nulls(column: pa.Array) -> int:
    nested = 0
    if pa.types.is_large_list(column.type):
        nested = _nulls(column.values)
    elif pa.types.is_struct(column.type):
        nested = sum(_nulls(column.field(k)) for k in range(column.type.num_fields))
    return int(column.null_count) + nested


def _fault(parts: Parts) -> str:
    """The first inconsistency of these parts; "" if there is none."""
    segments, documents, triples, buffer = parts
    level, parent, source, byte_start, byte_end, passage = (
        segments.column(name).to_numpy()
        for name in ("level", "parent", "source", "byte_start", "byte_end", "passage")
    )
    for first in range(0, level.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        position = np.arange(first, min(first + _BLOCK, level.size))
        above = parent[block]
        if (level[block] >= len(Level)).any() or (above < -1).any() or (above >= position).any():
            return "a level is unknown, or a parent does not come before its child"
        root = above < 0
        if not _ALLOWED[level[block], np.where(root, len(Level), level[above])].all():
            return "a segment is under one of the wrong level"
        if (source[block] != np.where(root, source[block], source[above])).any():
            return "a segment is not in its parent's document"
        low, high = np.where(root, 0, byte_start[above]), np.where(root, len(buffer), byte_end[above])
        if (
            (low > byte_start[block]).any()
            or (byte_start[block] > byte_end[block]).any()
            or (byte_end[block] > high).any()
        ):
            return "content reaches beyond what it is part of"
        if not np.isin(level[block][passage[block] != 0], PASSAGE_LEVELS).all():
            return "a segment of the wrong level is a passage"

    try:
        check_subtree_ends(parent, segments.column("subtree_end").to_numpy())
    except ArrayError:
        return "a segment does not end where what is in it does"
    roots = np.flatnonzero(parent < 0)
    of_table = documents.column("kind").to_numpy() == Kind.TABLE
    if not np.array_equal(source[roots], np.arange(len(documents))):
        return "the documents are not in order"
    if not np.array_equal(level[roots] == Level.TABLE, of_table):
        return "a document is not of its kind"

    triplets = np.flatnonzero(level == Level.TRIPLET)
    relation, tail = triples.column("relation_start").to_numpy(), triples.column("tail_start").to_numpy()
    if triplets.size != len(triples):
        return "there is not one triple for each triplet"
    if ((relation < byte_start[triplets]) | (tail < relation) | (tail > byte_end[triplets])).any():
        return "a triple reaches beyond its content"
    return ""
