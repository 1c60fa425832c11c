"""The simulated disk: what a folder holds after a kill, and what it may hold after a power cut (see disk.c)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

SOURCE = Path(__file__).with_name("disk.c")
BUILD = Path(__file__).resolve().parents[2] / "build" / "simulation"
CREATE, WRITE, TRUNCATE, SYNC, RENAME, REMOVE, FOLDER, LINK = range(1, 9)
SECTOR = 512
_ENTRY = struct.Struct("<iIQq")
_WALL_S = 1_800_000_000
_READ_AGAIN = {
    0.5: rb'answer\\"',
    0.65: rb"CREATE TABLE (?:run|completions|questions|sessions)|INTEGER PRIMARY KEY",
    0.75: rb"answered|abstained",
}
"""Where a journal has what sessions read again: replies, definitions of tables, and states of questions. Each is
drawn if a number is below its own, and not below the one before"""
Image = dict[str, bytes]
"""The contents of files by their paths"""


def library() -> Path:
    """Compile disk.c, unless that is done."""
    made = BUILD / f"disk-{hashlib.blake2b(SOURCE.read_bytes(), digest_size=8).hexdigest()}.so"
    if not made.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        part = made.with_suffix(f".{os.getpid()}")
        compiler = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*compiler, SOURCE, "-o", part, "-ldl"], check=True)
        part.rename(made)
    return made


def preload() -> None:
    """Start this process again with the library, unless it has it."""
    made = str(library())
    if os.environ.get("LD_PRELOAD") != made:
        os.environ.update(LD_PRELOAD=made, PYTHONHASHSEED="0")
        os.execv(sys.executable, sys.orig_argv)


class Entry(NamedTuple):
    """One change of the disk."""

    what: int
    inode: int
    place: int
    content: bytes


class Disk:
    """Watches one folder at a time, in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self._number = 0
        self._before: Image = {}
        self._inodes: dict[str, int] = {}
        self._folders: dict[str, int] = {}
        """The inodes of the folders that were there before, by their paths. The root's is empty"""
        self.is_strict = False
        """Whether a power cut takes names that no sync of their folder made safe, as POSIX allows. Otherwise, any
        sync makes all earlier names safe, as journalling file systems do"""
        self.jump = 0.0
        """How far the wall clock was set, in seconds"""
        self._library = ctypes.CDLL(None)
        self._library.disk_begin.argtypes = [ctypes.c_char_p]
        self._library.disk_stop_at.argtypes = [ctypes.c_int64, ctypes.c_int64]
        self._library.disk_fail.argtypes = [*[ctypes.c_int64] * 2, ctypes.c_int, ctypes.c_char_p]
        self._library.disk_changes.restype = ctypes.c_int64
        self._library.disk_log.restype = ctypes.c_size_t
        self._library.disk_stopped.restype = ctypes.POINTER(ctypes.c_int)
        self.stopped = self._library.disk_stopped().contents
        """Its `value` is 0 until the last change that happens. To read it is faster than a call"""
        self._clocks = (ctypes.c_int64 * 2).in_dll(self._library, "disk_clocks")

    def set_clock(self, now: float) -> None:
        self._clocks[0] = max(int((now + 100) * 1e9), self._clocks[0])  # This clock never goes back.
        self._clocks[1] = int((_WALL_S + now + self.jump) * 1e9)

    def real_clock(self) -> None:
        self._clocks[0] = -1

    def begin(self, image: Image) -> Path:
        """Make a new folder with these files, and watch it from now on."""
        self._number += 1
        self.folder = self.root / str(self._number)
        self.folder.mkdir()
        parents = dict.fromkeys(str(parent) for name in image if "/" in name for parent in Path(name).parents)
        parents.pop(".", None)
        for parent in parents:
            (self.folder / parent).mkdir(parents=True, exist_ok=True)
        self._before, self._inodes = dict(image), {}
        for name, content in image.items():
            with open(f"{self.folder}/{name}", "wb", buffering=0) as file:
                file.write(content)
                self._inodes[name] = os.fstat(file.fileno()).st_ino
        self._folders = {"": self.folder.stat().st_ino}
        self._folders |= {name: (self.folder / name).stat().st_ino for name in parents}
        self._library.disk_begin(os.fsencode(self.folder))
        return self.folder

    def end(self) -> None:
        """Watch no longer."""
        self._library.disk_end()

    def remove(self) -> None:
        if self.folder != self.root:
            with suppress(FileNotFoundError):
                for folder, _, names in os.walk(self.folder, topdown=False):
                    for name in names:
                        os.unlink(f"{folder}/{name}")
                    os.rmdir(folder)

    def stop_at(self, change: int, bytes_of_it: int) -> None:
        self._library.disk_stop_at(change, bytes_of_it)

    def fail(self, first: int, until: int, error: int, part: str = "") -> None:
        """Let changes fail, from the number `first` on, before `until`. With `part`, only changes of files whose
        path contains it are counted."""
        self._library.disk_fail(first, until, error, part.encode())

    @property
    def changes(self) -> int:
        return int(self._library.disk_changes())

    def image(self) -> Image:
        """What the folder holds: after a kill, all that was written is there."""
        image, root = Image(), f"{self.folder}/"
        for folder, _, names in os.walk(self.folder):
            for path in (f"{folder}/{name}" for name in names if not name.endswith("-shm")):
                with open(path, "rb", buffering=0) as file:
                    image[path.removeprefix(root)] = file.read()
        return dict(sorted(image.items(), key=lambda file: file[0].split("/")))

    def log(self) -> Iterator[Entry]:
        at = ctypes.POINTER(ctypes.c_char)()
        count = self._library.disk_log(ctypes.byref(at))
        raw, place = ctypes.string_at(at, count), 0
        while place < count:
            what, length, inode, offset = _ENTRY.unpack_from(raw, place)
            place += _ENTRY.size
            yield Entry(what, inode, offset, raw[place : place + length])
            place += length

    def image_after_power_cut(self, chance: Random) -> Image:
        """What the folder may hold when the power was cut. What was synced is there. Of the later changes of
        names, the first ones are, and of the later writes to a file any, some torn at the end of a sector.
        """
        log = list(self.log())
        last_sync = max((place for place, entry in enumerate(log) if entry.what == SYNC), default=-1)
        names_until = chance.randint(last_sync + 1, len(log))
        synced = {entry.inode: place for place, entry in enumerate(log) if entry.what == SYNC}
        names = dict(self._inodes)
        contents = {inode: bytearray(self._before[name]) for name, inode in names.items()}
        inodes = dict.fromkeys(entry.inode for entry in log)
        loses = {inode: chance.choice(("nothing", "all", "the last", "any", "one")) for inode in inodes}
        for entry in log:  # A lost write of a stream is the hardest to notice.
            if entry.what == CREATE and entry.content.endswith(b".zst\0") and chance.random() < 0.5:
                loses[entry.inode] = "one"
        lost = {*inodes}  # which lose one write yet, if they lose one
        ends = {inode: chance.randint(synced.get(inode, -1) + 1, len(log)) for inode in loses}
        for place, entry in enumerate(log):
            if entry.what in (CREATE, RENAME, REMOVE, LINK):
                if entry.what == CREATE:
                    contents.setdefault(entry.inode, bytearray())
                if place >= names_until:
                    continue
                name, _, other = entry.content.decode().partition("\0")
                if entry.what == RENAME:
                    for one in [one for one in names if one == name or one.startswith(f"{name}/")]:
                        names[other + one[len(name) :]] = names.pop(one)
                elif entry.what == REMOVE:
                    names.pop(name, None)
                else:
                    names[name] = entry.inode
            elif entry.what in (WRITE, TRUNCATE):
                written = entry.content
                if place > synced.get(entry.inode, -1):
                    how = loses[entry.inode]
                    if how == "all" or (how == "the last" and place >= ends[entry.inode]):
                        continue
                    if how == "one" and entry.inode in lost and place >= ends[entry.inode]:
                        lost.discard(entry.inode)
                        continue
                    if how == "any":
                        drawn = chance.random()
                        if drawn < 0.4:
                            continue
                        if drawn < 0.6 and len(written) > SECTOR:
                            written = written[: SECTOR * chance.randint(0, len(written) // SECTOR)]
                content = contents.setdefault(entry.inode, bytearray())
                if entry.what == TRUNCATE:
                    del content[entry.place :]
                    content.extend(bytes(entry.place - len(content)))
                else:
                    content.extend(bytes(max(entry.place - len(content), 0)))
                    content[entry.place : entry.place + len(written)] = written
        if self.is_strict:
            names = self._names_synced(log, chance)
        return {name: bytes(contents.get(inode, b"")) for name, inode in names.items()}

    def _names_synced(self, log: list[Entry], chance: Random) -> dict[str, int]:
        """The names of files that a power cut leaves: in each folder, those changes before its last sync, and the
        first ones of the others."""
        now, safe = _Tree(self._folders, self._inodes), _Tree(self._folders, self._inodes)
        changes: dict[int, list[int]] = {}
        edits: dict[int, list[tuple[int, str, int | None]]] = {}
        synced: dict[int, int] = {}
        for place, entry in enumerate(log):
            if entry.what == SYNC:
                synced[entry.inode] = place
            elif entry.what in (CREATE, RENAME, REMOVE, FOLDER, LINK):
                edits[place] = now.edits(entry)
                now.change(edits[place])
                for folder in {folder for folder, _, _ in edits[place]}:
                    changes.setdefault(folder, []).append(place)
        lost = set[int]()
        for folder, places in changes.items():
            rest = [place for place in places if place > synced.get(folder, -1)]
            lost.update(rest[chance.randint(0, len(rest)) :])
        for place, some in edits.items():
            if place not in lost:
                safe.change(some)
            if log[place].what == FOLDER:
                safe.knows(log[place].inode)
        return dict(safe.files())


class _Tree:
    """Folders by their inodes: what each of their names stands for."""

    def __init__(self, folders: dict[str, int], files: dict[str, int]) -> None:
        self._root = folders[""]
        self._names: dict[int, dict[str, int]] = {inode: {} for inode in folders.values()}
        for path, inode in [*folders.items(), *files.items()]:
            if path:
                parent, _, name = path.rpartition("/")
                self._names[folders[parent]][name] = inode

    def _of(self, path: str) -> tuple[int, str]:
        *parents, name = path.split("/")
        folder = self._root
        for parent in parents:
            folder = self._names[folder][parent]
        return folder, name

    def edits(self, entry: Entry) -> list[tuple[int, str, int | None]]:
        """What a change means: which name in which folder stands for what from then on. None: for nothing."""
        path, _, other = entry.content.decode().partition("\0")
        folder, name = self._of(path)
        if entry.what == RENAME:
            return [(folder, name, None), (*self._of(other), self._names[folder].get(name))]
        if entry.what == FOLDER:
            self.knows(entry.inode)
        return [(folder, name, None if entry.what == REMOVE else entry.inode)]

    def knows(self, folder: int) -> None:
        self._names.setdefault(folder, {})

    def change(self, edits: list[tuple[int, str, int | None]]) -> None:
        for folder, name, inode in edits:
            if inode is None:
                self._names.setdefault(folder, {}).pop(name, None)
            else:
                self._names.setdefault(folder, {})[name] = inode

    def files(self, folder: int | None = None, path: str = "") -> Iterator[tuple[str, int]]:
        """The files and their inodes by their paths."""
        for name, inode in self._names.get(self._root if folder is None else folder, {}).items():
            if inode in self._names:
                yield from self.files(inode, f"{path}{name}/")
            else:
                yield f"{path}{name}", inode


def with_flips(image: Image, chance: Random, names: str) -> Image:
    """The same files, with one to three bits of one of them changed. `names`: what its name contains."""
    of = [name for name, content in image.items() if names in name and content]
    if not of:
        return image
    name = chance.choice(sorted(of))
    content = bytearray(image[name])
    places = {
        below: [found.start() for found in re.finditer(part, content)] for below, part in _READ_AGAIN.items()
    }
    for _ in range(chance.randint(1, 3)):
        # Most of a journal's bytes are nothing, or of rows that nobody reads again.
        drawn = chance.random() if places[0.5] else 1.0
        of = next((of for below, of in places.items() if drawn < below), [])
        at = chance.choice(of) + chance.randrange(30) if of else len(content)
        content[at if at < len(content) else chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return {**image, name: bytes(content)}
