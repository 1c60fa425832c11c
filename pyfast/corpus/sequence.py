"""`Corpus`: all documents as one sequence of segments, in memory or memory-mapped from files."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import Any, overload

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

import pyfast.corpus.rendering as rendering
import pyfast.corpus.storage as storage
from pyfast.corpus.documents import Document, KnowledgeGraph, Outline, StoredOutline, Table, TextDocument, Triple
from pyfast.corpus.schema import ROOTS, Kind, Level
from pyfast.errors import IndexFormatError
from pyfast.ops.cite import Segments, segment_ids
from pyfast.utils.blocks import MappedFile, MappedFolder, checked, raw

_GROUP_SHIFT = 12
_GROUP = 1 << _GROUP_SHIFT  # The first access to a segment checks a group of this many.
# Plain integers, because `render` compares with them for each passage.
_TEXT, _MARKDOWN, _, _GRAPH = map(int, Kind)
_, _, _PARAGRAPH, _, _TABLE, _ROW, _CELL, _SUBGRAPH, _TRIPLET = map(int, Level)
_OUTLINES = 1 << 16  # how many outlines and headings stay in memory
_MOST_FENCED = 1000  # the number of texts whose code-block positions stay in memory
_IDS_AT_ONCE = 1 << 18
_NO_OUTLINE = StoredOutline()
_SEPARATORS = str.maketrans("\t\r\n", "   ")  # Inside a cell of a joined table, they become spaces.
_CITED = ("level", "source", "start", "end", "byte_start", "byte_end")


class Corpus:
    """All documents as one sequence of segments in depth-first order: a segment comes before the segments inside
    it.

    The columns have one entry per segment (read-only NumPy arrays, memory-mapped in an opened corpus):

    - `level` uint8: the `Level` of the segment;
    - `parent` int32: the position of the segment directly above it, -1 for documents;
    - `subtree_end` int32: the position after the last segment inside it;
    - `source` int32: the number of the segment's document, from 0;
    - `start`, `end` int32: in a text, the offset of the segment's first character (from 0), and the offset
      after its last character. In a table, the row and the column: (-1, -1) for the table, (r, -1) for a row,
      (r, c) for a cell. In a knowledge graph, (-1, -1);
    - `byte_start`, `byte_end` int32 (int64 for more than 2 GB of text): where the segment's content begins
      and ends in the buffer of UTF-8 bytes.

    `ids` (uint64) are not stored: `ids[i]`, `ids[array]` and `ids[:]` compute them from uri, level, `start` and
    `end`. For a triple, its number in the document replaces `start`, and for a subgraph (all triples of one head),
    the number of its first triple. `roots` (int64) contains the position of each document's first segment.
    `documents` is the number of documents.
    """

    def __init__(
        self,
        segments: pa.RecordBatch,
        documents: pa.RecordBatch,
        triples: pa.RecordBatch,
        buffer: memoryview,
        files: storage.Files | None = None,
    ) -> None:
        """Make a corpus from three record batches, whose schemas are in `schema.py`, and the text buffer. Usually,
        `encode` or `open` does this.

        `files` are the mapped files of the batches and the buffer. A block of these files is checked when it is
        first read. Without `files`, nothing is checked.
        """
        self._parts = (segments, documents, triples, buffer)
        self._files = files
        # for each group of segments, whether it was checked
        self._sound = bytearray(len(segments) + _GROUP >> _GROUP_SHIFT)
        self._is_sound = np.frombuffer(self._sound, np.uint8)
        in_segments, in_documents, in_triples, in_buffer = files or ({}, None, None, None)
        column = {field.name: _array(segments, field.name) for field in segments.schema}
        self._column = column
        given = {name: checked(values, in_segments.get(name)) for name, values in column.items()}
        self.level: NDArray[np.uint8] = given["level"]
        self.parent: NDArray[np.int32] = given["parent"]
        self.subtree_end: NDArray[np.int32] = given["subtree_end"]
        self.source: NDArray[np.int32] = given["source"]
        self.start: NDArray[np.int32] = given["start"]
        self.end: NDArray[np.int32] = given["end"]
        self.byte_start: NDArray[np.int32] | NDArray[np.int64] = given["byte_start"]
        self.byte_end: NDArray[np.int32] | NDArray[np.int64] = given["byte_end"]
        self.documents: int = documents.num_rows

        # The same columns as memoryviews, which give plain Python integers three times as fast as NumPy.
        self._text_buffer, self._text_file = buffer, in_buffer
        self._level, self._subtree_end, self._source, self._byte_start, self._byte_end = (
            column[name].data for name in ("level", "subtree_end", "source", "byte_start", "byte_end")
        )

        self._uris, self._titles, self._sections = (
            _Strings(documents.column(name), in_documents) for name in ("uri", "title", "section")
        )
        self._kind = checked(_array(documents, "kind"), in_documents)
        self._kinds = raw(self._kind).data
        header, links = documents.column("header"), documents.column("links")
        self._header_range, self._names = _offsets(header, in_documents), _Strings(header.values, in_documents)
        self._outlines: dict[int, StoredOutline] = {}
        self._held = 0  # how many outlines and headings these are
        self._fenced: dict[int, list[tuple[int, int, str]]] = {}  # the code in Markdown texts
        # Each row of a table is rendered with its header, so headers stay in memory.
        self._headers: dict[int, list[str]] = {}
        self._link_range = _offsets(links, in_documents)
        self._link_uris = _Strings(links.values.field("uri"), in_documents)
        self._places = _Strings(documents.column("place"), in_documents)
        self._link_row, self._link_column = (
            checked(np.from_dlpack(links.values.field(name)), in_documents) for name in ("row", "column")
        )
        self._relation_start, self._tail_start, self._ordinal, self._timed = (
            _array(triples, name).data for name in ("relation_start", "tail_start", "ordinal", "timed")
        )
        self._times = _Strings(triples.column("time"), in_triples)

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """The position of each document's first segment."""
        roots = np.flatnonzero(np.isin(np.asarray(self.level), ROOTS))
        if len(roots) != self.documents:
            raise self._damaged("the documents are not in order")
        return roots

    @cached_property
    def _triplets(self) -> memoryview:
        """The positions of the triplets, int64."""
        triplets = np.flatnonzero(np.asarray(self.level) == _TRIPLET)
        if self._files:
            self._files[2].check_all()
            if len(triplets):
                for name in ("byte_start", "byte_end"):
                    np.asarray(getattr(self, name))
            if fault := storage.fault_of_triples(self._parts, triplets):
                raise self._damaged(fault)
        return triplets.data

    @cached_property
    def ids(self) -> "SegmentIds":
        """The ids of the segments. An id depends only on the document's uri and the segment's level and place."""
        return SegmentIds(self.columns, self._check_places)

    @cached_property
    def columns(self) -> Segments:
        """The columns that `ops.cite` reads. `ops.cite` does not check them: call `check` first."""
        column, uris = self._column, self._uris
        return Segments(
            **{name: column[name] for name in _CITED},
            triplets=np.asarray(self._triplets),
            ordinal=np.asarray(self._ordinal),
            hashes=_array(self._parts[1], "hash"),
            relation_start=np.asarray(self._relation_start),
            tail_start=np.asarray(self._tail_start),
            uri_offsets=np.asarray(uris.offsets),
            uris=np.frombuffer(uris.data, np.uint8),
            content=np.frombuffer(self._text_buffer, np.uint8),
        )

    def check(self, segments: NDArray[np.int64]) -> None:
        """Compare the data of these segments, of all segments inside them, and the uris of their documents with
        the checksums.

        For a corpus in memory, this method does nothing. Raises `IndexFormatError` if the data is damaged.
        """
        if not self._files:
            return
        segments = np.clip(segments, 0, max(len(self) - 1, 0))[: len(self)]
        self.check_names(segments)
        column = self._column
        end = column["subtree_end"][segments]
        self._check_places(end - 1)
        for k in np.flatnonzero((end - 1 >> _GROUP_SHIFT) - (segments >> _GROUP_SHIFT) > 1).tolist():
            self._check(int(segments[k]))
        self._files[3].check_ranges(column["byte_start"][segments], column["byte_end"][segments])

    def check_names(self, segments: NDArray[np.int64]) -> None:
        """Check only the data from which the ids of these segments are computed, and the uris of their documents.
        Unlike `check`, this method does not check text."""
        if self._files:
            self._check_places(segments)
            self._uris.check(np.unique(self._column["source"][segments]))

    def _check_places(self, segments: NDArray[np.int64]) -> None:
        """Check the data from which the ids of these segments are computed: the columns, and the uri hashes."""
        if not self._files:
            return
        groups = segments >> _GROUP_SHIFT
        if not self._is_sound[groups].all():
            for group in np.unique(groups).tolist():
                self._check_group(group)

    def _check(self, i: int) -> None:
        """Check the columns of one segment and of all segments inside it, but not the text."""
        first = i >> _GROUP_SHIFT
        self._check_group(first)
        for group in range(first + 1, (self._subtree_end[i] - 1 >> _GROUP_SHIFT) + 1):
            self._check_group(group)

    def _check_group(self, group: int) -> None:
        if not self._files or self._sound[group]:
            return
        first, stop = group << _GROUP_SHIFT, min(len(self), group + 1 << _GROUP_SHIFT)
        if first < stop:
            self._read_with_parents(np.arange(max(first - 1, 0), stop))
            self._files[1].check_array(raw(self._kind))
            if fault := storage.fault_of_segments(self._parts, first, stop):
                raise self._damaged(fault)
            source = self._column["source"]
            self._files[1].check_array(_array(self._parts[1], "hash")[source[first] : source[stop - 1] + 1])
        self._sound[group] = 1

    def _read_with_parents(self, segments: NDArray[np.int64]) -> None:
        """Make all columns of these segments, and of the segments above them, ready to read: check the columns in
        files, and compute the columns that are not stored."""
        assert self._files
        while len(segments):
            for name, values in self._column.items():
                file = self._files[0][name]
                at = file.place(values) + values.itemsize * segments
                file.check_ranges(at, at + values.itemsize)
            above = np.unique(self._column["parent"][segments])
            segments = above[(above >= 0) & (above < segments[0])].astype(np.int64)

    def _damaged(self, fault: str) -> IndexFormatError:
        where = f"{self._files[1].path.parent}: " if self._files else ""
        return IndexFormatError(f"{where}the corpus is damaged: {fault}; build the index again")

    def check_all(self) -> None:
        """Check the whole corpus. Raises `IndexFormatError` if it is damaged."""
        if not self._files:
            return
        columns, *others = self._files
        for file in (*columns.values(), *others):
            file.check_all()
        segments, _, triples, buffer = self._parts
        self._validate(triples)
        if fault := storage.fault_of((segments, self.document_table, triples, buffer)):
            raise self._damaged(fault)

    def _validate(self, batch: pa.RecordBatch) -> None:
        """Raise `IndexFormatError` if a batch is not valid. Arrow itself would read it without a check."""
        try:
            batch.validate(full=True)
        except pa.ArrowException as error:
            raise self._damaged(" ".join(str(error).split())) from error

    def __len__(self) -> int:
        """The number of segments."""
        return self.level.size

    def uri(self, source: int) -> str:
        """Return the uri of a document."""
        return self._uris[source]

    def find(self, uri: str) -> int | None:
        """Return the number of the document with this uri, or None if there is no such document. The first
        call reads all uri hashes.
        """
        hashes, sources = self._by_hash
        hashed = int(hash_uris([uri])[0])
        same = sources[bisect_left(hashes, hashed) : bisect_right(hashes, hashed)]
        return next((source for source in same if self._uris[source] == uri), None)

    def parts_of(self, files: Set[str]) -> list[int]:
        """Return the numbers of the documents whose uris have the form `FILE#...` for one of these files."""
        data, offsets = np.frombuffer(self._uris.data, np.uint8), np.asarray(self._uris.offsets)
        marks = np.flatnonzero(data == ord("#"))
        sources = np.searchsorted(offsets, marks, side="right") - 1
        likely = np.isin(marks - offsets[sources], [len(uri.encode()) for uri in files])
        self._uris.check(np.unique(sources[likely]))
        sources, marks = sources[likely], marks[likely]
        named = zip(sources.tolist(), offsets[sources].tolist(), marks.tolist(), strict=True)
        return [source for source, start, end in named if data[start:end].tobytes().decode() in files]

    @cached_property
    def _by_hash(self) -> tuple[memoryview, memoryview]:
        """The hashes of all uris in ascending order, and the document number of each hash: 12 bytes per
        document."""
        if self._files:
            self._files[1].check_all()
        hashes = _array(self._parts[1], "hash")
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return hashes[order].data, order.data

    def title(self, source: int) -> str:
        """The title of a document."""
        return self._titles[source]

    def heading(self, source: int) -> str:
        """The title of a document, and the section of a table: `Exhibitors > Hall B`."""
        section = self._sections[source] if self._kinds[source] == Kind.TABLE else ""
        return " > ".join(filter(None, [self._titles[source], section]))

    def document(self, source: int) -> Document:
        """Return a document, exactly as it was encoded."""
        kind, root = int(self._kind[source]), int(self.roots[source])
        self._check(root)
        uri, title = self._uris[source], self._titles[source]
        if kind == Kind.GRAPH:
            first, last = self._triplet_range(root)
            placed = zip(self._ordinal[first:last].tolist(), self.triples(root), strict=True)
            facts = tuple(triple for _, triple in sorted(placed, key=itemgetter(0)))
            return KnowledgeGraph(uri, title, facts, self._about(source))
        if kind == Kind.TABLE:
            first, last = map(int, self._link_range[source : source + 2])
            places = self._link_row[first:last].tolist(), self._link_column[first:last].tolist()
            links = tuple(zip(*places, map(self._link_uris.__getitem__, range(first, last)), strict=True))
            rows = tuple(map(tuple, self._rows(root)))
            page, numbers, *_ = orjson.loads(self._places[source])
            above = self._sections[source], self.header(source)
            return Table(uri, title, *above, rows, links, page, tuple(map(tuple, numbers)), self._about(source))
        return TextDocument(uri, title, self._text(root), kind == Kind.MARKDOWN, self._parsed(source).outline)

    def passages(self) -> NDArray[np.int64]:
        """The positions (int64) of the passages: paragraphs, table rows and subgraphs that are not blank."""
        passage = self._column["passage"]
        if self._files:
            self._files[0]["passage"].check_array(passage)
        return np.flatnonzero(passage)

    def content(self, i: int) -> str:
        """The content of a segment.

        The content of a text or a cell is unchanged. In the content of a table, tabs separate the cells of a row,
        and line ends separate rows. A tab inside a cell becomes a space, and in the content of a whole table also
        a line end. A triple is written as "head relation tail", and "; " separates triples.
        """
        self._check(i)
        level = self._level[i]
        if level == _ROW:
            return "\t".join([cell.replace("\t", " ") for cell in self._row(i)])
        if level == _TABLE:
            return "\n".join("\t".join([cell.translate(_SEPARATORS) for cell in row]) for row in self._rows(i))
        if self._kind[self._source[i]] == _GRAPH:
            return "; ".join(f"{head} {relation} {tail}" for head, relation, tail, _ in self._facts(i))
        return self._text(i)

    def render(self, i: int) -> str:
        """Write a segment on one line, as retrieval and the LLM read it (see `pyfast.corpus.rendering`)."""
        self._check(i)
        level = self._level[i]
        source = self._source[i]
        if level == _PARAGRAPH:
            return self.text_line(i, self._text(i))
        if level == _ROW:
            return rendering.row_line(*self._above_rows(source), self._row(i))
        if level in (_SUBGRAPH, _TRIPLET):
            return rendering.subgraph_line(self._facts(i))
        if level == _CELL:
            title, section, header = self._above_rows(source)
            column = int(self.end[i])
            return rendering.row_line(title, section, header[column : column + 1], [self._text(i)])
        if level == _TABLE:
            return rendering.table_line(*self._above_rows(source), self._rows(i))
        return self.text_line(i, self.content(i))

    def text_line(self, i: int, text: str) -> str:
        """Write `text`, which begins where a segment of a text begins, on one line: ``title > heading. text``."""
        above, is_heading = self.headline(i)
        return above if is_heading else rendering.paragraph_line(above, self.without_marks(i, text))

    def without_marks(self, i: int, text: str) -> str:
        """Remove the marks of a text that begins where a segment begins, if its document is in Markdown."""
        source = self._source[i]
        if self._kinds[source] != _MARKDOWN or not any(mark in text for mark in ("*", "&", "<!--", "<su")):
            return text
        fenced = self._fenced.get(source)
        if fenced is None:
            root = i
            while (above := int(self._column["parent"][root])) >= 0:
                root = above
            fenced = rendering.fenced(self.content(root))
            if len(self._fenced) >= _MOST_FENCED:
                self._fenced = {}
            self._fenced[source] = fenced
        start = int(self.start[i])
        # A segment that is the beginning of the code has the fence itself.
        at = bisect_left(fenced, (start,)) - 1
        return rendering.without_marks(text, fenced[at][2] if at >= 0 and start < fenced[at][1] else "")

    def headline(self, i: int) -> tuple[str, bool]:
        """Return the title of a segment's document with the headings above the segment, such as
        `Service manual > Warranty period`, and whether the segment is itself the last of these headings. For a
        document that is not a text, return only the title.
        """
        self._check(i)
        source = self._source[i]
        headlines = self._parsed(source).headlines if self._kinds[source] in (_TEXT, _MARKDOWN) else None
        return headlines.at(int(self.start[i]), int(self.end[i])) if headlines else (self._titles[source], False)

    def text_between(self, i: int, j: int) -> str:
        """Return the text of a document between the end of segment `i` and the start of segment `j`."""
        self._check_group(i >> _GROUP_SHIFT)
        self._check_group(j >> _GROUP_SHIFT)
        return str(self._bytes(self._byte_end[i], self._byte_start[j]), "utf-8")

    def evidence_items(self, i: int) -> list[int]:
        """Return the evidence items of a passage: its sentences or triples. A table row is one item."""
        self._check(i)
        if self._level[i] in (_PARAGRAPH, _SUBGRAPH):
            return list(range(i + 1, self._subtree_end[i])) or [i]
        return [i]

    def linearise(self, i: int) -> str:
        """Write an evidence item on one line, with commas between its parts (graph_convqa, section 4.1)."""
        self._check(i)
        level = self._level[i]
        source = self._source[i]
        if level == _ROW:
            return rendering.linear_row(*self._above_rows(source), self._row(i))
        if level == _TRIPLET:
            return rendering.linear_fact(self._facts(i)[0])
        above, is_heading = self.headline(i)
        text = "" if is_heading else self.content(i)
        return rendering.linear_sentence(above, self.without_marks(i, text))

    def cells(self, i: int) -> list[str]:
        """Return the cells of a table row that are not blank."""
        self._check(i)
        return [cell for cell in self._row(i) if cell.strip()]

    def links(self, i: int) -> list[str]:
        """Return the uris of the documents to which the cells of a table row link, in the order of the links."""
        self._check(i)
        source = self._source[i]
        first, stop = map(int, self._link_range[source : source + 2])
        if first == stop:
            return []
        at = np.flatnonzero(self._link_row[first:stop] == self.start[i])
        return [self._link_uris[first + k] for k in at.tolist()]

    def triples(self, i: int) -> list[Triple]:
        """Return the triples in a segment of a knowledge graph (document, subgraph or triplet), subgraph by
        subgraph."""
        self._check(i)
        return [Triple(*fact) for fact in self._facts(i)]

    def is_table(self, i: int) -> bool:
        """Whether a segment is a table or a part of a table."""
        self._check(i)
        return bool(_TABLE <= self._level[i] <= _CELL)

    def is_graph(self, i: int) -> bool:
        """Whether a segment is a knowledge graph or a part of one."""
        self._check(i)
        return self._kinds[self._source[i]] == _GRAPH

    @cached_property
    def has_graphs(self) -> bool:
        """Whether at least one document is a knowledge graph."""
        return bool((np.asarray(self._kind) == _GRAPH).any())

    def in_graphs(self, segments: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these segments is a knowledge graph or a part of one."""
        self._check_places(segments)
        graphs: NDArray[np.bool_] = raw(self._kind)[self._column["source"][segments]] == _GRAPH
        return graphs

    def header(self, source: int) -> tuple[str, ...]:
        """The header of a table: the names of its columns."""
        return tuple(self._names[k] for k in range(*map(int, self._header_range[source : source + 2])))

    def table(self, source: int) -> dict[str, Any]:
        """The `title` and `header` of a document that is a table, and its `section` if it has one."""
        title, section, header = self._above_rows(source)
        shown = {"title": title, "header": header}
        return shown | {"section": section} if section else shown

    def segment(self, i: int) -> dict[str, Any]:
        """Return a segment in the form of evidence: `id` (16 hex digits), `level`, `uri`, `offsets`, `snippet`."""
        self._check(i)
        return {
            "id": f"{self.ids[i]:016x}",
            "level": Level(self._level[i]).name.lower(),
            "uri": self._uris[self._source[i]],
            "offsets": [int(self.start[i]), int(self.end[i])],
            "snippet": self.content(i),
        }

    def metadata(self, i: int, as_written: bool = False) -> dict[str, Any]:
        """Return the metadata of a segment. With `as_written`, numbers are strings with all of their digits.

        The result contains the document's metadata and, for a text, the `page` (from 1) on which the segment
        begins, and the `headings` above the segment. Unknown values are left out.
        """
        self._check(i)
        source = int(self._source[i])
        if self._kind[source] in (Kind.TEXT, Kind.MARKDOWN):
            return self._parsed(source).metadata_at(int(self.start[i]), as_written)
        return StoredOutline(Outline(about=self._about(source))).metadata_at(0, as_written)

    def _about(self, source: int) -> str:
        """The metadata of a table or a knowledge graph, as JSON."""
        is_graph = self._kind[source] == Kind.GRAPH
        return self._sections[source] if is_graph else "".join(orjson.loads(self._places[source])[2:])

    def _parsed(self, source: int) -> StoredOutline:
        """The outline of a text, and its headings."""
        known = self._outlines.get(source)
        if known is None:
            if not (stored := self._sections[source]):
                return _NO_OUTLINE
            try:
                known = StoredOutline.parse(stored, self._titles[source])
            except (ValueError, TypeError, AttributeError) as error:
                raise self._damaged("an outline is malformed") from error
            held = 1 + len(known.headings)
            self._held += held
            if self._held > _OUTLINES:
                self._outlines, self._held = {}, held
            self._outlines[source] = known
        return known

    def fingerprint(self) -> str:
        """A hexadecimal digest (checksum) of all documents.

        It is the sum of the documents' digests, so it does not depend on their order. Adding a document
        adds its digest to the sum, and deleting a document subtracts it.
        """
        return f"{self.digest_sum():032x}"

    def digests(self, documents: Sequence[int] | None = None) -> NDArray[np.uint64]:
        """Return the digests (checksums) of these documents, [n, 2]. None: all documents."""
        buffer = self._parts[1].column("digest").buffers()[1] or b""
        digests = np.frombuffer(buffer, "<u8")[: 2 * self.documents].reshape(-1, 2)
        which = np.arange(self.documents) if documents is None else np.array(documents, np.int64)
        if self._files:
            place = self._files[1].place(digests) + 16 * which
            self._files[1].check_ranges(place, place + 16)
        return digests[which]

    def digest_sum(self, documents: Sequence[int] | None = None) -> int:
        """Add up the digests of these documents (None: of all documents). The result is a number of 128 bits,
        whose low and high 64 bits are added separately, without overflow from one into the other."""
        low, high = self.digests(documents).sum(axis=0, dtype=np.uint64).tolist()
        return int(high) << 64 | int(low)

    def passages_in(self, documents: Sequence[int]) -> int:
        """Return how many passages these documents have."""
        counts = checked(_array(self._parts[1], "passages"), self._files[1] if self._files else None)
        return int(counts[np.array(documents, np.int64)].sum())

    @cached_property
    def document_table(self) -> pa.RecordBatch:
        """A table of the documents, with the columns of `schema.DOCUMENTS`. The whole table is checked first,
        because Arrow does not check it."""
        if self._files:
            self._files[1].check_all()
            self._validate(self._parts[1])
        return self._parts[1]

    @classmethod
    def join(
        cls, corpora: Iterable["Corpus"], live: Sequence[NDArray[np.bool_]], folder: Path, size: int
    ) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Write several corpora as one corpus into a new folder.

        `live` says for each corpus which documents to keep (bool[documents]). `size` is the sum of the corpora's
        `text_size`. Returns the passages' positions and the table of the documents.
        """
        return storage.join((corpus._checked_parts() for corpus in corpora), live, folder, size)

    def _checked_parts(self) -> storage.Parts:
        self.check_all()
        return self._parts

    @property
    def text_size(self) -> int:
        """The number of bytes of text."""
        return len(self._text_buffer)

    def save(self, folder: Path) -> None:
        """Write the corpus into a folder, which is created if needed. Each file is written under another name and
        then renamed."""
        storage.write(folder, self._parts)

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Memory-map the corpus that was saved in a folder. Raises IndexFormatError if a file is missing or
        damaged."""
        return cls(*storage.read(folder))

    @classmethod
    def mapped(cls, files: MappedFolder) -> "Corpus":
        """Memory-map the corpus of an index part. Each block of its files is checked when it is first read.

        Raises `IndexFormatError` if a file is missing or damaged.
        """
        parts, of_parts = storage.map_parts(files)
        return cls(*parts, of_parts)

    def _text(self, i: int) -> str:
        return str(self._bytes(self._byte_start[i], self._byte_end[i]), "utf-8")

    def _bytes(self, first: int, last: int) -> memoryview:
        """Return the bytes `first` to `last` (exclusive) of the text buffer, after checking them."""
        if self._text_file is not None:
            self._text_file.check(first, last)
        return self._text_buffer[first:last]

    def _row(self, i: int) -> list[str]:
        start = self._byte_start[i]
        row = bytes(self._bytes(start, self._byte_end[i]))
        cuts = [end - start for end in self._byte_end[i + 1 : self._subtree_end[i]].tolist()]
        return [row[a:b].decode() for a, b in zip([0, *cuts], cuts, strict=False)]

    def _rows(self, root: int) -> Iterator[list[str]]:
        i = root + 1
        while i < len(self._level) and self._level[i] == _ROW:
            row = self._row(i)
            yield row
            i += 1 + len(row)

    def _above_rows(self, source: int) -> tuple[str, str, list[str]]:
        """Return a table's title, section and header, without whitespace around the names in the header."""
        header = self._headers.get(source)
        if header is None:
            header = self._headers[source] = list(map(str.strip, self.header(source)))
        return self._titles[source], self._sections[source], header

    def _triplet_range(self, i: int) -> tuple[int, int]:
        """Return the range (first, after the last) of the triples of a document, subgraph or triplet."""
        level, first, stop = self._level[i], bisect_left(self._triplets, i), self._subtree_end[i]
        if level in (_SUBGRAPH, _TRIPLET):
            return first, first + stop - i - (level == _SUBGRAPH)
        return first, bisect_left(self._triplets, stop)

    def _facts(self, i: int) -> list[rendering.Fact]:
        """Return the triples of a document, subgraph or triplet, or an empty list for any other segment."""
        first, last = self._triplet_range(i)
        base = self._byte_start[i]
        data = bytes(self._bytes(base, self._byte_end[i]))
        facts = []
        start = 0
        for k in range(first, last):
            relation, tail = self._relation_start[k] - base, self._tail_start[k] - base
            end = self._byte_end[self._triplets[k]] - base
            time = self._times[k] if self._timed[k] else None
            head, relates, to = data[start:relation], data[relation:tail], data[tail:end]
            facts.append((head.decode(), relates.decode(), to.decode(), time))
            start = end  # The next triple begins where this one ends.
        return facts


def hash_uris(uris: Iterable[str]) -> NDArray[np.uint64]:
    """Compute a hash (uint64) for each uri."""
    digests = (blake2b(uri.encode(errors="surrogatepass"), digest_size=8).digest() for uri in uris)
    return np.frombuffer(b"".join(digests), dtype="<u8")


@dataclass(frozen=True, slots=True, eq=False)
class SegmentIds:
    """The ids of a corpus's segments, computed when they are read: `ids[i]`, `ids[array]`, `ids[:]`."""

    columns: Segments
    check: Callable[[NDArray[np.int64]], None]
    """A function that checks the data of segments in the mapped files"""

    def __len__(self) -> int:
        """The number of segments."""
        return self.columns.level.size

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice | NDArray[Any]) -> NDArray[np.uint64]: ...

    def __getitem__(self, at: Any) -> Any:
        """Return the id of one segment, or the ids of several segments as a uint64 array."""
        if isinstance(at, int | np.integer):
            return int(self._of(np.array([range(len(self))[at]]))[0])
        if isinstance(at, slice):
            places = range(*at.indices(len(self)))
            ids = np.empty(len(places), np.uint64)
            for first in range(0, len(places), _IDS_AT_ONCE):
                some = places[first : first + _IDS_AT_ONCE]
                ids[first : first + _IDS_AT_ONCE] = self._of(np.arange(some.start, some.stop, some.step))
            return ids
        at = np.asarray(at, None if len(at) else np.int64)
        return self._of(np.flatnonzero(at) if at.dtype == bool else at.astype(np.int64, copy=False))

    def _of(self, segments: NDArray[np.int64]) -> NDArray[np.uint64]:
        self.check(segments)
        return segment_ids(self.columns, segments)


class _Strings:
    """A column of strings, each of which is read and checked when it is used."""

    __slots__ = ("data", "file", "offsets", "places")

    def __init__(self, column: pa.Array, file: MappedFile | None) -> None:
        offsets, data = _offsets(column), column.buffers()[2]
        self.file = file if len(column) else None
        if self.file is not None:
            self.file.check_array(offsets[-1:])
        held = np.frombuffer(memoryview(data or b"")[: max(int(offsets[-1]), 0)], np.uint8)
        self.offsets: memoryview = offsets.data
        self.data: memoryview = held.data
        # the positions in the file at which the offsets and the data start
        self.places = (0, 0) if self.file is None else (self.file.place(offsets), self.file.place(held))

    def __getitem__(self, k: int) -> str:
        if self.file is not None:
            self.file.check(self.places[0] + 8 * k, self.places[0] + 8 * k + 16)
            self.file.check(self.places[1] + self.offsets[k], self.places[1] + self.offsets[k + 1])
        return str(self.data[self.offsets[k] : self.offsets[k + 1]], "utf-8")

    def check(self, which: NDArray[np.int32]) -> None:
        """Check the strings with these numbers in the file."""
        if self.file is not None:
            at = 8 * np.unique(which).astype(np.int64)
            self.file.check_ranges(self.places[0] + at, self.places[0] + at + 16)
            offsets = np.asarray(self.offsets)
            self.file.check_ranges(self.places[1] + offsets[at // 8], self.places[1] + offsets[at // 8 + 1])


def _array(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    values: NDArray[Any] = np.from_dlpack(batch.column(name))
    values.flags.writeable = False
    return values


def _offsets(column: pa.Array, file: MappedFile | None = None) -> Any:
    """Return the start of each string or list of a column, and the end of the last one: int64[n + 1]."""
    buffer = column.buffers()[1]
    if not len(column) or buffer is None:  # Arrow may leave out the single offset of an empty column.
        return np.zeros(1, dtype=np.int64)
    return checked(np.frombuffer(buffer, dtype=np.int64, count=len(column) + 1), file)
