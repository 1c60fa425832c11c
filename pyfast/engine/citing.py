"""Write the evidence of answers: once as a whole for the traces, once without content for answers.jsonl. Write
the lists of passages in traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import pyfast.ops as ops
import pyfast.retrieval as retrieval
from pyfast.ops.arrays import ends
from pyfast.retrieval import Index, PassageList, ScoredSegments, write_lists


class Cited(NamedTuple):
    """The evidence of an answer as JSON arrays."""

    whole: bytes
    names: bytes | None
    """Only the id and the uri of each segment. None: not known"""


def cite(index: Index, items: Sequence[tuple[ScoredSegments, Sequence[PassageList]]]) -> list[Cited]:
    """Write the evidence of answers, and the lists of passages in their traces.

    Evidence is returned in two forms: as `retrieval.cite` returns it, and as JSON with only the ids and uris of
    the segments. The lists of passages get their `segments`.
    """
    evidence = [segments for segments, _ in items]
    whole = retrieval.cite(index, evidence)
    listed = np.concatenate([np.empty(0, np.int64), *[one.segments for one in evidence]])
    names = ops.list_segments(index.corpus.columns, ends(evidence), listed, {})
    write_lists(index, [one for _, lists in items for one in lists])
    return [Cited(*each) for each in zip(whole, names, strict=True)]
