"""The interface of rerankers, and how to open one. A reranker scores the passages of a pool for its query."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval.plug_ins import open_plug_in
from pyfast.retrieval.score_cache import ScoreCache, pair_key

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index

OFF, BOTH = "off", "both"


class Reranker(Protocol):
    """The interface of a reranker. It scores the passages of many queries in one call.

    An entry point of the group `pyfast.rerankers`, or `MODULE:NAME`, names a function `open(index)` that
    returns a reranker. If the user writes `ENTRY_POINT:PARAMETERS`, pyfast calls `open(index, PARAMETERS)`.
    The score of a passage must not depend on the other passages, because pyfast caches scores.
    """

    @property
    def fingerprint(self) -> str:
        """A text that identifies the reranker and its parameters. A run resumes only with the same fingerprint."""
        ...

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """For each query, compute the scores of its passages. Higher is better.

        Several threads can call this method at the same time.
        """
        ...


def open_rerankers(name: str, index: Index) -> tuple[Reranker, ...]:
    """Open the rerankers that `name` stands for. `off` stands for none, and `both` for `late` and `cross`.
    Every other name stands for one reranker, such as `cross:MODEL` or `MODULE:NAME`.

    Raises `InputError` if there is no such reranker, or it does not have the interface `Reranker`.
    """
    if name == OFF:
        return ()
    opened = [open_plug_in("rerankers", each, index) for each in (("late", "cross") if name == BOTH else (name,))]
    for reranker in opened:
        if not hasattr(reranker, "score") or not hasattr(reranker, "fingerprint"):
            raise InputError(f"{name}: no reranker: it needs a method `score` and a `fingerprint` (see Reranker)")
    return tuple(opened)


def scores_of(
    reranker: Reranker, index: Index, queries: Sequence[str], passages: Sequence[Int32], cache: ScoreCache
) -> list[Float32]:
    """Compute the reranker's scores of each query's passages. Scores in the cache are not computed again."""
    model = reranker.fingerprint
    keys = [
        [pair_key(model, query, index.text(passage)) for passage in some.tolist()]
        for query, some in zip(queries, passages, strict=True)
    ]
    scores = cache.known(list(chain.from_iterable(keys)))
    missing = [[key not in scores for key in some] for some in keys]
    asked = [number for number, some in enumerate(missing) if any(some)]
    if asked:
        wanted = [passages[number][missing[number]] for number in asked]
        computed = reranker.score([queries[number] for number in asked], wanted)
        fresh: dict[bytes, float] = {}
        for number, of_query in zip(asked, computed, strict=True):
            new = [key for key, is_missing in zip(keys[number], missing[number], strict=True) if is_missing]
            if len(of_query) != len(new) or not np.isfinite(of_query).all():
                raise InputError(f"{model}: expected {len(new)} finite scores, one for each passage")
            fresh |= zip(new, map(float, of_query), strict=True)
        cache.add(fresh)
        scores |= fresh
    return [np.array([scores[key] for key in some], np.float32) for some in keys]
