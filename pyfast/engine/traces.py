"""The traces of a run (how each answer came about), in `traces.jsonl.zst`. This file holds everything that is too
large for answers.jsonl.

It contains one line for each line of answers.jsonl. Many lines are compressed together as one zstd frame, so that
reading a line needs only its frame. The writer flushes after each group of lines, so that all written lines can be
read even if the process is killed. A resumed run writes an unfinished frame again.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import orjson
import zstandard

from pyfast.errors import InputError
from pyfast.utils.jsonl import read_lines

TRACES = "traces.jsonl.zst"
LINES = 128
"""The number of lines in a frame. The last frame may have fewer"""
_LEVEL = 1  # Higher levels take more time than they save: level 3 makes files a tenth smaller.
_HEADER_MOST, _BLOCK_HEADER, _CHECKSUM = 18, 3, 4  # sizes in bytes, from RFC 8878
# the maximum number of bytes of an unpacked frame (2 MB for each line), because a small file may claim terabytes
_LARGEST_FRAME = 256 << 20
_REPEATED = 1  # the kind of block that repeats one byte
_USUAL_FRAME = 1 << 16


class _Zstd(threading.local):
    """A decompressor for each thread: to make one takes longer than to unpack a small frame."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def unpacked(frame: bytes) -> bytes:
    """Decompress a zstd frame, or the beginning of one. Raises `zstandard.ZstdError` if it is damaged or too
    large."""
    for most in (_USUAL_FRAME, _LARGEST_FRAME):  # Getting room for the largest frame takes longer than filling it.
        content = _zstd.decompressor.stream_reader(frame).read(most + 1)
        if len(content) <= most:
            return content
    raise zstandard.ZstdError("a frame is too large")


class TraceWriter:
    """Appends lines to the traces file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b")
        self._frame: zstandard.ZstdCompressionObj | None = None
        self._done: int | None = 0

    def go_on(self, done: int) -> None:
        """Continue after the first `done` lines. All later lines are removed at the next write."""
        self._done = done

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines. When the method returns, other processes can read the lines. Raises `OSError`."""
        if not lines:
            return
        if self._done is not None:
            lines = [*self._cut(self._done), *lines]
            self._done = None
        written = []
        while lines:
            if self._frame is None:
                self._frame = zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compressobj()
            some, lines = lines[: LINES - self._lines], lines[LINES - self._lines :]
            self._lines = (self._lines + len(some)) % LINES
            written.append(self._frame.compress(b"".join(some)))
            written.append(self._end(finished=self._lines == 0))
        self._file.write(b"".join(written))
        self._file.flush()

    def sync(self) -> None:
        """Sync the written lines to disk. Raises `OSError`."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Finish the last frame, sync the file to the disk, and close it. Raises `OSError`."""
        with self._file:
            if self._frame is not None:
                self._file.write(self._end(finished=True))
                self._file.flush()
            os.fsync(self._file.fileno())

    def _end(self, finished: bool) -> bytes:
        frame = self._frame
        assert frame is not None
        if finished:
            self._frame = None
        return frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH if finished else zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def _cut(self, done: int) -> list[bytes]:
        """Remove the frame that contains the line with the number `done` (from 0), and everything after this
        frame.

        Returns the earlier lines of this frame, which must be written again.
        """
        frames = _frames(self._path)
        number, before = divmod(done, LINES)
        last = len(frames) - 1
        kept = _decoded(self._path, *frames[number : number + 2])[:before] if number < last else []
        self._file.seek(frames[min(number, last)])
        self._file.truncate()
        self._lines = 0
        return kept


def count_traces(path: Path) -> int:
    """Count the readable lines of a traces file. Returns 0 if there is no file."""
    frames = _frames(path) if path.exists() else array("Q")
    if len(frames) < 2:
        return 0
    return (len(frames) - 2) * LINES + min(len(_decoded(path, *frames[-2:])), LINES)


def read_traces(path: Path) -> Iterator[bytes]:
    """Yield the lines of a traces file in order, including the lines of an unfinished frame."""
    for first, end in pairwise(_frames(path)):
        yield from _decoded(path, first, end)


class Traces:
    """Reads lines of a traces file by their number. Only one frame, and the positions of all frames, are in
    memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._frames: array[int] | None = None
        self._held: tuple[int, list[bytes]] | None = None

    def line(self, number: int) -> bytes:
        """Read the line with this number. Raises `InputError` if the file has no such line."""
        frame, place = divmod(number, LINES)
        try:
            if self._frames is None:
                self._frames = _frames(self._path)
            if self._held is None or self._held[0] != frame:
                ends = self._frames[frame : frame + 2]
                self._held = frame, _decoded(self._path, *ends) if len(ends) == 2 else []
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror}") from None
        lines = self._held[1]
        if place >= len(lines):
            raise InputError(f"{self._path} is damaged: line {number + 1} cannot be read")
        return lines[place]


def records_of(answers: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) for each line of answers.jsonl. The place is for error messages. The record includes
    its evidence and trace.

    Raises `InputError` as `read_lines` does, and if the traces do not belong to the answers.
    """
    beside = answers.with_name(TRACES)
    missing = object()
    traces = read_traces(beside) if beside.exists() else ()
    for fields, line in zip_longest(read_lines(answers), traces, fillvalue=missing):
        if not isinstance(fields, tuple):
            return  # A trace may exist before its answer.
        place, record = fields
        if not isinstance(line, bytes):
            raise InputError(f"{beside} is damaged: it contains no line for {place}")
        yield place, {**record, **details_of(line, record.get("id"), beside)}


def details_of(line: bytes, id: Any, place: Path | str) -> dict[str, Any]:
    """Return the fields `evidence` and `trace` of a line in the traces. Raises `InputError` if the line
    belongs to another question."""
    with suppress(orjson.JSONDecodeError):
        match orjson.loads(line):
            case {"id": of, "evidence": list(evidence), "trace": dict(trace)} if of == id:
                return {"evidence": evidence, "trace": trace}
    raise InputError(f"{place} is damaged: its line for {id!r} belongs to another question")


def _frames(path: Path) -> array[int]:
    """Return the position at which each frame starts, and the position at which the last frame ends. An
    unfinished frame ends at the end of the file."""
    places = array("Q", [0])
    with path.open("rb", buffering=1 << 16) as file:
        end = os.fstat(file.fileno()).st_size
        place = 0
        while place < end:
            file.seek(place)
            try:
                place += zstandard.frame_header_size(file.read(_HEADER_MOST))
            except zstandard.ZstdError:  # The frame is cut off in its header, or this is no frame.
                break
            last = False
            while not last and place + _BLOCK_HEADER <= end:
                file.seek(place)
                head = int.from_bytes(file.read(_BLOCK_HEADER), "little")
                last = bool(head & 1)
                place += _BLOCK_HEADER + (1 if head >> 1 & 3 == _REPEATED else head >> 3)
            place = place + _CHECKSUM if last else end
            places.append(min(place, end))
    return places


def _decoded(path: Path, first: int, end: int) -> list[bytes]:
    """Return the complete and readable lines of a frame."""
    with path.open("rb") as file:
        file.seek(first)
        content = file.read(end - first)
    lines: list[bytes] = []
    with suppress(zstandard.ZstdError):
        lines = unpacked(content).splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return lines
