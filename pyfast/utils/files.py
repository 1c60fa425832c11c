"""Write files and folders so that they appear only when they are complete.

Files are written under another name and then renamed. If `durable` is True, they are also synced to the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import resource
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyfast.errors import InputError


def write_atomically(path: Path, content: bytes | str, durable: bool = False) -> None:
    """Write a file as a whole. If the process is killed in the meantime, the old content stays. Text is written as
    UTF-8.

    Args:
        path: The file, in an existing folder.
        content: The whole content.
        durable: Whether to wait until the content is safe from a power cut.

    Raises:
        OSError: The file cannot be written. No partial file is left.
    """
    with written_aside(path, durable) as aside:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def written_aside(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary name next to `path`, for a library that needs the name of the file to write.

    At the end of the `with` block, the temporary file is renamed to `path`. If the block fails, the temporary
    file is removed.

    `durable` is as in `write_atomically`.
    """
    # The suffix is random, because process ids are not unique if two containers share the folder.
    aside = path.with_name(f"{path.name}.new-{secrets.token_hex(4)}")
    try:
        yield aside
        if durable:
            sync_to_disk(aside)
        aside.rename(path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        _name(error, path)
        raise
    if durable:
        sync_to_disk(path.parent)


@contextlib.contextmanager
def built_aside(folder: Path, unfinished: str | None = None) -> Iterator[Path]:
    """Yield a new, empty folder for the `with` block to fill.

    When the `with` block ends, the new folder replaces `folder`, and the old content is removed. If the block
    fails, `folder` does not change.

    `unfinished` names a file that marks unfinished work. If the block fails or the process is killed while the new
    folder contains this file, the folder is kept, and the next call yields it with its content.

    At the end of the block, a first rename moves `folder` away, and a second one gives its name to the new folder.
    If the process is killed between them, both folders are still complete, under other names, and the next call
    empties the new folder and starts again. Raises `InputError` if the folder cannot be made, or if another
    process is making it.
    """
    aside = folder.with_name(f".{folder.name}.building")
    new_parents = [parent for parent in aside.parents if not parent.exists()]

    def refuse() -> None:
        raise InputError(f"{folder}: another process is building this folder")

    with contextlib.ExitStack() as held:
        try:
            held.enter_context(only_writer(aside, refuse, made=True))
        except OSError as error:
            raise InputError(f"{folder} cannot be created: {error.strerror}") from None
        try:
            continues = unfinished is not None and (aside / unfinished).is_file()
            for rest in () if continues else aside.iterdir():  # A killed process may have left these files.
                shutil.rmtree(rest) if rest.is_dir() and not rest.is_symlink() else rest.unlink()
            yield aside
            old = free_name(folder, "old") if folder.exists() else None
            if old is not None:
                folder.rename(old)
            try:
                aside.rename(folder)
            except BaseException:
                if old is not None:
                    old.rename(folder)
                raise
            sync_to_disk(folder.parent)
            if old is not None:
                shutil.rmtree(old)
        except BaseException as error:
            _name(error, folder)
            if unfinished is None or not (aside / unfinished).is_file():
                shutil.rmtree(aside, ignore_errors=True)
            for parent in new_parents:
                with contextlib.suppress(OSError):
                    parent.rmdir()
            raise


def _name(error: BaseException, path: Path) -> None:
    """Add the path to an OS error that names none, such as that of a write to a full disk."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = str(path)


def wait_while_replaced(folder: Path, seconds: float = 1.0) -> None:
    """If a folder is missing because `built_aside` is just replacing it, wait for it, at most `seconds`."""
    until = time.monotonic() + seconds
    while not folder.is_dir() and any(folder.parent.glob(f"{glob.escape(folder.name)}.old-*")):
        if time.monotonic() > until:  # The process was killed between the two renames.
            return
        time.sleep(0.001)


@contextlib.contextmanager
def only_writer(folder: Path, on_waiting: Callable[[], None], *, made: bool = False) -> Iterator[None]:
    """Lock a folder, so that only this process may change it. If another process holds the lock, call
    `on_waiting` and then, unless that raised an error, wait.

    `made`: create a missing folder first, and raise `OSError` if its name is a link. The operating system releases
    the lock when the process ends, even if it is killed.
    """
    links = os.O_NOFOLLOW if made else 0
    while True:
        if made:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | links)
        except FileNotFoundError:
            if not made:
                raise
            continue  # Another process has just removed it.
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            # If this is false, the folder was renamed or removed in the meantime.
            if folder.exists() and os.path.samestat(folder.stat(), os.fstat(file)):
                yield
                return
        finally:
            os.close(file)


def refuse_links(folder: Path) -> None:
    """Raise `InputError` if a name in the folder is a symbolic link.

    Writing to a link would change a file outside the folder.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise InputError(
                    f"{entry.path} is a symbolic link, but pyfast writes only into the folder itself: replace"
                    " the link with the file, or use another folder"
                )


def allow_open_files(count: int) -> None:
    """Raise this process's limit on open files to leave room for `count` more than usual, as far as the system's
    hard limit permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 1024
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def free_name(path: Path, suffix: str) -> Path:
    """Find a free name next to `path`: `NAME.SUFFIX-1`, `NAME.SUFFIX-2` and so on."""
    number = 1
    while (free := path.with_name(f"{path.name}.{suffix}-{number}")).exists():
        number += 1
    return free


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they do not exist, and sync the names of new folders to disk, so that they
    survive a power cut."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        sync_to_disk(folder.parent)


def sync_to_disk(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk, so that they survive a power cut."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def link_folder(source: Path, target: Path) -> None:
    """Make hard links to the files of a folder in a second folder. If links are impossible, copy the files."""
    shutil.copytree(source, target, copy_function=link_file, dirs_exist_ok=True)


def link_file(source: str | Path, target: str | Path) -> None:
    """Give a file a second name by a hard link. If links are impossible, copy the file."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
