"""Keep many rows of strings in little memory.

A string of a few letters takes 50 bytes as a Python object, and a cell of a table has only a few letters. So the
rows of a table from a file are stored as JSON, in blocks. Reading a row turns its block into Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, overload

import orjson

T = TypeVar("T")
_ROWS = 1024
"""How many rows are in a block"""


def pack(rows: Iterable[T]) -> Sequence[T]:
    """Return these rows as a sequence that takes little memory. If there are at most 1,024 rows, the sequence
    is a tuple.
    """
    packed = Packed(rows)
    return packed if len(packed) > _ROWS else tuple(packed)


class Packed(Sequence[T], Generic[T]):
    """A sequence of tuples or dicts of strings. It equals any sequence with the same items."""

    __slots__ = ("_added", "_blocks")

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._blocks: list[bytes | list[T]] = []
        self._added: list[T] = []
        for row in rows:
            self.append(row)

    def append(self, row: T) -> None:
        """Add a row at the end."""
        self._added.append(row)
        if len(self._added) == _ROWS:
            try:
                # The bytes that orjson returns keep the memory of its buffer: up to three times their length.
                self._blocks.append(bytes(memoryview(orjson.dumps(self._added))))
            except TypeError:  # A lone surrogate is no JSON.
                self._blocks.append(self._added)
            self._added = []

    def json(self) -> Iterator[bytes]:
        """Yield each block as a JSON text without the outer brackets, such as
        `["Titan","Saturn"],["Io","Jupiter"]`. Raises `TypeError` for a lone surrogate.
        """
        for block in [*self._blocks, *([self._added] if self._added else [])]:
            yield (block if isinstance(block, bytes) else orjson.dumps(block))[1:-1]

    def __len__(self) -> int:
        return len(self._blocks) * _ROWS + len(self._added)

    def __iter__(self) -> Iterator[T]:
        return self._from(0)

    @overload
    def __getitem__(self, which: int) -> T: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[T]: ...
    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            first, stop, step = which.indices(len(self))
            if step != 1:
                return tuple(self)[which]
            return tuple(islice(self._from(first // _ROWS), first % _ROWS, first % _ROWS + max(stop - first, 0)))
        number = range(len(self))[which]
        return next(islice(self._from(number // _ROWS), number % _ROWS, None))

    def _from(self, block: int) -> Iterator[T]:
        """Yield all rows from the beginning of a block on."""
        for packed in islice(self._blocks, block, None):
            yield from _loaded(packed) if isinstance(packed, bytes) else packed
        yield from self._added

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _loaded(block: bytes) -> Any:
    """Return the rows of a block. Lists become tuples again, because JSON has no tuples."""
    return [tuple(row) if isinstance(row, list) else row for row in orjson.loads(block)]
