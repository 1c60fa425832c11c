"""Turn documents into one sequence of segments.

This module works on batches of documents. NumPy operations handle all documents of one kind in a batch
together, as one joined text. Then the segments of the batch are put into the order of its documents.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from pyfast.corpus import schema
from pyfast.corpus.documents import Document, KnowledgeGraph, Table, TextDocument
from pyfast.corpus.encode_structured import encode_graphs, encode_tables
from pyfast.corpus.encode_text import SEPARATOR, encode_texts
from pyfast.corpus.levels import parents
from pyfast.corpus.outlines import outline_json
from pyfast.corpus.packed import Packed
from pyfast.corpus.schema import Columns, Kind
from pyfast.corpus.sections import Heading
from pyfast.corpus.segment_ids import hash_uris
from pyfast.corpus.sequence import Corpus
from pyfast.corpus.text_splitting import LENGTH
from pyfast.errors import InputError
from pyfast.ops.hseq_stream import subtree_ends

_BATCH = 1 << 19  # characters: temporary arrays that stay in the cache; a longer document is a batch of its own
_LARGE = 2 * _BATCH  # a table of this size is encoded in several pieces


def encode(documents: Iterable[Document], length: int = LENGTH) -> Corpus:
    """Turn documents into one sequence of segments (HSEQ, section 3.2). `decode` is the reverse.

    Args:
        documents: Texts, tables and knowledge graphs. No two may have the same uri.
        length: The maximum number of characters in a paragraph. Longer paragraphs are cut at sentence ends.

    Returns:
        The corpus, with the documents in their order.

    Raises:
        InputError: Two documents have the same uri, or a string has a lone surrogate.

    Example:
        >>> from pyfast.corpus import TextDocument, decode, encode
        >>> titan = TextDocument("titan", "Titan", "Titan is a moon. It orbits Saturn.")
        >>> corpus = encode([titan])
        >>> decode(corpus) == [titan]
        True
    """
    buffer = bytearray()
    segments = schema.GrowingSegments()
    described = [schema.empty(schema.DOCUMENTS)]
    triples = [schema.empty(schema.TRIPLES)]
    documents_before = segments_before = 0
    for batch in _batches(documents):
        try:
            hashes = hash_uris(document.uri for document in batch)
            passages = np.zeros(len(batch), np.int64)
            root = segments_before
            for piece, row in _pieces(batch):
                columns, facts = _segments(piece, buffer, length)
                passages += np.bincount(columns["source"], columns["passage"], len(batch)).astype(np.int64)
                columns["source"] = columns["source"] + np.int32(documents_before)
                if row and isinstance(batch[0], TextDocument):
                    columns["end"] = columns["end"] + row
                columns = _placed(columns, segments_before, row, root)
                segments.append(columns, len(buffer))
                triples.append(facts)
                segments_before += columns["level"].size
            if row:  # The document's own segment, in the first piece, ends where the last one does.
                whole = {"end": len(batch[0].text)} if isinstance(batch[0], TextDocument) else {}
                segments.set(root, byte_end=len(buffer), subtree_end=segments_before, **whole)
            described.append(_described(batch, passages, hashes))
        except UnicodeEncodeError:
            raise _surrogate(batch) from None
        documents_before += len(batch)
        del batch, piece  # The next document is read without them.
    parts = (segments.batch(), schema.join(described), schema.join(triples))
    del described, triples
    pa.default_memory_pool().release_unused()  # Arrow keeps what the batches took.
    corpus = Corpus(*parts, memoryview(buffer).toreadonly())
    if twice := _repeated(corpus.columns.hashes.copy):
        raise InputError(f"two documents have the uri {corpus.uri(twice)!r}: give each its own")
    if twice := _repeated(lambda: corpus.ids[:]):
        raise InputError(
            f"two segments have the id {corpus.ids[twice]:016x}: change the uri of one of their documents"
        )
    return corpus


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        own = _size(document)
        if batch and own >= _LARGE:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += own
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _pieces(batch: list[Document]) -> Iterator[tuple[list[Document], int]]:
    """Yield (documents to encode together, the number of rows or characters that are already encoded).

    The number is 0 except for a large table or text. A large table comes in several pieces with some rows each,
    and a large text without headings in pieces that end at a blank line. The arrays of the whole at once would
    take several times its size.
    """
    large = batch[0]
    size = _size(large) if len(batch) == 1 else 0
    if size >= _LARGE and isinstance(large, Table):
        step = max(_BATCH * len(large.rows) // size, 1)
        for row in range(0, len(large.rows) or 1, step):
            yield [replace(large, rows=large.rows[row : row + step])], row
    elif size >= _LARGE and isinstance(large, TextDocument) and _is_plain(large):
        start = 0
        while (end := large.text.find(SEPARATOR, start + _BATCH)) >= 0:
            yield [replace(large, text=large.text[start:end])], start
            start = end + len(SEPARATOR)  # `encode_texts` writes the separator before the next piece.
        yield [replace(large, text=large.text[start:])], start
    else:
        yield batch, 0


def _is_plain(document: TextDocument) -> bool:
    """Whether a text has no headings and no part that is in no passage."""
    return not (document.markdown or document.outline.headings or document.outline.aside)


def _placed(columns: Columns, before: int, row: int, root: int) -> Columns:
    """Add the columns `parent` and `subtree_end` to the columns of some segments, and return all columns.
    `before` is how many segments the corpus already has.

    If `row` is not 0, the segments belong to a document whose first `row` rows or characters are already in the
    corpus. The segment of this document is then at the position `root` of the corpus, and the result does not
    repeat it.
    """
    parent = parents(columns["level"])
    before -= row > 0
    placed = {**columns, "parent": np.where(parent < 0, -1, parent + before)}
    placed["subtree_end"] = subtree_ends(parent) + before
    if row:
        placed["parent"][parent == 0] = root
        placed["start"] += row
        placed = {name: column[1:] for name, column in placed.items()}
    return placed


def _size(document: Document) -> int:
    """The approximate size of a document in characters. Each string of a table or a graph counts as 50
    characters."""
    match document:
        case TextDocument():
            return 50 + len(document.text)
        case Table():
            return 50 * (1 + sum(map(len, document.rows)))
        case KnowledgeGraph():
            return 50 * (1 + 3 * len(document.triples))


def _segments(batch: Sequence[Document], buffer: bytearray, length: int) -> tuple[Columns, pa.RecordBatch]:
    """Return the segments of a batch of documents, and a row of `schema.TRIPLES` for each triple of these
    documents.

    The column `source` counts the documents of the batch from 0. The columns `parent` and `subtree_end` are
    still missing.
    """
    texts = {k: document for k, document in enumerate(batch) if isinstance(document, TextDocument)}
    tables = {k: document for k, document in enumerate(batch) if isinstance(document, Table)}
    graphs = {k: document for k, document in enumerate(batch) if isinstance(document, KnowledgeGraph)}
    parts: list[Columns] = []
    facts = schema.empty(schema.TRIPLES)
    if texts:
        source = np.fromiter(texts, dtype=np.int32)
        parts.append(encode_texts(list(texts.values()), source, buffer, length))
    if tables:
        source = np.fromiter(tables, dtype=np.int32)
        parts.append(encode_tables(list(tables.values()), source, buffer))
    if graphs:
        source = np.fromiter(graphs, dtype=np.int32)
        columns, facts = encode_graphs(list(graphs.values()), source, buffer)
        parts.append(columns)
    if len(parts) == 1:
        return parts[0], facts
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["source"], kind="stable")
    return {name: column[order] for name, column in joined.items()}, facts


def _described(
    batch: Sequence[Document], passages: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> pa.RecordBatch:
    tables = [document if isinstance(document, Table) else None for document in batch]
    return schema.record(
        schema.DOCUMENTS,
        {
            "uri": [document.uri for document in batch],
            "title": [document.title for document in batch],
            "kind": [_kind(document) for document in batch],
            "section": [_section(document) for document in batch],
            "header": [table.header if table else () for table in tables],
            "links": [table.links if table else () for table in tables],
            "digest": list(map(digest_of, batch)),
            "passages": passages,
            "hash": hashes,
        },
    )


def _section(document: Document) -> str:
    """Return the value of the column `section`: the section of a table, or the outline of a text as JSON."""
    match document:
        case Table():
            return document.section
        case TextDocument():
            return outline_json(document.outline)
        case KnowledgeGraph():
            return ""


def digest_of(document: Document) -> bytes:
    """Return a digest (checksum, 16 bytes) of everything in a document."""
    digest = blake2b(digest_size=16)
    try:
        for piece in _json(document):
            digest.update(piece)
    except orjson.JSONEncodeError:  # A lone surrogate: `encode` refuses the document, and says where.
        digest = blake2b(json.dumps(document, default=_plain).encode(), digest_size=16)
    return digest.digest()


def other_than_digest(corpus: Corpus) -> str:
    """Return the uri of the first document that differs from its stored digest. Returns "" if there is none."""
    stored = corpus.digests()
    for source in range(corpus.documents):
        if digest_of(corpus.document(source)) != stored[source].tobytes():
            return corpus.uri(source)
    return ""


def _plain(value: object) -> object:
    """Return a value of a document as JSON can write it. orjson does not know named tuples, such as headings."""
    if isinstance(value, Heading | Packed):
        return list(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"a document holds a value of the type {type(value).__name__}, which is no text")


def _json(document: Document) -> Iterator[bytes]:
    """Yield a document as JSON, in pieces. If the rows of a table are `Packed`, each block of rows is a
    piece.
    """
    rows = document.rows if isinstance(document, Table) else ()
    if not isinstance(document, Table) or not isinstance(rows, Packed):
        yield orjson.dumps(document, _plain)
        return
    # Only a key of the document itself is followed by `:[`: a quote in a string has a backslash.
    before, _, after = orjson.dumps(replace(document, rows=()), _plain).partition(b'"rows":[]')
    yield before + b'"rows":['
    for number, block in enumerate(rows.json()):
        yield b"," * (number > 0) + block
    yield b"]" + after


def _kind(document: Document) -> Kind:
    match document:
        case TextDocument():
            return Kind.MARKDOWN if document.markdown else Kind.TEXT
        case Table():
            return Kind.TABLE
        case KnowledgeGraph():
            return Kind.GRAPH


def _repeated(compute: Callable[[], NDArray[np.uint64]]) -> int | None:
    """Return the position of the first value that repeats an earlier one. None if no value repeats.

    `compute` returns the values in a new array. `_repeated` sorts this array in place. To find the position
    of a repeated value, `_repeated` calls `compute` again.
    """
    hashes = compute()
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    hashes = compute()
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    return int(order[same + 1].min())


def _surrogate(batch: Sequence[Document]) -> InputError:
    """Return the error for a batch with a lone surrogate, which cannot be written as UTF-8. The error names the
    surrogate, and the first document that has one."""
    for document in batch:
        try:
            hashes = hash_uris([document.uri])
            _segments([document], bytearray(), LENGTH)
            _described([document], np.zeros(1, np.int64), hashes)
        except UnicodeEncodeError as error:
            character = f"U+{ord(error.object[error.start]):04X}"
            return InputError(
                f"document {document.uri!a}: it holds the lone surrogate {character}, which is no character"
            )
    raise AssertionError("no document of the batch fails on its own")
