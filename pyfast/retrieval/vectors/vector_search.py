"""The vectors of texts, and a search over them with faiss. Each distinct text is encoded only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast.errors import IndexFormatError
from pyfast.ops.arrays import Float32, Int32, Int64
from pyfast.retrieval.vectors.hardware import Stopwatch, copied, torch_device
from pyfast.utils.blocks import save_array
from pyfast.utils.extras import explained
from pyfast.utils.files import link_file
from pyfast.utils.options import Hardware

EXACT = 20_000
"""Up to this number of vectors, a query is compared with all of them"""
_CANDIDATES = 128  # from a search by codes; benchmarks/knowledge.py shows how many of the nearest are among them
_ROUNDING = 1e-5  # the largest error of a cosine from a product of matrices, if all vectors are compared
_GROUP = 64  # vectors on a GPU whose products with a query are compared by their maximum
_PRODUCTS = 1 << 28  # of queries and vectors (or numbers in candidates' vectors) that are on a GPU at once
_NUMBERS = 1 << 24  # in the candidates' vectors that are in memory at once
_LEARNT_FROM = 16_384  # vectors
_MANY = 8
"""If the share of changed vectors is more than 1 divided by this number, all files are written again"""


def hashes(texts: Sequence[str]) -> npt.NDArray[np.bytes_]:
    """Compute a hash of 16 bytes for each text."""
    made = [blake2b(text.encode(errors="replace"), digest_size=16).hexdigest().encode() for text in texts]
    return np.array(made, "S32")


def unit(vectors: Float32) -> Float32:
    """Give each vector the length 1. A vector of zeros stays."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """The vectors of texts, with a search.

    If the vectors have `codes` and only a few texts have changed, `matrix` and its file stay unchanged: the
    vectors of new texts are in `late`, and `rows` has the row of each text. The rows of removed texts stay in
    `matrix` until there are many such rows.
    """

    matrix: Float32
    """[rows, dimensions] the vectors"""
    codes: Any = None
    """faiss's index of the vectors, which has a code of four bits for every four numbers of a vector. None: a
    query is compared with all vectors"""
    late: Float32 | None = None
    """[late rows, dimensions] vectors that were added later. Their rows come after those of `matrix`. A query is
    compared with all of them"""
    rows: Int32 | None = None
    """[texts] the row of each text. None if row i belongs to text i"""

    def __len__(self) -> int:
        return len(self.matrix) if self.rows is None else len(self.rows)

    def of(self, places: npt.NDArray[np.integer[Any]]) -> Float32:
        """Return the vectors of texts, float32[..., dimensions]. `places` are the numbers of the texts."""
        if self.rows is None or self.late is None:
            return self.matrix[places]
        rows = self.rows[places]
        vectors = self.matrix[np.minimum(rows, len(self.matrix) - 1)]
        is_late = rows >= len(self.matrix)
        vectors[is_late] = self.late[rows[is_late] - len(self.matrix)]
        return vectors

    def search(self, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """Find the `k` nearest texts for each query: (places int64[queries, k], cosines float32[queries, k]),
        best first. A place is the number of a text.

        Texts with equal cosines are in the order of their numbers. If there are fewer than `k` texts, the
        arrays have one column for each text. If the vectors have codes (compressed vectors), a search by the
        codes finds candidates, and the cosines of the candidates are then computed from the vectors. A place
        is -1 if there are not enough candidates. The order of addition is fixed, so that a cosine does not
        depend on the number of queries.
        """
        k = min(k, len(self))
        if not k or not len(queries):
            return np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        candidates = self._candidates(queries, k)
        at_once = max(_NUMBERS // (candidates.shape[1] * queries.shape[1]), 1)
        parts = [slice(start, start + at_once) for start in range(0, len(queries), at_once)]
        scores: Float32 = np.concatenate([self.cosines(candidates[some], queries[some, None]) for some in parts])
        scores[candidates < 0] = -np.inf
        order = np.lexsort((candidates, -scores))[:, :k]
        return np.take_along_axis(candidates, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def _candidates(self, queries: Float32, k: int) -> Int64:
        """Return the numbers of the texts that may be the nearest to each query: int64[queries, at least k].
        The number -1 stands for no text.
        """
        if self.codes is None:
            return _nearest(self.matrix, queries, k)
        queries = np.ascontiguousarray(queries)
        if self.rows is None or self.late is None:
            return self._coded(queries, k + _CANDIDATES)
        place_of = np.full(len(self.matrix) + len(self.late) + 1, -1, np.int64)  # entry -1, the last: no row
        place_of[self.rows] = np.arange(len(self.rows))
        late = _nearest(self.late, queries, k) + len(self.matrix)
        return place_of[np.concatenate([self._coded(queries, k + 2 * _CANDIDATES), late], axis=1)]

    def _coded(self, queries: Float32, k: int) -> Int64:
        return self.codes.search(queries, min(k, len(self.matrix)))[1]

    def cosines(self, places: npt.NDArray[np.integer[Any]], query: Float32) -> Float32:
        """Compute the cosines (float32) of some texts' vectors with a query's vector. `places` are the
        numbers of the texts. The products of a cosine are added in a fixed order, so that the result is
        always the same, bit for bit.
        """
        return np.einsum("...d,...d->...", self.of(places), query)


class DeviceVectors:
    """The vectors of texts in the memory of a GPU, with a search that compares a query with all of them.

    Products in float16 find more candidates than are wanted. The cosines of the candidates are then computed in
    float32. They differ from those of `Vectors` by at most 1e-6, or by 1e-3 if the vectors are stored as float16.
    """

    def __init__(self, matrix: Float32, hardware: Hardware) -> None:
        """Copy `matrix`, the vector of each text, to the GPU: as float16 unless the precision is float32.

        Raises `DeviceError` if torch cannot use the GPU, or if the vectors do not fit into its memory.
        """
        self.device = torch_device(hardware)
        import torch

        is_exact = hardware.precision == "float32"
        self._matrix, self._vectors = matrix, copied(matrix, self.device, None if is_exact else torch.float16)

    def of(self, places: npt.NDArray[np.integer[Any]]) -> Float32:
        """Return the vectors of texts, as in `Vectors`."""
        return self._matrix[places]

    def search(self, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """Find the `k` nearest texts for each query, as in `Vectors`. Of more than 100 texts with equal cosines,
        any can be the last in the result."""
        import torch

        k, watch = min(k, len(self._matrix)), Stopwatch(self.device)
        candidates = min(k + _CANDIDATES, len(self._matrix))
        at_once = min(max(_PRODUCTS // (candidates * queries.shape[1] + 1), 1), 1024)
        places, cosines = [torch.empty(0, k, dtype=torch.int64)], [torch.empty(0, k)]
        with torch.inference_mode(), watch.running():
            for start in range(0, len(queries) if k else 0, at_once):
                asked = torch.from_numpy(queries[start : start + at_once]).to(self.device)
                rows = self._candidates(asked.half(), candidates).sort(1).values
                scores = torch.einsum("qcd,qd->qc", self._vectors[rows].float(), asked)
                best = scores.sort(dim=1, descending=True, stable=True)
                places.append(rows.gather(1, best.indices[:, :k]).cpu())
                cosines.append(best.values[:, :k].cpu())
        watch.count("search", len(queries))
        return torch.cat(places).numpy(), torch.cat(cosines).numpy()

    def _candidates(self, queries: Any, k: int) -> Any:
        """Return the rows of the `k` largest products with each query. The largest numbers are in the groups with
        the largest maxima, so that only the maxima of all groups have to be compared."""
        import torch

        found = torch.empty(len(queries), 0, dtype=torch.int64, device=self.device)
        products = queries.new_empty(len(queries), 0)
        at_once = max(_PRODUCTS // (_GROUP * max(queries.shape)), 1) * _GROUP
        for start in range(0, len(self._vectors), at_once):
            tile = self._vectors[start : start + at_once].half()
            groups = queries.new_empty(len(queries), -(-len(tile) // _GROUP), _GROUP)
            torch.mm(queries, tile.T, out=groups.flatten(1)[:, : len(tile)])
            groups.flatten(1)[:, len(tile) :] = -torch.inf
            best = groups.amax(2).topk(min(k, groups.shape[1]), sorted=False).indices
            near = groups.gather(1, best[:, :, None].expand(-1, -1, _GROUP)).flatten(1)
            rows = (start + best[:, :, None] * _GROUP + torch.arange(_GROUP, device=self.device)).flatten(1)
            products, found = torch.cat([products, near], 1), torch.cat([found, rows], 1)
            top = products.topk(min(k, products.shape[1]), sorted=False)
            products, found = top.values, found.gather(1, top.indices)
        return found


def _nearest(matrix: Float32, queries: Float32, k: int) -> Int64:
    """Return the rows of `matrix` that are nearest to each query: int64[queries, at least k]. Rows that are
    as near as the `k`-th row, up to rounding, are also in the result.
    """
    k = min(k, len(matrix))
    if not k:
        return np.empty((len(queries), 0), np.int64)
    scores = queries @ matrix.T
    last = np.partition(scores, len(matrix) - k, axis=1)[:, len(matrix) - k]
    most = int((scores >= last[:, None] - _ROUNDING).sum(axis=1).max())
    return np.argpartition(-scores, most - 1, axis=1)[:, :most].astype(np.int64)


def make(matrix: Float32, exact: int | None = None) -> Vectors:
    """Make `Vectors` from a matrix with the vector of each text. If there are more than `exact` texts (None: more
    than `EXACT`), the vectors also get codes.
    """
    return Vectors(matrix, make_codes(matrix) if len(matrix) > (EXACT if exact is None else exact) else None)


def change(known: Vectors, kept: Int32, fresh: Float32) -> Vectors:
    """Make the vectors of a changed list of texts. Vectors of texts that were in the old list are reused.

    Args:
        known: The vectors before the change.
        kept: For each text its position in `known`, or -1 for a new text.
        fresh: The vectors of the new texts, in order.
    """
    is_kept = kept >= 0
    if known.codes is not None:
        here = np.arange(len(known.matrix), dtype=np.int32) if known.rows is None else known.rows
        rows = np.where(is_kept, here[kept], len(known.matrix))
        is_late = rows >= len(known.matrix)
        changed = 2 * np.count_nonzero(is_late) + len(known.matrix) - len(rows)  # late rows, and rows without text
        if not changed and (rows == np.arange(len(rows))).all():
            return Vectors(known.matrix, known.codes)
        if changed <= len(known.matrix) // _MANY:
            late = np.empty((np.count_nonzero(is_late), known.matrix.shape[1]), np.float32)
            late[is_kept[is_late]] = known.of(kept[is_late & is_kept])
            late[~is_kept[is_late]] = fresh
            rows[is_late] = len(known.matrix) + np.arange(len(late))
            return Vectors(known.matrix, known.codes, late, rows.astype(np.int32))
    matrix = np.empty((len(kept), fresh.shape[1]), np.float32)
    matrix[is_kept] = known.of(kept[is_kept])
    matrix[~is_kept] = fresh
    return make(matrix)


def places_among(marks: Int64, known: Int64) -> Int32:
    """Return the position in `known` of each row of `marks`: int32[rows]. -1: `known` has no equal row."""
    if not len(known) or not len(marks):
        return np.full(len(marks), -1, np.int32)
    factors = np.random.default_rng(1).integers(1, 1 << 62, marks.shape[1]) * 2 + 1
    mixed, mine = known @ factors, marks @ factors
    order = np.argsort(mixed, kind="stable")
    at = order[np.minimum(np.searchsorted(mixed[order], mine), len(known) - 1)]
    return np.where((known[at] == marks).all(axis=1), at, -1).astype(np.int32)


def make_codes(matrix: Float32) -> Any:
    """Compress many vectors to product-quantisation codes. A search compares a query with all codes.

    The codes are trained with a fixed seed, so the same vectors always give the same codes. faiss's inverted
    files, which skip most vectors, would be faster, but they would miss a third of the facts that a question
    needs, because the vector of a question is far from the vectors of its facts.
    """
    faiss = _faiss()
    dimensions = matrix.shape[1]
    parts = next(parts for parts in range(max(dimensions // 4, 1), 0, -1) if dimensions % parts == 0)
    codes = faiss.index_factory(dimensions, f"PQ{parts}x4fs", faiss.METRIC_INNER_PRODUCT)
    chosen = np.random.default_rng(1).permutation(len(matrix))[:_LEARNT_FROM]
    codes.train(matrix[np.sort(chosen)])
    codes.add(matrix)
    return codes


def save(
    folder: Path, name: str, vectors: Vectors, before: Path | None = None, known: Vectors | None = None
) -> None:
    """Write the vectors into a folder. The file names begin with `name`.

    `known` are the vectors whose files are in the folder `before`. Files that would not change become hard
    links to the files there.
    """
    files = f"{name}.vectors.npy", f"{name}.codes.faiss"
    if before is not None and known is not None and vectors.matrix is known.matrix:
        for file in files:
            link_file(before / file, folder / file)
    else:
        save_array(folder / files[0], vectors.matrix)
        if vectors.codes is not None:
            save_codes(folder / files[1], vectors.codes)
    if vectors.rows is not None and vectors.late is not None:
        save_array(folder / f"{name}.late.npy", vectors.late)
        save_array(folder / f"{name}.rows.npy", vectors.rows)


def load(folder: Path, name: str) -> Vectors:
    """Memory-map the vectors that `save` wrote. Raises `IndexFormatError` if the files are damaged."""
    try:
        matrix = np.load(folder / f"{name}.vectors.npy", mmap_mode="r", allow_pickle=False)
        late, rows = (
            np.load(path, mmap_mode="r", allow_pickle=False) if path.exists() else None
            for path in (folder / f"{name}.late.npy", folder / f"{name}.rows.npy")
        )
    except (OSError, ValueError) as error:
        raise IndexFormatError(f"{folder}: {name}: {error}") from None
    path = folder / f"{name}.codes.faiss"
    return Vectors(matrix, load_codes(path) if path.exists() else None, late, rows)


def save_codes(path: Path, codes: Any) -> None:
    """Write the codes of vectors into a file."""
    _faiss().write_index(codes, str(path))


def load_codes(path: Path) -> Any:
    """Read the codes that `save_codes` wrote."""
    return _faiss().read_index(str(path))


@explained()
def _faiss() -> Any:
    import faiss

    return faiss
