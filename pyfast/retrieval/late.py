"""Late interaction: a vector for each token of a query and a passage, compared token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval.embeddings import find_model
from pyfast.retrieval.onnx_models import open_model, packaged_model

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index

_PACKAGED = "colbert"
"""The backbone of answerai-colbert-small-v1 in int8, without its projection"""
_AT_ONCE = 8  # queries: their passages' vectors are in memory together


class LateReranker:
    """A reranker that adds up, over the tokens of a query, the largest cosine to any token of the passage.

    Passages are encoded when they are read, those of a few queries at a time.
    """

    def __init__(self, index: Index, model: str = "") -> None:
        """`model`: a folder with an ONNX model, or a name of the hub; empty: the one that installs from PyPI."""
        self._index = index
        self._model = open_model(
            find_model(model, "late-interaction model") if model else packaged_model(_PACKAGED)
        )

    @property
    def fingerprint(self) -> str:
        """Identifies the model."""
        return f"late:{self._model.fingerprint}"

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """For each query the score of each of its passages."""
        scores: list[Float32] = []
        for start in range(0, len(queries), _AT_ONCE):
            some = passages[start : start + _AT_ONCE]
            distinct = list(dict.fromkeys(chain.from_iterable(each.tolist() for each in some)))
            asked = self._encoded(queries[start : start + _AT_ONCE])
            read = self._encoded([self._index.text(passage) for passage in distinct])
            tokens = dict(zip(distinct, read, strict=True))
            scores += [
                np.array([maxsim(query, tokens[passage]) for passage in each.tolist()], np.float32)
                for query, each in zip(asked, some, strict=True)
            ]
        return scores

    def _encoded(self, texts: Sequence[str]) -> list[Float32]:
        """[tokens, dimensions] of each text, each of length 1."""
        hidden = self._model.run(self._model.tokens(texts))
        return [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in hidden]


def maxsim(query: Float32, passage: Float32) -> float:
    """The sum over a query's tokens [n, d] of the largest product with a token of the passage [m, d]."""
    return float((query @ passage.T).max(axis=1).sum(dtype=np.float64))


def open_late_reranker(index: Index, model: str = "") -> LateReranker:
    """The entry point `late` of rerankers. Raises `ModelNotFoundError`."""
    return LateReranker(index, model)
