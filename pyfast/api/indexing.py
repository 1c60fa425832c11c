"""`pyfast.build_index` and `pyfast.open_index`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyfast.corpus import Document, Reader, Unread
from pyfast.corpus.jsonl_documents import document_of
from pyfast.corpus.readers import DocumentSource
from pyfast.corpus.readers import sources_of as files_of
from pyfast.corpus.text_splitting import LENGTH
from pyfast.corpus.wide_tables import COLUMNS
from pyfast.engine import recorded_value
from pyfast.errors import InputError
from pyfast.retrieval import BuildProgress, Index, Reranker, Retriever
from pyfast.retrieval import build_index as build
from pyfast.retrieval.analysis import Analysis, StopWords, Tokenizer
from pyfast.retrieval.building import MEMORY
from pyfast.retrieval.manifest import commit_numbers
from pyfast.retrieval.passage_size import PassageSize

Source = str | Path | Document | Mapping[str, Any]
_LOG = logging.getLogger("pyfast")


def build_index(
    documents: Source | Iterable[Source],
    out: str | Path,
    *,
    overwrite: bool = False,
    readers: Iterable[Reader | str] = (),
    columns: int = COLUMNS,
    passage_length: int = LENGTH,
    passage_overlap: int = 0,
    tokenizer: Tokenizer = "words",
    stemmer: str = "",
    stop_words: StopWords = "english",
    vectors: str | Iterable[str] = (),
    strict: bool = False,
    on_unread: Callable[[Unread], None] | None = None,
    memory: int = MEMORY,
    on_progress: Callable[[BuildProgress], object] | None = None,
) -> Index:
    """Build the index of a corpus in a folder, and open it.

    Args:
        documents: Paths of files and folders, or documents. A document is a value of `pyfast.corpus`, or a mapping
            with the fields of a `.jsonl` line, such as `{"id": ..., "title": ..., "text": ...}`. You can give one
            document, or an iterable of documents.
        out: The folder to make. It appears when it is complete, or not at all.
        overwrite: Replace an existing index. Its knowledge graph stays.
        readers: Readers of file formats, `pyfast.corpus.Reader`s or `MODULE:NAME`. They come before the installed
            ones.
        columns: The maximum number of columns of a table. A wider table is cut into several tables, each with the
            first column and the column names.
        passage_length: The maximum number of characters in a passage of text. Longer paragraphs are cut at
            sentence ends. The index keeps this size for documents that are added later.
        passage_overlap: If a paragraph is cut, two neighbouring passages share up to this number of characters, in
            whole sentences. The shared text is searched and read with both, and stored once.
        tokenizer: `words`: words of two characters or more. `characters`: words of any length, and each Chinese or
            Japanese character. Use it for these languages, or if words of one character matter.
        stemmer: A language of Snowball, such as `"english"` or `"german"`: all forms of a word are one term.
            Empty: words stay unchanged.
        stop_words: `english`, or `none` for texts in other languages.
        vectors: One or several encoders of the passages, for retrievers other than BM25. `"dense"` or
            `"dense:MODEL"`: sentence embeddings. `"sparse:MODEL"`: learned sparse vectors. `"late"` or
            `"late:MODEL"`: a vector for each token. `"late:MODEL#96"` sets the number of dimensions (by default
            128). A model is a folder or a name of the Hugging Face hub. The index keeps the encoders for documents
            that are added later.
        strict: Stop at the first file that cannot be read. Then no index is made.
        on_unread: Called at the end with each file that was left out, and the reason. None: a warning is logged
            for each.
        memory: How many MB the process can take, without the page cache, the vectors and their model; at least
            600. A larger corpus is indexed part by part. The parts lie beside `out` and are merged at the end. If
            the build is killed, call `build_index` again with the same arguments: it continues after the finished
            parts, and does not read their files again. If a file has changed since, this file and all files after
            it are read again.
        on_progress: Called now and then, and after each part.

    Returns:
        The index.

    Raises:
        InputError: A source does not exist, `out` exists already, there is nothing to retrieve, or a number is out
            of range.
        ModelNotFoundError: The model of vectors is not on this machine.

    Example:
        >>> import pyfast
        >>> titan = {"id": "titan", "title": "Titan", "text": "It is a moon of Saturn."}
        >>> index = pyfast.build_index([titan], "IDX")
        >>> index.manifest["passages"]
        1
    """
    size = PassageSize(passage_length, passage_overlap)
    analysis = Analysis(tokenizer, stemmer, stop_words)
    encoders = [vectors] if isinstance(vectors, str) else vectors
    with sources_of(documents, readers, columns, strict, on_unread) as (sources, unread):
        return build(sources, Path(out), overwrite, size, encoders, analysis, memory, unread, on_progress)


def open_index(
    path: str | Path,
    retriever: str | Callable[[Index], Retriever] = "bm25",
    rerank: str | Callable[[Index], Reranker] = "off",
    filter: str | Sequence[str] = (),
) -> Index:
    """Open an index.

    Args:
        path: A folder that `build_index` made.
        retriever: What `search` uses. `bm25`; `dense`, `sparse` or `late`, if the index has such vectors. `late`
            scores BM25's best passages token by token, and `late:dense` scores the best passages of `dense`.
            `hybrid`: BM25 and dense, fused by reciprocal ranks. `hybrid:bm25+sparse` fuses others, and
            `hybrid:bm25*0.3+dense*0.7` fuses weighted scores. Or `MODULE:NAME`, or a function of the index that
            returns a retriever.
        rerank: The reranker, which reads the best passages of a list again. `off`; `cross` (a cross-encoder;
            `cross:MODEL` uses another one); `late` (late interaction); `both`; `MODULE:NAME`; or a function of the
            index that returns a reranker. Every system uses it. `rag` then also expands its list and ranks it by
            `bridge_rank`.
        filter: One condition or several, such as `source=reports/*`, `level=table_row`, `time>=1990` (for triples)
            or `meta.author=Sagan|Drake`. Documents that do not fit all conditions are left out, as if they were
            deleted. Operators: `=` and `!=`, with `*`, `?`, and `|` between several values; `<`, `<=`, `>`, `>=`.

    Returns:
        The index. Its large files are memory-mapped. With a filter, the fitting documents are copied into memory.

    Raises:
        IndexFormatError: The folder has no index, or the index is damaged or of another version.
        InputError: There is no such retriever or reranker, a condition cannot be read, or no document fits.
        ModelNotFoundError: The model of the retriever or reranker is not on this machine.

    Example:
        >>> import pyfast
        >>> index = pyfast.open_index("IDX")
        >>> index.text(int(index.search(["moon of Saturn"], 1)[0].passages[0]))
        'Titan: It is a moon of Saturn.'
    """
    return Index(Path(path), retriever, rerank=rerank, filter=filter)


@contextlib.contextmanager
def sources_of(
    given: Source | Iterable[Source],
    readers: Iterable[Reader | str],
    columns: int,
    strict: bool,
    on_unread: Callable[[Unread], object] | None,
) -> Iterator[tuple[Iterable[DocumentSource], list[Unread] | None]]:
    """What a caller gave, not read yet, and the list for unreadable files.

    At the end, unreadable files are reported or logged.
    """
    if columns < 2:
        raise InputError(f"columns: expected at least 2, got {columns}")
    unread: list[Unread] = []
    kept = None if strict else unread
    try:
        sources = _sources(given, kept, tuple(readers), columns)
        are_paths = isinstance(given, str | Path) or (
            isinstance(given, Sequence) and all(isinstance(it, str | Path) for it in given)
        )
        yield list(sources) if are_paths else sources, kept
    finally:  # Report them even if nothing was left to index: then they are the reason.
        for it in unread:
            if on_unread is None:
                _LOG.warning("left out %s", it)
            else:
                on_unread(it)


@contextlib.contextmanager
def documents_of(
    given: Source | Iterable[Source],
    readers: Iterable[Reader | str],
    columns: int,
    strict: bool,
    on_unread: Callable[[Unread], object] | None,
) -> Iterator[Iterator[Document]]:
    """The documents that a caller gave. At the end, unreadable files are reported or logged."""
    with sources_of(given, readers, columns, strict, on_unread) as (sources, _):
        yield (document for source in sources for document in source.documents())


def index_of(given: Index | str | Path, run: Path | None = None) -> Index:
    """The index that a caller gave. A folder is opened. A resumed run gets the commit with which it started."""
    folder = Path(given) if isinstance(given, str | Path) else given.folder
    commit = None if run is None else recorded_value(run, "index", "commit")
    # The commit is not there: the run is new, or the commit was erased. Then the difference is shown.
    if commit not in commit_numbers(folder):
        commit = None
    if isinstance(given, Index):
        return given if commit is None else given.at(commit)
    return Index(folder, commit=commit)


def _sources(
    given: Source | Iterable[Source], unread: list[Unread] | None, readers: tuple[Reader | str, ...], columns: int
) -> Iterator[DocumentSource]:
    """What was given. Neighbouring paths are listed together because their uris depend on each other."""
    paths: list[Path] = []
    number = 0
    for one in [given] if isinstance(given, str | Path | Document | Mapping) else given:
        if isinstance(one, str | Path):
            paths.append(Path(one))
            continue
        yield from files_of(paths, unread, readers, columns=columns)
        paths = []
        number += 1
        yield DocumentSource.of(
            document_of(one, f"document {number}") if isinstance(one, Mapping) else one, columns
        )
    yield from files_of(paths, unread, readers, columns=columns)
