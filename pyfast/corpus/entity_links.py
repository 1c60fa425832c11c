"""Links between segments that name the same entity.

Two triples are linked if they share a head or a tail. A table cell is linked to the document to which its link
leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyfast.corpus.levels import Level
from pyfast.corpus.sequence import Corpus
from pyfast.text_forms import name_form

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

# Plain integers: each segment is compared with them.
_PARAGRAPH, _ROW = int(Level.PARAGRAPH), int(Level.TABLE_ROW)
_FACTS = (int(Level.TRIPLET), int(Level.SUBGRAPH))
_IN_ROWS = (_ROW, int(Level.TABLE_CELL))
# the maximum number of linked facts of an entity, and of linked paragraphs of a document: some have thousands
_EACH = 16


@dataclass(frozen=True, slots=True, eq=False)
class EntityLinks:
    """Links between segments of a corpus that name the same entity, as arrays."""

    corpus: Corpus
    triplets: Int64
    """[triplets] the position of each triplet in the corpus"""
    entity: Int32
    """[triplets, 2] the numbers of the entities that are the head and tail of each triplet. Names with the
    same form (`text_forms.name_form`) are the same entity"""
    entity_offsets: Int64
    """[entities + 1] the position in `entity_triplets` at which the triplets of each entity start"""
    entity_triplets: Int64
    """The triplets that name each entity, entity by entity, as ascending positions in `triplets`"""
    links: tuple[Int64, Int64]
    """(rows, documents), two arrays [links]: the position of the table row that has the link, and the number of
    the document to which the link leads. Links are sorted by row"""
    linked: tuple[Int64, Int64]
    """(documents, rows): the same links, sorted by document"""

    def of(self, i: int) -> Iterator[int]:
        """Find the segments that name an entity of segment `i`.

        The result can contain a segment twice. It has at most 16 segments for each entity, and at most 16
        for each document to which a link leads.

        For a triplet or subgraph, the result is the other triplets that name the head or a tail of this segment.
        The triplets that name a tail come first, because a chain of facts continues from a tail. For a table
        row or cell, the result is the paragraphs of the documents to which the row links. For any other
        segment, the result is the table rows that link to the segment's document.
        """
        level = int(self.corpus.level[i])
        if level in _FACTS:
            last = max(int(self.corpus.subtree_end[i]), i + 1)
            first, stop = np.searchsorted(self.triplets, (i, last)).tolist()
            own = range(first, stop)
            for entity in dict.fromkeys(self.entity[first:stop, ::-1].T.ravel().tolist()):
                begin, end = self.entity_offsets[entity : entity + 2].tolist()
                most = min(end, begin + 2 * (_EACH + len(own)))  # A triple can name it twice.
                each = dict.fromkeys(self.entity_triplets[begin:most].tolist())
                named = (k for k in each if k not in own)
                yield from (int(self.triplets[k]) for k in islice(named, _EACH))
        elif level in _IN_ROWS:
            row = i if level == _ROW else int(self.corpus.parent[i])
            for target in _matching(self.links, row):
                yield from self._paragraphs(target)
        else:
            yield from _matching(self.linked, int(self.corpus.source[i]))[:_EACH]

    def _paragraphs(self, source: int) -> list[int]:
        root = int(self.corpus.roots[source])
        below = self.corpus.level[root : self.corpus.subtree_end[root]]
        return [root + at for at in np.flatnonzero(below == _PARAGRAPH)[:_EACH].tolist()]


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
    row, target = _links(corpus)
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


def _links(corpus: Corpus) -> tuple[Int64, Int64]:
    """Return two arrays: the table row of each link, and the document to which it leads. Links to documents
    that are not in the corpus are left out.
    """
    source, row, target = corpus.links_between()
    rows = np.flatnonzero(corpus.level == Level.TABLE_ROW)
    first, stop = (np.searchsorted(corpus.source[rows], source, side) for side in ("left", "right"))
    there = (target >= 0) & (row < stop - first)
    return rows[(first + row)[there]], target[there]


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
