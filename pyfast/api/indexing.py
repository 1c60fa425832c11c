"""`pyfast.build_index` and `pyfast.open_index`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyfast.corpus import Document, Reader, read
from pyfast.corpus.jsonl_documents import document_of
from pyfast.retrieval import Index, Retriever
from pyfast.retrieval import build_index as build

Source = str | Path | Document | Mapping[str, Any]
_LOG = logging.getLogger("pyfast")


def build_index(
    documents: Source | Iterable[Source],
    out: str | Path,
    *,
    overwrite: bool = False,
    readers: Iterable[Reader | str] = (),
) -> Index:
    """Build the index of a corpus in a folder, and open it.

    Args:
        documents: Paths of files and folders; or documents: `pyfast.corpus` values, or mappings with the fields of
            a `.jsonl` line, such as `{"id": ..., "title": ..., "text": ...}`; one, or any iterable of them.
        out: The folder to make. It appears whole or not at all.
        overwrite: Replace an index that is there; its knowledge graph stays.
        readers: Readers of file formats, tried before the installed ones: `pyfast.corpus.Reader`s, or
            `MODULE:NAME`.

    Returns:
        The index.

    Raises:
        InputError: A source cannot be read, `out` exists already, or there is nothing to retrieve.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> index.manifest["passages"]
        1
    """
    skipped: list[Path] = []
    index = build(_documents(documents, skipped, tuple(readers)), Path(out), overwrite)
    for path in skipped:
        _LOG.warning("skipped %s: no reader is for such a file", path)
    return index


def open_index(path: str | Path, retriever: str | Callable[[Index], Retriever] = "bm25") -> Index:
    """Open an index.

    Args:
        path: A folder that `build_index` made.
        retriever: What its `search` uses: the name of a retriever, `MODULE:NAME`, or a function of the index that
            returns one.

    Returns:
        The index; its large files are memory-mapped.

    Raises:
        IndexFormatError: The folder holds no index, one of another version, or a damaged one.
        InputError: There is no such retriever.

    Example:
        >>> import pyfast
        >>> index = pyfast.open_index("IDX")
        >>> index.text(int(index.search(["moon of Saturn"], 1)[0].passages[0]))
        'Titan: It is a moon of Saturn.'
    """
    return Index(Path(path), retriever)


def index_of(given: Index | str | Path) -> Index:
    """The index that a caller gave, opened if it is a folder."""
    return Index(Path(given)) if isinstance(given, str | Path) else given


def _documents(
    given: Source | Iterable[Source], skipped: list[Path], readers: tuple[Reader | str, ...]
) -> Iterator[Document]:
    """The documents: neighbouring paths are read together, for their uris depend on one another."""
    paths: list[Path] = []
    number = 0
    for source in [given] if isinstance(given, str | Path | Document | Mapping) else given:
        if isinstance(source, str | Path):
            paths.append(Path(source))
            continue
        yield from read(paths, skipped, readers)
        paths = []
        number += 1
        yield document_of(source, f"document {number}") if isinstance(source, Mapping) else source
    yield from read(paths, skipped, readers)
