"""The terms that explain the edges of evidence graphs. They are cached, because many questions have an edge
between the same two passages."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from pyfast.ops.arrays import Int32, Int64
from pyfast.retrieval.strongest_edges import TERMS, strongest_shared_terms

HELD = 1 << 19
"""If more pairs of passages than this number are in memory, all of them are forgotten"""


class SharedTerms:
    """Finds the strongest shared terms of pairs of passages of one index, for each pair only once."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._pairs = np.array([np.iinfo(np.int64).max])  # sorted: the lower row of the two, then the higher one
        self._terms = np.full((1, TERMS), -1, np.int32)  # the terms of each pair, and -1 behind them

    def find(self, X: csr_array, first: Int32, second: Int32) -> tuple[Int64, Int32]:
        """Return the same as `strongest_shared_terms`. `X` must be the same in each call."""
        pairs = np.minimum(first, second).astype(np.int64) << 32 | np.maximum(first, second)
        places = np.searchsorted(self._pairs, pairs)
        unknown = np.unique(pairs[self._pairs[places] != pairs])
        if len(unknown):
            self._add(X, unknown)
            places = np.searchsorted(self._pairs, pairs)
        terms = self._terms[places]
        edge, place = np.nonzero(terms >= 0)
        if len(self._pairs) > HELD:
            self._forget()
        return edge, terms[edge, place]

    def _add(self, X: csr_array, pairs: Int64) -> None:
        """Find the terms of new pairs, which are sorted."""
        pair, found = strongest_shared_terms(X, (pairs >> 32).astype(np.int32), pairs.astype(np.int32))
        terms = np.full((len(pairs), TERMS), -1, np.int32)
        terms[pair, np.arange(len(pair)) - np.searchsorted(pair, pair)] = found
        places = np.searchsorted(self._pairs, pairs)
        self._pairs = np.insert(self._pairs, places, pairs)
        self._terms = np.insert(self._terms, places, terms, axis=0)
