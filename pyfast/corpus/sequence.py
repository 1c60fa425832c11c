"""The corpus as one hierarchical sequence of segments, in memory or mapped from files."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyfast import ops
from pyfast.corpus import storage
from pyfast.corpus.documents import Document, KnowledgeGraph, Outline, Table, TextDocument, Triple
from pyfast.corpus.joining import digest_sum, join
from pyfast.corpus.levels import Level
from pyfast.corpus.outlines import metadata_at, parse_outline
from pyfast.corpus.rendering import (
    Fact,
    linear_fact,
    linear_row,
    linear_sentence,
    paragraph_line,
    row_line,
    subgraph_line,
    table_line,
)
from pyfast.corpus.schema import Kind
from pyfast.corpus.segment_ids import SegmentIds

# Plain integers: `render` compares with them for every passage it is asked for.
_PARAGRAPH, _TABLE, _ROW, _CELL, _SUBGRAPH, _TRIPLET = (
    int(level)
    for level in (
        Level.PARAGRAPH,
        Level.TABLE,
        Level.TABLE_ROW,
        Level.TABLE_CELL,
        Level.SUBGRAPH,
        Level.TRIPLET,
    )
)


class Corpus:
    """Segments in document order, depth first, so that parents come before children.

    The columns have one entry for each segment (read-only NumPy arrays, memory-mapped in an opened corpus):

    - `level` uint8: the `Level` of the segment;
    - `parent` int32: position of the parent, -1 for roots;
    - `subtree_end` int32: the position after the last segment inside it;
    - `source` int32: the number of its document, from 0;
    - `start`, `end` int32: for text, zero-based half-open character offsets in the document. For tables, row and
      column: table (-1, -1), row (r, -1), cell (r, c). In knowledge graphs (-1, -1);
    - `byte_start`, `byte_end` int32, or int64 beyond 2 GB of text: where the content is in the buffer of UTF-8
      bytes.

    `ids` uint64 are not stored: `ids[i]`, `ids[array]` and `ids[:]` compute them from uri, level and offsets (for
    triples, from the place in the document). `roots` int64 has the position of each document's first segment,
    `documents` the number of documents.
    """

    def __init__(
        self, segments: pa.RecordBatch, documents: pa.RecordBatch, triples: pa.RecordBatch, buffer: memoryview
    ) -> None:
        """Make a corpus from batches of the schemas in `schema.py` and the text buffer.

        `encode` and `open` call this.
        """
        self._parts = (segments, documents, triples, buffer)
        self.level: NDArray[np.uint8] = _array(segments, "level")
        self.parent: NDArray[np.int32] = _array(segments, "parent")
        self.subtree_end: NDArray[np.int32] = _array(segments, "subtree_end")
        self.source: NDArray[np.int32] = _array(segments, "source")
        self.start: NDArray[np.int32] = _array(segments, "start")
        self.end: NDArray[np.int32] = _array(segments, "end")
        self.byte_start: NDArray[np.int32] | NDArray[np.int64] = _array(segments, "byte_start")
        self.byte_end: NDArray[np.int32] | NDArray[np.int64] = _array(segments, "byte_end")
        self.roots: NDArray[np.int64] = np.flatnonzero(self.parent < 0)
        self.documents: int = documents.num_rows

        # The same columns as memoryviews: they give plain Python integers, for a third of what NumPy takes.
        self._text_buffer = buffer
        self._level, self._subtree_end, self._source = self.level.data, self.subtree_end.data, self.source.data
        self._byte_start, self._byte_end = self.byte_start.data, self.byte_end.data

        self._uris, self._titles, self._sections = (
            _strings(documents.column(name)) for name in ("uri", "title", "section")
        )
        self._kind = _array(documents, "kind").data
        header, links = documents.column("header"), documents.column("links")
        self._header_range, self._names = _offsets(header), _strings(header.values)
        self._outlines: dict[int, Outline] = {}
        self._headers: dict[int, list[str]] = {}  # read once: every row of a table is rendered with them
        self._link_range, self._link_uris = _offsets(links), _strings(links.values.field("uri"))
        self._link_row, self._link_column = (links.values.field(name).to_numpy() for name in ("row", "column"))

        triplets = np.flatnonzero(self.level == _TRIPLET)
        relation_start, tail_start = _array(triples, "relation_start"), _array(triples, "tail_start")
        self._triplets, self._relation_start, self._tail_start = (
            triplets.data,
            relation_start.data,
            tail_start.data,
        )
        ordinal, hashes = _array(triples, "ordinal"), _array(documents, "hash")
        self._ordinal, self._timed = ordinal.data, _array(triples, "timed").data
        self._times = _strings(triples.column("time"))

        self.ids = SegmentIds(hashes, self.level, self.source, self.start, self.end, triplets, ordinal)
        self.columns = ops.Segments(
            level=self.level,
            source=self.source,
            start=self.start,
            end=self.end,
            byte_start=self.byte_start,
            byte_end=self.byte_end,
            triplets=triplets,
            ordinal=ordinal,
            relation_start=relation_start,
            tail_start=tail_start,
            hashes=hashes,
            uri_offsets=np.asarray(self._uris.offsets),
            uris=np.frombuffer(self._uris.data, np.uint8),
            content=np.frombuffer(buffer, np.uint8),
        )
        """What `ops.cite` reads."""

    def __len__(self) -> int:
        """The number of segments."""
        return self.level.size

    def uri(self, source: int) -> str:
        """The uri of a document."""
        return self._uris[source]

    def find(self, uri: str) -> int | None:
        """The number of the document with this uri, or None. The first call reads all uris."""
        digests, sources = self._by_digest
        digest = crc32(uri.encode(errors="replace"))
        at = bisect_left(digests, digest)
        while at < len(digests) and digests[at] == digest:
            if self._uris[sources[at]] == uri:
                return sources[at]
            at += 1
        return None

    @cached_property
    def _by_digest(self) -> tuple[memoryview, memoryview]:
        """The digests of all uris in order, and the documents that they are of: 12 bytes for each document."""
        data, offsets = self._uris.data, self._uris.offsets.tolist()
        digests = np.array([crc32(data[start:end]) for start, end in pairwise(offsets)], np.uint32)
        order = np.argsort(digests, kind="stable")
        return digests[order].data, order.data

    def title(self, source: int) -> str:
        """The title of a document."""
        return self._titles[source]

    def document(self, source: int) -> Document:
        """A document, equal to the encoded one."""
        kind, root = self._kind[source], int(self.roots[source])
        uri, title = self._uris[source], self._titles[source]
        if kind == Kind.GRAPH:
            first, last = self._triplet_range(root)
            placed = sorted(
                zip(self._ordinal[first:last].tolist(), self.triples(root), strict=True), key=itemgetter(0)
            )
            return KnowledgeGraph(uri, title, tuple(triple for _, triple in placed))
        if kind == Kind.TABLE:
            first, last = self._link_range[source], self._link_range[source + 1]
            places = zip(self._link_row[first:last].tolist(), self._link_column[first:last].tolist(), strict=True)
            return Table(
                uri,
                title,
                self._sections[source],
                header=self.header(source),
                rows=tuple(map(tuple, self._rows(root))),
                links=tuple((row, column, self._link_uris[first + k]) for k, (row, column) in enumerate(places)),
            )
        return TextDocument(uri, title, self._text(root), kind == Kind.MARKDOWN, self._outline(source))

    def passages(self) -> NDArray[np.int64]:
        """The positions (int64) of the passages: paragraphs, table rows and subgraphs that are not blank."""
        return np.flatnonzero(_array(self._parts[0], "passage"))

    def content(self, i: int) -> str:
        """The content of a segment.

        Text and cells are exact. Tabs join the cells of a row, and line ends join rows. A triple is "head relation
        tail"; "; " joins several.
        """
        level = self._level[i]
        if level == _ROW:
            return "\t".join(self._row(i))
        if level == _TABLE:
            return "\n".join(map("\t".join, self._rows(i)))
        if self._kind[self._source[i]] == Kind.GRAPH:
            return "; ".join(f"{head} {relation} {tail}" for head, relation, tail, _ in self._facts(i))
        return self._text(i)

    def render(self, i: int) -> str:
        """A segment on one line, as retrieval and the LLM read it; see `pyfast.corpus.rendering`."""
        level = self._level[i]
        source = self._source[i]
        if level == _PARAGRAPH:
            return paragraph_line(self._titles[source], self._text(i))
        if level == _ROW:
            return row_line(self._titles[source], self._sections[source], self._header(source), self._row(i))
        if level in (_SUBGRAPH, _TRIPLET):
            return subgraph_line(self._facts(i))
        if level == _CELL:
            header, column = self._header(source), int(self.end[i])
            name = header[column : column + 1]
            return row_line(self._titles[source], self._sections[source], name, [self._text(i)])
        if level == _TABLE:
            return table_line(self._titles[source], self._sections[source], self._header(source), self._rows(i))
        return paragraph_line(self._titles[source], self.content(i))

    def text_between(self, i: int, j: int) -> str:
        """The text of a document between the end of segment `i` and the start of segment `j`."""
        return str(self._text_buffer[self._byte_end[i] : self._byte_start[j]], "utf-8")

    def evidence_items(self, i: int) -> list[int]:
        """The evidence items of a passage: its sentences or triples. A table row is one item."""
        if self._level[i] in (_PARAGRAPH, _SUBGRAPH):
            return list(range(i + 1, self._subtree_end[i])) or [i]
        return [i]

    def linearise(self, i: int) -> str:
        """An evidence item on one line, with commas between its parts (graph_convqa, section 4.1)."""
        level = self._level[i]
        source = self._source[i]
        if level == _ROW:
            return linear_row(self._titles[source], self._sections[source], self._header(source), self._row(i))
        if level == _TRIPLET:
            return linear_fact(self._facts(i)[0])
        return linear_sentence(self._titles[source], self.content(i))

    def cells(self, i: int) -> list[str]:
        """The cells of a table row that contain visible characters."""
        return [cell for cell in self._row(i) if cell.strip()]

    def links(self, i: int) -> list[str]:
        """The uris of the documents to which the cells of a table row link, in the given order."""
        source = self._source[i]
        first, stop = self._link_range[source], self._link_range[source + 1]
        if first == stop:
            return []
        at = np.flatnonzero(self._link_row[first:stop] == self.start[i])
        return [self._link_uris[first + k] for k in at.tolist()]

    def links_between(self) -> tuple[NDArray[np.int64], ...]:
        """Three arrays [links]: the document of each link, its data row, and its target document (-1: not in the
        corpus).
        """
        documents = self._parts[1]
        uris = documents.column("links").values.field("uri")
        target = pc.fill_null(pc.index_in(uris, value_set=documents.column("uri")), -1)
        source = np.repeat(np.arange(self.documents), np.diff(self._link_range))
        return source, self._link_row, target.to_numpy(zero_copy_only=False).astype(np.int64)

    def triples(self, i: int) -> list[Triple]:
        """The triples in a knowledge graph's document, subgraph or triplet segment, subgraph by subgraph."""
        return [Triple(*fact) for fact in self._facts(i)]

    def is_table(self, i: int) -> bool:
        """Whether a segment is a table or in one."""
        return bool(_TABLE <= self._level[i] <= _CELL)

    def is_graph(self, i: int) -> bool:
        """Whether a segment is a knowledge graph or in one."""
        return self._kind[self._source[i]] == Kind.GRAPH

    def header(self, source: int) -> tuple[str, ...]:
        """The header of a table, as it was encoded."""
        return tuple(self._names[k] for k in range(*self._header_range[source : source + 2]))

    def table(self, source: int) -> dict[str, Any]:
        """`title`, `header`, and `section` if there is one, of a document that is a table."""
        section = self._sections[source]
        shown = {"title": self._titles[source], "header": self._header(source)}
        return shown | {"section": section} if section else shown

    def segment(self, i: int) -> dict[str, Any]:
        """A segment as evidence shows it: `id` (16 hex digits), `level`, `uri`, `offsets`, `snippet`."""
        return {
            "id": f"{self.ids[i]:016x}",
            "level": Level(self._level[i]).name.lower(),
            "uri": self._uris[self._source[i]],
            "offsets": [int(self.start[i]), int(self.end[i])],
            "snippet": self.content(i),
        }

    def metadata(self, i: int) -> dict[str, Any]:
        """The metadata of a segment's document.

        For text, also `page` (from 1) and the `headings` above the segment.

        A value that is not known has no key.
        """
        source = self._source[i]
        if self._kind[source] not in (Kind.TEXT, Kind.MARKDOWN):
            return {}
        return metadata_at(self._outline(source), int(self.start[i]))

    def _outline(self, source: int) -> Outline:
        outline = self._outlines.get(source)
        if outline is None:
            outline = self._outlines[source] = parse_outline(self._sections[source])
        return outline

    def fingerprint(self) -> str:
        """A hexadecimal digest of all documents.

        It does not depend on their order, because it is a sum of digests.

        So an added document adds its digest to the sum, and a deleted one subtracts it.
        """
        return f"{digest_sum(self.document_table):032x}"

    @property
    def document_table(self) -> pa.RecordBatch:
        """A table of the documents, with the columns of `schema.DOCUMENTS`."""
        return self._parts[1]

    @classmethod
    def join(cls, corpora: Sequence["Corpus"], live: Sequence[NDArray[np.bool_]]) -> "Corpus":
        """Join several corpora into one. `live`, bool[documents], says which documents of each corpus to keep."""
        return cls(*join([corpus._parts for corpus in corpora], live))

    def save(self, folder: Path) -> None:
        """Write the corpus into a folder, which is made if needed.

        Each file is written beside its place and then renamed.
        """
        storage.write(folder, self._parts)

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Map the corpus saved in a folder. Raises IndexFormatError if a file is missing or damaged."""
        return cls(*storage.read(folder))

    def _text(self, i: int) -> str:
        return str(self._text_buffer[self._byte_start[i] : self._byte_end[i]], "utf-8")

    def _row(self, i: int) -> list[str]:
        start = self._byte_start[i]
        row = bytes(self._text_buffer[start : self._byte_end[i]])
        cuts = [end - start for end in self._byte_end[i + 1 : self._subtree_end[i]].tolist()]
        return [row[a:b].decode() for a, b in zip([0, *cuts], cuts, strict=False)]

    def _rows(self, root: int) -> Iterator[list[str]]:
        i = root + 1
        while i < len(self._level) and self._level[i] == _ROW:
            row = self._row(i)
            yield row
            i += 1 + len(row)

    def _header(self, source: int) -> list[str]:
        """The header of a table as `row_line` takes it."""
        header = self._headers.get(source)
        if header is None:
            first, last = self._header_range[source], self._header_range[source + 1]
            header = self._headers[source] = [self._names[k].strip() for k in range(first, last)]
        return header

    def _triplet_range(self, i: int) -> tuple[int, int]:
        """The range of triplets that belong to a document, subgraph or triplet."""
        level = self._level[i]
        first = bisect_left(self._triplets, i)
        if level == _TRIPLET:
            return first, first + 1
        if level == _SUBGRAPH:
            return first, first + self._subtree_end[i] - i - 1
        return first, bisect_left(self._triplets, self._subtree_end[i])

    def _facts(self, i: int) -> list[Fact]:
        """The triples of a document, subgraph or triplet; none of other segments."""
        first, last = self._triplet_range(i)
        base = self._byte_start[i]
        data = bytes(self._text_buffer[base : self._byte_end[i]])
        facts = []
        start = 0
        for k in range(first, last):
            relation, tail = self._relation_start[k] - base, self._tail_start[k] - base
            end = self._byte_end[self._triplets[k]] - base
            time = self._times[k] if self._timed[k] else None
            facts.append(
                (data[start:relation].decode(), data[relation:tail].decode(), data[tail:end].decode(), time)
            )
            start = end  # triples lie side by side
        return facts


@dataclass(frozen=True, slots=True)
class _Strings:
    """A column of strings. It opens without reading data."""

    offsets: memoryview
    data: memoryview

    def __getitem__(self, k: int) -> str:
        return str(self.data[self.offsets[k] : self.offsets[k + 1]], "utf-8")


def _array(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    values: NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=True)
    values.flags.writeable = False
    return values


def _offsets(column: pa.Array) -> memoryview:
    """The starts of the strings or lists of a column, and the end: int64[n + 1]."""
    buffer = column.buffers()[1]
    if not len(column) or buffer is None:  # Arrow may leave out the only offset of an empty column
        return np.zeros(1, dtype=np.int64).data
    return np.frombuffer(buffer, dtype=np.int64, count=len(column) + 1).data


def _strings(column: pa.Array) -> _Strings:
    offsets, data = _offsets(column), column.buffers()[2]
    return _Strings(offsets, memoryview(data or b"")[: offsets[-1]])
