"""Learned sparse vectors, from models such as SPLADE, through sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.extras import explained
from pyfast.ops.arrays import Float32, ends
from pyfast.retrieval.embeddings import find_model, loading, model_digest
from pyfast.retrieval.part_files import narrow


class SparseEmbedder:
    """A sparse encoder. The first call loads its model. Only one thread at a time can use it: other threads wait.

    The encoder takes one text at a time, so that the weights of a text do not depend on other texts.
    """

    def __init__(self, model: str) -> None:
        """Find the model. `model` is a folder, or a name of the Hugging Face hub.

        Raises `ModelNotFoundError` if the model is not available.
        """
        self.folder = find_model(model, "sparse encoder")
        self.fingerprint = model_digest(self.folder)
        """A digest of the model's settings and weights. It does not depend on the folder's path"""
        self._turn = Lock()

    @cached_property
    def _model(self) -> Any:
        with explained():
            from sentence_transformers import SparseEncoder
            from transformers.utils.logging import disable_progress_bar
        disable_progress_bar()  # type: ignore[no-untyped-call]
        with loading(self.folder, "a sparse encoder", RuntimeError):
            return SparseEncoder(str(self.folder), local_files_only=True).eval()

    @cached_property
    def dimensions(self) -> int:
        """The number of terms of the model's vocabulary."""
        with self._turn:
            return len(self._vector(""))

    def _vector(self, text: str) -> Float32:
        import torch

        model = self._model
        is_plain = model.device.type == "cpu" and model.default_prompt_name is None
        if is_plain and hasattr(model, "preprocess"):  # `encode` without what it looks up, a tenth of its time
            with torch.inference_mode():
                row = model(model.preprocess([text]))["sentence_embedding"][0]
        else:
            row = model.encode([text], convert_to_sparse_tensor=False, show_progress_bar=False)[0]
        return np.asarray(row.cpu(), np.float32)

    def encode(self, texts: Sequence[str]) -> csr_array:
        """Compute the vectors of texts: a sparse matrix float32[texts, terms] with sorted rows."""
        columns, weights = self.dimensions, [np.empty(0, np.float32)]
        rows = [np.empty(0, np.int64)]
        with self._turn:
            for text in texts:
                vector = self._vector(text)
                rows.append(np.flatnonzero(vector > 0))
                weights.append(vector[rows[-1]])
        arrays = np.concatenate(weights), np.concatenate(rows), ends(rows[1:])
        return narrow(csr_array(arrays, shape=(len(texts), columns)))
