"""The documents from which passages come. A page loads a part of a document when the user asks for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyfast.corpus import Corpus, Level

TEXT = 20_000
"""The number of characters in a part of a text"""
AROUND = 2_000
"""The number of characters that are shown before and after a part of a text"""
ROWS = 50
TRIPLES = 128
"""The number of triples in a part of a knowledge graph. A page shows the part and up to `_MOST` more triples,
because a segment can continue beyond the end of its part
"""
_MOST = 64


class Part(NamedTuple):
    """A part of a document: the text, rows or triples around a passage."""

    source: int
    number: int

    @property
    def key(self) -> str:
        """The name of this part of a document in the data of a page."""
        return f"{self.source}-{self.number}"


def part_of(corpus: Corpus, segment: int) -> tuple[Part, list[int]]:
    """Find the part of a document that contains a segment. Returns the part, and the range (first, after the
    last) of the segment's characters, rows or triples.
    """
    source = int(corpus.source[segment])
    start, end = int(corpus.start[segment]), int(corpus.end[segment])
    size = TEXT
    if corpus.is_graph(segment):
        size, root = TRIPLES, int(corpus.roots[source])
        start = int(np.count_nonzero(corpus.level[root:segment] == Level.TRIPLET))
        end = start + len(corpus.triples(segment))
    elif corpus.is_table(segment):
        size, start = ROWS, max(start, 0)
        end = start + (corpus.level[segment] != Level.TABLE)
    return Part(source, start // size), [start, int(end)]


def content_of(corpus: Corpus, part: Part) -> dict[str, Any]:
    """Return the content of a part of a document, in JSON types.

    `from` is the number of the first character, row or triple in the result, from 0. `of` is the number of
    characters, rows or triples of the whole document.
    """
    source, number = part
    root = int(corpus.roots[source])
    shown = {"uri": corpus.uri(source), "title": corpus.title(source)}
    if corpus.is_graph(root):
        first, at = number * TRIPLES, _below(corpus, root, Level.TRIPLET)
        facts = [corpus.triples(i)[0] for i in at[first : first + TRIPLES + _MOST].tolist()]
        return {**shown, "from": first, "of": len(at), "triples": [(x.head, x.relation, x.tail) for x in facts]}
    if corpus.is_table(root):
        first, at = number * ROWS, _below(corpus, root, Level.TABLE_ROW)
        rows = [corpus.content(i).split("\t") for i in at[first : first + ROWS].tolist()]
        return {**shown, "from": first, "of": len(at), "header": corpus.header(source), "rows": rows}
    text = corpus.content(root)
    first = max(number * TEXT - AROUND, 0)
    return {**shown, "from": first, "of": len(text), "text": text[first : (number + 1) * TEXT + AROUND]}


def _below(corpus: Corpus, root: int, level: Level) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the segments of one level in a document, in the order of the document. `root` is the document's
    own segment.
    """
    inside: np.ndarray[Any, np.dtype[np.int64]] = corpus.level[root : int(corpus.subtree_end[root])] == level
    return root + np.flatnonzero(inside)
