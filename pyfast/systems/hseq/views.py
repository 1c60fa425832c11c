"""HSEQ's view of a corpus.

Views show a segment (HSEQ, A.3.5) as text, as a part of a table, or as triples. Entity links connect segments
that name the same entity: two triples are linked if they share a head or a tail, and a table cell is linked
to the document to which its hyperlink leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from pyfast.corpus import Corpus, Level, Triple
from pyfast.ops.arrays import Int32, Int64
from pyfast.utils.text_forms import name_form

# Plain integers: each segment is compared with them.
_PARAGRAPH, _ROW = int(Level.PARAGRAPH), int(Level.TABLE_ROW)
_FACTS = (int(Level.TRIPLET), int(Level.SUBGRAPH))
_IN_ROWS = (_ROW, int(Level.TABLE_CELL))
# the maximum number of linked facts of an entity, and of linked paragraphs of a document: some have thousands
_EACH = 16


@dataclass(frozen=True, slots=True)
class TextView:
    """A part of a text: the offset of its first character, the offset after its last character, and the
    positions in the corpus of the section and paragraph around it, or None if there is none.
    """

    start: int
    end: int
    section: int | None
    paragraph: int | None


@dataclass(frozen=True, slots=True)
class TableView:
    """A part of a table: the table's header, the row number (None for the whole table), the column numbers,
    and its cells as (row, column). Numbers count from 0.
    """

    schema: tuple[str, ...]
    row: int | None
    columns: tuple[int, ...]
    cells: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GraphView:
    """The triples in a part of a knowledge graph, with their times if known."""

    triples: tuple[Triple, ...]


View = TextView | TableView | GraphView


def view(corpus: Corpus, i: int) -> View:
    """Describe one segment as text, as a part of a table, or as triples.

    Args:
        corpus: The corpus.
        i: The position of a segment in the corpus.

    Returns:
        A `TextView`, `TableView` or `GraphView`.

    Example:
        >>> from pyfast.corpus import TextDocument, encode
        >>> from pyfast.systems.hseq.views import view
        >>> type(view(encode([TextDocument("titan", "Titan", "Titan is a moon.")]), 0)).__name__
        'TextView'
    """
    if corpus.is_table(i):
        inside = range(i, int(corpus.subtree_end[i]))
        cells = [(int(corpus.start[k]), int(corpus.end[k])) for k in inside if corpus.level[k] == Level.TABLE_CELL]
        row = int(corpus.start[i]) if corpus.level[i] != Level.TABLE else None
        columns = tuple(sorted({column for _, column in cells}))
        return TableView(corpus.header(int(corpus.source[i])), row, columns, tuple(cells))
    if corpus.is_graph(i):
        return GraphView(tuple(corpus.triples(i)))
    around = {}
    above = i
    while above >= 0:  # up to the document
        around[int(corpus.level[above])] = above
        above = int(corpus.parent[above])
    place = int(corpus.start[i]), int(corpus.end[i])
    return TextView(*place, around.get(Level.SECTION), around.get(Level.PARAGRAPH))


PRIORITY = (Level.PARAGRAPH, Level.TABLE_ROW, Level.SENTENCE, Level.TRIPLET)
"""The order of HSEQ's paper: levels with more content come first"""


@dataclass(frozen=True, slots=True, eq=False)
class EntityLinks:
    """Links between segments of a corpus that name the same entity, as arrays."""

    corpus: Corpus
    triplets: Int64
    """[triplets] the position of each triplet in the corpus"""
    entity: Int32
    """[triplets, 2] the numbers of each triplet's head and tail entities. Names with the same form
    (`text_forms.name_form`) are the same entity"""
    entity_offsets: Int64
    """[entities + 1] the position in `entity_triplets` at which each entity's triplets start"""
    entity_triplets: Int64
    """The triplets that name each entity, entity by entity, as ascending positions in `triplets`"""
    links: tuple[Int64, Int64]
    """(rows, documents), two arrays [links]: the position of the table row that contains the link, and the
    number of the document to which it leads, sorted by row"""
    linked: tuple[Int64, Int64]
    """(documents, rows): the same links, sorted by document"""

    def of(self, i: int) -> Iterator[int]:
        """Find the segments that name an entity of segment `i`.

        The result can contain a segment twice. It contains at most 16 segments per entity, and at most 16 per
        document to which a link leads.

        For a triplet or subgraph, the result is the other triplets that name the segment's head or a tail.
        Those that name a tail come first, because a chain of facts continues from a tail. For a table row or
        cell, the result is the paragraphs of the documents to which the row links. For any other segment, it
        is the table rows that link to the segment's document.
        """
        level = int(self.corpus.level[i])
        if level in _FACTS:
            last = max(int(self.corpus.subtree_end[i]), i + 1)
            first, stop = np.searchsorted(self.triplets, (i, last)).tolist()
            own = range(first, stop)
            for entity in dict.fromkeys(self.entity[first:stop, ::-1].T.ravel().tolist()):
                begin, end = self.entity_offsets[entity : entity + 2].tolist()
                most = min(end, begin + 2 * (_EACH + len(own)))  # A triple can name the entity twice.
                each = dict.fromkeys(self.entity_triplets[begin:most].tolist())
                named = (k for k in each if k not in own)
                yield from (int(self.triplets[k]) for k in islice(named, _EACH))
        elif level in _IN_ROWS:
            row = i if level == _ROW else int(self.corpus.parent[i])
            for target in _matching(self.links, row):
                root = int(self.corpus.roots[target])
                below = self.corpus.level[root : self.corpus.subtree_end[root]]
                yield from (root + at for at in np.flatnonzero(below == _PARAGRAPH)[:_EACH].tolist())
        else:
            yield from _matching(self.linked, int(self.corpus.source[i]))[:_EACH]


def _matching(pairs: tuple[Int64, Int64], key: int) -> list[int]:
    """Return the values that belong to `key`, without duplicates. `pairs` is (keys, values), sorted by key."""
    keys, values = pairs
    first, stop = np.searchsorted(keys, (key, key + 1)).tolist()
    return list(dict.fromkeys(values[first:stop].tolist()))


def entity_links(corpus: Corpus) -> EntityLinks:
    """Find the links between segments that name the same entity.

    Args:
        corpus: The corpus.

    Returns:
        The links, for the expansion of HSEQ.
    """
    triplets = np.flatnonzero(corpus.level == Level.TRIPLET)
    entity, count = _entities(corpus)
    named = entity.ravel()
    order = np.argsort(named, kind="stable")
    source, row, target = _links(corpus)
    rows = np.flatnonzero(corpus.level == Level.TABLE_ROW)
    first, stop = (np.searchsorted(corpus.source[rows], source, side) for side in ("left", "right"))
    there = (target >= 0) & (row < stop - first)  # Links to documents outside the corpus are left out.
    row, target = rows[(first + row)[there]], target[there]
    by_row, by_target = (np.argsort(keys, kind="stable") for keys in (row, target))
    return EntityLinks(
        corpus,
        triplets,
        entity,
        np.searchsorted(named[order], np.arange(count + 1)),
        order // 2,
        (row[by_row], target[by_row]),
        (target[by_target], row[by_target]),
    )


def _links(corpus: Corpus) -> tuple[Int64, ...]:
    """Find all links. Returns three arrays [links]: the document that contains the link, the row (from 0) in
    this document, and the target document.

    If the target is not in the corpus, its number is -1.
    """
    import pyarrow.compute as pc  # It takes 0.1 s.

    documents = corpus.document_table
    links = documents.column("links")
    target = pc.fill_null(pc.index_in(links.values.field("uri"), value_set=documents.column("uri")), -1)
    lengths, row, to = map(np.from_dlpack, (links.value_lengths(), links.values.field("row"), target))
    return np.repeat(np.arange(len(links)), lengths.astype(np.int64)), row.astype(np.int64), to.astype(np.int64)


def _entities(corpus: Corpus) -> tuple[Int32, int]:
    """Number the entities of all triplets, by the forms of their names.

    Returns (the numbers of the head and the tail of each triplet: [triplets, 2], the number of entities).
    """
    columns = corpus.columns
    k = columns.triplets
    if not k.size:
        return np.empty((0, 2), np.int32), 0
    # View the buffer as one column of strings: head, relation, tail, and the bytes between two triples.
    cuts = np.stack(
        [columns.byte_start[k], columns.relation_start, columns.tail_start, columns.byte_end[k]], axis=1
    ).ravel()
    offsets = pa.py_buffer(cuts.astype(np.int64))
    strings = pa.LargeStringArray.from_buffers(cuts.size - 1, offsets, pa.py_buffer(columns.content))
    wanted = np.arange(k.size)[:, None] * 4 + (0, 2)
    coded = strings.take(pa.array(wanted.ravel())).dictionary_encode()
    numbers: dict[str, int] = {}
    names = coded.dictionary.to_pylist()
    same = np.array([numbers.setdefault(name_form(name) or name, len(numbers)) for name in names], np.int32)
    return same[np.from_dlpack(coded.indices)].reshape(-1, 2), len(numbers)
