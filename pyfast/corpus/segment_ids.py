"""Segment ids: 64 bits that depend only on the uri, the level and the place in the document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pyfast.corpus.levels import Level

_STEP, _FIRST, _SECOND = (  # splitmix64's increment and multipliers (Steele, Lea, Flood 2014)
    0x9E3779B97F4A7C15,
    0xBF58476D1CE4E5B9,
    0x94D049BB133111EB,
)
_BITS = (1 << 64) - 1


def hash_uris(uris: Iterable[str]) -> NDArray[np.uint64]:
    """One uint64 for each uri. Raises UnicodeEncodeError for a lone surrogate."""
    digests = (blake2b(uri.encode(), digest_size=8).digest() for uri in uris)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def segment_ids(
    document: NDArray[np.uint64],
    level: NDArray[np.uint8],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
) -> NDArray[np.uint64]:
    """The ids of segments, from the document's hash, the level and two numbers that distinguish segments (all
    [n]).
    """
    mixed = document
    for number in (level.astype(np.int64) + 1, first, second):
        mixed = mixed + number.astype(np.int64, copy=False).view(np.uint64) * np.uint64(_STEP)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_FIRST)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_SECOND)
        mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, slots=True, eq=False)
class SegmentIds:
    """The ids of a corpus's segments, computed when they are read: `ids[i]`, `ids[array]`, `ids[:]`."""

    hashes: NDArray[np.uint64]
    """[documents] the hash of each uri"""
    level: NDArray[np.uint8]
    source: NDArray[np.int32]
    start: NDArray[Any]
    end: NDArray[Any]
    triplets: NDArray[np.int64]
    """the numbers of the segments that are triplets, ascending"""
    ordinal: NDArray[np.int64]
    """[triplets] the position of each triplet in its document"""

    def __len__(self) -> int:
        """The number of segments."""
        return self.source.size

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice | NDArray[Any]) -> NDArray[np.uint64]: ...

    def __getitem__(self, at: Any) -> Any:
        """The id of a segment, or uint64 of several."""
        if isinstance(at, int | np.integer):
            return self._one(int(at))
        segments = (
            np.arange(*at.indices(len(self)))
            if isinstance(at, slice)
            else np.asarray(at, None if len(at) else np.int64)
        )
        if segments.dtype == bool:
            segments = np.flatnonzero(segments)
        level = self.level[segments]
        first, second = self.start[segments].astype(np.int64), self.end[segments].astype(np.int64)
        # A triple is distinguished by its place among its document's triples, a subgraph by its first triple.
        in_graph = np.flatnonzero(level >= Level.SUBGRAPH)
        if in_graph.size:
            first[in_graph] = self.ordinal[np.searchsorted(self.triplets, segments[in_graph])]
        return segment_ids(self.hashes[self.source[segments]], level, first, second)

    def _one(self, i: int) -> int:
        """As above, without an array: windows ask for one id after another."""
        level, first, second = int(self.level[i]), int(self.start[i]), int(self.end[i])
        if level >= Level.SUBGRAPH:
            first = int(self.ordinal[np.searchsorted(self.triplets, i)])
        mixed = int(self.hashes[self.source[i]])
        for number in (level + 1, first, second):
            mixed = (mixed + number * _STEP) & _BITS
            mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _BITS
            mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _BITS
            mixed ^= mixed >> 31
        return mixed
