"""Turn documents into one sequence of segments, and back.

This module works on batches of documents. NumPy operations handle all documents of one kind in a batch together,
as one joined text, before the segments of the batch are put into the order of its documents.

A text is: document > section? > paragraph > sentence. Tables (table > table_row > table_cell) and knowledge graphs
(document > subgraph > triplet) are both trees of three levels with strings as leaves, so the same code handles
both.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b
from itertools import chain

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

import pyfast.corpus.schema as schema
from pyfast.corpus.documents import Document, Heading, Headlines, KnowledgeGraph, Table, TextDocument, outline_json
from pyfast.corpus.formats.markdown import headings as find_headings
from pyfast.corpus.grids import Packed
from pyfast.corpus.schema import Columns, Integers, Kind, Level, append_text, lengths, parents
from pyfast.corpus.sequence import Corpus, hash_uris
from pyfast.corpus.text_splitting import LENGTH, Bounds, bounded, codes_of, paragraphs, sentence_breaks, sentences
from pyfast.errors import InputError
from pyfast.ops.hseq_stream import subtree_ends

_Headings = Sequence[Sequence[Heading]]
"""The headings of each document"""
_Placed = list[tuple[TextDocument, Sequence[Heading], int, int]]
"""(text, its headings, its position in the joined text of all texts, its length) for each text"""
_BATCH = 1 << 19  # characters: temporary arrays that stay in the cache; a longer document is a batch of its own
# The buffer has a blank line between texts, so that no paragraph or sentence spans two of them.
_SEPARATOR = "\n\n"
MAX_SUBGRAPH = 64
"""The maximum number of triples in one subgraph"""
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
            found = list(map(_headings_of, batch))
            passages = np.zeros(len(batch), np.int64)
            root = segments_before
            for piece, row in _pieces(batch):
                columns, facts = _segments(piece, found, buffer, length)
                passages += np.bincount(columns["source"], columns["passage"], len(batch)).astype(np.int64)
                columns["source"] = columns["source"] + np.int32(documents_before)
                if row and isinstance(batch[0], TextDocument):
                    columns["end"] = columns["end"] + row
                columns = _placed(columns, segments_before, row, root)
                segments.append(columns, len(buffer))
                triples.append(facts)
                segments_before += columns["level"].size
            if row:  # The document's own segment, in the first piece, ends where the last piece does.
                whole = {"end": len(batch[0].text)} if isinstance(batch[0], TextDocument) else {}
                segments.set(root, byte_end=len(buffer), subtree_end=segments_before, **whole)
            described.append(_described(batch, found, passages))
        except UnicodeEncodeError:
            raise _surrogate(batch) from None
        documents_before += len(batch)
        del batch, piece  # Frees them before the next document is read.
    parts = (segments.batch(), schema.join(described), schema.join(triples))
    del described, triples
    pa.default_memory_pool().release_unused()  # Otherwise Arrow keeps the memory of the batches.
    corpus = Corpus(*parts, memoryview(buffer).toreadonly())
    if twice := _repeated(corpus.columns.hashes.copy):
        raise InputError(f"two documents have the uri {corpus.uri(twice)!r}: give each its own")
    if twice := _repeated(lambda: corpus.ids[:]):
        known = f"two segments have the id {corpus.ids[twice]:016x}"
        raise InputError(f"{known}: change the uri of one of their documents")
    return corpus


def decode(corpus: Corpus) -> list[Document]:
    """Turn a corpus back into its documents (HSEQ, theorem 1).

    Args:
        corpus: A corpus from `encode`.

    Returns:
        The documents in order. They equal the encoded documents in every character, row, header, link and triple.

    Example:
        >>> from pyfast.corpus import KnowledgeGraph, Triple, decode, encode
        >>> facts = KnowledgeGraph("facts", "Facts", (Triple("Titan", "orbits", "Saturn"),))
        >>> decode(encode([facts])) == [facts]
        True
    """
    return [corpus.document(source) for source in range(corpus.documents)]


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

    The number is 0 except for a large table or text. A large table is divided into pieces of some rows each,
    and a large text without headings into pieces that end at a blank line, because the arrays of the whole
    document would take several times its size.
    """
    large = batch[0]
    size = _size(large) if len(batch) == 1 else 0
    if size >= _LARGE and isinstance(large, Table):
        step = max(_BATCH * len(large.rows) // size, 1)
        for row in range(0, len(large.rows) or 1, step):
            yield [replace(large, rows=large.rows[row : row + step])], row
    elif (
        size >= _LARGE
        and isinstance(large, TextDocument)
        and not (large.markdown or large.outline.headings or large.outline.aside)
    ):
        start = 0
        while (end := large.text.find(_SEPARATOR, start + _BATCH)) >= 0:
            yield [replace(large, title="", text=large.text[start:end])], start
            start = end + len(_SEPARATOR)  # `_encode_texts` writes the separator before the next piece.
        yield [replace(large, title="", text=large.text[start:])], start
    else:
        yield batch, 0


def _placed(columns: Columns, before: int, row: int, root: int) -> Columns:
    """Add the columns `parent` and `subtree_end` to the columns of some segments, and return all columns.
    `before` is the number of segments that the corpus already has.

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
    """The approximate size of a document in characters. Each string in a table or a graph counts as 50
    characters."""
    match document:
        case TextDocument():
            return 50 + len(document.text)
        case Table():
            return 50 * (1 + sum(map(len, document.rows)))
        case KnowledgeGraph():
            return 50 * (1 + 3 * len(document.triples))


def _segments(
    batch: Sequence[Document], headings: _Headings, buffer: bytearray, length: int
) -> tuple[Columns, pa.RecordBatch]:
    """Return the segments of a batch of documents, and a row of `schema.TRIPLES` for each triple of these
    documents. `headings` has the headings of each document.

    The column `source` counts the documents of the batch from 0. The columns `parent` and `subtree_end` are
    still missing.
    """
    texts = {k: document for k, document in enumerate(batch) if isinstance(document, TextDocument)}
    tables = {k: document for k, document in enumerate(batch) if isinstance(document, Table)}
    graphs = {k: document for k, document in enumerate(batch) if isinstance(document, KnowledgeGraph)}
    parts: list[Columns] = []
    facts = schema.empty(schema.TRIPLES)
    if texts:
        parts.append(_encode_texts(texts, headings, buffer, length))
    if tables:
        parts.append(_encode_tables(tables, buffer))
    if graphs:
        columns, facts = _encode_graphs(graphs, buffer)
        parts.append(columns)
    if len(parts) == 1:
        return parts[0], facts
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["source"], kind="stable")
    return {name: column[order] for name, column in joined.items()}, facts


def _described(batch: Sequence[Document], headings: _Headings, passages: Integers) -> pa.RecordBatch:
    columns = zip(*map(_description, batch, headings), strict=True)
    values = (*columns, passages, hash_uris(document.uri for document in batch))
    return schema.record(schema.DOCUMENTS, dict(zip(schema.DOCUMENTS.names, values, strict=True)))


def _description(document: Document, headings: Sequence[Heading]) -> tuple[object, ...]:
    """Return the values of a document in `schema.DOCUMENTS`, without the last two."""
    match document:
        case Table():
            about = (document.about,) if document.about else ()
            place = orjson.dumps((document.page, document.numbers, *about)).decode()
            own: tuple[object, ...] = Kind.TABLE, document.section, document.header, document.links, place
        case TextDocument():
            kind = Kind.MARKDOWN if document.markdown else Kind.TEXT
            own = kind, outline_json(document.outline, headings), (), (), ""
        case KnowledgeGraph():
            own = Kind.GRAPH, document.about, (), (), ""
    return document.uri, document.title, *own, digest_of(document)


def digest_of(document: Document) -> bytes:
    """Compute a digest (checksum, 16 bytes) of everything in a document."""
    digest = blake2b(digest_size=16)
    try:
        for piece in _json(document):
            digest.update(piece)
    except orjson.JSONEncodeError:  # A lone surrogate: `encode` refuses the document, and says where.
        digest = blake2b(json.dumps(document, default=_plain).encode(), digest_size=16)
    return digest.digest()


def other_than_digest(corpus: Corpus) -> str:
    """Return the uri of the first document that does not match its stored digest, or "" if there is none."""
    stored = corpus.digests()
    for source in range(corpus.documents):
        if digest_of(corpus.document(source)) != stored[source].tobytes():
            return corpus.uri(source)
    return ""


def _plain(value: object) -> object:
    """Convert a value of a document to a JSON type. orjson does not know named tuples, such as headings."""
    if isinstance(value, Heading | Packed):
        return list(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"a document contains a value of the type {type(value).__name__}, which is not text")


def _json(document: Document) -> Iterator[bytes]:
    """Yield a document as JSON, in pieces. If the rows of a table are `Packed`, each block of rows is a piece."""
    rows: Sequence[object] = ()
    bare = document
    if isinstance(document, Table) and isinstance(document.rows, Packed):
        rows, bare = document.rows, replace(document, rows=())
    written = orjson.dumps(bare, _plain)
    if not isinstance(document, TextDocument):  # Without metadata, it has the digest of earlier versions.
        written = written.replace(b',"about":""}', b"}")
    if not isinstance(rows, Packed):
        yield written
        return
    # Only a key of the document itself is followed by `:[`: a quote in a string has a backslash.
    before, _, after = written.partition(b'"rows":[]')
    yield before + b'"rows":['
    for number, block in enumerate(rows.json()):
        yield b"," * (number > 0) + block
    yield b"]" + after


def _repeated(compute: Callable[[], NDArray[np.uint64]]) -> int | None:
    """Return the position of the first value that repeats an earlier one, or None if no value repeats.

    `compute` returns the values in a new array, which `_repeated` sorts in place. Only to find the position of a
    repeated value does it call `compute` again.
    """
    hashes = compute()
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    hashes = compute()
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    return int(order[same + 1].min())


_SURROGATE = re.compile("[\ud800-\udfff]")


def _surrogate(batch: Sequence[Document]) -> InputError:
    """Return the error for a batch with a lone surrogate, which cannot be written as UTF-8. The error names the
    surrogate, and the first document that has one."""
    written = ((document.uri, json.dumps(document, default=_plain, ensure_ascii=False)) for document in batch)
    uri, character = next((uri, found[0]) for uri, text in written if (found := _SURROGATE.search(text)))
    what = f"it contains the lone surrogate U+{ord(character):04X}, which is not a character"
    return InputError(f"document {uri!a}: {what}")


def _encode_texts(
    texts: Mapping[int, TextDocument], headings: _Headings, buffer: bytearray, longest: int
) -> Columns:
    """Make the segments of text documents, depth first. The keys are the numbers of the texts among the documents.
    `headings` has the headings of each document, and `longest` is the maximum length of a paragraph."""
    documents, source = list(texts.values()), np.fromiter(texts, np.int32)
    text = _SEPARATOR + _SEPARATOR.join(document.text for document in documents)
    length = lengths(document.text for document in documents)
    first = np.cumsum(length + len(_SEPARATOR)) - length
    headings = [headings[number] for number in texts]
    placed = list(zip(documents, headings, first.tolist(), length.tolist(), strict=True))
    sections, headed = _sections(placed)

    codes = codes_of(text)
    breaks = sentence_breaks(text, codes)
    blocks = paragraphs(text, codes, headed)
    if sections[0].size:
        blocks = _with_headings(text, placed, blocks, sections, headed)
    blocks = bounded(text, blocks, breaks, longest)
    levels = {
        Level.DOCUMENT: (first, first + length),
        Level.SECTION: sections,
        Level.PARAGRAPH: _with_titles(placed, blocks),
        Level.SENTENCE: sentences(blocks, breaks),
    }
    start, end = (np.concatenate([bounds[side] for bounds in levels.values()]) for side in (0, 1))
    level = np.repeat(np.array(list(levels), dtype=np.uint8), [bounds[0].size for bounds in levels.values()])
    order = np.argsort(start * 4 + level, kind="stable")  # depth first; the stable sort merges four sorted runs
    start, end, level = start[order], end[order], level[order]

    in_buffer = append_text(text, buffer)
    number = np.searchsorted(first, start, side="right") - 1
    origin = first[number]
    return {
        "level": level,
        "source": source[number],
        "start": start - origin,
        "end": end - origin,
        "byte_start": in_buffer(start),
        "byte_end": in_buffer(end),
        "passage": (level == Level.PARAGRAPH).astype(np.uint8),
    }


def _sections(placed: _Placed) -> tuple[Bounds, Bounds]:
    """Find the sections of texts, and the parts of texts that are in no passage: headings and asides.

    Returns two pairs (starts, ends): one of the sections, one of the headings and asides. They are positions in
    the joined text of all documents.
    """
    rows: list[tuple[int, int, int]] = []
    aside: list[tuple[int, int]] = []
    for document, own, origin, size in placed:
        if own:
            ends = [*(heading.start for heading in own[1:]), size]
            rows += [(origin + h.start, origin + end, origin + h.end) for h, end in zip(own, ends, strict=True)]
        aside += [(origin + start, origin + end) for start, end in document.outline.aside]
    start, end, heading_end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    out = np.array(aside, dtype=np.int64).reshape(-1, 2).T
    return (start, end), (np.concatenate([start, out[0]]), np.concatenate([heading_end, out[1]]))


def _with_headings(text: str, placed: _Placed, blocks: Bounds, sections: Bounds, headed: Bounds) -> Bounds:
    """Add headings to the paragraphs: those that no passage below carries.

    These are the headings above no paragraph, and those that are left out of a passage's line. A heading
    directly above an aside needs no passage of its own: the aside is a table, and its rows carry the heading.
    """
    asides_at = headed[0][sections[0].size :].tolist()
    tables_at = np.array(sorted(at for at in asides_at if _is_table(text, at)), dtype=np.int64)
    has_text, has_aside = (
        np.diff(np.searchsorted(starts, np.stack(sections, axis=1))).ravel().tolist()
        for starts in (blocks[0], tables_at)
    )
    added: list[tuple[int, int]] = []
    section = 0
    for document, own, origin, _ in placed:
        longest: dict[int, int] = {}
        for heading in own:
            if len(heading.text) > longest.get(heading.depth, 0):
                longest[heading.depth] = len(heading.text)
        may_be_long = len(document.title) + sum(longest.values()) > Headlines.LONGEST // 2
        left_out = Headlines(document.title, own).left_out if may_be_long else set()
        depths = 0  # the depths of the following headings that a passage carries, as bits
        asides = 0
        for number in range(len(own) - 1, -1, -1):
            heading, k = own[number], section + number
            bit = 1 << heading.depth
            carried = bool(has_text[k] or depths >> heading.depth + 1)
            depths = (depths & bit - 1) | bit * carried
            asides += has_aside[k]
            in_rows = has_aside[k] or (asides and heading.text == document.title)
            if (carried or in_rows) and number not in left_out:
                continue
            begin, line = origin + heading.start, text[origin + heading.start : origin + heading.end]
            shown = heading.text if heading.text in line else line.strip()
            if shown:
                begin += line.index(shown)
                added.append((begin, begin + len(shown)))
                depths |= bit
        section += len(own)
    starts, ends = np.array(added, dtype=np.int64).reshape(-1, 2).T
    return np.sort(np.concatenate([blocks[0], starts])), np.sort(np.concatenate([blocks[1], ends]))


def _with_titles(placed: _Placed, blocks: Bounds) -> Bounds:
    """Add an empty paragraph to each document that has a title and no other passage, so that one passage carries
    the title. The rows of its tables carry the title too, but its front matter does not."""
    first = np.array([origin for _, _, origin, _ in placed], dtype=np.int64)
    bare = np.flatnonzero(np.diff(np.searchsorted(blocks[0], np.append(first, np.iinfo(np.int64).max))) == 0)
    titled = first[[k for k in bare.tolist() if _is_only_title(*placed[k][:2])]]
    if not titled.size:
        return blocks
    return np.sort(np.concatenate([blocks[0], titled])), np.sort(np.concatenate([blocks[1], titled]))


def _is_only_title(document: TextDocument, headings: Sequence[Heading]) -> bool:
    in_tables = any(_is_table(document.text, start) for start, _ in document.outline.aside)
    return bool(document.title.strip()) and not headings and not in_tables


_NO_TABLE = re.compile(
    r"---| {0,3}(?:[-*_][ \t]*){3,}$|<!--| {0,3}\[(?://|comment)\]: |[ \t]*<(?!table\b)",
    re.IGNORECASE | re.MULTILINE,
)


def _is_table(text: str, start: int) -> bool:
    """Whether the aside that begins at `start` is a table, and no front matter, rule, comment or tag."""
    return not _NO_TABLE.match(text, start)


def _headings_of(document: Document) -> Sequence[Heading]:
    """Return the headings of a document. Tables and graphs have none.

    They are the `headings` of the text's outline. If these are None, the function finds the headings of a Markdown
    text, and a text that is not Markdown has no headings.
    """
    if not isinstance(document, TextDocument):
        return ()
    if document.outline.headings is not None:
        return document.outline.headings
    return find_headings(document.text) if document.markdown else ()


class _Tree:
    """The positions of the nodes of three-level trees, in depth-first order (int64 each)."""

    def __init__(self, middles: Integers, leaves: Integers) -> None:
        """`middles` has the number of children of each root, and `leaves` the number of leaves of each child."""
        # [tops + 1]: the first middle node of each root, then their number; [middles + 1]: the same for leaves
        self.first_middle = np.concatenate([[0], np.cumsum(middles)])
        self.first_leaf = np.concatenate([[0], np.cumsum(leaves)])
        self.top_of_middle = np.repeat(np.arange(middles.size), middles)
        self.middle_of_leaf = np.repeat(np.arange(leaves.size), leaves)
        self.size = middles.size + leaves.size + self.middle_of_leaf.size
        # positions of the roots, of the nodes below them, and of the leaves
        self.top = np.arange(middles.size) + self.first_middle[:-1] + self.first_leaf[self.first_middle[:-1]]
        self.middle = np.arange(leaves.size) + self.top_of_middle + 1 + self.first_leaf[:-1]
        above = self.middle_of_leaf + 1 + self.top_of_middle[self.middle_of_leaf] + 1
        self.leaf = np.arange(self.middle_of_leaf.size) + above


def _encode_tables(tables: Mapping[int, Table], buffer: bytearray) -> Columns:
    """Make the segments of tables, depth first. The keys are the numbers of the tables among the documents."""
    rows = [row for table in tables.values() for row in table.rows]
    cells = list(chain.from_iterable(rows))
    tree = _Tree(lengths(table.rows for table in tables.values()), lengths(rows))
    cuts = _store_all(cells, buffer)

    row = np.full(tree.size, -1, dtype=np.int64)
    row[tree.middle] = np.arange(tree.middle.size) - tree.first_middle[tree.top_of_middle]
    row[tree.leaf] = row[tree.middle[tree.middle_of_leaf]]
    column = np.full(tree.size, -1, dtype=np.int64)
    column[tree.leaf] = np.arange(tree.leaf.size) - tree.first_leaf[tree.middle_of_leaf]
    return {
        **_lay_out(tree, (Level.TABLE, Level.TABLE_ROW, Level.TABLE_CELL), tables, cuts, _visible(cells)),
        "start": row,
        "end": column,
    }


def _encode_graphs(graphs: Mapping[int, KnowledgeGraph], buffer: bytearray) -> tuple[Columns, pa.RecordBatch]:
    """Make the segments of knowledge graphs, depth first, and a row of `schema.TRIPLES` for each triple, in the
    same order."""
    grouped = list(map(_subgraphs, graphs.values()))
    subgraphs = list(chain.from_iterable(grouped))
    pairs = zip(graphs.values(), grouped, strict=True)
    triples = [graph.triples[k] for graph, groups in pairs for ks in groups for k in ks]
    strings = list(chain.from_iterable((triple.head, triple.relation, triple.tail) for triple in triples))
    tree = _Tree(lengths(grouped), lengths(subgraphs))
    cuts = _store_all(strings, buffer)

    nowhere = np.full(tree.size, -1, dtype=np.int64)
    visible = np.logical_or.reduce(_visible(strings).reshape(-1, 3), axis=1)
    levels = (Level.DOCUMENT, Level.SUBGRAPH, Level.TRIPLET)
    columns = _lay_out(tree, levels, graphs, cuts[::3], visible) | {"start": nowhere, "end": nowhere}
    facts = {
        "ordinal": np.fromiter(chain.from_iterable(subgraphs), dtype=np.int64),
        "relation_start": cuts[1::3],
        "tail_start": cuts[2::3],
        "timed": np.array([triple.time is not None for triple in triples], dtype=np.uint8),
        "time": [triple.time or "" for triple in triples],
    }
    return columns, schema.record(schema.TRIPLES, facts)


def _subgraphs(graph: KnowledgeGraph) -> list[list[int]]:
    """Group the triples of a graph by their heads. Returns the numbers of the triples in each group, from 0.

    A group has at most `MAX_SUBGRAPH` triples, so a head can have several groups. Heads are in the order in
    which they first occur.
    """
    heads: dict[str, list[int]] = {}
    for k, triple in enumerate(graph.triples):
        heads.setdefault(triple.head, []).append(k)
    return [ks[i : i + MAX_SUBGRAPH] for ks in heads.values() for i in range(0, len(ks), MAX_SUBGRAPH)]


def _store_all(strings: Sequence[str], buffer: bytearray) -> Integers:
    """Append n strings to the buffer. Returns n + 1 positions in the buffer: where each string starts, and
    where the last one ends."""
    return append_text("".join(strings), buffer)(np.concatenate([[0], np.cumsum(lengths(strings))]))


def _visible(strings: Sequence[str]) -> NDArray[np.bool_]:
    return np.fromiter(map(bool, map(str.strip, strings)), dtype=bool, count=len(strings))


def _lay_out(
    tree: _Tree, levels: tuple[Level, ...], sources: Iterable[int], cuts: Integers, visible: NDArray[np.bool_]
) -> Columns:
    """Return the columns of trees, without `start` and `end`.

    `cuts` has the byte positions at which the leaves start, and the position at which the last leaf ends.
    `visible` has one value for each leaf: False if the text of the leaf is blank. Table rows and subgraphs are
    passages, unless they are blank.
    """
    seen = np.concatenate([[0], np.cumsum(visible)])[tree.first_leaf]
    passage = np.zeros(tree.size, dtype=np.uint8)
    passage[tree.middle] = seen[1:] > seen[:-1]
    level = np.empty(tree.size, dtype=np.uint8)
    number = np.empty(tree.size, dtype=np.int64)
    byte_start, byte_end = np.empty_like(number), np.empty_like(number)
    middle_cuts = cuts[tree.first_leaf]
    for position, name, of_top, limits in (
        (tree.top, levels[0], np.arange(tree.top.size), middle_cuts[tree.first_middle]),
        (tree.middle, levels[1], tree.top_of_middle, middle_cuts),
        (tree.leaf, levels[2], tree.top_of_middle[tree.middle_of_leaf], cuts),
    ):
        level[position] = name
        number[position] = of_top
        byte_start[position], byte_end[position] = limits[:-1], limits[1:]
    source = np.fromiter(sources, np.int32)[number]
    return {"level": level, "source": source, "byte_start": byte_start, "byte_end": byte_end, "passage": passage}
