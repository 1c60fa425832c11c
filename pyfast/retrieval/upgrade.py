"""Convert an index of an older format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyfast.corpus import Corpus, storage
from pyfast.files import built_aside, link_file, link_folder
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.building import write_index
from pyfast.retrieval.forward_index import Mask
from pyfast.retrieval.manifest import PARTS, VERSION, format_version, read_manifest
from pyfast.retrieval.passage_size import PassageSize
from pyfast.retrieval.passage_vectors import PassageVectors, join_vectors

_CORPORA = {3: "pyfast corpus 2", 4: "pyfast corpus 3", 5: "pyfast corpus 3", 6: "pyfast corpus 4"}
"""The format of the corpus in each older format of an index"""
_FIRST_WITH_PARTS = 6


def upgrade_index(folder: Path) -> bool:
    """Convert an index of an older format: build it again in the current format from its own documents.

    Returns False if the index already has the current format.

    The function builds the new index in a folder next to the old one. The new folder then gets the name of
    the old one. The new index has one commit, with the number of the old index's last commit. Earlier commits
    and deleted documents are left out. Other content, such as `knowledge`, moves to the new index by hard
    links. Raises `IndexFormatError`, without any change, if the folder is not an index, is damaged, or has a
    format that is too old or too new.
    """
    folder = folder.resolve()  # If the folder is a link, it stays a link.
    version = format_version(folder)
    if version == VERSION["index"]:
        return False
    manifest = read_manifest(folder, version=version)
    parameters = manifest.get("parameters", {})
    entries = manifest["parts"] if version >= _FIRST_WITH_PARTS else []
    places = [folder / PARTS / entry["name"] for entry in entries] or [folder]
    corpora = [Corpus(*storage.read(place / "corpus", _CORPORA[version])) for place in places]
    live = [_live(folder, entry) for entry in entries] or [corpora[0].level[corpora[0].roots] >= 0]
    documents = (
        corpus.document(source)
        for corpus, some in zip(corpora, live, strict=True)
        for source in some.nonzero()[0].tolist()
    )
    covered = {name.split("/")[0] for name in manifest["files"]} | {"manifest.json", "commits"}
    with built_aside(folder) as aside:
        write_index(
            documents,
            aside,
            PassageSize.of(parameters),
            parameters.get("vectors"),
            Analysis.of(parameters),
            manifest.get("commit", 1),
            _vectors(places, corpora, live),
        )
        for path in folder.iterdir():
            if path.name not in covered:
                _link(path, aside / path.name)
    return True


def _vectors(places: Sequence[Path], corpora: Sequence[Corpus], live: Sequence[Mask]) -> dict[str, PassageVectors]:
    """Return the old vectors of the passages that are not deleted. They stay valid, because the texts do not
    change.
    """
    kept = [some[corpus.source[corpus.passages()]] for corpus, some in zip(corpora, live, strict=True)]
    return join_vectors([_old_vectors(place) for place in places], kept)


def _live(folder: Path, entry: Mapping[str, Any]) -> Mask:
    """Return which documents of a part in format 6 are not deleted (bool[documents])."""
    if entry["deleted"] is None:
        return np.ones(entry["documents"], bool)
    live: Mask = np.load(folder / entry["deleted"], allow_pickle=False) == 0
    return live


def _old_vectors(place: Path) -> dict[str, PassageVectors]:
    """Return the vectors in a part of an index in format 6."""
    vectors: dict[str, PassageVectors] = {}
    if (place / "dense").is_dir():
        vectors["dense"] = np.load(place / "dense" / "vectors.npy", mmap_mode="r", allow_pickle=False)
    if (place / "sparse").is_dir():
        indptr, indices, data, columns = (
            np.load(place / "sparse" / f"{name}.npy", allow_pickle=False)
            for name in ("indptr", "indices", "weights", "columns")
        )
        vectors["sparse"] = csr_array((data, indices, indptr), shape=(len(indptr) - 1, int(columns)))
    return vectors


def _link(path: Path, target: Path) -> None:
    if path.is_symlink():
        target.symlink_to(path.readlink())
    elif path.is_dir():
        link_folder(path, target)
    else:
        link_file(path, target)
