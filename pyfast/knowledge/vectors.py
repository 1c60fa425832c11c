"""Vectors of texts, and their search by faiss: each distinct text is encoded once, whatever texts join it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast.errors import IndexFormatError, InputError
from pyfast.ops.arrays import Float32, Int64
from pyfast.retrieval.embeddings import INSTALL

EXACT = 20_000
"""Up to so many vectors each query is compared with all"""
_CANDIDATES = 128  # of a search by codes; benchmarks/knowledge.py shows how many of the nearest are among them
_SPARE = 8  # beyond k, where all are compared: those that rounding puts in another place
_LEARNT_FROM = 16_384  # vectors


def hashes(texts: Sequence[str]) -> npt.NDArray[np.bytes_]:
    """16 bytes for each text."""
    made = [blake2b(text.encode(errors="replace"), digest_size=16).hexdigest().encode() for text in texts]
    return np.array(made, "S32")


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Texts' vectors, in the order of the texts, and what searches them."""

    names: npt.NDArray[np.bytes_]
    """[texts] the hash of each"""
    matrix: Float32
    """[texts, dimensions]"""
    codes: Any
    """faiss's index of them, by codes of four bits for four numbers; None where all are compared"""

    def __len__(self) -> int:
        return len(self.names)

    def search(self, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """(places int64[queries, k], cosines float32[queries, k]), best first, ties by place; -1 where fewer are.

        What is found is scored again from the vectors themselves, in a fixed order: matrix products add up in an
        order that depends on how many queries come together, and codes tell roughly.
        """
        k, wanted = min(k, len(self)), min(k + (_SPARE if self.codes is None else _CANDIDATES), len(self))
        if not wanted or not len(queries):
            return np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        if self.codes is None:
            found = _nearest(self.matrix, queries, wanted)
        else:
            found = self.codes.search(np.ascontiguousarray(queries), wanted)[1]
        scores = self.cosines(found, queries[:, None])
        scores[found < 0] = -np.inf
        order = np.lexsort((found, -scores))[:, :k]
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def cosines(self, places: npt.NDArray[np.integer[Any]], query: Float32) -> Float32:
        """float32, of the vectors at `places` to a query's, added up in an order that depends on nothing else."""
        found: Float32 = np.einsum("...d,...d->...", self.matrix[places], query)
        return found


def _nearest(matrix: Float32, queries: Float32, k: int) -> Int64:
    scores = queries @ matrix.T
    return np.argpartition(-scores, k - 1, axis=1)[:, :k].astype(np.int64)


def make(texts: Sequence[str], encode: Callable[[Sequence[str]], Float32], known: Vectors | None) -> Vectors:
    """Vectors of the texts; those of `known` are taken from there."""
    names = hashes(texts)
    _, first, place = np.unique(names, return_index=True, return_inverse=True)
    held = {} if known is None else {name: i for i, name in enumerate(known.names.tolist())}
    missing = [i for i in first.tolist() if bytes(names[i]) not in held]
    fresh = encode([texts[i] for i in missing])
    distinct = np.empty((len(first), fresh.shape[1]), np.float32)
    new = dict(zip(missing, fresh, strict=True))
    for row, i in enumerate(first.tolist()):
        distinct[row] = new[i] if known is None or i in new else known.matrix[held[bytes(names[i])]]
    matrix = distinct[place.reshape(-1)]
    return Vectors(names, matrix, _codes(matrix))


def _codes(matrix: Float32) -> Any:
    """Product quantisation for many vectors: all are compared with a query, by their codes.

    Seeded: the same vectors make the same codes. No cells that leave most of them out: questions lie elsewhere
    than what they ask for, and cells that are near them miss a third of it.
    """
    if len(matrix) <= EXACT:
        return None
    faiss = _faiss()
    dimensions = matrix.shape[1]
    parts = next(parts for parts in range(max(dimensions // 4, 1), 0, -1) if dimensions % parts == 0)
    codes = faiss.index_factory(dimensions, f"PQ{parts}x4fs", faiss.METRIC_INNER_PRODUCT)
    chosen = np.random.default_rng(1).permutation(len(matrix))[:_LEARNT_FROM]
    codes.train(matrix[np.sort(chosen)])
    codes.add(matrix)
    return codes


def save(folder: Path, name: str, vectors: Vectors) -> None:
    """Write them: hashes, vectors and, where there are many, faiss's index."""
    np.save(folder / f"{name}.hashes.npy", vectors.names)
    np.save(folder / f"{name}.vectors.npy", vectors.matrix)
    if vectors.codes is not None:
        _faiss().write_index(vectors.codes, str(folder / f"{name}.codes.faiss"))


def load(folder: Path, name: str) -> Vectors:
    """Map what `save` wrote. Raises `IndexFormatError`."""
    try:
        names, matrix = (
            np.load(folder / f"{name}.{part}.npy", mmap_mode="r", allow_pickle=False)
            for part in ("hashes", "vectors")
        )
    except (OSError, ValueError) as error:
        raise IndexFormatError(f"{folder}: {name}: {error}") from None
    path = folder / f"{name}.codes.faiss"
    return Vectors(names, matrix, _faiss().read_index(str(path)) if path.exists() else None)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(f"faiss is not installed: {INSTALL}") from None
    return faiss
