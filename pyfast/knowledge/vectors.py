"""Vectors of texts in faiss: each distinct text is encoded once, and kept when the texts around it change."""

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
PROBED = 1 / 32  # of the cells, beyond that; benchmarks/bench_knowledge.py shows what it finds of the nearest
_SPARE = 8  # candidates beyond k: those that rounding puts in another place
_PER_CELL = 40  # vectors that a cell's centre is found from


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
    cells: Any
    """faiss's index of them; None where all are compared"""

    def __len__(self) -> int:
        return len(self.names)

    def search(self, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """(places int64[queries, k], cosines float32[queries, k]), best first, ties by place; -1 where fewer are.

        What is found is scored again from the vectors themselves, in a fixed order: matrix products add up in an
        order that depends on how many queries come together, and faiss's cells hold a byte for a number.
        """
        k, wanted = min(k, len(self)), min(k + _SPARE, len(self))
        if not wanted or not len(queries):
            return np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        if self.cells is None:
            found = _nearest(self.matrix, queries, wanted)
        else:
            found = self.cells.search(np.ascontiguousarray(queries), wanted)[1]
        scores = self.cosines(found, queries[:, None])
        scores[found < 0] = -np.inf
        order = np.lexsort((found, -scores))[:, :k]
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def cosines(self, places: npt.NDArray[np.integer[Any]], query: Float32) -> Float32:
        """float32, of the vectors at `places` to a query's, added up in an order that depends on nothing else."""
        found: Float32 = (self.matrix[places] * query).sum(axis=-1, dtype=np.float64).astype(np.float32)
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
    return Vectors(names, matrix, _cells(matrix))


def _cells(matrix: Float32) -> Any:
    """An inverted file of cells for many vectors. Seeded: the same vectors make the same cells."""
    if len(matrix) <= EXACT:
        return None
    faiss = _faiss()
    count = int(4 * len(matrix) ** 0.5)
    cells = faiss.index_factory(matrix.shape[1], f"IVF{count},SQ8", faiss.METRIC_INNER_PRODUCT)
    cells.cp.seed, cells.cp.niter, cells.cp.spherical = 1, 8, True
    chosen = np.random.default_rng(1).permutation(len(matrix))[: _PER_CELL * count]
    cells.train(matrix[np.sort(chosen)])
    cells.add(matrix)
    return _probing(cells)


def _probing(cells: Any) -> Any:
    cells.nprobe = max(int(cells.nlist * PROBED), 1)
    return cells


def save(folder: Path, name: str, vectors: Vectors) -> None:
    """Write them: hashes, and either the vectors or faiss's index that holds them."""
    np.save(folder / f"{name}.hashes.npy", vectors.names)
    np.save(folder / f"{name}.vectors.npy", vectors.matrix)
    if vectors.cells is not None:
        _faiss().write_index(vectors.cells, str(folder / f"{name}.faiss"))


def load(folder: Path, name: str) -> Vectors:
    """Map what `save` wrote. Raises `IndexFormatError`."""
    try:
        names, matrix = (
            np.load(folder / f"{name}.{part}.npy", mmap_mode="r", allow_pickle=False)
            for part in ("hashes", "vectors")
        )
    except (OSError, ValueError) as error:
        raise IndexFormatError(f"{folder}: {name}: {error}") from None
    path = folder / f"{name}.faiss"
    if not path.exists():
        return Vectors(names, matrix, None)
    return Vectors(names, matrix, _probing(_faiss().read_index(str(path))))


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(f"faiss is not installed: {INSTALL}") from None
    return faiss
