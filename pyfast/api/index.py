"""Build, open, change and describe an index. docs/changing.md gives examples of changes, and explains what happens
to runs and knowledge graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.corpus import Document, Reader, Unread
from pyfast.corpus.formats.files import guessed_encodings, tell_encoding
from pyfast.corpus.grids import COLUMNS
from pyfast.corpus.jsonl_documents import document_of
from pyfast.corpus.readers import NO_READER, DocumentSource, Roots, beginnings_of, has_records
from pyfast.corpus.readers import sources_of as files_of
from pyfast.engine import recorded_value
from pyfast.engine.distributed import connected, spread
from pyfast.errors import InputError
from pyfast.retrieval import BuildProgress, Index, Reranker, Retriever
from pyfast.retrieval import build_index as build
from pyfast.retrieval.index import changes
from pyfast.retrieval.index.changes import Change, DocumentInfo, IndexInfo
from pyfast.retrieval.index.manifest import commit_numbers
from pyfast.retrieval.index.part_maker import PassageSize
from pyfast.retrieval.terms import Analysis
from pyfast.utils.log import LOG
from pyfast.utils.options import HARDWARE_DEFAULTS, INDEX_DEFAULTS, Cluster, Hardware, IndexOptions

Source = str | Path | Document | Mapping[str, Any]


def build_index(
    documents: Source | Iterable[Source],
    out: str | Path,
    *,
    overwrite: bool = False,
    readers: Iterable[Reader | str] = (),
    ignore: str | Iterable[str] = (),
    columns: int = COLUMNS,
    vectors: str | Iterable[str] = (),
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
    on_progress: Callable[[BuildProgress], object] | None = None,
    options: IndexOptions = INDEX_DEFAULTS,
    cluster: Cluster | None = None,
    hardware: Hardware = HARDWARE_DEFAULTS,
) -> Index:
    """Build an index of documents in a folder, and open it.

    Args:
        documents: Paths of files and folders, or documents: one, or an iterable of several. A document is a
            `TextDocument`, `Table` or `KnowledgeGraph` from `pyfast.corpus`, or a mapping with the fields of a
            `.jsonl` line, such as `{"id": ..., "title": ..., "text": ...}`.
        out: The folder to create. It appears only when the index is complete.
        overwrite: Replace an existing index, but keep the knowledge graph in its folder.
        readers: Additional readers of file formats: `pyfast.corpus.Reader` objects, or strings `MODULE:NAME`. They
            take precedence over installed readers of the same files.
        ignore: One or more patterns, such as `*.png`, for files and folders to skip. A pattern is compared with
            the name, and with the path below the given folder, ignoring case. `*` matches any characters,
            including `/`.
        columns: The maximum number of columns in a table. A wider table is split into several, each of which
            begins with its first column, because this column often names the rows.
        vectors: One or more models that encode the passages, for retrievers other than BM25. `"dense"` or
            `"dense:MODEL"`: sentence embeddings. `"dense:openai:MODEL@URL"`: those of a model on a server with
            OpenAI's embeddings API. `"sparse:MODEL"`: learned sparse vectors. `"late"` or `"late:MODEL"`: a vector
            for each token. `"late:MODEL#96"` also sets the number of dimensions (by default 128). `MODEL` is a
            folder or a name on the Hugging Face hub. The same models encode documents added later.
        strict: Stop at the first file that cannot be read, without creating an index.
        on_unread: A function to call at the end, once for each file that could not be read, with the reason. None:
            log a warning for each file.
        on_progress: A function to call with the progress from time to time, and after each part.
        options: The size of passages, what counts as a word, and how much memory to use.
        cluster: Let the workers of a Ray cluster encode the passages. Each worker loads the models that `vectors`
            names. The workers need no access to `out`.
        hardware: Where models encode the passages, such as `Hardware("cuda", "float16")`, and where the returned
            index searches.

    Returns:
        The index.

    Raises:
        InputError: A source does not exist, `out` already exists, the documents contain no passages, a number is
            out of range, or `cluster` is given without `vectors`.
        ModelNotFoundError: A model for the vectors is missing on this machine or on a worker's.
        CallError: A server refuses to encode passages, or its reply is unusable.
        LLMUnavailableError: The server with the model for the vectors is unreachable.
        RunError: Several workers died, one after another, while they encoded the same passages.
        DeviceError: `hardware` names a GPU that torch cannot use.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> index.manifest["passages"]
        1
    """
    size, analysis = PassageSize(options.passage_length, options.passage_overlap), options.part(Analysis)
    encoders = [vectors] if isinstance(vectors, str) else list(vectors)
    if cluster is not None and not encoders:
        raise InputError("ray: can only be used with vectors, because the workers only compute vectors")
    roots: Roots = {}
    with contextlib.ExitStack() as held:
        sources, unread = held.enter_context(
            sources_of(documents, readers, ignore, columns, strict, on_unread, roots)
        )
        encodes = map if cluster is None else partial(spread, held.enter_context(connected(cluster)))
        made_of = size, encoders, analysis, options.memory
        return build(
            sources, Path(out), overwrite, *made_of, unread, on_progress, encodes, roots, hardware, columns
        )


def open_index(
    path: str | Path,
    retriever: str | Callable[[Index], Retriever] = "bm25",
    rerank: str | Callable[[Index], Reranker] = "off",
    filter: str | Sequence[str] = (),
    hardware: Hardware = HARDWARE_DEFAULTS,
) -> Index:
    """Open an index.

    Args:
        path: A folder that `build_index` created.
        retriever: The retriever that `search` uses. `bm25`: BM25. `dense` or `sparse`: the nearest vectors of
            this kind. `late`: BM25 finds the passages, and late interaction rescores them, token by
            token. `late:dense`: late interaction scores the passages that `dense` finds. `dense`, `sparse`
            and `late` need an index with vectors of this kind. `hybrid`: fuses the lists of BM25 and `dense` by
            reciprocal ranks. `hybrid:bm25+sparse`: fuses the lists of these two retrievers in the same way.
            `hybrid:bm25*0.3+dense*0.7`: fuses the lists by weighted scores. You can also give `MODULE:NAME`, or a
            function that takes the index and returns a retriever.
        rerank: The reranker, a model that rescores the best passages of a list. `off`: none. `cross`: a
            cross-encoder (`cross:MODEL` names the model). `late`: late interaction. `both`: `cross` and `late`.
            `http:URL#MODEL`: a model on a server. You can also give `MODULE:NAME`, or a function that takes the
            index and returns a reranker. The systems that search for passages use the reranker; those that read
            only a knowledge graph (such as `mtqa`) or nothing (such as `direct`) do not. Before it reranks for
            `rag`, `hseq`, `subqrag` or `graph_convqa`, pyfast adds linked passages (`bridge_expand`) and ranks by
            `bridge_rank`.
        filter: One or more conditions, such as `source=reports/*`, `level=table_row`, `time>=1990` or
            `meta.author=Sagan|Drake`. Documents that do not meet all of them are left out, as if they were
            deleted. With a condition on `time`, a knowledge graph keeps only the triples that meet the condition.
            The operators are `=`, `!=`, `<`, `<=`, `>`, `>=`. After `=` and `!=`, `*` and `?` are wildcards, and
            `|` separates several values.
        hardware: Where models encode texts and vectors are searched. `Hardware("cuda")`: on the GPU, which also
            keeps the vectors. By default, models run on a GPU if there is one, and searches on the CPU.

    Returns:
        The index. Its large files are memory-mapped. With a filter, the documents that meet it are copied into
        temporary files.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.
        InputError: There is no such retriever or reranker, a condition cannot be read, or no document meets the
            conditions.
        ModelNotFoundError: The model of the retriever or reranker is not on this machine.
        DeviceError: `hardware` names a GPU that torch cannot use.

    Example:
        >>> import pyfast
        >>> index = pyfast.open_index("IDX")
        >>> index.text(int(index.search(["moon of Saturn"], 1)[0].passages[0]))
        'Titan: It is a moon of Saturn.'
    """
    return Index(Path(path), retriever, rerank=rerank, filter=filter, hardware=hardware)


@contextlib.contextmanager
def sources_of(
    given: Source | Iterable[Source],
    readers: Iterable[Reader | str],
    ignore: str | Iterable[str],
    columns: int,
    strict: bool,
    on_unread: Callable[[Unread], object] | None,
    roots: Roots,
) -> Iterator[tuple[Iterable[DocumentSource], list[Unread] | None]]:
    """Yield the document sources, and an empty list to which the code that reads the sources adds each unreadable
    file. With `strict`, None replaces the list, and the first unreadable file is an error. When the `with` block
    ends, each file in the list is passed to `on_unread`, or logged if `on_unread` is None. `roots` is as in
    `pyfast.corpus.readers.sources_of`.
    """
    if columns < 2:
        raise InputError(f"columns: expected at least 2, got {columns}")
    unread: list[Unread] = []
    kept = None if strict else unread
    try:
        patterns = (ignore,) if isinstance(ignore, str) else tuple(ignore)
        files = partial(
            files_of, unread=kept, readers=tuple(readers), columns=columns, roots=roots, ignore=patterns
        )
        sources = _sources(given, files, columns)
        are_paths = isinstance(given, str | Path) or (
            isinstance(given, Sequence) and all(isinstance(it, str | Path) for it in given)
        )
        yield list(sources) if are_paths else sources, kept
    finally:  # Report them even if nothing was left to index, because they are then the reason.
        for it in unread:
            if on_unread is None:
                LOG.warning("%s", it.told)
            else:
                on_unread(it)


def _documents(
    sources: Iterable[DocumentSource],
    unread: list[Unread] | None,
    files: set[str],
    partial: set[str],
    guessed: Sequence[str] = (),
    encodings: dict[str, tuple[Path, str]] | None = None,
) -> Iterator[Document]:
    """Yield the documents. The uri of each file that was read completely is added to `files`, and that of any
    other file to `partial`. If reading a file adds an encoding to `guessed`, its path and encoding are added to
    `encodings`, under the uris of its documents."""
    unread = [] if unread is None else unread
    for source in sources:
        before, known = len(unread), len(guessed)
        for document in source.documents():
            if encodings is not None and source.path is not None and len(guessed) > known:
                encodings[document.uri] = source.path, guessed[-1]
            yield document
        if source.path is not None:
            (partial if any(it.missing and not it.repeated for it in unread[before:]) else files).add(source.uri)


def index_of(given: Index | str | Path, run: Path | None = None) -> Index:
    """Return an index, opening it if `given` is a folder. `run` is the folder of a new or resumed run. For a
    resumed run, the index is at the commit that the run started with or, if this no longer exists, at its newest
    commit.
    """
    folder = Path(given) if isinstance(given, str | Path) else given.folder
    commit = None if run is None else recorded_value(run, "index", "commit")
    # There is no such commit: the run is new, or the commit was erased, in which case the difference is shown
    # later.
    if commit not in commit_numbers(folder):
        commit = None
    if isinstance(given, Index):
        return given if commit is None else given.at(commit)
    return Index(folder, commit=commit)


def _sources(
    given: Source | Iterable[Source], files: Callable[[list[Path]], Iterator[DocumentSource]], columns: int
) -> Iterator[DocumentSource]:
    """Yield the sources of `given`, in order. Consecutive paths go to `files` together, so that `files_of` notices
    files under two paths that would have the same uri, and prefixes the uris with the folder names."""
    paths: list[Path] = []
    number = 0
    for one in [given] if isinstance(given, str | Path | Document | Mapping) else given:
        if isinstance(one, str | Path):
            paths.append(Path(one))
            continue
        if paths:  # `files_of` opens all readers.
            yield from files(paths)
            paths = []
        number += 1
        yield DocumentSource.of(
            document_of(one, f"document {number}") if isinstance(one, Mapping) else one, columns
        )
    yield from files(paths)


def _columns(index: str | Path, given: int | None) -> int:
    return changes.columns_of(Path(index)) if given is None else given


def add_documents(
    index: str | Path,
    documents: Source | Iterable[Source],
    *,
    readers: Iterable[Reader | str] = (),
    ignore: str | Iterable[str] = (),
    columns: int | None = None,
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
) -> Change:
    """Add documents to an index in one commit. If an error occurs, no document is added.

    An `Index` object that is already open keeps its old documents. Once reopened, the index returns exactly the
    same results and scores as one built from all documents at once. While another process changes the index, this
    call waits.

    Args:
        index: The folder of the index.
        documents: As in `build_index`. Their uris must be new.
        readers: As in `build_index`.
        ignore: As in `build_index`. The index does not store it.
        columns: As in `build_index`. None: as when the index was built.
        strict: As in `build_index`.
        on_unread: As in `build_index`.

    Returns:
        The number of the new commit, and the number of added documents.

    Raises:
        InputError: The index already has a document with the uri of a new one, or a source does not
            exist or, with `strict`, cannot be read.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> pyfast.add_documents("IDX", [{"id": "rhea", "title": "Rhea", "text": "It is one, too."}]).added
        1
    """
    roots = changes.roots_of(Path(index))
    read = readers, ignore, _columns(index, columns), strict, on_unread, roots
    with sources_of(documents, *read) as (sources, unread):
        return changes.add_documents(Path(index), _documents(sources, unread, set(), set()), roots=roots)


def update_documents(
    index: str | Path,
    documents: Source | Iterable[Source],
    *,
    readers: Iterable[Reader | str] = (),
    ignore: str | Iterable[str] = (),
    columns: int | None = None,
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
) -> Change:
    """Replace documents in an index with new versions, and add new documents, all in one commit.

    A given document replaces the document in the index that has the same uri. The index remembers the folders that
    it was built from: after `build_index("corpus", ...)`, the uri of `corpus/moons/titan.md` is always
    `moons/titan.md`. The new version comes after all other documents in the index, unless the two are equal; then
    the old one stays in place.

    A file can yield several documents, such as its tables. Those that the file's new version no longer contains
    are deleted, unless a part of the file cannot be read. To delete records with their own ids, or the documents
    of a file that no longer exists, use `delete_documents`.

    Args:
        index: The folder of the index.
        documents: As in `build_index`.
        readers: As in `build_index`.
        ignore: As in `build_index`. The index does not store it.
        columns: As in `build_index`. None: as when the index was built.
        strict: As in `build_index`.
        on_unread: As in `build_index`.

    Returns:
        The commit's number, and how many documents were added, replaced, deleted, left unchanged, and kept in an
        earlier version because a part of their file cannot be read. If nothing changed, there is no new commit.

    Raises:
        InputError: A source does not exist or, with `strict`, cannot be read.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> pyfast.update_documents("IDX", [{**titan, "text": "It is the largest moon of Saturn."}]).replaced
        1
    """
    return _changed(index, documents, readers, ignore, columns, strict, on_unread)


def sync_documents(
    index: str | Path,
    sources: str | Path | Iterable[str | Path],
    *,
    dry_run: bool = False,
    readers: Iterable[Reader | str] = (),
    ignore: str | Iterable[str] = (),
    columns: int | None = None,
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
) -> Change:
    """Make an index match folders and files by adding, replacing and deleting documents, all in one commit.

    Documents are added and replaced as in `update_documents`. All other documents whose uris begin like those of
    the given folders are deleted, including those that were not read from a file. For a subfolder of a folder that
    the index was built from, these are only the documents with uris such as `finance/...`. A folder that no longer
    exists counts as empty. If a part of a file cannot be read, the index keeps this file's documents. If such a
    file contains records, as a `.jsonl` file does, or if one of your `readers` reads it, the index also keeps the
    documents of all missing files, because the unreadable part may contain them. A file without a reader yields no
    documents, but those that an earlier reader found in it are kept.

    Args:
        index: The folder of the index.
        sources: Folders and files.
        dry_run: Only determine what would change, without changing the index.
        readers: As in `build_index`.
        ignore: As in `build_index`. The index does not store it.
        columns: As in `build_index`. None: as when the index was built.
        strict: As in `build_index`.
        on_unread: As in `build_index`.

    Returns:
        The commit's number, and how many documents were added, replaced, deleted, and left unchanged. `uris`
        contains their uris, and `renamed` the files with equal content under another name.

    Raises:
        InputError: A source does not exist or contains no files, a file cannot be read (with `strict`), or the
            index also contains another folder's documents, whose uris could equally belong to the given folders.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> index = pyfast.build_index("corpus", "IDX")
        >>> pyfast.sync_documents("IDX", "corpus", dry_run=True).deleted
        0
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    return _changed(index, given, readers, ignore, columns, strict, on_unread, sync=True, dry_run=dry_run)


def _changed(
    index: str | Path,
    given: Source | Iterable[Source],
    readers: Iterable[Reader | str],
    ignore: str | Iterable[str],
    columns: int | None,
    strict: bool,
    on_unread: Callable[[Unread], None] | None,
    sync: bool = False,
    dry_run: bool = False,
) -> Change:
    """Update an index. With `sync`, also delete the documents that the given paths no longer contain."""
    roots, files, partial = changes.roots_of(Path(index)), set[str](), set[str]()
    records, readers = list[Path](), tuple(readers)
    options = readers, ignore, _columns(index, columns), strict, on_unread, roots
    with sources_of(given, *options) as (found, unread), guessed_encodings() as guessed:
        every = [given] if isinstance(given, str | Path) else given if isinstance(given, Sequence) else ()
        paths = [Path(one) for one in every if isinstance(one, str | Path)]
        if sync:
            found = list(found)
            beginnings_of(paths, roots)  # raises before any file is read
            folders = [one.resolve() for one in paths if one.is_dir()]
            for one in paths:
                if not any(it.path is not None and it.path.is_relative_to(one) for it in found):
                    raise InputError(f"{one} contains no files; to delete all its documents, use delete")
                alone = one.is_file() and not any(one.resolve().is_relative_to(folder) for folder in folders)
                if alone and has_records(one, readers):
                    told = "%s: records with ids that this file no longer has stay in the index; sync its folder"
                    LOG.warning(told, one)

        def within() -> Sequence[str]:
            unknown = {it.path for it in unread or () if it.missing and not it.repeated}
            without_reader = {it.path for it in unread or () if it.reason == NO_READER}
            records.extend(path for path in sorted(unknown - without_reader) if has_records(path, readers))
            try:
                return beginnings_of(paths, roots) if sync or records else ()
            except InputError:  # An update deletes no documents of missing files, so it need not know all of them.
                return ()

        def stays(uri: str) -> bool:
            return bool(records) or uri in partial

        encodings: dict[str, tuple[Path, str]] = {}
        read = _documents(found, unread, files, partial, guessed, encodings)
        change = changes.add_documents(Path(index), read, True, roots, files, partial, within, stays, dry_run)
        changed = (*change.uris["added"], *change.uris["replaced"])
        for path, encoding in dict.fromkeys(encodings[uri] for uri in changed if uri in encodings):
            tell_encoding(path, encoding)
        if records and change.kept:
            told = (
                "%s: the documents of missing files are kept, because %s cannot be read and may contain them;"
                " repair the file, delete them with `corpus delete`, or leave the file and its documents out with"
                " --ignore %s"
            )
            named = ", ".join(map(str, records[:3])) + " ..." * (len(records) > 3)
            LOG.warning(told, index, named, records[0].name)
        return change


def delete_documents(index: str | Path, uris: str | Iterable[str]) -> Change:
    """Delete documents from an index, all in one commit.

    A file can yield several documents, such as its tables: `report.docx` and `report.docx#table-1`. The uri of the
    file deletes all of them, and the uri of a part, with `#`, only that part.

    Later searches do not return these documents, and their words no longer affect the scores of others.
    Their text stays in the index's files until
    `compact_index(..., erase=True)`, because earlier commits still need it.

    Args:
        index: The folder of the index.
        uris: The uris of the documents or files.

    Returns:
        The number of the new commit, and the number of deleted documents, including parts of files.

    Raises:
        InputError: One of these uris is neither that of a document in the index nor that of such a file.
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan, {"id": "rhea", "text": "It is one, too."}], "IDX")
        >>> pyfast.delete_documents("IDX", "rhea").deleted
        1
    """
    return changes.delete_documents(Path(index), [uris] if isinstance(uris, str) else list(uris))


def compact_index(index: str | Path, *, erase: bool = False) -> Change:
    """Merge all parts of an index into one, leaving out the deleted documents.

    Args:
        index: The folder of the index.
        erase: Also remove the earlier commits, so that nothing in the index contains text of a deleted document.
            Runs that started with an earlier commit can then no longer be resumed. Knowledge graphs and runs can
            still contain text of a deleted document: see docs/changing.md.

    Returns:
        The number of the commit, which is a new one only if there was something to merge or leave out.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> change = pyfast.compact_index("IDX", erase=True)
        >>> pyfast.describe_index("IDX").commits == (change.commit,)
        True
    """
    return changes.compact_index(Path(index), erase)


def describe_index(index: str | Path) -> IndexInfo:
    """Describe an index: its commit, its documents, its parts, and its size in bytes.

    Args:
        index: The folder of the index.

    Returns:
        The description. The call is fast, because it reads only the manifest, the deletion marks and the file
        sizes.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> info = pyfast.describe_index("IDX")
        >>> info.documents, len(info.parts)
        (1, 1)
    """
    return changes.describe_index(Path(index))


def list_documents(index: str | Path, pattern: str = "*") -> list[DocumentInfo]:
    """List the documents of an index.

    Args:
        index: The folder of the index.
        pattern: A pattern for uris, such as `reports/*.pdf`. `*` matches any characters, including `/`.

    Returns:
        The uri, title, kind and number of passages of each document, in the order of the index.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged.
        OtherBuildError: The index has a different format.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan, {"id": "rhea", "text": "It is one, too."}], "IDX")
        >>> pyfast.list_documents("IDX", "t*")
        [DocumentInfo(uri='titan', title='Titan', kind='text', passages=1)]
    """
    return list(changes.list_documents(Path(index), pattern))
