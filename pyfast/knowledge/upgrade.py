"""Upgrading the knowledge in an index from formats 1 and 2 to format 3.

In format 1, three files and folders had other names: `triples.sqlite` was `records.sqlite`,
`embeddings.cache` was `computed`, and the folder `extraction` was `reading`. In the table of chunks, the
methods of extraction had other names. Up to format 2, a triple had one key and no strength, and a text had no
themes (phrases that say what the text is about). The upgrade does not change vectors.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from pathlib import Path

from pyfast.engine.run_folder import is_running
from pyfast.errors import IndexFormatError, InputError
from pyfast.files import link_folder, sync_to_disk
from pyfast.knowledge import database
from pyfast.knowledge.extraction import FOLDER
from pyfast.knowledge.extracts import BY_LLM, MERGED, RULE_BASED
from pyfast.knowledge.snapshots import (
    CACHE,
    CURRENT,
    current_number,
    fingerprint,
    lock,
    set_current,
    snapshot_numbers,
)
from pyfast.retrieval.manifest import VERSION, read_manifest, write_manifest, written_version

_METHODS = {"straight": RULE_BASED, "read": BY_LLM, "united": MERGED}
_FILE, _FOLDER, _CACHE = "records.sqlite", "reading", "computed"
_OLD = (1, 2)
_KEYS_APART = (
    "INSERT INTO statement_keys SELECT DISTINCT key, triple, chunk FROM statements",
    "DROP INDEX IF EXISTS by_relation_key",
    "ALTER TABLE statements DROP COLUMN key",
    "ALTER TABLE statements ADD COLUMN strength INTEGER NOT NULL DEFAULT 0",
)
_OWN = ("format", "version", "contents", "files")  # the fields that describe the manifest itself
_log = logging.getLogger("pyfast")


def upgrade_knowledge(folder: Path) -> bool:
    """Convert the knowledge of an index, `INDEX/knowledge`, to format 3, in place.

    The function builds new snapshots in other folders, with hard links to the old files of vectors. One
    rename then makes the newest of them current. If the current snapshot has format 3, it stays unchanged. If
    the process ends early, the knowledge is complete, either in the old format or in the new one. Call the
    function again to finish the upgrade. The previous snapshot and a stopped extraction are converted too.
    Damaged snapshots are not converted.

    Args:
        folder: `INDEX/knowledge`. If it does not exist, nothing happens.

    Returns:
        Whether the function converted anything.

    Raises:
        IndexFormatError: All snapshots are damaged.
        InputError: Another process is working on the extraction.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.knowledge import upgrade_knowledge
        >>> upgrade_knowledge(Path("IDX/knowledge"))  # doctest: +SKIP
    """
    if not folder.is_dir():
        return False
    with lock(folder):
        changed = (folder / CURRENT).is_file() and _upgrade_snapshots(folder)
        for old in sorted(folder.iterdir()):
            if re.fullmatch(rf"{_FOLDER}(\.old-\d+)?", old.name):
                _rename(old, folder / old.name.replace(_FOLDER, FOLDER))
                changed = True
        _rename(folder / _CACHE, folder / CACHE)
    return changed


def _upgrade_snapshots(home: Path) -> bool:
    current = None
    with contextlib.suppress(IndexFormatError):
        current = current_number(home)
    versions = {number: written_version(home / str(number)) for number in snapshot_numbers(home)}
    old = [number for number, version in versions.items() if version in _OLD]
    if not old:
        return False
    if current is None or versions.get(current) != VERSION["knowledge"]:
        whole = [number for number in old if _is_whole(home / str(number)) and number <= (current or number)]
        if not whole:
            raise IndexFormatError(f"{home}: all snapshots are damaged: remove the folder to start again")
        if whole[-1] != current:
            _log.warning("%s is damaged: continuing with snapshot %d", home, whole[-1])
        for number, version in versions.items():
            if version == VERSION["knowledge"]:  # An upgrade that was stopped has left it.
                shutil.rmtree(home / str(number))
        for new, number in enumerate(whole[-2:], start=max(versions) + 1):
            _upgrade_snapshot(home / str(number), home / str(new))
        sync_to_disk(home)
        set_current(home, new)
    for number in snapshot_numbers(home):
        version = written_version(home / str(number))
        if version in _OLD and _is_whole(home / str(number)):
            shutil.rmtree(home / str(number))
        elif version != VERSION["knowledge"]:  # Keep it, because some of it may be readable.
            shutil.rmtree(home / f"{number}.damaged", ignore_errors=True)
            (home / str(number)).rename(home / f"{number}.damaged")
    return True


def _is_whole(snapshot: Path) -> bool:
    with contextlib.suppress(IndexFormatError):
        read_manifest(snapshot, "knowledge", version=written_version(snapshot))
        return True
    return False


def _upgrade_snapshot(old: Path, new: Path) -> None:
    version = written_version(old)
    facts = read_manifest(old, "knowledge", version=version)
    aside = new.with_name(f"{new.name}.building")
    shutil.rmtree(aside, ignore_errors=True)
    link_folder(old, aside)
    # The folder holds links. Remove this one, so that the old manifest is not overwritten.
    (aside / "manifest.json").unlink()
    file = _FILE if version == 1 else database.FILE
    for needless in (aside / file, *aside.glob("*.hashes.npy")):
        needless.unlink()
    shutil.copyfile(old / file, aside / database.FILE)
    with contextlib.closing(database.open_for_writing(aside / database.FILE)) as connection:
        connection.execute("BEGIN")
        for before, now in _METHODS.items():
            connection.execute("UPDATE chunks SET method = ? WHERE method = ?", (now, before))
        for change in _KEYS_APART:
            connection.execute(change)
        connection.execute("COMMIT")
        contents = fingerprint(connection, facts["embedder"])
    kept = {name: value for name, value in facts.items() if name not in _OWN}
    write_manifest(aside, {"contents": contents, **kept}, "knowledge")
    aside.rename(new)


def _rename(old: Path, new: Path) -> None:
    if not old.exists() or new.exists():
        return
    if old.is_dir() and is_running(old):
        raise InputError(f"{old}: another process is working on it")
    old.rename(new)
