"""The vectors of passages: the encoders that make them, and how a part of an index stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array, vstack

from pyfast.blocks import MappedFolder, checked
from pyfast.errors import IndexFormatError, InputError
from pyfast.ops.arrays import Float32
from pyfast.retrieval.colbert import LateEncoder, find_late_model
from pyfast.retrieval.embeddings import DEFAULT, Embedder, find_embedder, find_model
from pyfast.retrieval.part_files import Mask, below, fit_together, narrow, save_arrays
from pyfast.retrieval.passage_size import RenderedPassages
from pyfast.retrieval.sparse_embeddings import SparseEmbedder
from pyfast.retrieval.token_store import TokenStore, coded_texts, encode_tokens, encode_tokens_into
from pyfast.retrieval.vectors import make_codes, save_codes

PassageVectors: TypeAlias = "Float32 | csr_array | TokenStore"
"""The vectors of passages: an array or a sparse matrix (CSR) [passages, dimensions], or a store with a vector
for each token of each passage
"""
Spread: TypeAlias = Callable[[Callable[[list[str]], Any], Iterable[list[str]]], Iterable[Any]]
"""A function such as `map`: it calls a function with each list of texts, and returns the results in order. It
can let the workers of a cluster make the calls
"""
KINDS = ("dense", "sparse", "late")
EXACT = 200_000
"""Up to this number of passages, a query is compared with all dense vectors.

If there are more, faiss compares the query with short codes of the vectors
"""
CODES = "dense/codes.faiss"
"""The name of the file with faiss's codes (compressed dense vectors), in the folder of a part"""
_SPARSE = {"indptr": np.int64, "indices": np.int32, "weights": np.float32}
_AT_ONCE = 4096  # passages


class Encoder(Protocol):
    """The interface of an encoder, which makes vectors of texts. The vector of a text must not depend on the other
    texts of a batch.
    """

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        ...

    def encode(self, texts: Sequence[str]) -> Any:
        """Compute vectors of texts: one row of a float32 array or sparse matrix for each text. A
        late-interaction encoder returns an array [tokens, dimensions] for each text.
        """
        ...


def open_encoder(kind: str, model: str) -> Encoder:
    """Open an encoder of a kind: `dense`, `sparse` or `late`. `model` is a folder or a name. Empty: the
    default model (there is none for `sparse`).

    For a late-interaction model, `MODEL#64` means that only the first 64 dimensions of its vectors are used.
    Raises `InputError` if `model` is not valid, and `ModelNotFoundError` if the model is not available.
    """
    if kind == "sparse" and not model:
        raise InputError("sparse: name the model, as a folder or a name of the hub: sparse:MODEL")
    dimensions = None
    if kind == "late":
        model, mark, number = model.partition("#")
        if mark and not number.isdecimal():
            raise InputError(f"late: expected a number of dimensions after #, got {number!r}")
        dimensions = int(number) if mark else None
        folder = find_late_model(model)
    else:
        folder = find_embedder(model or DEFAULT) if kind == "dense" else find_model(model, "sparse encoder")
    files = tuple(sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()))
    return _loaded(kind, folder, dimensions, files)


@lru_cache(maxsize=4)
def _loaded(kind: str, folder: Path, dimensions: int | None, files: tuple[tuple[str, int], ...]) -> Encoder:
    """Load an encoder. All open indexes share it until one of the model's `files` changes."""
    if kind == "late":
        return LateEncoder(folder, dimensions)
    return Embedder(str(folder)) if kind == "dense" else SparseEmbedder(str(folder))


def describe_vectors(given: Iterable[str]) -> dict[str, dict[str, str]]:
    """Describe the vectors of an index for its manifest: for each kind, the model and a fingerprint that
    identifies the model.

    `given` has texts such as `dense:MODEL`.

    Raises `InputError` for an unknown kind or a kind that is given twice, and `ModelNotFoundError` if a model
    is not available.
    """
    described: dict[str, dict[str, str]] = {}
    for text in given:
        kind, _, model = text.partition(":")
        if kind not in KINDS or kind in described:
            raise InputError(
                f"vectors: expected {', '.join(KINDS)}, each once, as NAME or NAME:MODEL; got {text!r}"
            )
        described[kind] = {"model": model, "fingerprint": open_encoder(kind, model).fingerprint}
    return described


def encoder_of(parameters: Mapping[str, Any], kind: str, model: str = "") -> Encoder:
    """Open the encoder that made the vectors of an index. If the folder of the model has moved, give its new path
    as `model`.

    Raises `InputError` if the index has no vectors of this kind, or another model made them.
    """
    described = parameters.get("vectors", {}).get(kind)
    if described is None:
        raise InputError(f"the index has no {kind} vectors: build it with `pyfast index --vectors {kind}`")
    encoder = open_encoder(kind, model or described["model"])
    if encoder.fingerprint != described["fingerprint"]:
        named = model or described["model"] or "the default"
        raise InputError(
            f"the {kind} vectors of the index are of another model than {named}: build the index again with it"
        )
    return encoder


def unfinished(folder: Path) -> Path:
    """Return the folder that stores vectors of tokens while an index is built in `folder`. If the process is
    killed, the next process continues with these vectors.
    """
    return folder.with_name(f".{folder.name}.tokens")


def encode_texts(kind: str, parameters: Mapping[str, Any], texts: list[str]) -> Any:
    """Encode texts with an index's encoder of this kind. `parameters` are those in the manifest of the index.

    Vectors of tokens are rounded to int8 (`Coded`).
    """
    vectors = encoder_of(parameters, kind).encode(texts)
    return coded_texts(vectors) if kind == "late" else vectors


def vectors_of(
    rendered: RenderedPassages, parameters: Mapping[str, Any], aside: Path | None = None, spread: Spread = map
) -> dict[str, PassageVectors]:
    """Compute the vectors of passages, for each kind of vectors in the `parameters` of the index.

    If `aside` is a folder, the vectors of tokens are written into it, a batch at a time. If the process is
    killed, the next process reads these vectors and computes only the missing ones. `spread` is a function
    like `map` that calls the encoders.
    """
    vectors: dict[str, PassageVectors] = {}
    described = {"vectors": parameters.get("vectors", {})}
    for kind in described["vectors"]:
        encoder = encoder_of(described, kind)
        offsets, text = map(np.asarray, rendered)
        encode = partial(spread, partial(encode_texts, kind, described))
        if kind != "late":
            lines = [text[begin:end].tobytes().decode() for begin, end in pairwise(offsets.tolist())]
            blocks = list(encode(lines[start : start + _AT_ONCE] for start in range(0, len(lines), _AT_ONCE)))
            columns = blocks[0].shape[1] if blocks else encoder.dimensions
            vectors[kind] = _stacked(blocks, columns, kind == "sparse")
        elif aside is None:
            vectors[kind] = encode_tokens(encode, offsets, text, encoder.dimensions)
        else:
            digest = blake2b(encoder.fingerprint.encode() + offsets.tobytes(), digest_size=16)
            digest.update(np.ascontiguousarray(text).data)
            folder = aside / digest.hexdigest()
            vectors[kind] = encode_tokens_into(folder, encode, offsets, text, encoder.dimensions)
    return vectors


def join_vectors(parts: Sequence[Mapping[str, PassageVectors]], live: Sequence[Mask]) -> dict[str, PassageVectors]:
    """Join the vectors of several parts. `live` says for each part which passages are not deleted
    (bool[passages]). The vectors of deleted passages are left out.
    """
    joined: dict[str, PassageVectors] = {}
    for kind in parts[0] if parts else ():
        if kind == "late":
            stores = [cast(TokenStore, vectors[kind]) for vectors in parts]
            joined[kind] = TokenStore.join([store[keep] for store, keep in zip(stores, live, strict=True)])
            continue
        matrices = [cast("Float32 | csr_array", vectors[kind]) for vectors in parts]
        columns = matrices[0].shape[1]
        blocks = [matrix[keep] for matrix, keep in zip(matrices, live, strict=True)]
        joined[kind] = _stacked(blocks, columns, kind == "sparse")
    return joined


def _stacked(blocks: Sequence[Any], columns: int, is_sparse: bool) -> PassageVectors:
    if is_sparse:
        empty = csr_array((0, columns), dtype=np.float32)
        return narrow(csr_array(vstack([empty, *blocks], format="csr", dtype=np.float32)))
    return cast(Float32, np.concatenate([np.empty((0, columns), np.float32), *blocks]))


def save_vectors(folder: Path, vectors: Mapping[str, PassageVectors]) -> None:
    """Write each kind of vectors into its own folder in a part's folder."""
    for kind, matrix in vectors.items():
        (folder / kind).mkdir()
        if isinstance(matrix, TokenStore):
            matrix.save(folder / kind)
        elif isinstance(matrix, csr_array):
            arrays = zip(_SPARSE, (matrix.indptr, matrix.indices, matrix.data), strict=True)
            save_arrays(folder / kind, **dict(arrays), columns=np.array(matrix.shape[1], np.int64))
        else:
            np.save(folder / kind / "vectors.npy", matrix)
            if len(matrix) > EXACT:
                save_codes(folder / CODES, make_codes(matrix))


def open_vectors(files: MappedFolder, passages: int) -> dict[str, PassageVectors]:
    """Memory-map the vectors that `save_vectors` wrote. Sparse vectors are checked immediately, other vectors
    when they are read.
    """
    vectors: dict[str, PassageVectors] = {}
    for kind in KINDS:
        if f"{kind}/vectors.npy" in files:
            file = files.file(f"{kind}/vectors.npy")
            matrix = file.array(np.float32, dimensions=2)
            if len(matrix) != passages:
                raise IndexFormatError(f"{files.folder}: {kind} is of other passages; build the index again")
            vectors[kind] = checked(matrix, file)
        elif f"{kind}/codes.npy" in files:
            vectors[kind] = TokenStore.map(files, kind, passages)
        elif f"{kind}/columns.npy" in files:
            files.check_all(below(files, kind))
            indptr, indices, data = (files.file(f"{kind}/{it}.npy").array(dtype) for it, dtype in _SPARSE.items())
            fit_together(files, kind, indptr, passages, indices, data)
            columns = int(files.file(f"{kind}/columns.npy").array(np.int64, dimensions=0))
            vectors[kind] = narrow(csr_array((data, indices, indptr), shape=(passages, columns)))
    return vectors
