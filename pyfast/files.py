"""Files and folders that appear complete or not at all: written aside, brought to the disk, renamed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from pyfast.errors import InputError


def write_atomically(path: Path, content: bytes | str, durable: bool = False) -> None:
    """Write a file: whatever ends the process, it is as it was or as it is to be. Text is written as UTF-8.

    Args:
        path: the file; its folder is there.
        content: all of it.
        durable: return only when it would outlive a power cut.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    with written_aside(path, durable) as aside:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def written_aside(path: Path, durable: bool = False) -> Iterator[Path]:
    """A free name beside `path`, for a library that writes by name; renamed to `path` when the block ends.

    Where the block fails, what it wrote is removed. `durable` is as in `write_atomically`.
    """
    aside = _aside(path, "new")
    try:
        yield aside
        if durable:
            sync_to_disk(aside)
        aside.rename(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_to_disk(path.parent)


@contextlib.contextmanager
def built_aside(folder: Path) -> Iterator[Path]:
    """A new, empty folder beside `folder`, which takes its place when the block ends; what was there is removed.

    Where the block fails, all is as it was. A process that is killed between the two renames leaves the old folder
    and the new one, both whole, under names of their own; the next call begins the new one again. Raises
    `InputError` where no folder can be made there, and where another process is making it.
    """
    aside = folder.with_name(f".{folder.name}.building")
    new_parents = [parent for parent in aside.parents if not parent.exists()]
    try:
        held = _only_here(aside)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    if held is None:
        raise InputError(f"{folder}: another process is building it")
    try:
        for rest in aside.iterdir():  # of a process that was killed
            shutil.rmtree(rest) if rest.is_dir() and not rest.is_symlink() else rest.unlink()
        yield aside
        if folder.exists():
            old = free_name(folder, "old")
            folder.rename(old)
            try:
                aside.rename(folder)
            except BaseException:
                old.rename(folder)
                raise
            sync_to_disk(folder.parent)
            shutil.rmtree(old)
        else:
            aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        for parent in new_parents:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise
    finally:
        os.close(held)


def _only_here(folder: Path) -> int | None:
    """The folder, made where it is not there, open and locked for this process; None where another one has it.

    The kernel gives the lock back whatever ends the process.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(folder.stat(), os.fstat(file)):  # else it was renamed or removed meanwhile
                    return file
            except BlockingIOError:
                os.close(file)
                return None
            except BaseException:
                os.close(file)
                raise
            os.close(file)


@contextlib.contextmanager
def only_writer(folder: Path, on_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the right to change what is in a folder; wait while another process has it.

    The kernel gives it back whatever ends the process. `on_waiting` is called where it has to wait.
    """
    while True:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(folder.stat(), os.fstat(file)):  # else it was replaced meanwhile
                yield
                return
        finally:
            os.close(file)


def refuse_links(folder: Path) -> None:
    """Raises `InputError` where a name in the folder is a symbolic link: what is written would go elsewhere."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise InputError(
                    f"{entry.path}: a symbolic link; pyfast writes only into the folder itself: put the file there"
                    " in its place, or give another folder"
                )


def _aside(path: Path, suffix: str) -> Path:
    # By chance and not by the process's number: two containers may share a folder, and have the same numbers.
    return path.with_name(f"{path.name}.{suffix}-{secrets.token_hex(4)}")


def free_name(path: Path, suffix: str) -> Path:
    """`NAME.SUFFIX-1` beside `path`, or the first number that is free."""
    number = 1
    while (free := path.with_name(f"{path.name}.{suffix}-{number}")).exists():
        number += 1
    return free


def sync_to_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, would outlive a power cut."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def link_folder(source: Path, target: Path) -> None:
    """The same files in a second folder, new or empty: by hard links, copied only where there can be none."""
    shutil.copytree(source, target, copy_function=link_file, dirs_exist_ok=True)


def link_file(source: str | Path, target: str | Path) -> None:
    """The same file under a second name, or a copy where there can be no hard link."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
