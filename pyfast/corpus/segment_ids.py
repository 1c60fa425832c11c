"""Ids of segments. An id has 64 bits. It depends only on the uri of the document, and on the level and place of
the segment in this document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

import pyfast.ops as ops

_AT_ONCE = 1 << 18
"""How many ids are computed at once"""


def hash_uris(uris: Iterable[str]) -> NDArray[np.uint64]:
    """Compute a hash (uint64) for each uri. Raises UnicodeEncodeError for a lone surrogate."""
    digests = (blake2b(uri.encode(), digest_size=8).digest() for uri in uris)
    return np.frombuffer(b"".join(digests), dtype="<u8")


@dataclass(frozen=True, slots=True, eq=False)
class SegmentIds:
    """The ids of a corpus's segments. They are computed when you read them: `ids[i]`, `ids[array]`, `ids[:]`."""

    columns: ops.Segments
    check: Callable[[NDArray[np.int64]], None]
    """A function that checks the data of segments in the mapped files"""

    def __len__(self) -> int:
        """The number of segments."""
        return self.columns.level.size

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice | NDArray[Any]) -> NDArray[np.uint64]: ...

    def __getitem__(self, at: Any) -> Any:
        """Return the id of one segment, or the ids of several segments as a uint64 array."""
        if isinstance(at, int | np.integer):
            return int(self._of(np.array([range(len(self))[at]]))[0])
        if isinstance(at, slice):
            places = range(*at.indices(len(self)))
            ids = np.empty(len(places), np.uint64)
            for first in range(0, len(places), _AT_ONCE):
                some = places[first : first + _AT_ONCE]
                ids[first : first + _AT_ONCE] = self._of(np.arange(some.start, some.stop, some.step))
            return ids
        at = np.asarray(at, None if len(at) else np.int64)
        return self._of(np.flatnonzero(at) if at.dtype == bool else at.astype(np.int64, copy=False))

    def _of(self, segments: NDArray[np.int64]) -> NDArray[np.uint64]:
        self.check(segments)
        return ops.segment_ids(self.columns, segments)
