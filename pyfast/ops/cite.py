"""cite: segments of the corpus as the evidence of an answer, in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Int32, Int64, array, call


@dataclass(frozen=True, slots=True)
class Segments:
    """The columns of a corpus, segments in depth-first order. `pyfast.corpus.Corpus` explains them.

    Content and uris are UTF-8. The head, relation and tail of a triplet are next to each other in the content.
    """

    ids: npt.NDArray[np.uint64]
    level: npt.NDArray[np.uint8]
    source: Int32
    start: Int64
    end: Int64
    byte_start: Int64
    byte_end: Int64
    triplets: Int64
    """the numbers of the segments that are triplets, ascending"""
    relation_start: Int64
    """[triplets] where the relation starts in the content"""
    tail_start: Int64
    uri_offsets: Int64
    """[documents + 1]"""
    uris: npt.NDArray[np.uint8]
    content: npt.NDArray[np.uint8]


_DTYPES: dict[str, type[np.generic]] = {
    "ids": np.uint64,
    "level": np.uint8,
    "source": np.int32,
    **dict.fromkeys(("start", "end", "byte_start", "byte_end"), np.int64),
    **dict.fromkeys(("triplets", "relation_start", "tail_start", "uri_offsets"), np.int64),
    **dict.fromkeys(("uris", "content"), np.uint8),
}


def cite(segments: Segments, offsets: npt.ArrayLike, cited: npt.ArrayLike, scores: npt.ArrayLike) -> list[bytes]:
    """Write lists of segments as JSON, one array for each list and one object for each segment.

    An object has the keys `segment` (the id, 16 hex digits), `uri`, `offsets`, `snippet` and `score` (rounded to
    six digits). The snippet is the content. Tabs join the cells of a row, and line ends join rows. A triple is
    "head relation tail"; "; " joins several.

    Args:
        segments: The columns of the corpus.
        offsets: int64[n + 1], list i is `cited[offsets[i]:offsets[i + 1]]`.
        cited: int64, the numbers of segments.
        scores: float64, one for each of `cited`.

    Returns:
        n JSON texts in UTF-8.

    Raises:
        ArrayError: A column or a list is malformed, or names a segment that the corpus does not have.

    Example:
        >>> from pyfast import ops
        >>> from pyfast.corpus import TextDocument, encode
        >>> corpus = encode([TextDocument("titan.txt", "Titan", "It is a moon.")])
        >>> print(ops.cite(corpus.columns, [0, 1], [1], [0.5])[0].decode())
        [{"segment":"...","uri":"titan.txt","offsets":[0,13],"snippet":"It is a moon.","score":0.5}]
    """
    if not isinstance(segments, Segments):
        raise ArrayError(f"segments: expected Segments, got {type(segments).__name__}")
    return call(
        _native.cite,
        columns={name: array(f"segments.{name}", getattr(segments, name), of) for name, of in _DTYPES.items()},
        offsets=array("offsets", offsets, np.int64),
        cited=array("cited", cited, np.int64),
        scores=array("scores", scores, np.float64),
    )


def cite_reference(segments: Segments, i: int, score: float) -> dict[str, Any]:
    """The object of one segment."""
    first, last = segments.uri_offsets[segments.source[i] :][:2]
    return {
        "segment": f"{segments.ids[i]:016x}",
        "uri": segments.uris[first:last].tobytes().decode(),
        "offsets": [int(segments.start[i]), int(segments.end[i])],
        "snippet": _content(segments, i),
        "score": round(score, 6),
    }


_DEPTH = np.array([0, 1, 2, 3, 0, 1, 2, 1, 2])
_TABLE, _ROW, _SUBGRAPH, _TRIPLET = 4, 5, 7, 8


def _content(s: Segments, i: int) -> str:
    depth = _DEPTH[s.level[i:]]
    inside = i + np.arange(1, 1 + int(np.append(depth[1:] <= depth[0], True).argmax()))
    children = inside[_DEPTH[s.level[inside]] == depth[0] + 1].tolist()
    if s.level[i] in (_TABLE, _ROW):
        return ("\n" if s.level[i] == _TABLE else "\t").join(_content(s, child) for child in children)
    if s.level[i] == _SUBGRAPH or (children and s.level[children[0]] == _SUBGRAPH):
        return "; ".join(_content(s, child) for child in children)
    cuts = [int(s.byte_start[i]), int(s.byte_end[i])]
    if s.level[i] == _TRIPLET:
        k = s.triplets.tolist().index(i)
        cuts[1:1] = [int(s.relation_start[k]), int(s.tail_start[k])]
    return " ".join(s.content[a:b].tobytes().decode() for a, b in pairwise(cuts))
