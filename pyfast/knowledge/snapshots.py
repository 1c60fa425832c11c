"""The folder of snapshots in the index, one of them current.

A snapshot is never changed. A change makes the next one aside, whole, with the checksums of its files; the file
`current` then names it, in one rename. So whatever ends a process, a power cut too, the store is as it was or as
it was to be. The snapshot before the current one stays for processes that have it open; a run keeps the one that
it was begun with.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyfast.errors import IndexFormatError
from pyfast.knowledge import records, vectors
from pyfast.knowledge.computed import remembering
from pyfast.knowledge.store import RECORDS, SEARCHED, Knowledge
from pyfast.ops.arrays import Float32
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.index import KNOWLEDGE, link_folder
from pyfast.retrieval.manifest import read_manifest, to_disk, write_manifest

_CURRENT, _COMPUTED = "current", "computed"
_NOTED = ("corpus", "chunk_tokens")
"""In a manifest: which documents were read last, and in chunks of what size where a language model read them; None
where none were"""


def has_knowledge(index: Index) -> bool:
    """Whether the index has a store."""
    return (index.folder / KNOWLEDGE / _CURRENT).is_file()


def open_knowledge(index: Index, embedder: Embedder | None = None, begun_with: str | None = None) -> Knowledge:
    """The current snapshot of an index's store; or, for a run that was `begun_with` it, the one before.

    Raises `IndexFormatError` where there is none, or it is damaged.
    """
    home = index.folder / KNOWLEDGE
    number = _current(home)
    store = _open(home, number, embedder)
    if begun_with not in (None, store.fingerprint) and (home / str(number - 1)).is_dir():
        before = Knowledge.open(home / str(number - 1), embedder)
        return before if before.fingerprint == begun_with else store
    return store


def mend(index: Index) -> None:
    """Where the current snapshot is damaged, put it aside, go back to the one before, and say so.

    Raises `IndexFormatError` where that one is not whole.
    """
    home = index.folder / KNOWLEDGE
    if not has_knowledge(index):
        return
    with _alone(home):
        try:
            read_manifest(home / str(_current(home)), "knowledge")
            return
        except IndexFormatError as error:
            damage = error
        snapshots = sorted((int(folder.name) for folder in home.iterdir() if folder.name.isdigit()), reverse=True)
        for place, number in enumerate(snapshots):
            with contextlib.suppress(IndexFormatError):
                read_manifest(home / str(number), "knowledge")
                _name(home, number)
                for broken in snapshots[:place]:
                    aside = home / f"{broken}.damaged"
                    shutil.rmtree(aside, ignore_errors=True)
                    (home / str(broken)).rename(aside)
                print(f"{damage}: going on with snapshot {number}; what it lacks is read again", file=sys.stderr)
                return
        raise IndexFormatError(f"{damage}; no other snapshot is whole: remove {home} to begin anew")


def keep(store: Knowledge, folder: Path) -> Knowledge:
    """The snapshot with its files in a second folder, a run's: there they are, however often the store changes."""
    if folder.is_dir() and folder.samefile(store.folder):
        return store
    shutil.rmtree(folder, ignore_errors=True)
    aside = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(aside, ignore_errors=True)
    aside.parent.mkdir(parents=True, exist_ok=True)
    link_folder(store.folder, aside)
    aside.rename(folder)
    return Knowledge.open(folder, store.embedder)


def change(
    index: Index,
    embedder: Embedder,
    write: Callable[[sqlite3.Connection], None],
    noted: Mapping[str, Any] | None = None,
) -> Knowledge:
    """Make the next snapshot: the records after `write`, and the vectors of what they say; then open it.

    All or nothing; where `write` changes nothing, no new snapshot is made. Vectors that were computed for a change
    that was stopped are there for the next one. One process at a time. `noted` are values of the manifest that are
    others now (see `_NOTED`).
    """
    home = index.folder / KNOWLEDGE
    home.mkdir(exist_ok=True)
    with _alone(home):
        number = _current(home) if (home / _CURRENT).is_file() else 0
        base = _open(home, number) if number else None
        for rest in home.glob("*.building"):  # of a process that was killed
            shutil.rmtree(rest)
        before = {} if base is None else {name: base.manifest.get(name) for name in _NOTED}
        now = {"corpus": index.manifest["corpus"], "chunk_tokens": None, **before, **(noted or {})}
        aside = home / f"{number + 1}.building"
        shutil.rmtree(home / str(number + 1), ignore_errors=True)
        aside.mkdir()
        try:
            contents = _write_records(aside, base, embedder, write)
            if base is not None and base.fingerprint == contents and now == before:
                shutil.rmtree(aside)
                return Knowledge.open(base.folder, embedder)
            _write_vectors(aside, base, embedder, remembering(home / _COMPUTED, embedder))
            facts = {"contents": contents, "embedder": embedder.fingerprint}
            write_manifest(aside, {**facts, **now}, "knowledge")
            aside.rename(home / str(number + 1))
            to_disk(home)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        _point_at(home, number + 1)
        (home / _COMPUTED).unlink(missing_ok=True)
        return Knowledge.open(home / str(number + 1), embedder)


def _write_records(
    aside: Path, base: Knowledge | None, embedder: Embedder, write: Callable[[sqlite3.Connection], None]
) -> str:
    if base is not None:
        shutil.copyfile(base.folder / RECORDS, aside / RECORDS)
    with contextlib.closing(records.connect(aside / RECORDS)) as database:
        database.execute("BEGIN")
        write(database)
        database.execute("COMMIT")
        return f"{records.digest_of(database)}-{embedder.fingerprint}"


def _write_vectors(
    aside: Path, base: Knowledge | None, embedder: Embedder, encode: Callable[[Sequence[str]], Float32]
) -> None:
    fresh = Knowledge(aside, {})
    same = base is not None and base.manifest["embedder"] == embedder.fingerprint
    for name in SEARCHED:
        known = vectors.load(base.folder, name) if base is not None and same else None
        vectors.save(aside, name, vectors.make(fresh.wordings(name), encode, known))


def _open(home: Path, number: int, embedder: Embedder | None = None) -> Knowledge:
    try:
        return Knowledge.open(home / str(number), embedder)
    except IndexFormatError as error:
        raise IndexFormatError(f"{error} (`pyfast knowledge build {home.parent}`)") from None


def _name(home: Path, number: int) -> None:
    """Make a snapshot the current one."""
    aside = home / f"{_CURRENT}.new"
    aside.write_text(f"{number}\n")
    to_disk(aside)
    aside.rename(home / _CURRENT)
    to_disk(home)


def _point_at(home: Path, number: int) -> None:
    _name(home, number)
    for folder in home.iterdir():
        if folder.name.isdigit() and int(folder.name) < number - 1:
            shutil.rmtree(folder)


def _current(home: Path) -> int:
    try:
        return int((home / _CURRENT).read_text())
    except FileNotFoundError:
        raise IndexFormatError(
            f"{home.parent}: holds no knowledge; make it with `pyfast knowledge build {home.parent}`"
        ) from None
    except ValueError:
        raise IndexFormatError(
            f"{home / _CURRENT} is damaged; build the knowledge again (`pyfast knowledge build {home.parent}`)"
        ) from None


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    file = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
