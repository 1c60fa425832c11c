"""The vectors of passages: how they are computed, and how a part of an index stores them. A vector for each token
of a passage is stored as int8 with a scale for each token.

The vectors are computed in batches. Stored vectors are memory-mapped.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

import pyfast.ops as ops
from pyfast.errors import IndexFormatError
from pyfast.ops.arrays import Float32, Int32, Int64, UInt8, ends, places_of
from pyfast.retrieval.part_files import Mask, RenderedPassages, below, fit_together, narrow, new_array, save_arrays
from pyfast.retrieval.vectors.embeddings import TEXTS
from pyfast.retrieval.vectors.encoders import KINDS, LateEncoder, encoder_of
from pyfast.retrieval.vectors.hardware import Stopwatch, copied
from pyfast.retrieval.vectors.vector_search import make_codes, save_codes
from pyfast.utils.blocks import MappedFolder, check_lists, checked, raw, save_array
from pyfast.utils.options import HARDWARE_DEFAULTS, Hardware
from pyfast.utils.processes import scratch_folder

_PASSAGES = 256
"""How many passages are encoded or copied in one step"""
_LARGEST = 127

Coded: TypeAlias = tuple[npt.NDArray[np.int8], Float32, Int32]
"""The vectors of the tokens of some texts: codes [tokens, dimensions], scales [tokens], and the number of
tokens of each text
"""
Encode = Callable[[Iterable[list[str]]], Iterable[tuple[npt.NDArray[Any], ...]]]
"""A function that takes lists of texts. For each list, in order, it returns arrays with the vectors of the texts,
such as `Coded`. The last array contains the number of vectors of each text"""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The vectors of the tokens of some passages, one passage after another."""

    codes: npt.NDArray[np.int8]
    """[tokens, dimensions] the vector of each token, divided by its scale and rounded to int8"""
    scales: Float32
    """[tokens] the scale of each token. The vector of a token is its scale times its codes"""
    offsets: Int64
    """[passages + 1] the position of the first token of each passage, and the number of all tokens"""

    def of(self, passages: Int64) -> Tokens:
        """Copy the tokens of the given passages."""
        offsets, places = places_of(self.offsets, passages)
        return Tokens(self.codes[places], self.scales[places], offsets)


@dataclass(frozen=True, slots=True, eq=False)
class TokenStore:
    """The vectors of the tokens of an index's passages, in one or several pieces (`Tokens` objects). Choosing
    or joining passages does not copy the vectors.
    """

    pieces: tuple[Tokens, ...]
    places: Int64
    """[passages] the position of each passage of the store, if the passages of all pieces are numbered piece
    after piece
    """

    @classmethod
    def of(cls, tokens: Tokens) -> TokenStore:
        """Make a store from the given tokens."""
        return cls((tokens,), np.arange(len(tokens.offsets) - 1))

    @classmethod
    def join(cls, stores: Sequence[TokenStore]) -> TokenStore:
        """Make a store with the passages of several stores, in order."""
        counts = [int(store._starts[-1]) for store in stores]
        shifts = np.append(0, np.cumsum(counts))
        places = [store.places + shift for store, shift in zip(stores, shifts.tolist(), strict=False)]
        pieces = tuple(piece for store in stores for piece in store.pieces)
        return cls(pieces, np.concatenate([np.empty(0, np.int64), *places]))

    def __len__(self) -> int:
        """Return the number of passages in the store."""
        return len(self.places)

    def __getitem__(self, passages: npt.NDArray[np.integer | np.bool_]) -> TokenStore:
        """Return a store that has only some passages. `passages` has their numbers, or it is a mask
        (bool[passages]).
        """
        return TokenStore(self.pieces, self.places[passages])

    @property
    def _starts(self) -> Int64:
        return ends([piece.offsets[:-1] for piece in self.pieces])

    def _by_piece(self, passages: npt.NDArray[np.integer]) -> Iterator[tuple[Tokens, Int64, Int64]]:
        """Yield for each piece that has some of the passages: the piece, the positions of its passages in
        `passages`, and their numbers in the piece.
        """
        starts = self._starts
        places = self.places[passages]
        owner = np.searchsorted(starts, places, side="right") - 1
        for number in np.unique(owner).tolist():
            chosen = np.flatnonzero(owner == number)
            yield self.pieces[number], chosen, places[chosen] - starts[number]

    def scores(self, queries: Sequence[Float32], passages: Sequence[Int32], device: str = "cpu") -> list[Float32]:
        """Compute the late-interaction score of each query's passages.

        Args:
            queries: For each query, the vectors of its tokens, [tokens, dimensions].
            passages: The passages of each query.
            device: torch's name of a device. The vectors of the passages stay in the memory of a GPU.

        Returns:
            float32[passages] for each query, as `ops.maxsim` computes them.
        """
        asked = np.repeat(np.arange(len(queries)), [len(some) for some in passages])
        read = np.concatenate([np.empty(0, np.int32), *passages])
        scores = np.empty(len(read), np.float32)
        vectors = np.concatenate(queries) if len(queries) else np.empty((0, 1), np.float32)
        for tokens, chosen, places in self._by_piece(read):
            pairs = np.column_stack([asked[chosen], places])
            if device == "cpu":
                check_lists(tokens.offsets, places, tokens.codes, tokens.scales)
                codes, offsets, scales = raw(tokens.codes), raw(tokens.offsets), raw(tokens.scales)
            else:
                codes, offsets, scales = _on_device(tokens, device)
            watch = Stopwatch(device)
            with watch.running():
                scored: Any = ops.maxsim(vectors, ends(queries), codes, offsets, pairs, scales)
            scores[chosen] = scored if device == "cpu" else scored.cpu()
            watch.count("maxsim", len(queries))
        return np.split(scores, np.cumsum([len(some) for some in passages])[:-1]) if len(passages) else []

    def save(self, folder: Path) -> None:
        """Write the store into a folder, a batch of passages at a time."""
        dimensions = self.pieces[0].codes.shape[1] if self.pieces else 1
        owners = np.searchsorted(self._starts, self.places, side="right")
        batches = np.arange(_PASSAGES, len(self), _PASSAGES)  # A batch also ends where a piece ends.
        with (
            new_array(folder / "offsets.npy", np.int64) as offsets,
            new_array(folder / "codes.npy", np.int8, dimensions) as codes,
            new_array(folder / "scales.npy", np.float32) as scales,
        ):
            end = np.zeros(1, np.int64)
            offsets(end)
            for some in np.split(np.arange(len(self)), np.union1d(batches, np.flatnonzero(np.diff(owners)) + 1)):
                for tokens, _, places in self._by_piece(some):
                    batch = tokens.of(places)
                    codes(batch.codes)
                    scales(batch.scales)
                    offsets(end + batch.offsets[1:])
                    end = end + batch.offsets[-1]

    @classmethod
    def map(cls, files: MappedFolder, folder: str, passages: int) -> TokenStore:
        """Open a store that `save` wrote. Its arrays are memory-mapped, and checked when they are read."""
        offsets = files.file(f"{folder}/offsets.npy").checked(np.int64)
        codes_file = files.file(f"{folder}/codes.npy")
        codes = checked(codes_file.array(np.int8, dimensions=2), codes_file)
        scales = files.file(f"{folder}/scales.npy").checked(np.float32)
        fit_together(files, folder, offsets, passages, codes, scales)
        return cls.of(Tokens(codes, scales, offsets))


@lru_cache(maxsize=4)
def _on_device(tokens: Tokens, device: str) -> tuple[Any, ...]:
    """Copy the vectors of tokens into the memory of a GPU. All searches share them."""
    return tuple(copied(array, device) for array in (tokens.codes, tokens.offsets, tokens.scales))


def coded(vectors: Float32) -> tuple[npt.NDArray[np.int8], Float32]:
    """Round vectors to int8. Returns (codes int8[tokens, dimensions], scales float32[tokens]).

    The largest number of a vector becomes 127 or -127. The scale is the number for which scale * codes is as close
    to the vector as possible.
    """
    steps = np.abs(vectors).max(axis=1, initial=0.0) / _LARGEST
    rounded = np.rint(vectors / np.where(steps > 0, steps, 1)[:, None])
    squares = np.einsum("td,td->t", rounded, rounded)
    scales = np.einsum("td,td->t", vectors, rounded) / np.where(squares > 0, squares, 1)
    return rounded.astype(np.int8), scales.astype(np.float32)


def encode_tokens(folder: Path, encode: Encode, offsets: Int64, text: UInt8, dimensions: int) -> TokenStore:
    """Compute the vectors of the tokens of passages, and write them into files in `folder`, a batch at a
    time. If the process is killed, the finished batches stay, and the next call continues after them.

    Passage i is the UTF-8 in text[offsets[i]:offsets[i + 1]]. The folder's name must identify the passages and the
    encoder. All other folders with vectors of tokens are removed from the parent folder.
    """
    kinds = {"codes": (np.int8, dimensions), "scales": (np.float32,)}
    (codes, scales), lengths = _store(folder, kinds, encode, (offsets, text), _PASSAGES)
    return TokenStore.of(Tokens(codes, scales, np.append(0, np.cumsum(lengths, dtype=np.int64))))


def _store(
    folder: Path, kinds: Mapping[str, tuple[Any, ...]], encode: Encode, rendered: RenderedPassages, at_once: int
) -> tuple[list[npt.NDArray[Any]], Int32]:
    """Write the vectors of passages into files in `folder`, a batch at a time. A passage whose vectors are in the
    files is not encoded again.

    Args:
        folder: The folder. Other folders beside it whose names have the same ending are removed.
        kinds: For each file, its name, the type of its numbers, and the shape of its entry for one vector.
        encode: A function that returns an array for each file, and the number of vectors of each text.
        rendered: The passages.
        at_once: The number of passages of a list.

    Returns:
        (the arrays in the files, memory-mapped; the number of vectors of each passage).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.iterdir():
        if other != folder and other.suffix == folder.suffix:
            shutil.rmtree(other)
    paths = [folder / name for name in (*kinds, "lengths")]
    for path in paths:
        path.touch()
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for kind, *shape in kinds.values()]
    written = min(path.stat().st_size // size for path, size in zip(paths, sizes, strict=False))
    ends_of = np.cumsum(np.fromfile(paths[-1], np.int32), dtype=np.int64)
    done = int(np.searchsorted(ends_of, written, side="right"))
    whole = int(ends_of[done - 1]) if done else 0
    with ExitStack() as held:
        files = [held.enter_context(path.open("r+b")) for path in paths]
        for file, size in zip(files, (*(whole * size for size in sizes), done * 4), strict=True):
            file.truncate(size)
            file.seek(size)
        for batch in encode(_batches(rendered, done, at_once)):
            for file, numbers in zip(files, [each.tobytes() for each in batch], strict=True):  # the lengths last
                file.write(numbers)
                file.flush()
                os.fsync(file.fileno())
    lengths = np.fromfile(paths[-1], np.int32)
    total = int(lengths.sum())
    arrays = [
        np.memmap(path, kind, "r", shape=(total, *shape)) if total else np.empty((0, *shape), kind)
        for path, (kind, *shape) in zip(paths, kinds.values(), strict=False)
    ]
    return arrays, lengths


def _batches(rendered: RenderedPassages, done: int, at_once: int) -> Iterator[list[str]]:
    """Yield the texts of the passages after the first `done` passages, a batch at a time."""
    offsets, text = rendered
    for start in range(done, len(offsets) - 1, at_once):
        cuts = offsets[start : start + at_once + 1].tolist()
        yield [text[begin:end].tobytes().decode() for begin, end in pairwise(cuts)]


def coded_texts(vectors: Sequence[Float32]) -> Coded:
    """Round the vectors of the tokens of each text, [tokens, dimensions], to int8."""
    codes, scales = coded(np.concatenate(vectors))
    return codes, scales, np.array([len(each) for each in vectors], np.int32)


PassageVectors: TypeAlias = "Float32 | csr_array | TokenStore"
"""The vectors of passages: an array or a sparse matrix (CSR) [passages, dimensions], or a store with a vector
for each token of each passage
"""
Spread: TypeAlias = Callable[[Callable[[list[str]], Any], Iterable[list[str]]], Iterable[Any]]
"""A function such as `map`: it calls a function with each list of texts, and returns the results in order. It
can let the workers of a cluster make the calls
"""
EXACT = 200_000
"""Up to this number of passages, a query is compared with all dense vectors.

If there are more, faiss compares the query with short codes of the vectors
"""
CODES = "dense/codes.faiss"
"""The name of the file with faiss's codes (compressed dense vectors), in the folder of a part"""
_SPARSE = {"indptr": np.int64, "indices": np.int32, "weights": np.float32}
_AT_ONCE = 16_384  # passages


def unfinished(folder: Path) -> Path:
    """Return the folder that stores vectors of tokens, and vectors from a server, while an index is built in
    `folder`. If the process is killed, the next process continues with these vectors.
    """
    return folder.with_name(f".{folder.name}.tokens")


def encode_texts(kind: str, parameters: Mapping[str, Any], hardware: Hardware, texts: list[str]) -> Any:
    """Encode texts with an index's encoder of this kind. `parameters` are those in the manifest of the index.

    Vectors of tokens are rounded to int8 (`Coded`). Vectors from a server come with the number 1 for each
    text, because each text has one vector."""
    encoder = encoder_of(parameters, kind, hardware=hardware)
    if isinstance(encoder, LateEncoder):
        return coded_texts(encoder.encode(texts))
    vectors = encoder.encode(texts)
    return (vectors, np.ones(len(texts), np.int32)) if encoder.is_on_server else vectors


def vectors_of(
    rendered: RenderedPassages,
    parameters: Mapping[str, Any],
    aside: Path | None = None,
    spread: Spread = map,
    hardware: Hardware = HARDWARE_DEFAULTS,
) -> dict[str, PassageVectors]:
    """Compute the vectors of passages, for each kind of vectors in the `parameters` of the index.

    The vectors of tokens and those from a server are written into the folder `aside`, a batch at a time. If the
    process is killed, the next process reads these vectors and computes only the missing ones. None: a temporary
    folder. `spread` is a function like `map` that calls the encoders. `hardware` is where the encoders run.
    """
    vectors: dict[str, PassageVectors] = {}
    described = {"vectors": parameters.get("vectors", {})}
    for kind in described["vectors"]:
        encoder = encoder_of(described, kind, hardware=hardware)
        offsets, text = map(np.asarray, rendered)
        encode = partial(spread, partial(encode_texts, kind, described, hardware))
        if not isinstance(encoder, LateEncoder) and not encoder.is_on_server:
            blocks = list(encode(_batches((offsets, text), 0, _AT_ONCE)))
            columns = blocks[0].shape[1] if blocks else encoder.dimensions
            vectors[kind] = _stacked(blocks, columns, kind == "sparse")
            continue
        digest = blake2b(encoder.fingerprint.encode() + offsets.tobytes(), digest_size=16)
        digest.update(np.ascontiguousarray(text).data)
        with scratch_folder() if aside is None else nullcontext(aside) as beside:
            folder = Path(beside) / digest.hexdigest()
            if isinstance(encoder, LateEncoder):
                vectors[kind] = encode_tokens(folder, encode, offsets, text, encoder.dimensions)
            else:
                kinds = {"vectors": (np.float32, encoder.dimensions)}
                ((matrix,), _) = _store(folder.with_suffix(".dense"), kinds, encode, (offsets, text), TEXTS)
                vectors[kind] = np.array(matrix)
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
            save_array(folder / kind / "vectors.npy", matrix)
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
                raise IndexFormatError(
                    f"{files.folder}: the {kind} vectors do not match the passages; build the index again"
                )
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
