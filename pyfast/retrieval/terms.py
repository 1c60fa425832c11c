"""The sorted terms of a part, in files that are memory-mapped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyfast.blocks import MappedFolder
from pyfast.errors import IndexFormatError
from pyfast.ops.arrays import Int32, Int64, utf8
from pyfast.retrieval.part_files import TERMS, below, save_arrays

_PREFIX = 8  # bytes of a term's prefix
_AT_ONCE = 1 << 16  # terms in a block
_KEPT = 1 << 16  # the number of words whose term ids stay in memory, because questions repeat words


class Terms(Sequence[str]):
    """Distinct terms in alphabetical order. The number of a term is its column in the part's matrices."""

    def __init__(
        self,
        offsets: Int64,
        text: npt.NDArray[np.uint8],
        prefixes: npt.NDArray[np.uint64],
        files: MappedFolder | None = None,
    ) -> None:
        """Term i is the UTF-8 in `text` from `offsets[i]` to `offsets[i + 1]`.

        `prefixes` [terms] has the first eight bytes of each term.

        If the arrays are mapped from `files`, these files are checked as a whole when they are first read.
        """
        self._given, self._files, self._count = (offsets, text, prefixes), files, len(prefixes)
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, terms: Iterable[str]) -> Terms:
        """Make `Terms` from a sorted list."""
        return cls._made(*utf8(terms))

    @classmethod
    def _made(cls, offsets: Int64, text: npt.NDArray[np.uint8]) -> Terms:
        return cls(offsets, text, np.concatenate([np.empty(0, np.uint64), *_prefixes(offsets, text)]))

    @classmethod
    def from_arrow(cls, terms: pa.LargeStringArray) -> Terms:
        """Make `Terms` from a sorted Arrow column."""
        if not len(terms):
            return cls.of([])
        _, offsets, text = terms.buffers()
        return cls._made(np.frombuffer(offsets, np.int64), np.frombuffer(text, np.uint8))

    def as_arrow(self) -> pa.LargeStringArray:
        """The terms as an Arrow column, without copying them."""
        offsets, text, _ = self._arrays
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(text))

    @classmethod
    def map(cls, files: MappedFolder) -> Terms:
        """Memory-map the terms in the folder of a part."""
        offsets, prefixes = (
            files.file(f"{TERMS}/{name}.npy").array(dtype)
            for name, dtype in (("offsets", np.int64), ("prefixes", np.uint64))
        )
        if len(offsets) != len(prefixes) + 1:
            raise IndexFormatError(f"{files.folder}: its terms do not go together; build the index again")
        return cls(offsets, files.file(f"{TERMS}/text.bin").data, prefixes, files)

    def save(self, folder: Path) -> None:
        """Write the terms into a new folder in the folder of a part."""
        offsets, text, prefixes = self._arrays
        save_arrays(folder / TERMS, offsets=offsets, prefixes=prefixes)
        text.tofile(folder / TERMS / "text.bin")

    @cached_property
    def _arrays(self) -> tuple[Int64, npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        """The offsets, the text and the prefixes. If they are memory-mapped, they are checked first."""
        if self._files is not None:
            self._files.check_all(below(self._files, TERMS))
            offsets, text, _ = self._given
            if offsets[0] or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
                raise IndexFormatError(f"{self._files.folder}: its terms are damaged; build the index again")
        return self._given

    @property
    def has_prefixes(self) -> bool:
        """Whether the stored prefixes match the terms."""
        offsets, text, prefixes = self._arrays
        made = enumerate(_prefixes(offsets, text))
        return all(np.array_equal(some, prefixes[k * _AT_ONCE :][: len(some)]) for k, some in made)

    @cached_property
    def _read(self) -> tuple[memoryview, memoryview]:
        offsets, text, _ = self._arrays
        return offsets.data, text.data

    def names(self, numbers: Int32) -> list[str]:
        """Return the terms with these numbers. This is much faster than a call for each term."""
        numbers = np.ascontiguousarray(numbers, np.int32)
        # `pa.array` and `to_numpy` would import pandas.
        places = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
        try:
            names: list[str] = self.as_arrow().take(places).to_pylist()
            return names
        except UnicodeDecodeError as error:
            raise IndexFormatError("the terms of the index are damaged; build it again") from error

    def bytes(self, number: int) -> bytes:
        """Return the term with this number, in UTF-8."""
        offsets, text = self._read
        return text[offsets[number] : offsets[number + 1]].tobytes()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        try:
            return self.bytes(number % len(self)).decode()
        except UnicodeDecodeError as error:
            raise IndexFormatError("the terms of the index are damaged; build it again") from error

    def __iter__(self) -> Iterator[str]:
        offsets, text, _ = self._arrays
        for first in range(0, len(self), _AT_ONCE):
            cuts = offsets[first : first + _AT_ONCE + 1]
            held, at = text[cuts[0] : cuts[-1]].tobytes(), (cuts - cuts[0]).tolist()
            yield from (held[begin:end].decode() for begin, end in pairwise(at))

    def find(self, words: Sequence[str]) -> Int32:
        """Find the number of each word. It is -1 if the word is not a term."""
        return np.array(self.numbers(words), np.int32)

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Return what `find` returns, as a list."""
        known = self._known
        if missing := [word for word in dict.fromkeys(words) if word not in known]:
            if len(known) + len(missing) > _KEPT:
                known = self._known = {}
                missing = list(dict.fromkeys(words))
            known.update(zip(missing, self._search(missing), strict=True))
        return [known[word] for word in words]

    def _search(self, words: Sequence[str]) -> list[int]:
        """Find the number of each word by binary search. It is -1 if the word is not a term."""
        if not len(self):
            return [-1] * len(words)
        encoded = [word.encode(errors="replace") for word in words]
        wanted = np.array([one[:_PREFIX] for one in encoded], f"S{_PREFIX}").view(">u8").astype(np.uint64)
        prefixes = self._arrays[2]
        first = np.searchsorted(prefixes, wanted).tolist()
        last = np.searchsorted(prefixes, wanted, side="right").tolist()
        found = []
        for word, low, high in zip(encoded, first, last, strict=True):
            place = bisect_left(range(high), word, lo=low, key=self.bytes) if low < high else high
            found.append(place if place < high and self.bytes(place) == word else -1)
        return found


def _prefixes(offsets: Int64, text: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the first eight bytes of each term as a number, for `_AT_ONCE` terms at a time."""
    place = np.arange(_PREFIX)
    for first in range(0, len(offsets) - 1, _AT_ONCE):
        cuts = offsets[first : first + _AT_ONCE + 1]
        held = np.append(text[cuts[0] : cuts[-1]], np.zeros(_PREFIX, np.uint8))
        letters = held[(cuts[:-1] - cuts[0])[:, None] + place]
        letters[place >= np.diff(cuts)[:, None]] = 0
        yield letters.view(">u8").ravel().astype(np.uint64)


class Vocabulary(Mapping[str, int]):
    """A mapping from each term to its number."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def __getitem__(self, word: str) -> int:
        (number,) = self._terms.find([word]).tolist()
        if number < 0:
            raise KeyError(word)
        return int(number)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._terms.find([word])[0] >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)
