"""Segment ids: 64 bits that depend only on the uri, the level and the place in the document."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment and multipliers (Steele, Lea, Flood 2014)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


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
    mixed = _mix(document + (level.astype(np.uint64) + np.uint64(1)) * _STEP)
    mixed = _mix(mixed + first.view(np.uint64) * _STEP)
    return _mix(mixed + second.view(np.uint64) * _STEP)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
