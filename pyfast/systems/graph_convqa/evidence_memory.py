"""The evidence memory: evidence from earlier turns of a conversation (graph_convqa, section 4.2, equation 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal
from zlib import crc32

import numpy as np

from pyfast.ops.arrays import Float32, Int64
from pyfast.retrieval import Index, ScoredSegments
from pyfast.retrieval.vectors.embeddings import DEFAULT, Embedder
from pyfast.utils.options import HARDWARE_DEFAULTS, Hardware

Memory = Literal["on", "off", "random"]
SHARE = 1 / 3
"""The share of a turn's evidence that the memory may replace. A third is the example in graph_convqa's
paper"""
# the maximum number of vectors in memory, 1.5 kB each; the turns of a conversation use the same ones again
_MOST_KEPT = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class MemoryQuery:
    """One turn: its query, the evidence that it retrieved, and the evidence of each earlier turn."""

    query: str
    evidence: ScoredSegments
    past: tuple[ScoredSegments, ...]
    turn: str
    """The id of the turn, which is also the random seed if the memory is `random`"""


def apply_memory(
    index: Index, items: Sequence[MemoryQuery], memory: Memory, model: str = DEFAULT, share: float = SHARE
) -> list[ScoredSegments]:
    """Replace a turn's worst-ranked evidence with evidence from earlier turns (graph_convqa's paper, equation 2).

    E_t is the evidence of turn t, and its memory M_t the evidence of all earlier turns. The function replaces
    the worst-ranked items of E_t with items of M_t. The other items of E_t stay, and are not added a second
    time. If M_t contains too few items that E_t does not keep, fewer items of E_t are replaced.

    Args:
        index: The index.
        items: For each turn, its query, its evidence and the evidence from earlier turns.
        memory: `on`: the items of M_t most similar to the query, by the cosine of sentence embeddings.
            `random`: random items of M_t. `off`: nothing is replaced.
        model: The embedding model for `on`: its name or folder.
        share: The share of E_t to replace, rounded down to whole items.

    Returns:
        For each turn, its new evidence.

    Raises:
        ModelNotFoundError: There is no such embedding model.
    """
    share = 0.0 if memory == "off" else share
    found = [_earlier(item, replaceable(len(item.evidence), share)) for item in items]
    earlier = [segments for _, segments in found]
    if memory == "on":
        scores = _nearness(index, [item.query for item in items], earlier, model)
    else:
        drawn = (np.random.default_rng(crc32(item.turn.encode())) for item in items)
        scores = [one.random(len(some), np.float32) for one, some in zip(drawn, earlier, strict=True)]
    return [_replaced(item, *one, near) for item, one, near in zip(items, found, scores, strict=True)]


def replaceable(items: int, share: float) -> int:
    """Compute how many evidence items the memory may replace.

    Args:
        items: The turn's number of evidence items.
        share: The share of them to replace.

    Returns:
        `items * share`, rounded down.
    """
    return math.floor(items * share + 1e-9)  # A third of 9 must be 3.


def _earlier(item: MemoryQuery, most: int) -> tuple[int, Int64]:
    """Return (how many items of this turn are replaced, the items that may replace them).

    The number is at most `most`. The items are the evidence from earlier turns, in turn order and without
    duplicates. Items that this turn keeps are left out.
    """
    found = item.evidence.segments.tolist()
    seen = dict.fromkeys(chain.from_iterable(evidence.segments.tolist() for evidence in item.past))
    for places in range(most, 0, -1):
        kept = set(found[: len(found) - places])
        if len(earlier := [i for i in seen if i not in kept]) >= places:
            return places, np.array(earlier, np.int64)
    return 0, np.empty(0, np.int64)


def _nearness(index: Index, queries: Sequence[str], earlier: Sequence[Int64], model: str) -> list[Float32]:
    """Compute the cosine between each query and each of its items `earlier`. Returns an array of cosines for
    each query. A text that occurs several times is embedded only once."""
    asked = [query for query, segments in zip(queries, earlier, strict=True) if len(segments)]
    known = _vectors(index, model)
    if len(known) > _MOST_KEPT:
        known.clear()
    wanted = dict.fromkeys(chain.from_iterable(segments.tolist() for segments in earlier))
    new = [segment for segment in wanted if segment not in known]
    vectors = embedder(model, index.hardware).encode([*asked, *map(index.corpus.linearise, new)])
    known.update(zip(new, vectors[len(asked) :], strict=True))
    own = iter(vectors)
    return [
        np.stack([known[i] for i in segments.tolist()]) @ next(own) if len(segments) else np.empty(0, np.float32)
        for segments in earlier
    ]


@lru_cache(maxsize=4)
def embedder(model: str, hardware: Hardware = HARDWARE_DEFAULTS) -> Embedder:
    """Return the embedding model with this name. Each model is loaded only once."""
    return Embedder(model, hardware)


@lru_cache(maxsize=4)
def _vectors(index: Index, model: str) -> dict[int, Float32]:
    """Return the vector cache for an index and a model: the vector of each segment embedded so far."""
    return {}


def _replaced(item: MemoryQuery, places: int, earlier: Int64, scores: Float32) -> ScoredSegments:
    best = np.argsort(-scores, kind="stable")[:places]
    kept = len(item.evidence) - places
    return ScoredSegments(
        np.concatenate([item.evidence.segments[:kept], earlier[best]]),
        np.concatenate([item.evidence.scores[:kept], scores[best]]),
    )
