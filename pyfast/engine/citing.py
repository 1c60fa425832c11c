"""Write the evidence of answers: once as a whole for the traces, once without content for answers.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyfast import ops, retrieval
from pyfast.ops.arrays import ends
from pyfast.retrieval import Index, ScoredSegments


class Cited(NamedTuple):
    """The evidence of an answer as JSON arrays."""

    whole: bytes
    names: bytes | None
    """Only the id and the uri of each segment. None: not known"""


def cite(index: Index, items: Sequence[ScoredSegments]) -> list[Cited]:
    """Return each list of segments in two forms: as `retrieval.cite` returns it, and as JSON with only the
    ids and uris of the segments."""
    whole = retrieval.cite(index, items)
    segments = np.concatenate([np.empty(0, np.int64), *[item.segments for item in items]])
    names = ops.list_segments(index.corpus.columns, ends(items), segments, {})
    return [Cited(*each) for each in zip(whole, names, strict=True)]
