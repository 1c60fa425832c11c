"""The spaces of memory: bounds, alignment, what was written, and who touched it last.

Two accesses to a byte, one of them a write and not both atomic, are a race unless something orders them: the end
of the launch, a barrier of the block between them, or a __syncwarp of the warp between them. Shuffles and
ballots order nothing. Flags and fences between blocks are not understood, and count as races.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.faults import Fault

Array = npt.NDArray[Any]

# Who touched a byte last: interval between barriers << 34 | epoch of the warp << 14 | marks | thread.
EPOCH, INTERVAL = 14, 34
THREAD = (1 << 10) - 1
LANES, WARPS, BLOCKS, ATOMIC = (1 << bit for bit in (10, 11, 12, 13))
"""Others of its warp did so too, others of its block, others of the launch; it was atomic."""


@dataclass
class Clock:
    """Where the running block is. An interval is a block's time between two barriers; each has its own number."""

    interval: int = 1
    block_began: int = 1
    launch_began: int = 1

    def next_interval(self) -> None:
        self.interval += 1

    def begin_block(self) -> None:
        self.interval += 1
        self.block_began = self.interval

    def begin_launch(self) -> None:
        self.begin_block()
        self.launch_began = self.interval


class Space:
    """Allocations at their addresses, their bytes side by side in one array."""

    def __init__(self, name: str, clock: Clock, places: list[tuple[int, int, str]]) -> None:
        """`places`: address, size and name of each allocation."""
        self.name, self.clock = name, clock
        self.places = sorted(places)
        self.bases = np.array([base for base, _, _ in self.places], dtype=np.int64)
        sizes = np.array([size for _, size, _ in self.places], dtype=np.int64)
        self.ends = self.bases + sizes
        # Each begins at a multiple of 16, so that what is aligned at its address is so here.
        starts = np.concatenate([[0], np.cumsum((sizes + 15) // 16 * 16)]).astype(np.int64)
        self.shifts = starts[:-1] - self.bases
        self.bytes = np.zeros(starts[-1], np.uint8)
        self.written = np.zeros(starts[-1], bool)
        self.fenced = np.zeros(starts[-1], bool)
        self.writer = np.zeros(starts[-1], np.int64)
        self.reader = np.zeros(starts[-1], np.int64)

    def forget(self) -> None:
        """As it is when a block begins."""
        self.written[:] = False
        self.writer[:] = self.reader[:] = 0

    def span(self, address: int, size: int) -> slice:
        """Where so many bytes from an address are, within one allocation."""
        at = int(self.find(np.array([address]), max(size, 1), "host")[0]) if size else 0
        return slice(at, at + size)

    def fill(self, address: int, content: bytes) -> None:
        where = self.span(address, len(content))
        self.bytes[where] = np.frombuffer(content, np.uint8)
        self.written[where] = True

    def fence_off(self, address: int, size: int) -> None:
        """So many bytes, as far as they are within their allocation, are between two arrays: nobody's."""
        owner = int(np.searchsorted(self.bases, address, "right")) - 1
        size = min(size, int(self.ends[owner]) - address)
        self.fenced[self.span(address, size)] = True

    def find(self, addresses: Array, size: int, where: str) -> Array:
        """The places of accesses of `size` bytes."""
        owner = np.searchsorted(self.bases, addresses, "right") - 1
        inside = (owner >= 0) & (addresses + size <= self.ends[owner]) if len(self.bases) else np.zeros(1, bool)
        if not inside.all():
            lost = int(addresses[int(np.argmin(inside))])
            near = [
                f"{lost - base} bytes into {name} of {length}"
                for base, length, name in self.places
                if base <= lost
            ]
            raise Fault(f"out of bounds of {self.name} memory ({near[-1] if near else 'below all'}): {where}")
        found: Array = addresses + self.shifts[owner]
        return found

    def load(self, addresses: Array, dtype: Any, who: Array, where: str, constant: bool = False) -> Array:
        """`who`: for each lane its thread and its warp's epoch, as in the marks above."""
        size = np.dtype(dtype).itemsize
        at = self.find(addresses, size, where)
        touched = self._every_byte(at, size, where)
        self._check_written(touched, where)
        if constant and (self.writer[touched] >> INTERVAL >= self.clock.launch_began).any():
            raise Fault(f"read as constant, but written in the same launch: {where}")
        self._note_read(touched, np.repeat(who, size), where)
        values: Array = self.bytes.view(dtype)[at // size]
        return values

    def store(self, addresses: Array, values: Array, who: Array, where: str) -> None:
        size = values.dtype.itemsize
        at = self.find(addresses, size, where)
        touched = self._every_byte(at, size, where)
        self._note_write(touched, np.repeat(who, size), where)
        self.bytes.view(values.dtype)[at // size] = values
        self.written[touched] = True

    def unwrite(self, addresses: Array, size: int, where: str) -> None:
        """What is there is no longer to be read."""
        self.written[self._every_byte(self.find(addresses, size, where), size, where)] = False

    def update(
        self, addresses: Array, dtype: Any, who: Array, where: str, change: Callable[[int, Any], Any]
    ) -> Array:
        """Atomically: the values before; `change(i, before)` gives what lane i makes of one."""
        size = np.dtype(dtype).itemsize
        at = self.find(addresses, size, where)
        touched = self._every_byte(at, size, where)
        self._check_written(touched, where)
        self._note_write(touched, np.repeat(who, size) | ATOMIC, where)
        memory = self.bytes.view(dtype)
        before = np.empty(len(at), dtype)
        for i, place in enumerate((at // size).tolist()):
            before[i] = memory[place]
            memory[place] = change(i, before[i])
        return before

    def _every_byte(self, at: Array, size: int, where: str) -> Array:
        touched: Array = at if size == 1 else (at[:, None] + np.arange(size)).ravel()
        if self.fenced[touched].any():
            raise Fault(f"out of bounds of an array in {self.name} memory: {where}")
        return touched

    def _check_written(self, touched: Array, where: str) -> None:
        if not self.written[touched].all():
            raise Fault(f"uninitialised {self.name} memory is read: {where}")

    def _unordered(self, before: Array, who: Array) -> Array:
        """Which earlier touches nothing orders before those of `who` now."""
        interval = before >> INTERVAL
        clock = self.clock
        other_block = (interval >= clock.launch_began) & ((interval < clock.block_began) | (before & BLOCKS > 0))
        own = (before & THREAD == who & THREAD) & (before & (LANES | WARPS) == 0)
        same_warp = ((before & THREAD) >> 5 == (who & THREAD) >> 5) & (before & WARPS == 0)
        synced = same_warp & (_epoch(before) < _epoch(who))
        found: Array = other_block | ((interval == clock.interval) & ~own & ~synced)
        return found

    def _raise_race(self, races: Array, before: Array, who: Array, how: str, where: str) -> None:
        if races.any():
            i = int(np.argmax(races))
            pair = f"thread {who[i] & THREAD}, of what thread {before[i] & THREAD} has {how}"
            raise Fault(f"race in {self.name} memory, {pair}: {where}")

    def _note_write(self, touched: Array, who: Array, where: str) -> None:
        writer, reader = self.writer[touched], self.reader[touched]
        recent = self.clock.launch_began << INTERVAL
        if (writer >= recent).any() or (reader >= recent).any():
            both_atomic = (writer & ATOMIC > 0) & (who & ATOMIC > 0)
            self._raise_race(self._unordered(writer, who) & ~both_atomic, writer, who, "written", where)
            self._raise_race(self._unordered(reader, who), reader, who, "read", where)
        mark = who | self.clock.interval << INTERVAL
        self.writer[touched] = mark
        if not (who[0] & ATOMIC) and (self.writer[touched] != mark).any():
            raise Fault(f"race in {self.name} memory, of two lanes at once: {where}")

    def _note_read(self, touched: Array, who: Array, where: str) -> None:
        writer = self.writer[touched]
        clock = self.clock
        if (writer >= clock.launch_began << INTERVAL).any():
            self._raise_race(self._unordered(writer, who), writer, who, "written", where)
        before = self.reader[touched]
        mark = who | clock.interval << INTERVAL
        if (before >= clock.launch_began << INTERVAL).any():
            interval = before >> INTERVAL
            foreign = (interval >= clock.launch_began) & ((interval < clock.block_began) | (before & BLOCKS > 0))
            mark |= np.where(foreign, BLOCKS, 0)
            now = interval == clock.interval
            warp = (before & THREAD) >> 5 == (who & THREAD) >> 5
            mark |= np.where(now & (~warp | (before & WARPS > 0)), WARPS, 0)
            # What lanes of the warp read before its last __syncwarp no longer matters to it.
            now &= _epoch(before) == _epoch(who)
            mark |= np.where(now & ((before & THREAD != who & THREAD) | (before & LANES > 0)), LANES, 0)
        self.reader[touched] = mark
        # Of several lanes that read one byte at once, the last has left its mark.
        left = self.reader[touched]
        if (lost := left != mark).any():
            self.reader[touched[lost]] |= LANES
            other = lost & ((left & THREAD) >> 5 != (who & THREAD) >> 5)
            self.reader[touched[other]] |= WARPS


def _epoch(marks: Array) -> Array:
    return marks >> EPOCH & ((1 << INTERVAL - EPOCH) - 1)


class Generic:
    """Shared and global memory in one: whose an address is, its height tells."""

    def __init__(self, low: Space, high: Space, border: int) -> None:
        self.low, self.high, self.border = low, high, border

    def _parts(self, addresses: Array) -> list[tuple[Space, Array]]:
        below = addresses < self.border
        parts = [(self.low, np.flatnonzero(below)), (self.high, np.flatnonzero(~below))]
        return [(space, lanes) for space, lanes in parts if len(lanes)]

    def load(self, addresses: Array, dtype: Any, who: Array, where: str, constant: bool = False) -> Array:
        values = np.empty(len(addresses), dtype)
        for space, lanes in self._parts(addresses):
            values[lanes] = space.load(addresses[lanes], dtype, who[lanes], where, constant)
        return values

    def store(self, addresses: Array, values: Array, who: Array, where: str) -> None:
        for space, lanes in self._parts(addresses):
            space.store(addresses[lanes], values[lanes], who[lanes], where)

    def update(
        self, addresses: Array, dtype: Any, who: Array, where: str, change: Callable[[int, Any], Any]
    ) -> Array:
        before = np.empty(len(addresses), dtype)
        for space, lanes in self._parts(addresses):

            def changed(i: int, held: Any, lanes: Array = lanes) -> Any:
                return change(int(lanes[i]), held)

            before[lanes] = space.update(addresses[lanes], dtype, who[lanes], where, changed)
        return before
