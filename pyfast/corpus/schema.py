"""The columns of a stored corpus. None contains nulls, so a mapped column is plain memory."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Columns of one of the schemas below, by name. Some may be missing."""


class Kind(IntEnum):
    """The kind of a document."""

    TEXT = 0
    MARKDOWN = 1
    TABLE = 2
    GRAPH = 3


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


# One row per segment, parents before children; the names are explained at `pyfast.corpus.Corpus`.
SEGMENTS = _schema(
    ids=pa.uint64(),
    level=pa.uint8(),
    parent=pa.int64(),
    subtree_end=pa.int64(),
    source=pa.int32(),
    start=pa.int64(),
    end=pa.int64(),
    byte_start=pa.int64(),
    byte_end=pa.int64(),
    passage=pa.uint8(),
)

# In format 2 the last column had another name.
SEGMENTS_2 = pa.schema([*list(SEGMENTS)[:-1], SEGMENTS.field("passage").with_name("unit")])

# One row per document. Header and links of tables only, empty for the others. The digest is of all that is in the
# document; `passages` is how many there are in it.
DOCUMENTS = _schema(
    uri=pa.large_string(),
    title=pa.large_string(),
    kind=pa.uint8(),
    section=pa.large_string(),
    header=pa.large_list(pa.field("item", pa.large_string(), nullable=False)),
    links=pa.large_list(
        pa.field(
            "item",
            pa.struct(_schema(row=pa.int64(), column=pa.int64(), uri=pa.large_string())),
            nullable=False,
        )
    ),
    digest=pa.binary(16),
    passages=pa.int64(),
)

# Before format 4 the last two were not there.
DOCUMENTS_3 = pa.schema(list(DOCUMENTS)[:-2])

# One row per triplet segment, in the order of the sequence. `ordinal` is its place in its document. In the
# text buffer its head, relation and tail lie side by side; the columns say where the last two start.
TRIPLES = _schema(
    ordinal=pa.int64(),
    relation_start=pa.int64(),
    tail_start=pa.int64(),
    timed=pa.uint8(),
    time=pa.large_string(),
)


def empty(columns: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_pylist([], schema=columns)


def record(columns: pa.Schema, values: Mapping[str, object]) -> pa.RecordBatch:
    """A batch of these values (NumPy arrays or lists), by name of the column."""
    return pa.RecordBatch.from_arrays(
        [pa.array(values[field.name], field.type) for field in columns], schema=columns
    )


def join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches of one schema into one."""
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined[0] if joined else batches[0]
