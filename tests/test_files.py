"""What is written is there whole or not at all, whatever ends the writing; nothing is left beside it."""

import errno
import os
import resource
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from pyfast.errors import InputError
from pyfast.utils.files import built_aside, free_name, link_folder, sync_to_disk, write_atomically, written_aside


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, b"\xff\x00")
    assert path.read_bytes() == b"\xff\x00"
    write_atomically(path, "né\n", durable=True)
    assert path.read_bytes() == "né\n".encode()
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [path, plain]


@pytest.mark.parametrize("content", ["new", "\ud800"])
def test_where_it_fails_the_old_one_stays_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(file: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((OSError, UnicodeEncodeError)):
        write_atomically(path, content, durable=True)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_error_of_a_full_disk_names_the_path(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/a'"):
            if kind == "file":
                write_atomically(path, b"x" * 100)
            else:
                with built_aside(path) as aside:
                    (aside / "b").write_bytes(b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_durable_is_file_then_name_then_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(file: int) -> None:
        fsync(file)
        place = Path(os.readlink(f"/proc/self/fd/{file}"))
        done.append("folder" if place == tmp_path else f"file of {place.stat().st_size}")

    def renamed(path: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    write_atomically(tmp_path / "a", b"123", durable=True)
    assert done == ["file of 3", "rename to a", "folder"]
    done.clear()
    write_atomically(tmp_path / "a", b"123")
    assert done == ["rename to a"]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = [bytes([65 + i]) * 200_000 for i in range(8)]

    def write(content: bytes) -> None:
        for _ in range(20):
            write_atomically(path, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not path.exists() or path.read_bytes() in contents
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_is_built_and_takes_the_place(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "new" / "deep" / "folder"
    if there:
        folder.mkdir(parents=True)
        (folder / "old").write_text("old")
    with built_aside(folder) as aside:
        assert aside.parent == folder.parent and list(aside.iterdir()) == []
        (aside / "a").write_text("a")
        assert folder.exists() == there
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_fails_leaves_what_was(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "new" / "folder"
    if there:
        folder.mkdir(parents=True)
        (folder / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), built_aside(folder) as aside:
        (aside / "a").write_text("a")
        raise KeyboardInterrupt
    assert sorted(path.name for path in tmp_path.rglob("*")) == (["folder", "new", "old"] if there else [])


def test_a_folder_whose_second_rename_fails_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rename = tmp_path / "folder", Path.rename
    folder.mkdir()
    (folder / "old").write_text("old")

    def fails(path: Path, target: Path) -> Path:
        if "building" in path.name:
            raise OSError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no"), built_aside(folder):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "old"]


def test_where_no_folder_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(InputError, match="file/folder cannot be created"),
        built_aside(tmp_path / "file" / "folder"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_killed_writer_is_not_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    child = os.fork()
    if not child:
        with written_aside(path) as aside:
            aside.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    write_atomically(path, "new")
    assert path.read_text() == "new"


def build_for_ever(folder: Path) -> int:
    """A process that builds the folder until it is killed; it has started."""
    begun, says = os.pipe()
    child = os.fork()
    if not child:
        with built_aside(folder) as aside:
            (aside / "half").mkdir()
            (aside / "half" / "a").write_text("half")
            os.write(says, b"!")
            time.sleep(60)
        os._exit(0)
    assert os.read(begun, 1) == b"!"
    os.close(begun)
    os.close(says)
    return child


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_is_built_by_one_process_at_a_time(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "new" / "folder"
    if there:
        folder.mkdir(parents=True)
    child = build_for_ever(folder)
    with pytest.raises(InputError, match="another process is building this folder"), built_aside(folder):
        pass
    with built_aside(tmp_path / "new" / "other"):  # beside it
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with built_aside(folder) as aside:
        assert list(aside.iterdir()) == []
        (aside / "a").write_text("a")
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder", "other"]


def test_many_at_once_build_one_after_the_other(tmp_path: Path) -> None:
    folder, inside, built, refused = tmp_path / "folder", [], [], []

    def build(number: int) -> None:
        for _ in range(50):
            try:
                with built_aside(folder) as aside:
                    inside.append(number)
                    assert len(inside) == 1
                    (aside / "a").write_text(str(number))
                    inside.remove(number)
                    built.append(number)
            except InputError:
                refused.append(number)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) + len(refused) == 300 and built and list(tmp_path.iterdir()) == [folder]


def test_names_count_up(tmp_path: Path) -> None:
    assert free_name(tmp_path / "a.b", "old") == tmp_path / "a.b.old-1"
    (tmp_path / "a.b.old-1").mkdir()
    (tmp_path / "a.b.old-2").write_text("")
    (tmp_path / "a.b.old-4").write_text("")
    assert free_name(tmp_path / "a.b", "old") == tmp_path / "a.b.old-3"


def test_a_folder_is_linked_and_copied_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("c")
    link_folder(tmp_path / "a", tmp_path / "linked")
    assert (tmp_path / "linked" / "b" / "c").samefile(tmp_path / "a" / "b" / "c")

    def across(source: str, target: str) -> None:
        raise OSError("another device")

    monkeypatch.setattr(os, "link", across)
    link_folder(tmp_path / "a", tmp_path / "copied")
    copied = tmp_path / "copied" / "b" / "c"
    assert copied.read_text() == "c" and not copied.samefile(tmp_path / "a" / "b" / "c")
    sync_to_disk(copied)
    sync_to_disk(copied.parent)


@pytest.mark.parametrize("write", [write_atomically, None], ids=["file", "folder"])
def test_a_full_disk_says_what_was_written(write: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system names no file in this error."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        if write is write_atomically:
            write_atomically(tmp_path / "x", b"some")
        else:
            with built_aside(tmp_path / "x") as aside:
                (aside / "part").write_bytes(b"some")
    assert caught.value.filename == str(tmp_path / "x") and not any(tmp_path.iterdir())
