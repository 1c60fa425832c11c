"""cite: write segments of the corpus as JSON, for the evidence of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Int32, Int64, UInt8, UInt64, arguments, array, call, integers


@dataclass(frozen=True, slots=True)
class Segments:
    """The columns of a corpus. The segments of the corpus are in depth-first order.

    Content and uris are UTF-8. The content of a triplet is its head, relation and tail, without spaces between
    them.
    """

    level: UInt8
    source: Int32
    start: Int32 | Int64
    end: Int32 | Int64
    byte_start: Int32 | Int64
    byte_end: Int32 | Int64
    triplets: Int64
    """[triplets] the numbers of the segments that are triplets, ascending"""
    ordinal: Int64
    """[triplets] the position of each triplet in its document"""
    relation_start: Int64
    """[triplets] the byte of the content at which the relation of each triplet starts"""
    tail_start: Int64
    hashes: UInt64
    """[documents] the hash of each document's uri. `segment_ids` makes ids from these hashes"""
    uri_offsets: Int64
    """[documents + 1] the byte of `uris` at which the uri of each document starts"""
    uris: UInt8
    content: UInt8


_DTYPES: dict[str, type[np.generic]] = {
    "level": np.uint8,
    "source": np.int32,
    "hashes": np.uint64,
    **dict.fromkeys(("triplets", "ordinal", "relation_start", "tail_start", "uri_offsets"), np.int64),
    **dict.fromkeys(("uris", "content"), np.uint8),
}
_INTEGERS = ("start", "end", "byte_start", "byte_end")
_LISTED = ("level", "source", "start", "end", "triplets", "ordinal", "hashes", "uri_offsets", "uris")
_IDENTIFYING = ("level", "source", "start", "end", "triplets", "ordinal", "hashes")
_NONE = np.empty(0, np.int32)


def cite(
    segments: Segments,
    offsets: npt.ArrayLike,
    cited: npt.ArrayLike,
    scores: npt.ArrayLike,
    members: Sequence[bytes] = (),
    member_of: npt.ArrayLike = _NONE,
) -> list[bytes]:
    """Write lists of segments as JSON. Each list becomes an array, and each segment an object.

    An object has the keys `segment` (the id, 16 hex digits), `uri`, `offsets`, `snippet` and `score` (rounded to
    six decimals). The snippet is the text of the segment. In a table, tabs separate the cells of a row, and line
    ends separate rows. A tab inside a cell becomes a space, and in the text of a whole table also a line end. A
    triple is written "head relation tail", and "; " separates several triples.

    Args:
        segments: The columns of the corpus.
        offsets: int64[n + 1]. List i is `cited[offsets[i]:offsets[i + 1]]`.
        cited: int64, the numbers of segments.
        scores: float64, the score of each segment in `cited`.
        members: Texts such as `b'"title":"Moons"'`. The op adds such a text at the end of an object.
        member_of: int32, which of these texts the object of each segment in `cited` gets. -1: none. Empty: no
            object gets one.

    Returns:
        n JSON texts in UTF-8, one for each list.

    Raises:
        ArrayError: A column or a list is malformed, or names a segment that the corpus does not have.

    Example:
        >>> from pyfast import ops
        >>> from pyfast.corpus import TextDocument, encode
        >>> corpus = encode([TextDocument("titan.txt", "Titan", "It is a moon.")])
        >>> print(ops.cite(corpus.columns, [0, 1], [1], [0.5])[0].decode())
        [{"segment":"...","uri":"titan.txt","offsets":[0,13],"snippet":"It is a moon.","score":0.5}]
    """
    columns = _columns(segments, (*_DTYPES, *_INTEGERS))
    given = arguments(offsets=offsets, cited=cited, member_of=member_of)
    given["scores"] = array("scores", scores, np.float64)
    return call(native.cite, columns=columns, **given, members=list(members))


def list_segments(
    segments: Segments, offsets: npt.ArrayLike, listed: npt.ArrayLike, scores: Mapping[str, npt.ArrayLike]
) -> list[bytes]:
    """Write lists of segments as JSON, without their content. Each list becomes an array, and each segment an
    object.

    An object has the keys `segment` (the id, 16 hex digits) and `uri`, and then the segment's scores, rounded to
    four decimals.

    Args:
        segments: The columns of the corpus. The op does not read `content`, or the columns with positions in it.
        offsets: int64[n + 1]. List i is `listed[offsets[i]:offsets[i + 1]]`.
        listed: int64, the numbers of segments.
        scores: For each key, the score of each segment in `listed`: float32.

    Returns:
        n JSON texts in UTF-8, one for each list.

    Raises:
        ArrayError: A column or a list is malformed, or names a segment that the corpus does not have.

    Example:
        >>> from pyfast import ops
        >>> from pyfast.corpus import TextDocument, encode
        >>> corpus = encode([TextDocument("titan.txt", "Titan", "It is a moon.")])
        >>> print(ops.list_segments(corpus.columns, [0, 1], [1], {"score": [0.5]})[0].decode())
        [{"segment":"...","uri":"titan.txt","score":0.5}]
    """
    columns, given = _columns(segments, _LISTED), arguments(offsets=offsets, listed=listed)
    numbers = [array(f"scores[{name!r}]", of, np.float32) for name, of in scores.items()]
    for name, of in zip(scores, numbers, strict=True):
        if len(of) != len(given["listed"]):
            raise ArrayError(f"scores[{name!r}]: expected one number for each listed segment")
    joined = np.concatenate([np.empty(0, np.float32), *numbers])
    return call(native.list_segments, columns=columns, **given, names=list(scores), scores=joined)


def _columns(segments: Segments, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(segments, Segments):
        raise ArrayError(f"segments: expected Segments, got {type(segments).__name__}")
    return {
        name: array(f"segments.{name}", getattr(segments, name), _DTYPES[name])
        if name in _DTYPES
        else integers(f"segments.{name}", getattr(segments, name))
        for name in names
    }


def segment_ids(segments: Segments, which: npt.ArrayLike) -> UInt64:
    """Compute segment ids. An id depends on the document's uri, and on the segment's level and position in the
    document.

    Args:
        segments: The columns of the corpus. The column `hashes` represents the uris. The op does not read
            `uris` and `content`, or the columns with positions in these two, such as `uri_offsets`.
        which: int64[n], the numbers of segments.

    Returns:
        uint64[n], the id of each segment.

    Raises:
        ArrayError: A column is malformed, or the corpus does not have such a segment.

    Example:
        >>> from pyfast import ops
        >>> from pyfast.corpus import TextDocument, encode
        >>> corpus = encode([TextDocument("titan.txt", "Titan", "It is a moon.")])
        >>> [f"{id:016x}" for id in ops.segment_ids(corpus.columns, [0, 1]).tolist()]
        ['...', '...']
    """
    return call(native.segment_ids, **_columns(segments, _IDENTIFYING), which=array("which", which, np.int64))
