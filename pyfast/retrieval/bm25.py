"""BM25 search over the passages of an index. `ops.bm25` searches the term counts of all parts of the index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

import pyfast.ops as ops
from pyfast.errors import InputError
from pyfast.ops.arrays import stack
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.pools import Pool, split

BM25_PARAMETERS: dict[str, Any] = {"method": "lucene", "k1": 1.5, "b": 0.75}
"""The default parameters of BM25"""


class BM25Retriever:
    """The retriever `bm25`: it ranks the passages of an index by their BM25 scores."""

    def __init__(self, index: Index, k1: float = BM25_PARAMETERS["k1"], b: float = BM25_PARAMETERS["b"]) -> None:
        self.k1, self.b = k1, b
        self.fingerprint = f"bm25:method={BM25_PARAMETERS['method']},k1={k1},b={b}"
        self._analysis, self._searched, self._place = index.analysis, index.searched, index.place

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages for each query, best first. Passages without a word of the query
        are left out.
        """
        asked = [self._analysis.tokens(query) for query in queries]
        words = list(dict.fromkeys(chain.from_iterable(asked)))
        columns = [part.terms.find(words) for part, _ in self._searched]
        known = np.any(np.array(columns).reshape(len(columns), len(words)) >= 0, axis=0).tolist()
        number = {word: i for i, (word, is_known) in enumerate(zip(words, known, strict=True)) if is_known}
        parts = []
        for (part, counts), column in zip(self._searched, columns, strict=True):
            part.check_columns(column[column >= 0])
            parts.append(counts.at(column))
        terms = stack([[number[word] for word in of_query if word in number] for of_query in asked], np.int32)
        offsets, documents, scores = ops.bm25(parts, *terms, k, k1=self.k1, b=self.b)
        return split(offsets, documents if self._place is None else self._place[documents], scores)


def open_bm25(index: Index, parameters: str = "") -> BM25Retriever:
    """Open the retriever `bm25`. `parameters` is a text such as `k1=0.9,b=0.4`. Raises `InputError` if
    `parameters` is not valid.
    """
    given = dict(part.partition("=")[::2] for part in parameters.split(",")) if parameters else {}
    try:
        values = {name: float(value) for name, value in given.items()}
    except ValueError:
        values = {"": 0.0}
    k1, b = values.get("k1", 0.0), values.get("b", 0.0)
    if not values.keys() <= {"k1", "b"} or not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise InputError(
            f"bm25:{parameters}: expected k1 of at least 0 and b from 0 to 1, such as bm25:k1=0.9,b=0.4"
        )
    return BM25Retriever(index, **values)
