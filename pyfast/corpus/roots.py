"""Remember the files and folders that documents were read from. So a single file of a folder gets the uri that it
got with the whole folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

Root = tuple[str, Literal["folder", "files", "file"]]
"""(an absolute path, what it stands for). `folder`: all files below it. `files`: the files directly in it. `file`:
only this file
"""
Roots = dict[Root, str]
"""For each root, the beginning of the uris of its files. For a `file`, its uri"""


def uri_within(roots: Mapping[Root, str], path: Path) -> str | None:
    """Return the uri that a file has because of a root. None if the file is under no root."""
    if not roots:
        return None
    # The path as it is written comes first: a link in a folder has its uri from its own place.
    for place in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        if (uri := roots.get((place, "file"))) is not None:
            return uri
        folder, below = os.path.split(place)
        if (beginning := roots.get((folder, "files"))) is not None:
            return beginning + below
        while (beginning := roots.get((folder, "folder"))) is None:
            above, name = os.path.split(folder)
            if above == folder:
                break
            folder, below = above, f"{name}/{below}"
        else:
            return beginning + below
    return None


def add_root(roots: Roots, source: Path, prefix: str) -> None:
    """Remember a source, whose uris begin with `prefix`."""
    place = os.path.abspath(source)
    if source.is_dir():
        roots[place, "folder"] = prefix
    elif prefix:
        roots[place, "file"] = prefix + source.name
    else:
        roots[os.path.dirname(place), "files"] = ""


def stored_roots(roots: Mapping[Root, str], index: Path, before: Sequence[Sequence[str]] = ()) -> list[list[str]]:
    """Return the roots for the manifest of an index: path, path relative to the index, kind, beginning of the
    uris. `before` has the roots that the manifest already has."""
    known = known_roots(before, index)
    new = [[path, os.path.relpath(path, index), kind, uri] for (path, kind), uri in roots.items()]
    return [*map(list, before), *(entry for entry in new if (entry[0], entry[2]) not in known)]


def known_roots(stored: Iterable[Sequence[Any]], index: Path) -> Roots:
    """Return the roots in the manifest of an index. If a root and the index were moved together, the root is
    found at its new place."""
    roots: dict[Root, str] = {}
    entries: list[tuple[Any, ...]] = [tuple(entry) for entry in stored]
    absolute = [(path, kind, uri) for path, _, kind, uri in entries]
    beside = [(os.path.normpath(index.resolve() / near), kind, uri) for _, near, kind, uri in entries]
    for path, kind, uri in [*absolute, *beside]:
        for place in (path, os.path.realpath(path)):
            roots.setdefault((place, kind), uri)
    return roots
