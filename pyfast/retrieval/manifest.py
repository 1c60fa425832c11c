"""What an index folder holds: format, version and the checksum of every file. Written last, checked first."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pyfast.errors import IndexFormatError

FORMAT = "pyfast-index"
VERSION = 3
_NAME = "manifest.json"


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Describe all files below `folder`; `facts` are kept beside their checksums."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "blake2b": _digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    manifest = {"format": FORMAT, "version": VERSION, **facts, "files": files}
    (folder / _NAME).write_text(_sealed(manifest), encoding="utf-8")


def _sealed(manifest: dict[str, Any]) -> str:
    """The text of the manifest, with its own checksum in it."""
    digest = blake2b(json.dumps(manifest).encode(), digest_size=16).hexdigest()
    return json.dumps({**manifest, "blake2b": digest}, indent=1) + "\n"


def is_index(folder: Path) -> bool:
    """Whether the folder looks like an index; says nothing about its health."""
    return (folder / _NAME).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The facts of a whole and undamaged index. Raises `IndexFormatError` for anything else."""
    if not folder.is_dir():
        raise IndexFormatError(
            f"{folder}: no such index folder; make one with `pyfast index SOURCE --out {folder}`"
        )
    if not is_index(folder):
        raise IndexFormatError(f"{folder}: not a pyfast index (it has no {_NAME})")
    try:
        text = (folder / _NAME).read_text(encoding="utf-8")
        manifest = json.loads(text)
        format_, version = manifest["format"], manifest["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IndexFormatError(f"{folder}: {_NAME} is damaged; build the index again") from error
    if format_ != FORMAT or version != VERSION:
        raise IndexFormatError(f"{folder}: format {format_} {version}, this pyfast reads {FORMAT} {VERSION}")
    manifest.pop("blake2b", None)
    if _sealed(manifest) != text:
        raise IndexFormatError(f"{folder}: {_NAME} is damaged (checksum); build the index again")
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise IndexFormatError(f"{folder}: {name} is missing; build the index again")
        if path.stat().st_size != expected["bytes"] or _digest(path) != expected["blake2b"]:
            raise IndexFormatError(f"{folder}: {name} is damaged (checksum); build the index again")
    return dict(manifest)
