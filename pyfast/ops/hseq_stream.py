"""hseq_stream: windows on the hierarchical sequence of a corpus's segments, for the cursors of many questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Int64, Ragged, array, call, thread_count
from pyfast.ops.backend import Backend, on_gpu, require_gpu

UInt8 = npt.NDArray[np.uint8]
UInt64 = npt.NDArray[np.uint64]
Lists = tuple[Int64, Int64]
"""A ragged list of lists of segments: (offsets int64[n + 1], segments int64)."""
Neighbors = Literal["children", "parent", "row", "column", "relation"]
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Cursors:
    """Where questions are in a stream: values, which `Stream.refresh` gives anew. One entry per question."""

    place: Int64
    """[n] where windows begin: in the question's prior, and from there on in the order"""
    selected: Lists
    priors: Lists

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, which: slice) -> Cursors:
        """Some of them: a slice of steps of one."""
        first, last, step = which.indices(len(self))
        if step != 1:
            raise ArrayError(f"cursors: expected a slice of steps of 1, got {which}")
        return Cursors(
            self.place[which],
            _slice(self.selected, first, max(first, last)),
            _slice(self.priors, first, max(first, last)),
        )

    @staticmethod
    def join(cursors: Sequence[Cursors]) -> Cursors:
        """Cursors of several questions, or batches of them, as one batch."""
        return Cursors(
            np.concatenate([np.empty(0, np.int64), *[each.place for each in cursors]]),
            _join([each.selected for each in cursors]),
            _join([each.priors for each in cursors]),
        )


def _slice(lists: Lists, first: int, last: int) -> Lists:
    offsets = lists[0][first : last + 1]
    return offsets - offsets[0], lists[1][offsets[0] : offsets[-1]]


def _join(parts: Sequence[Lists]) -> Lists:
    lengths = [np.diff(offsets) for offsets, _ in parts]
    return (
        np.concatenate([[0], *lengths]).cumsum().astype(np.int64),
        np.concatenate([np.empty(0, np.int64), *[segments for _, segments in parts]]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """What the cursors of all questions read; made by `hseq_stream`. Any number of threads may use it at once."""

    level: UInt8
    parent: Int64
    subtree_end: Int64
    order: Int64
    """the segments in the order rho"""
    starts: Int64
    """[levels of the priority + 1] where in `order` each level starts, and the end"""
    tombstones: UInt8 = field(default_factory=lambda: np.empty(0, np.uint8))
    """[segments] 1 for deleted ones; empty: nothing is deleted"""
    live: UInt64 = field(default_factory=lambda: np.empty(0, np.uint64))
    """the same by place in `order`, as bits"""

    def __len__(self) -> int:
        """The number of segments, deleted ones too."""
        return len(self.level)

    def cursors(self, count: int = 1, priors: Ragged | None = None) -> Cursors:
        """`count` cursors at their beginning, or one for each list of `priors` (offsets, segments): segments to
        come first, in this order, each once; then follows the rest of the order.
        """
        if not isinstance(count, int) or count < 0:
            raise ArrayError(f"count: expected an integer of at least 0, got {count!r}")
        lists = _lists("priors", priors) if priors is not None else _nothing(count)
        n = max(len(lists[0]) - 1, 0)
        return Cursors(np.zeros(n, np.int64), _nothing(n), lists)

    def window(self, cursors: Cursors, width: int, threads: int | None = None, backend: Backend = "auto") -> Lists:
        """(offsets int64[n + 1], segments): each cursor's first `width` segments that are neither selected nor
        deleted, fewer at the end of its stream. `backend`: "auto" runs where the stream is, see `on_gpu`.
        """
        if on_gpu(backend, self.order):
            from pyfast.ops import gpu

            there: Lists = gpu.window(len(self), *self._there(), _parts(cursors), width)
            return there
        return call(
            _native.hseq_window,
            size=len(self),
            stream=self._arrays(),
            cursors=_plain(cursors),
            width=width,
            threads=thread_count(threads),
        )

    def refresh(
        self,
        cursors: Cursors,
        chosen: Ragged,
        past: int = 0,
        threads: int | None = None,
        backend: Backend = "auto",
    ) -> Cursors:
        """The cursors after a step in which each selected the segments `chosen` (offsets, segments), of its
        window or not.

        What it did not select stays in its window, which is refilled behind it. With `past` = W it leaves the
        window of W that it had behind, so that the next one holds segments that it has not seen.
        """
        if on_gpu(backend, self.order):
            from pyfast.ops import gpu

            there, lists = gpu.refresh(len(self), *self._there(), _parts(cursors), chosen, past)
            return Cursors(there, lists, cursors.priors)
        place, selected = call(
            _native.hseq_refresh,
            size=len(self),
            stream=self._arrays(),
            cursors=_plain(cursors),
            chosen=_lists("chosen", chosen),
            past=past,
            threads=thread_count(threads),
        )
        return Cursors(place, selected, cursors.priors)

    def neighbors(
        self,
        segments: npt.ArrayLike | Ragged,
        kind: Neighbors,
        cursors: Cursors | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> Lists:
        """(offsets, segments): the neighbours of each of `segments`, ascending; or, of each list of a ragged
        `segments`, those of all its segments together: in the list's order, each once. No deleted ones, none that
        the list's cursor has selected, at most `limit` per list.

        - `children`: the segments directly under it; `parent`: the one that it is directly under;
        - `row`: of a table cell the other cells of its row;
        - `column`: of a table cell, the k-th of its row, the k-th cell of each other row of its table;
        - `relation`: of a triplet the other triplets of its subgraph: those of the same head, in a pyfast corpus.

        Segments of other levels have none.
        """
        if isinstance(segments, tuple):
            lists = _lists("segments", segments)
        else:
            each = array("segments", segments, np.int64)
            lists = (np.arange(len(each) + 1, dtype=np.int64), each)
        nobody = np.empty(0, np.int64)
        return call(
            _native.hseq_neighbors,
            columns=(self.level, self.parent, self.subtree_end),
            mask=self._arrays()[2],
            segments=lists,
            selected=(nobody, nobody) if cursors is None else _lists("selected", cursors.selected),
            kind=kind,
            limit=_NO_LIMIT if limit is None else limit,
            threads=thread_count(threads),
        )

    def delete(self, segments: npt.ArrayLike) -> Stream:
        """The stream with these segments, and all that is in them, deleted too. Cursors stay as they are."""
        tombstones, live = call(
            _native.hseq_delete_segments,
            columns=(self.level, self.parent, self.subtree_end),
            stream=self._arrays(),
            segments=array("segments", segments, np.int64),
        )
        return replace(self, tombstones=tombstones, live=live)

    def on_gpu(self, library: Literal["cupy", "torch"] = "torch") -> Stream:
        """The stream with what windows read of it on the current GPU, as arrays of that library: `window` and
        `refresh` run there then, of cursors that are anywhere. Neighbours and deletions are the CPU's stream's.
        """
        require_gpu()
        from pyfast.ops import gpu

        order, tombstones, live = gpu.upload(library, self.order, self.tombstones, self.live.view(np.int64))
        return replace(self, order=order, tombstones=tombstones, live=live)

    def _arrays(self) -> tuple[Int64, Int64, UInt8, UInt64]:
        if not isinstance(self.order, np.ndarray):
            raise ArrayError("stream: is on the GPU, which has window and refresh only")
        return self.order, self.starts, self.tombstones, self.live

    def _there(self) -> tuple[Any, Any, Any]:
        return self.order, self.tombstones, self.live


def hseq_stream(
    level: npt.ArrayLike,
    parent: npt.ArrayLike,
    subtree_end: npt.ArrayLike | None = None,
    *,
    priority: Iterable[int],
    tombstones: npt.ArrayLike | None = None,
    order: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Stream:
    """The stream of a sequence of segments in depth-first order, from its columns [segments].

    `level` (uint8; the numbers of `pyfast.corpus.Level`), `parent` (int64, -1 for none), `subtree_end` (int64, one
    past the last segment in it; from `parent` where it is not given). The order rho has the segments whose level
    is in `priority`, the first level's before the next one's, each level's in the order of the sequence; those of
    other levels are in no window, unless a prior has them. `tombstones`: true for segments that are deleted.

    O(segments), once; then no call costs more for more segments. `order`, the (order, starts) of an earlier stream
    over the same columns, saves making it: columns may be mapped files larger than memory, and are checked where
    they are read. Raises `ArrayError` on malformed input.
    """
    levels = array("level", level, np.uint8)
    parents = array("parent", parent, np.int64)
    ends = subtree_ends(parents) if subtree_end is None else array("subtree_end", subtree_end, np.int64)
    if not len(levels) == len(parents) == len(ends):
        raise ArrayError(
            f"level, parent, subtree_end: expected as many of each, got {len(levels)}, {len(parents)}, {len(ends)}"
        )
    if order is None:
        best_first = array("priority", list(priority), np.uint8)
        places, starts = call(_native.hseq_order, level=levels, priority=best_first)
    else:
        places, starts = (array("order", part, np.int64) for part in order)
    stream = Stream(levels, parents, ends, places, starts)
    if tombstones is None:
        return stream
    mask = array("tombstones", tombstones, np.uint8)
    if len(mask) != len(levels):
        raise ArrayError(f"tombstones: expected one for each of {len(levels)} segments, got {len(mask)}")
    mask, live = call(_native.hseq_mark_deleted, order=places, starts=starts, mask=mask)
    return replace(stream, tombstones=mask, live=live)


def subtree_ends(parent: npt.ArrayLike) -> Int64:
    """int64[segments]: one past the last segment in each, from the parents of segments in depth-first order.

    Raises `ArrayError` where they are not.
    """
    return call(_native.hseq_subtree_ends, parent=array("parent", parent, np.int64))


def check_subtree_ends(parent: npt.ArrayLike, subtree_end: npt.ArrayLike) -> None:
    """Raises `ArrayError` unless `subtree_end` is what `subtree_ends` gives, which takes no memory to find out."""
    call(
        _native.hseq_check_subtree_ends,
        parent=array("parent", parent, np.int64),
        subtree_end=array("subtree_end", subtree_end, np.int64),
    )


def _parts(cursors: Cursors) -> tuple[Any, Any, Any]:
    if not isinstance(cursors, Cursors):
        raise ArrayError(f"cursors: expected Cursors, got {type(cursors).__name__}")
    return cursors.place, cursors.selected, cursors.priors


def _plain(cursors: Cursors) -> tuple[Int64, Lists, Lists]:
    place, selected, priors = _parts(cursors)
    return array("place", place, np.int64), _lists("selected", selected), _lists("priors", priors)


def _lists(name: str, value: Ragged) -> Lists:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArrayError(f"{name}: expected a pair (offsets, segments)")
    return array(f"{name}[0]", value[0], np.int64), array(f"{name}[1]", value[1], np.int64)


def _nothing(lists: int) -> Lists:
    """So many empty lists."""
    return np.zeros(lists + 1, np.int64), np.empty(0, np.int64)


def hseq_stream_reference(
    level: npt.ArrayLike,
    priority: Sequence[int],
    deleted: Iterable[int] = (),
    prior: Sequence[int] = (),
) -> Iterable[int]:
    """The stream of one cursor, in plain Python."""
    levels = np.asarray(level)
    order = [*prior, *(int(i) for one in priority for i in np.flatnonzero(levels == one))]
    gone = set(deleted)
    return (segment for segment in dict.fromkeys(order) if segment not in gone)


def window_reference(stream: Iterable[int], selected: Iterable[int], width: int) -> list[int]:
    """The window of one cursor on what `hseq_stream_reference` gives."""
    taken = set(selected)
    return list(islice((segment for segment in stream if segment not in taken), width))


def neighbors_reference(level: npt.ArrayLike, parent: npt.ArrayLike, segment: int, kind: Neighbors) -> list[int]:
    """The neighbours of one segment, in NumPy: one look at all segments."""
    levels, parents = np.asarray(level), np.asarray(parent)
    above = int(parents[segment])
    siblings = np.flatnonzero(parents == above)
    if kind == "children":
        return [int(i) for i in np.flatnonzero(parents == segment)]
    if kind == "parent":
        return [above] if above >= 0 else []
    if kind == "relation":
        return [int(i) for i in siblings if i != segment and levels[segment] == 8]
    if levels[segment] != 6:
        return []
    if kind == "row":
        return [int(i) for i in siblings if i != segment]
    k = siblings.tolist().index(segment)
    rows = np.flatnonzero(parents == parents[above])
    cells = [np.flatnonzero(parents == row) for row in rows if row != above]
    return [int(row[k]) for row in cells if len(row) > k]
