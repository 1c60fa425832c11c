"""Convert an index of an older format."""

from __future__ import annotations

from pathlib import Path

from pyfast.corpus import Corpus, storage
from pyfast.files import built_aside, link_file, link_folder
from pyfast.retrieval.index import write_index
from pyfast.retrieval.manifest import VERSION, format_version, read_manifest
from pyfast.retrieval.passage_size import PassageSize

_CORPORA = {3: "pyfast corpus 2", 4: "pyfast corpus 3", 5: "pyfast corpus 3"}
"""For each older format of an index, the format of its corpus"""


def upgrade_index(folder: Path) -> bool:
    """Build an index of an older format again, from its own documents. False if it has the current format.

    The function builds the new folder beside the old one and renames it. Everything that the manifest does not
    list, such as `knowledge`, is kept by hard links. It raises `IndexFormatError` if the folder is not an index,
    is damaged, or has a format that is too old or too new. In that case nothing has changed.
    """
    folder = folder.resolve()  # a link is to stay one
    version = format_version(folder)
    if version == VERSION["index"]:
        return False
    manifest = read_manifest(folder, version=version)
    corpus = Corpus(*storage.read(folder / "corpus", _CORPORA[version]))
    covered = {name.split("/")[0] for name in manifest["files"]} | {"manifest.json"}
    with built_aside(folder) as aside:
        write_index(map(corpus.document, range(corpus.documents)), aside, PassageSize())
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
