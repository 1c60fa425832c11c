"""An index of an older format, made one of today's."""

from __future__ import annotations

from pathlib import Path

from pyfast.corpus import storage
from pyfast.files import built_aside, link_file, link_folder
from pyfast.retrieval.manifest import VERSION, format_version, read_manifest, write_manifest

# What had another name in format 3.
_FOLDERS = {"lexical": "bm25", "lines": "rendered_passages"}
_FACTS = {"units": "passages"}
_PARAMETERS = {"lexical": "bm25"}
_SEALED = ("format", "version", "files")  # of a manifest: written by `write_manifest`


def upgrade_index(folder: Path) -> bool:
    """Convert an index, to the byte, to what building it anew would make; False where its format is today's.

    The new folder is built aside, with hard links to what stays, and renamed; what the manifest does not cover,
    `knowledge` above all, is carried along as it is. Raises `IndexFormatError` for a folder that is no index, is
    damaged, or of a format that is too old or too new; then nothing has changed.
    """
    folder = folder.resolve()  # a link is to stay one
    version = format_version(folder)
    if version == VERSION["index"]:
        return False
    manifest = read_manifest(folder, version=version)
    covered = {name.split("/")[0] for name in manifest["files"]} | {"manifest.json"}
    with built_aside(folder) as aside:
        for path in folder.iterdir():
            if path.name in covered and path.name != "manifest.json":
                _link(path, aside / _FOLDERS.get(path.name, path.name))
        storage.upgrade(aside / "corpus")
        facts = {_FACTS.get(name, name): fact for name, fact in manifest.items() if name not in _SEALED}
        facts["parameters"] = {_PARAMETERS.get(name, name): value for name, value in facts["parameters"].items()}
        write_manifest(aside, facts)
        for path in folder.iterdir():
            if path.name not in covered:
                _link(path, aside / path.name)
    return True


def _link(path: Path, target: Path) -> None:
    if path.is_symlink():
        target.symlink_to(path.readlink())
    elif path.is_dir():
        link_folder(path, target)
    else:
        link_file(path, target)
