"""Join several corpora into one, without deleted documents."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyfast.corpus import schema
from pyfast.corpus.levels import Level
from pyfast.corpus.storage import Parts

Mask = NDArray[np.bool_]
_LANES = 1 << 64


def digests_of(documents: pa.RecordBatch) -> NDArray[np.uint64]:
    """[documents, 2]: the digest of each document."""
    buffer = documents.column("digest").buffers()[1] or b""
    return np.frombuffer(buffer, "<u8")[: 2 * len(documents)].reshape(-1, 2)


def digest_sum(digests: NDArray[np.uint64]) -> int:
    """The sum of digests, as two 64-bit numbers with overflow."""
    low, high = digests.sum(axis=0, dtype=np.uint64).tolist()
    return int(high) * _LANES + int(low)


def add_sums(a: int, b: int, sign: int = 1) -> int:
    """The sum, or with `sign` -1 the difference, of two `digest_sum`s."""
    low, high = (a + sign * b) % _LANES, (a // _LANES + sign * (b // _LANES)) % _LANES
    return high * _LANES + low


def join(corpora: Sequence[Parts], live: Sequence[Mask]) -> Parts:
    """Join the documents of several corpora that are not deleted, in order.

    Positions of segments, bytes and triples shift.
    """
    columns: list[schema.Columns] = []
    documents = [schema.empty(schema.DOCUMENTS)]
    triples = [schema.empty(schema.TRIPLES)]
    content: list[memoryview] = []
    segments_before = documents_before = bytes_before = 0
    for (some, described, facts, buffer), keep in zip(corpora, live, strict=True):
        column = {field.name: some.column(field.name).to_numpy() for field in schema.SEGMENTS}
        kept = keep[column["source"]]
        place = np.concatenate([[0], np.cumsum(kept)]) + segments_before
        number = np.cumsum(keep) - 1 + documents_before

        # A document's bytes lie together; it keeps their order, whatever lay between documents before.
        roots = np.flatnonzero(column["parent"] < 0)[keep]
        starts, ends = column["byte_start"][roots], column["byte_end"][roots]
        moved = np.zeros(len(keep), np.int64)
        moved[keep] = np.concatenate([[0], np.cumsum(ends - starts)])[:-1] + bytes_before - starts
        content += _runs(buffer, starts, ends)
        bytes_before += int((ends - starts).sum())

        shift = moved[column["source"]]
        triplets = np.flatnonzero(column["level"] == Level.TRIPLET)
        stays = kept[triplets]
        remaining = facts.filter(pa.array(stays))
        shifts = shift[triplets[stays]]
        triples.append(
            schema.record(
                schema.TRIPLES,
                {
                    **{field.name: remaining.column(field.name) for field in schema.TRIPLES},
                    "relation_start": remaining.column("relation_start").to_numpy() + shifts,
                    "tail_start": remaining.column("tail_start").to_numpy() + shifts,
                },
            )
        )
        parent = column["parent"]
        column["parent"] = np.where(parent < 0, -1, place[parent])
        column["subtree_end"] = place[column["subtree_end"]]
        column["source"] = number[column["source"]].astype(np.int32)
        column["byte_start"] = column["byte_start"] + shift
        column["byte_end"] = column["byte_end"] + shift
        columns.append({name: values[kept] for name, values in column.items()})
        documents.append(described.filter(pa.array(keep)))
        segments_before += int(np.count_nonzero(kept))
        documents_before += int(np.count_nonzero(keep))
    buffer = memoryview(b"".join(content))
    segments = [schema.empty(schema.SEGMENTS), *(schema.segments(some, len(buffer)) for some in columns)]
    return schema.join(segments), schema.join(documents), schema.join(triples), buffer


def _runs(buffer: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[memoryview]:
    """Ranges of the documents; consecutive documents form one range."""
    if not starts.size:
        return []
    cuts = [0, *(np.flatnonzero(ends[:-1] != starts[1:]) + 1).tolist(), len(starts)]
    return [buffer[int(starts[a]) : int(ends[b - 1])] for a, b in pairwise(cuts)]
