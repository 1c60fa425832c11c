"""The manifest: a file in the folder of an index with the format, its number, and the size of every other
file.

For most files, the manifest also has a checksum. For a file of a part, the checksums of its blocks are in
another file of the part. The manifest is written last and checked first. The folder of the knowledge graph
has its own manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.errors import IndexFormatError, of_another_build
from pyfast.retrieval.part_files import Mask
from pyfast.utils.blocks import CHECKSUMS, MappedFolder
from pyfast.utils.files import sync_to_disk, wait_while_replaced, written_aside

VERSION = {"index": 1, "knowledge": 1}
"""The number of each format"""
_NAME = "manifest.json"
PARTS, DELETED, COMMITS = "parts", "deleted", "commits"
"""The names of three folders in an index: for its parts, for the marks of deleted documents, and for the
manifests of its commits
"""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, partial(blake2b, digest_size=16)).hexdigest()


def write_manifest(
    folder: Path, facts: dict[str, Any], kind: str = "index", before: Path | None = None
) -> dict[str, Any]:
    """Write the manifest of `folder`: `facts`, and an entry for each file (see `_entry`). The files are
    synced to the disk.

    `before` is an earlier folder of the same kind. For a file that is a hard link to a file of `before`, the
    entry comes from the manifest of `before`. Returns the manifest.
    """
    known = {} if before is None else json.loads((before / _NAME).read_text(encoding="utf-8"))["files"]
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        is_known = before is not None and name in known and path.samefile(before / name)
        files[name] = known[name] if is_known else _entry(path, name)
    manifest = {**_format(kind), **facts, "files": files}
    (folder / _NAME).write_text(_sealed(manifest), encoding="utf-8")
    for path in (*folder.rglob("*"), folder):
        sync_to_disk(path)
    return manifest


def _format(kind: str) -> dict[str, Any]:
    return {"format": f"pyfast-{kind}", "format_version": VERSION[kind]}


def _entry(path: Path, name: str) -> dict[str, Any]:
    """Return the entry of a file in the manifest: its size, and its checksum. For a file of a part, only its
    size: the checksums of its blocks are in another file of the part.
    """
    size = {"bytes": path.stat().st_size}
    has_blocks = name.startswith(f"{PARTS}/") and path.name != CHECKSUMS
    return size if has_blocks else {**size, "blake2b": _digest(path)}


def live_documents(folder: Path, entry: Mapping[str, Any]) -> Mask:
    """Return for each document of a part whether it is not deleted: bool[documents]. `entry` describes the part in
    the manifest.
    """
    if entry["deleted"] is None:
        return np.ones(entry["documents"], bool)
    bits = np.fromfile(folder / entry["deleted"], np.uint8)
    if len(bits) != -(-entry["documents"] // 8):
        raise IndexFormatError(f"{folder}: {entry['deleted']} does not match its part; build the index again")
    return np.unpackbits(bits, count=entry["documents"]) == 0


def map_part(folder: Path, manifest: dict[str, Any], name: str) -> MappedFolder:
    """Memory-map the files of a part. Raises `IndexFormatError` if a file is missing."""
    beginning = f"{PARTS}/{name}/"
    check_file(folder, manifest, beginning + CHECKSUMS)
    files = manifest["files"].items()
    sizes = {file.removeprefix(beginning): it["bytes"] for file, it in files if file.startswith(beginning)}
    return MappedFolder(folder / PARTS / name, sizes)


def _sealed(manifest: dict[str, Any]) -> str:
    """Return the text of the manifest, which also has a checksum of the manifest itself."""
    digest = blake2b(json.dumps(manifest).encode(), digest_size=16).hexdigest()
    return json.dumps({**manifest, "blake2b": digest}, indent=1) + "\n"


def state_of(folder: Path) -> tuple[int, int] | None:
    """Return, within microseconds, a value that changes with each commit of an index. None: there is no manifest,
    for example because the index is being replaced."""
    try:
        found = (folder / _NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def is_index(folder: Path) -> bool:
    """Whether the folder has a manifest. The index can still be damaged."""
    return (folder / _NAME).is_file()


def write_commit(
    folder: Path, before: dict[str, Any], facts: dict[str, Any], added: Iterable[Path], removed: Sequence[str] = ()
) -> dict[str, Any]:
    """Make a new commit the current commit of an index. All files of the new commit are synced to the disk
    first.

    Args:
        folder: The index.
        before: The manifest of the previous commit. For the first commit, one without files.
        facts: The contents of the new manifest. The key `commit` contains the number of the new commit.
        added: New files, and folders with new files.
        removed: The files that the new commit no longer has: names, or beginnings of names, such as
            `parts/3/`. The files stay on the disk for earlier commits.

    Returns:
        The new manifest.
    """
    files = {name: entry for name, entry in before["files"].items() if not name.startswith(tuple(removed))}
    written: set[Path] = set()
    for path in added:
        below = [path, *path.rglob("*")]
        names = {one.relative_to(folder).as_posix(): one for one in below if one.is_file()}
        files |= {name: _entry(one, name) for name, one in names.items()}
        written.update(below, [path.parent])
    manifest = {**_format("index"), **facts, "files": dict(sorted(files.items()))}
    text = _sealed(manifest)
    commit = folder / COMMITS / f"{facts['commit']}.json"
    commit.parent.mkdir(exist_ok=True)
    with written_aside(commit) as aside:
        aside.write_bytes(text.encode())
        _sync_all((*written, aside))
    with written_aside(folder / _NAME) as aside:
        aside.write_bytes(text.encode())
        _sync_all((aside, commit.parent))
    sync_to_disk(folder)
    return manifest


def _sync_all(paths: Sequence[Path]) -> None:
    """Sync all files and folders in parallel, because the file system can then write them together."""
    with ThreadPoolExecutor(min(len(paths), 16)) as threads:
        list(threads.map(sync_to_disk, paths))


def read_manifest(
    folder: Path, kind: str = "index", commit: int | None = None, check: bool = True
) -> dict[str, Any]:
    """Read the manifest of an index, or of a knowledge graph in an index.

    Args:
        folder: The folder of the index or knowledge graph.
        kind: `index` or `knowledge` (a knowledge graph).
        commit: For an index, the number of an earlier commit. None: the current commit.
        check: Whether to check the files too. Files outside of the parts are compared with their checksums.
            Of the files of a part, only the size is checked here. `map_part` opens them, and compares their
            checksums when they are read.

    Raises:
        IndexFormatError: The folder is damaged, incomplete, or of another kind.
        OtherBuildError: The folder has another format.
    """
    file = _NAME if commit is None else f"{COMMITS}/{commit}.json"
    try:
        text, manifest = _parse(folder, kind, file)
    except IndexFormatError:
        # A folder that is replaced is missing for a moment.
        wait_while_replaced(folder)
        text, manifest = _parse(folder, kind, file)
    manifest.pop("blake2b", None)
    if _sealed(manifest) != text:
        raise IndexFormatError(f"{folder}: {_NAME} is damaged (wrong checksum); build the {kind} again")
    if not check:
        return manifest
    with ThreadPoolExecutor() as threads:
        faults = threads.map(lambda file: _fault(folder / file[0], file[1]), manifest["files"].items())
        for name, fault in zip(manifest["files"], faults, strict=True):
            if fault:
                raise IndexFormatError(f"{folder}: {name} is {fault}; build the {kind} again")
    return manifest


def check_file(folder: Path, manifest: dict[str, Any], name: str) -> None:
    """Compare one file with its checksum. Raises `IndexFormatError` if the file is missing or damaged."""
    if fault := _fault(folder / name, manifest["files"].get(name, {})):
        raise IndexFormatError(f"{folder}: {name} is {fault}; build the index again")


def commit_numbers(folder: Path) -> list[int]:
    """Return the numbers of the commits (versions of the index) that exist, the oldest first."""
    numbers = sorted(int(path.stem) for path in (folder / COMMITS).glob("*.json") if path.stem.isdecimal())
    current = int(read_manifest(folder, check=False)["commit"]) if numbers else 0
    # A later commit comes from a process that was killed before making it current.
    return [number for number in numbers if number <= current]


def _parse(folder: Path, kind: str, file: str) -> tuple[str, dict[str, Any]]:
    """Return (the text of the manifest, its content). Checksums are not compared.

    Raises `IndexFormatError` if the manifest cannot be read or is of another kind, and `OtherBuildError` if it
    has another format.
    """
    make = f"index SOURCE --out {folder}" if kind == "index" else f"knowledge build {folder.parent.parent}"
    if not folder.is_dir():
        raise IndexFormatError(f"{folder}: there is no {kind} folder; make one with `pyfast {make}`")
    if not is_index(folder):
        raise IndexFormatError(f"{folder} is not a pyfast {kind} (it has no {_NAME})")
    try:
        text = (folder / file).read_text(encoding="utf-8")
        manifest = json.loads(text)
        format_, found = manifest["format"], manifest.get("format_version")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IndexFormatError(f"{folder}: {file} is damaged or missing; build the {kind} again") from error
    if format_ != f"pyfast-{kind}":
        raise IndexFormatError(f"{folder} is not a pyfast {kind}: its format is {format_!r}")
    if found != VERSION[kind]:
        how = " --overwrite`" if kind == "index" else "`, after you remove the folder `knowledge` there"
        raise of_another_build(folder, found, VERSION[kind], f"build it again with `pyfast {make}{how}")
    return text, manifest


def _fault(path: Path, expected: dict[str, Any]) -> str | None:
    if not path.is_file() or not expected:
        return "missing"
    if path.stat().st_size != expected["bytes"]:
        return "damaged (wrong size)"
    if "blake2b" in expected and _digest(path) != expected["blake2b"]:
        return "damaged (wrong checksum)"
    return None
