"""Store a vector for each token of the passages, as int8 with a scale for each token.

The vectors are computed in batches. Stored vectors are memory-mapped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import pyfast.ops as ops
from pyfast.blocks import MappedFolder, check_lists, checked, raw
from pyfast.ops.arrays import Float32, Int32, Int64, ends, places_of
from pyfast.retrieval.part_files import fit_together, new_array

_AT_ONCE = 256
"""How many passages are encoded or copied in one step"""
_LARGEST = 127

Coded: TypeAlias = tuple[npt.NDArray[np.int8], Float32, Int32]
"""The vectors of the tokens of some texts: codes [tokens, dimensions], scales [tokens], and the number of
tokens of each text
"""
Encode = Callable[[Iterable[list[str]]], Iterable[Coded]]
"""A function that gets lists of texts, and returns the vectors of the tokens of each list, in order"""


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

    def scores(self, queries: Sequence[Float32], passages: Sequence[Int32]) -> list[Float32]:
        """Compute the late-interaction score of each query's passages.

        Args:
            queries: For each query, the vectors of its tokens, [tokens, dimensions].
            passages: The passages of each query.

        Returns:
            float32[passages] for each query, as `ops.maxsim` computes them.
        """
        asked = np.repeat(np.arange(len(queries)), [len(some) for some in passages])
        read = np.concatenate([np.empty(0, np.int32), *passages])
        scores = np.empty(len(read), np.float32)
        vectors = np.concatenate(queries) if len(queries) else np.empty((0, 1), np.float32)
        for tokens, chosen, places in self._by_piece(read):
            pairs = np.column_stack([asked[chosen], places])
            check_lists(tokens.offsets, places, tokens.codes, tokens.scales)
            codes, offsets, scales = raw(tokens.codes), raw(tokens.offsets), raw(tokens.scales)
            scores[chosen] = ops.maxsim(vectors, ends(queries), codes, offsets, pairs, scales)
        return np.split(scores, np.cumsum([len(some) for some in passages])[:-1]) if len(passages) else []

    def save(self, folder: Path) -> None:
        """Write the store into a folder, a batch of passages at a time."""
        lengths = np.empty(len(self), np.int64)
        for tokens, chosen, places in self._by_piece(np.arange(len(self))):
            lengths[chosen] = np.diff(tokens.offsets)[places]
        offsets = np.append(0, np.cumsum(lengths))
        np.save(folder / "offsets.npy", offsets)
        size, dimensions = int(offsets[-1]), self.pieces[0].codes.shape[1] if self.pieces else 1
        owners = np.searchsorted(self._starts, self.places, side="right")
        batches = np.arange(_AT_ONCE, len(self), _AT_ONCE)  # and a batch has passages of one piece
        with (
            new_array(folder / "codes.npy", np.int8, size, dimensions) as codes,
            new_array(folder / "scales.npy", np.float32, size) as scales,
        ):
            for some in np.split(np.arange(len(self)), np.union1d(batches, np.flatnonzero(np.diff(owners)) + 1)):
                for tokens, _, places in self._by_piece(some):
                    batch = tokens.of(places)
                    codes(batch.codes)
                    scales(batch.scales)

    @classmethod
    def map(cls, files: MappedFolder, folder: str, passages: int) -> TokenStore:
        """Open a store that `save` wrote. Its arrays are memory-mapped, and checked when they are read."""
        offsets = files.file(f"{folder}/offsets.npy").checked(np.int64)
        codes_file = files.file(f"{folder}/codes.npy")
        codes = checked(codes_file.array(np.int8, dimensions=2), codes_file)
        scales = files.file(f"{folder}/scales.npy").checked(np.float32)
        fit_together(files, folder, offsets, passages, codes, scales)
        return cls.of(Tokens(codes, scales, offsets))


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


def encode_tokens(encode: Encode, offsets: Int64, text: npt.NDArray[np.uint8], dimensions: int) -> TokenStore:
    """Compute the vectors of the tokens of passages, and keep them in memory. Passage i is the UTF-8 in
    text[offsets[i]:offsets[i + 1]]."""
    made = list(encode(_batches(offsets, text, 0)))
    codes = np.concatenate([np.empty((0, dimensions), np.int8), *(codes for codes, _, _ in made)])
    scales = np.concatenate([np.empty(0, np.float32), *(scales for _, scales, _ in made)])
    lengths = np.concatenate([np.empty(0, np.int32), *(lengths for _, _, lengths in made)])
    return TokenStore.of(Tokens(codes, scales, np.append(0, np.cumsum(lengths, dtype=np.int64))))


def encode_tokens_into(
    folder: Path, encode: Encode, offsets: Int64, text: npt.NDArray[np.uint8], dimensions: int
) -> TokenStore:
    """Compute the vectors of the tokens of passages, and write them into files in `folder`, a batch at a
    time. If the process is killed, the finished batches stay, and the next call continues after them.

    Passage i is the UTF-8 in text[offsets[i]:offsets[i + 1]]. The folder's name must identify the passages
    and the encoder. The function removes all other folders from the parent folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other)
    paths = [folder / name for name in ("codes", "scales", "lengths")]
    for path in paths:
        path.touch()
    sizes = [path.stat().st_size for path in paths[:2]]
    lengths = np.fromfile(paths[2], np.int32)
    tokens = np.cumsum(lengths, dtype=np.int64)
    done = int(np.searchsorted(tokens, min(sizes[0] // dimensions, sizes[1] // 4), side="right"))
    whole = int(tokens[done - 1]) if done else 0
    with paths[0].open("r+b") as codes, paths[1].open("r+b") as scales, paths[2].open("r+b") as counts:
        for file, size in ((codes, whole * dimensions), (scales, whole * 4), (counts, done * 4)):
            file.truncate(size)
            file.seek(size)
        for batch in encode(_batches(offsets, text, done)):
            written = [each.tobytes() for each in batch]
            for file, numbers in zip((codes, scales, counts), written, strict=True):  # the counts last
                file.write(numbers)
                file.flush()
                os.fsync(file.fileno())
    lengths = np.fromfile(paths[2], np.int32)
    total = int(lengths.sum())
    kinds: tuple[tuple[Any, tuple[int, ...]], ...] = (np.int8, (total, dimensions)), (np.float32, (total,))
    vectors, scale_of = (
        np.memmap(path, kind, "r", shape=shape) if total else np.empty(shape, kind)
        for path, (kind, shape) in zip(paths, kinds, strict=False)
    )
    return TokenStore.of(Tokens(vectors, scale_of, np.append(0, np.cumsum(lengths, dtype=np.int64))))


def _batches(offsets: Int64, text: npt.NDArray[np.uint8], done: int) -> Iterator[list[str]]:
    """Yield the texts of the passages after the first `done` passages, a batch at a time."""
    for start in range(done, len(offsets) - 1, _AT_ONCE):
        cuts = offsets[start : start + _AT_ONCE + 1].tolist()
        yield [text[begin:end].tobytes().decode() for begin, end in pairwise(cuts)]


def coded_texts(vectors: Sequence[Float32]) -> Coded:
    """Round the vectors of the tokens of each text, [tokens, dimensions], to int8."""
    codes, scales = coded(np.concatenate(vectors))
    return codes, scales, np.array([len(each) for each in vectors], np.int32)
