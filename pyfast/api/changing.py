"""Add, update and delete the documents of an index. docs/changing.md has examples, and explains what happens
to runs and knowledge graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pyfast.api.indexing import Source, documents_of
from pyfast.corpus import Reader, Unread
from pyfast.corpus.grids import COLUMNS
from pyfast.retrieval import changing
from pyfast.retrieval.changing import Change, IndexInfo


def add_documents(
    index: str | Path,
    documents: Source | Iterable[Source],
    *,
    readers: Iterable[Reader | str] = (),
    columns: int = COLUMNS,
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
) -> Change:
    """Add documents to an index. All documents are added in one commit. After an error, no document is added.

    An `Index` object that is already open keeps its old documents. If you open the index again, it gives exactly
    the same results and scores as an index that was built from all documents at once. While another process
    changes the index, this call waits.

    Args:
        index: The folder of the index.
        documents: As in `build_index`. Their uris must be new.
        readers: As in `build_index`.
        columns: As in `build_index`.
        strict: As in `build_index`.
        on_unread: As in `build_index`.

    Returns:
        The number of the new commit, and the number of added documents.

    Raises:
        InputError: The index already has a document with the uri of a new document. Or a source does not
            exist, or with `strict` cannot be read.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has another format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> pyfast.add_documents("IDX", [{"id": "rhea", "title": "Rhea", "text": "It is one, too."}]).added
        1
    """
    roots = changing.roots_of(Path(index))
    with documents_of(documents, readers, columns, strict, on_unread, roots) as read:
        return changing.add_documents(Path(index), read, roots=roots)


def update_documents(
    index: str | Path,
    documents: Source | Iterable[Source],
    *,
    readers: Iterable[Reader | str] = (),
    columns: int = COLUMNS,
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
) -> Change:
    """Replace documents of an index by new versions, and add new documents. All changes make one commit.

    A given document replaces the document of the index that has the same uri. A file in a folder that was given
    before has the same uri as with this folder: after `build_index("corpus", ...)`, the uri of
    `corpus/moons/titan.md` is always `moons/titan.md`. The new version comes after all
    other documents of the index. If the two documents are equal, the old document stays where it is.

    A file can have several documents, such as its tables. Those that the new version of the file no longer has
    are deleted, unless a part of the file cannot be read. A record with an id of its own stays, and so do the
    documents of a file that is gone: use `delete_documents`.

    Args:
        index: The folder of the index.
        documents: As in `build_index`.
        readers: As in `build_index`.
        columns: As in `build_index`.
        strict: As in `build_index`.
        on_unread: As in `build_index`.

    Returns:
        The number of the commit, and how many documents were added, replaced, deleted, and left unchanged. If
        nothing changed, there is no new commit.

    Raises:
        InputError: A source does not exist, or with `strict` cannot be read.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has another format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> pyfast.update_documents("IDX", [{**titan, "text": "It is the largest moon of Saturn."}]).replaced
        1
    """
    roots = changing.roots_of(Path(index))
    files: set[str] = set()
    with documents_of(documents, readers, columns, strict, on_unread, roots, files) as read:
        return changing.add_documents(Path(index), read, replace=True, roots=roots, files=files)


def delete_documents(index: str | Path, uris: str | Iterable[str]) -> Change:
    """Delete documents of an index. All deletions make one commit.

    Later searches do not return these documents. The words in these documents no longer affect the scores of
    other documents. The text of the deleted documents stays in the index's files until
    `compact_index(..., erase=True)`, because earlier commits still need it.

    Args:
        index: The folder of the index.
        uris: The uris of the documents.

    Returns:
        The number of the new commit, and the number of deleted documents.

    Raises:
        InputError: The index has no document with one of these uris.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has another format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan, {"id": "rhea", "text": "It is one, too."}], "IDX")
        >>> pyfast.delete_documents("IDX", "rhea").deleted
        1
    """
    return changing.delete_documents(Path(index), [uris] if isinstance(uris, str) else list(uris))


def compact_index(index: str | Path, *, erase: bool = False) -> Change:
    """Merge all parts of an index into one part, and leave out the deleted documents.

    Args:
        index: The folder of the index.
        erase: Also remove the earlier commits. Then no part of the index has text of a deleted document. Runs
            that started with an earlier commit can no longer be resumed. Knowledge graphs and runs can still
            contain text of a deleted document: see docs/changing.md.

    Returns:
        The number of the commit. If there was nothing to merge or leave out, it is not a new commit.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has another format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> change = pyfast.compact_index("IDX", erase=True)
        >>> pyfast.describe_index("IDX").commits == (change.commit,)
        True
    """
    return changing.compact_index(Path(index), erase)


def describe_index(index: str | Path) -> IndexInfo:
    """Describe an index: its commit, its documents, its parts, and its size in bytes.

    Args:
        index: The folder of the index.

    Returns:
        The description. The call is fast, because it reads no documents, but only the manifest, the marks of
        deleted documents, and the sizes of files.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has another format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> info = pyfast.describe_index("IDX")
        >>> info.documents, len(info.parts)
        (1, 1)
    """
    return changing.describe_index(Path(index))
