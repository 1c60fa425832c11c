"""Find known names in evidence, by string matching (graph_convqa, section 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Level
from pyfast.engine import plain
from pyfast.retrieval import Index, ScoredSegments

SHORTEST = 3  # characters; shorter names, such as "A" or "6", mean something else in most texts

Span = tuple[int, int, int]
"""(position of the first character, position after the last one, number of the entity)"""


class Entities:
    """The known names, and a method that finds them in a text."""

    def __init__(self, names: Iterable[str]) -> None:
        """Store the names. Names of fewer than three characters, and words such as "The" or "her", are left
        out."""
        from ahocorasick_rs import AhoCorasick

        wanted = (name for name in dict.fromkeys(name.strip() for name in names) if len(name) >= SHORTEST)
        self.names = [name for name in wanted if name.lower() not in stop_words.ENGLISH]
        self._automaton = AhoCorasick(self.names)

    def spans(self, text: str) -> list[Span]:
        """Find where names occur in a text. Only whole words count.

        Of two overlapping names, only the first counts or, if both start at the same character, the longer one.
        """
        spans: list[Span] = []
        end_before = 0
        matches = self._automaton.find_matches_as_indexes(text, overlapping=True)
        for entity, start, end in sorted(matches, key=lambda match: (match[1], -match[2])):
            if start >= end_before and _is_edge(text, start) and _is_edge(text, end):
                spans.append((start, end, entity))
                end_before = end
        return spans

    def named(self, spans: Iterable[Span]) -> dict[str, None]:
        """Return the names at these positions, without duplicates."""
        return dict.fromkeys(self.names[entity] for _, _, entity in spans)


def _is_edge(text: str, place: int) -> bool:
    """Return whether a word begins or ends at this position."""
    return not (0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum())


@lru_cache(maxsize=4)
def known_entities(index: Index) -> Entities:
    """Collect the known names: heads and tails of the corpus's triples, and document titles."""
    corpus = index.corpus
    graphs = (corpus.triples(i) for i in np.flatnonzero(corpus.level == Level.SUBGRAPH).tolist())
    ends = (name for triples in graphs for triple in triples for name in (triple.head, triple.tail))
    return Entities([*ends, *map(corpus.title, range(corpus.documents))])


@dataclass(frozen=True, slots=True)
class Linear:
    """The evidence of one turn as lines of text, best first."""

    lines: tuple[str, ...]
    """The text of each item"""
    spans: tuple[tuple[Span, ...], ...]
    """For each line: the positions of the known names in it"""
    entities: tuple[str, ...]
    """All entities that the items name, without duplicates, in the order of their first mention"""


def names_in(index: Index, items: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Find the known names in texts.

    Args:
        index: The index. The known names come from its corpus (see `known_entities`).
        items: Lists of texts. A text with tabs is a table row whose cells are separated by tabs.

    Returns:
        For each list: the known names in its texts, and the cells of its table rows, without duplicates.
    """
    known = known_entities(index)
    matches = []
    for texts in items:
        named: dict[str, None] = {}
        for text in map(plain, texts):
            named |= known.named(known.spans(text))
            if len(cells := text.split("\t")) > 1:
                named.update(dict.fromkeys(filter(None, map(str.strip, cells))))
        matches.append(tuple(named))
    return matches


def linearise(index: Index, items: Sequence[ScoredSegments]) -> list[Linear]:
    """Write segments as lines of text, and find the known names in the lines.

    Args:
        index: The index. The known names come from its corpus (see `known_entities`).
        items: Lists of segments.

    Returns:
        For each list: the lines, the positions of known names in each line, and all entities that the lines
        name. The cells of table rows count as entities too.
    """
    known, corpus = known_entities(index), index.corpus
    pieces = []
    for item in items:
        segments = item.segments.tolist()
        lines = tuple(plain(corpus.linearise(i)) for i in segments)
        spans = tuple(tuple(known.spans(line)) for line in lines)
        named: dict[str, None] = {}
        for i, inside in zip(segments, spans, strict=True):
            named |= known.named(inside)
            if corpus.level[i] == Level.TABLE_ROW:
                named.update(dict.fromkeys(cell.strip() for cell in corpus.cells(i)))
        pieces.append(Linear(lines, spans, tuple(named)))
    return pieces
