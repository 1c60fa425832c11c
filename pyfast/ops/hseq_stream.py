"""hseq_stream: show the segments of a corpus, window by window, to many questions. The cursor of a question is
its place in the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import pyfast._native as native
import pyfast.ops.gpu as gpu
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Int32, Int64, Ragged, UInt8, UInt64, array, call, integers, ragged, thread_count
from pyfast.ops.backend import Backend, on_gpu, require_gpu

Lists = tuple[Int64, Int64]
"""A ragged list of lists of segments: (offsets int64[n + 1], segments int64)."""
Neighbors = Literal["children", "parent", "row", "column", "relation"]
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Cursors:
    """The places of n questions in a stream. Cursors never change: `Stream.refresh` returns new cursors."""

    place: Int64
    """[n]: the position at which each window begins. Positions count first the segments of the question's prior,
    and then those of `Stream.order`
    """
    selected: Lists
    priors: Lists

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, which: slice) -> Cursors:
        """Return the cursors of some consecutive questions. The step of the slice must be 1."""
        first, last, step = which.indices(len(self))
        if step != 1:
            raise ArrayError(f"cursors: expected a slice with a step of 1, got {which}")
        lists = (_slice(lists, first, max(first, last)) for lists in (self.selected, self.priors))
        return Cursors(self.place[which], *lists)

    @staticmethod
    def join(cursors: Sequence[Cursors]) -> Cursors:
        """Join several `Cursors` objects into one batch. Each object has the cursors of one or more
        questions."""
        places = np.concatenate([np.empty(0, np.int64), *[each.place for each in cursors]])
        return Cursors(
            places, _join([each.selected for each in cursors]), _join([each.priors for each in cursors])
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
    """The segments that all questions read, in order, made by `hseq_stream`. Several threads can use it at
    the same time.
    """

    level: UInt8
    parent: Int32 | Int64
    subtree_end: Int32 | Int64
    order: Int64
    """the segments in the order in which questions see them"""
    starts: Int64
    """[levels in `priority` + 1]: the position in `order` at which each level starts, and the end of `order`"""
    tombstones: UInt8 = field(default_factory=lambda: np.empty(0, np.uint8))
    """[segments] 1 for deleted segments; empty if none is deleted"""
    live: UInt64 = field(default_factory=lambda: np.empty(0, np.uint64))
    """one bit for each position in `order`: 1 for segments that are not deleted"""

    def __len__(self) -> int:
        """The number of segments of the corpus, including deleted segments."""
        return len(self.level)

    def cursors(self, count: int = 1, priors: Ragged | None = None) -> Cursors:
        """Create cursors at the beginning of the stream.

        Args:
            count: The number of cursors.
            priors: (offsets int64[n + 1], segments), one list for each cursor. Give either `priors` or `count`.
                A cursor shows first the segments of its list, without duplicates, and then the rest of the
                stream.

        Raises:
            ArrayError: `count` or `priors` is malformed.
        """
        if not isinstance(count, int) or count < 0:
            raise ArrayError(f"count: expected an integer of at least 0, got {count!r}")
        lists = _lists("priors", priors) if priors is not None else _nothing(count)
        n = max(len(lists[0]) - 1, 0)
        return Cursors(np.zeros(n, np.int64), _nothing(n), lists)

    def window(self, cursors: Cursors, width: int, threads: int | None = None, backend: Backend = "auto") -> Lists:
        """Return the window of each cursor. A window has the next `width` segments that are not deleted and
        not yet selected by the question.

        Args:
            cursors: The cursors of n questions.
            width: The maximum number of segments in a window. The last window of a stream may have fewer.
            threads: See `pyfast.ops`.
            backend: "auto": run where the stream's arrays are (see `on_gpu`).

        Returns:
            (offsets int64[n + 1], segments int64).

        Raises:
            ArrayError: The cursors or `width` are malformed.
        """
        if on_gpu(backend, self.order):
            return gpu.window(self._there(), _parts(cursors), width)
        return call(native.hseq_window, **self._given(cursors, threads), width=width)

    def refresh(
        self,
        cursors: Cursors,
        chosen: Ragged,
        past: int = 0,
        threads: int | None = None,
        backend: Backend = "auto",
    ) -> Cursors:
        """Return the cursors after a step in which each question selected segments.

        Selected segments leave the window. By default, all other segments stay, and new segments follow them.

        Args:
            cursors: The cursors of n questions, before the step.
            chosen: (offsets int64[n + 1], segments), the segments that each question selected. They need not be in
                its window.
            past: How many segments at the beginning of the old window leave the window. If `past` is the
                width of the window, the next window has only new segments. If `past` is 0, all segments that
                were not selected stay.
            threads: See `pyfast.ops`.
            backend: "auto": run where the stream's arrays are (see `on_gpu`).

        Raises:
            ArrayError: The cursors or `chosen` are malformed.
        """
        if on_gpu(backend, self.order):
            there, lists = gpu.refresh(self._there(), _parts(cursors), chosen, past)
            return Cursors(there, lists, cursors.priors)
        given, lists = self._given(cursors, threads), _lists("chosen", chosen)
        place, selected = call(native.hseq_refresh, **given, chosen=lists, past=past)
        return Cursors(place, selected, cursors.priors)

    def neighbors(
        self,
        segments: npt.ArrayLike | Ragged,
        kind: Neighbors,
        cursors: Cursors | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> Lists:
        """Return the structural neighbours of segments. Deleted and selected segments are left out.

        Some kinds of neighbours exist for one level only, such as table cells. Segments of other levels then
        have no neighbours of this kind. The kinds are:

        - `children`: the segments directly below the segment.
        - `parent`: the segment directly above the segment.
        - `row`: for a table cell, the other cells of the row.
        - `column`: for the k-th cell of a row, the k-th cell of each other row of the table.
        - `relation`: for a triplet, the other triplets of the subgraph. In a pyfast corpus these triplets have the
          same head.

        Args:
            segments: Single segments (int64[n]), or lists of segments as (offsets, segments). The neighbours of
                a list are the neighbours of all its segments.
            kind: The kind of neighbours.
            cursors: The cursors of n questions. List i leaves out the segments that question i has selected.
                None: no question has selected a segment.
            limit: The maximum number of neighbours for a list.
            threads: See `pyfast.ops`.

        Returns:
            (offsets int64[n + 1], segments int64). The neighbours of a single segment are in ascending order.
            In a list, the neighbours of the first segment come first, then those of the second, and so on,
            without duplicates.

        Raises:
            ArrayError: An argument is malformed, or the stream is on a GPU.
        """
        if isinstance(segments, tuple):
            lists = _lists("segments", segments)
        else:
            each = array("segments", segments, np.int64)
            lists = (np.arange(len(each) + 1, dtype=np.int64), each)
        nobody = np.empty(0, np.int64)
        selected = (nobody, nobody) if cursors is None else _lists("selected", cursors.selected)
        given: dict[str, Any] = {"mask": self._arrays()[2], "segments": lists, "selected": selected, "kind": kind}
        given |= {"limit": _NO_LIMIT if limit is None else limit, "threads": thread_count(threads)}
        return call(native.hseq_neighbors, columns=(self.level, self.parent, self.subtree_end), **given)

    def delete(self, segments: npt.ArrayLike) -> Stream:
        """Return a stream without these segments and the segments inside them. Cursors of this stream also
        work with the new stream.

        Args:
            segments: int64, the numbers of the segments.

        Raises:
            ArrayError: There is no such segment, or the stream is on a GPU.
        """
        columns, gone = (self.level, self.parent, self.subtree_end), array("segments", segments, np.int64)
        tombstones, live = call(native.hseq_delete_segments, columns=columns, stream=self._arrays(), segments=gone)
        return replace(self, tombstones=tombstones, live=live)

    def on_gpu(self, library: Literal["cupy", "torch"] = "torch") -> Stream:
        """Return a stream whose `window` and `refresh` run on the current GPU. The arrays for these two
        methods are copied to the GPU.

        The cursors can be on the CPU or on the GPU. `neighbors` and `delete` need a stream on the CPU.

        Args:
            library: The library that makes the arrays of the new stream: CuPy or torch.

        Raises:
            DeviceError: No GPU can be used, or the library is not installed.
        """
        require_gpu()
        order, tombstones, live = gpu.upload(library, self.order, self.tombstones, self.live.view(np.int64))
        return replace(self, order=order, tombstones=tombstones, live=live)

    def _arrays(self) -> tuple[Int64, Int64, UInt8, UInt64]:
        if not isinstance(self.order, np.ndarray):
            raise ArrayError("stream: a stream on the GPU supports only window and refresh")
        return self.order, self.starts, self.tombstones, self.live

    def _given(self, cursors: Cursors, threads: int | None) -> dict[str, Any]:
        """Return the arguments that the native window and refresh ops share."""
        stream, (place, selected, priors) = self._arrays(), _parts(cursors)
        places = array("place", place, np.int64), _lists("selected", selected), _lists("priors", priors)
        return {"size": len(self), "stream": stream, "cursors": places, "threads": thread_count(threads)}

    def _there(self) -> tuple[int, Any, Any, Any]:
        return len(self), self.order, self.tombstones, self.live


def hseq_stream(
    level: npt.ArrayLike,
    parent: npt.ArrayLike,
    subtree_end: npt.ArrayLike | None = None,
    *,
    priority: Iterable[int],
    tombstones: npt.ArrayLike | None = None,
    order: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Stream:
    """Create a corpus's stream: its segments in the order in which questions see them (HSEQ).

    The stream has the segments whose level is in `priority`: first the segments of the first level, then the
    segments of the next level, and so on. Within a level, segments are in the order of the corpus. A cursor
    is the position of one question in the stream. It can have a prior: segments that are shown
    first, and only for this question. A prior can also have segments of other levels.

    `hseq_stream` itself takes O(segments) time. The time that a later call of `window` or `refresh` takes
    does not depend on the size of the corpus.

    Args:
        level: uint8[segments], the level of each segment (`pyfast.corpus.Level`), in depth-first order.
        parent: int32 or int64 [segments], the segment directly above each segment, or -1.
        subtree_end: int32 or int64 [segments], for each segment, the number after the last segment inside it.
            None: the op computes it from `parent`.
        priority: The levels of the segments to show, in order.
        tombstones: [segments], 1 for deleted segments. None: nothing is deleted.
        order: (order, starts) of an earlier stream of the same corpus, to save time. `level`, `parent` and
            `subtree_end` can then be memory-mapped files that are larger than memory, because the op checks
            only the parts that it reads.

    Returns:
        The stream. It makes cursors and their windows.

    Raises:
        ArrayError: A column is malformed.

    Example:
        >>> from pyfast import ops
        >>> stream = ops.hseq_stream([0, 2, 3, 3], [-1, 0, 1, 1], priority=[2, 3])  # a paragraph of two sentences
        >>> cursors = stream.cursors(1)
        >>> offsets, segments = stream.window(cursors, width=2)
        >>> segments.tolist()
        [1, 2]
        >>> cursors = stream.refresh(cursors, ([0, 1], [1]))  # the question selects the paragraph
        >>> stream.window(cursors, width=2)[1].tolist()
        [2, 3]
    """
    levels = array("level", level, np.uint8)
    parents = integers("parent", parent)
    ends = subtree_ends(parents) if subtree_end is None else integers("subtree_end", subtree_end)
    if not len(levels) == len(parents) == len(ends):
        raise ArrayError(
            f"level, parent, subtree_end: expected equal lengths, got {len(levels)}, {len(parents)}, {len(ends)}"
        )
    if order is None:
        best_first = array("priority", list(priority), np.uint8)
        places, starts = call(native.hseq_order, level=levels, priority=best_first)
    else:
        places, starts = (array("order", part, np.int64) for part in order)
    stream = Stream(levels, parents, ends, places, starts)
    if tombstones is None:
        return stream
    mask = array("tombstones", tombstones, np.uint8)
    if len(mask) != len(levels):
        raise ArrayError(f"tombstones: expected one for each segment ({len(levels)}), got {len(mask)}")
    mask, live = call(native.hseq_mark_deleted, order=places, starts=starts, mask=mask)
    return replace(stream, tombstones=mask, live=live)


def subtree_ends(parent: npt.ArrayLike) -> Int64:
    """Compute for each segment the number after the last segment inside it, from `parent`: int64[segments].

    Raises `ArrayError` if the segments are not in depth-first order.
    """
    return call(native.hseq_subtree_ends, parent=integers("parent", parent))


def _parts(cursors: Cursors) -> tuple[Any, Any, Any]:
    if not isinstance(cursors, Cursors):
        raise ArrayError(f"cursors: expected Cursors, got {type(cursors).__name__}")
    return cursors.place, cursors.selected, cursors.priors


def _lists(name: str, value: Ragged) -> Lists:
    return ragged(name, value, np.int64, "segments")


def _nothing(lists: int) -> Lists:
    """Return empty lists of segments, as (offsets, segments). `lists` is the number of lists."""
    return np.zeros(lists + 1, np.int64), np.empty(0, np.int64)
