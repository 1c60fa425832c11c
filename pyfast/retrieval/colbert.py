"""Late-interaction models that sentence-transformers can load: its own models, and models of PyLate and
ColBERT.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from pyfast.errors import InputError, MissingPackageError, ModelNotFoundError
from pyfast.extras import explained
from pyfast.ops.arrays import Float32
from pyfast.retrieval.embeddings import model_digest


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
        try:
            return sentence_transformers.MultiVectorEncoder(str(self.folder), local_files_only=True).eval()
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            why = str(error).strip().split("\n")[0]
            raise InputError(f"{self.folder}: cannot be loaded as a late-interaction model: {why}") from None

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
