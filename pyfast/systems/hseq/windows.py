"""Divide a corpus's segments into the windows that HSEQ shows for a question (section 3.4), and pick evidence
from a window by the question's words, in place of an LLM. A few native calls serve a batch of questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise, zip_longest
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

import pyfast.ops as ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Int64, ends
from pyfast.ops.hseq_stream import Cursors, Lists, Neighbors
from pyfast.retrieval import Index, RerankConfig, rerank_pools, search, segment_ids
from pyfast.retrieval.index.index import of_index
from pyfast.systems.effort import worth_reading
from pyfast.systems.hseq.views import EntityLinks, entity_links

Priority = tuple[Level, ...]
_HOPS = 64  # the maximum number of neighbours, by shared entities or by position, that are examined
_BESIDE = 1024  # the maximum number of segments of the documents that a search found
# the maximum number of bytes of a neighbour: the parent of a row may be a table with millions of rows
_LARGEST = 1 << 14


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment in a window, as HSEQ's policy sees it."""

    position: int
    level: Level
    text: str
    id: str = ""
    """The segment's id, 16 hexadecimal digits"""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A question's current window, and its progress in the stream of segments."""

    question: str
    cursor: Cursors
    """The position of the question in the stream"""
    front: tuple[int, ...]
    """The segments of an expansion. They come before the segments of the stream"""
    window: tuple[Candidate, ...]
    only: frozenset[int] | None = None
    """The segments of the stream that are worth reading. None: all segments are shown"""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """How a question moves from one window to the next."""

    view: View
    done: tuple[int, ...]
    """The segments that are not shown again, because they were picked or skipped"""
    expand: Neighbors | None = None
    """The kind of expansion: which neighbours of the segments in the field `of` come next. None: no expansion"""
    of: tuple[int, ...] = ()


@of_index
def open_window(
    index: Index, questions: Sequence[str], width: int, prior: int, priority: Priority, unread: float | None = None
) -> list[View]:
    """Make the first window of each question (Window in HSEQ's paper).

    A question's windows first show the `prior` best passages of a search, then other segments of these passages'
    documents (at most 1,024), then all other segments. Within each of the last two groups, segments are ordered by
    level, as in `priority`.

    Args:
        index: The index.
        questions: The questions.
        width: The number of segments in a window (W in the paper).
        prior: The number of passages from the search.
        priority: The order of levels (rho in the paper).
        unread: If given, an evidence graph ranks the passages of the search, and the windows show only those that
            are worth reading: `unread` passages with evidence are expected among those left out.

    Returns:
        The first window of each question.
    """
    stream, fronts = index.stream(priority), [()] * len(questions)
    if not prior:
        return _views(index, stream, questions, stream.cursors(len(questions)), fronts, width)
    pools = search(index, questions, prior)
    if unread is None:
        retrieved = [index.passages[pool.passages] for pool in pools]
        priors = [np.concatenate([it, _beside(index, it, priority)]) for it in retrieved]
        return _views(index, stream, questions, stream.cursors(priors=_lists(priors)), fronts, width)
    config = RerankConfig(prior, prior, rank="bridge_rank", expand=True)
    ranked = rerank_pools(index, list(zip(pools, questions, strict=True)), config)
    chosen = worth_reading(index, list(zip(ranked, pools, questions, strict=True)), unread)
    priors = [index.passages[pool.passages] for pool in chosen]
    onlys = [frozenset(it.tolist()) for it in priors]
    return _views(index, stream, questions, stream.cursors(priors=_lists(priors)), fronts, width, onlys)


def _beside(index: Index, passages: Int64, priority: Priority) -> Int64:
    """Return at most `_BESIDE` other segments of the passages' documents, ordered by level as in `priority`,
    and within a level in document order.

    Of a large document, only the first `_BESIDE` segments are considered.
    """
    corpus = index.corpus
    documents = list(dict.fromkeys(corpus.source[passages].tolist()))
    roots = corpus.roots[documents]
    stops = np.minimum(corpus.subtree_end[roots], roots + _BESIDE)
    segments = np.concatenate([np.empty(0, np.int64), *map(np.arange, roots, stops)])
    segments = segments[~np.isin(segments, passages)]
    levels = corpus.level[segments]
    return np.concatenate([np.empty(0, np.int64), *(segments[levels == level] for level in priority)])[:_BESIDE]


@of_index
def move_on(index: Index, moves: Sequence[Move], width: int, priority: Priority) -> list[View]:
    """Move each question to its next window (Refresh in HSEQ's paper).

    Picked and skipped segments leave the window. If the policy asked for neighbours of its picks, the neighbours
    come first and fill at most half of the window. If there are too many, the window takes the first of them or,
    for the kind `relation`, those that share the most words with the question. Very large neighbours, such as
    whole documents, are left out.

    Args:
        index: The index.
        moves: How each question moves.
        width: The number of segments in a window (W in the paper).
        priority: The order of levels (rho in the paper).

    Returns:
        The next window of each question.
    """
    stream = index.stream(priority)
    cursors = Cursors.join([move.view.cursor for move in moves])
    cursors = stream.refresh(cursors, _lists([np.array(move.done, np.int64) for move in moves]))
    near = _neighbours(index, stream, moves, cursors, max(width // 2, 1))
    corpus = index.corpus
    fronts = []
    for move, neighbours in zip(moves, near, strict=True):
        gone = set(move.done)
        small = (i for i in neighbours if corpus.byte_end[i] - corpus.byte_start[i] <= _LARGEST)
        fronts.append(tuple(dict.fromkeys([*small, *(i for i in move.view.front if i not in gone)]))[:width])
    onlys = [move.view.only for move in moves]
    return _views(index, stream, [move.view.question for move in moves], cursors, fronts, width, onlys)


def _views(
    index: Index,
    stream: ops.Stream,
    questions: Sequence[str],
    cursors: Cursors,
    fronts: Sequence[tuple[int, ...]],
    width: int,
    onlys: Sequence[frozenset[int] | None] | None = None,
) -> list[View]:
    parts = _split(*stream.window(cursors, width))
    views = []
    for at, (question, front, shown) in enumerate(zip(questions, fronts, parts, strict=True)):
        only = onlys[at] if onlys is not None else None
        every = [*front, *(i for i in shown if only is None or i in only)]
        window = islice(dict.fromkeys(every), width)
        views.append(View(question, cursors[at : at + 1], front, tuple(candidates(index, window)), only))
    return views


def candidates(index: Index, segments: Iterable[int]) -> Iterable[Candidate]:
    """Describe segments, each with its level, its text as the LLM reads it, and its id.

    Args:
        index: The index.
        segments: Positions in the corpus.

    Returns:
        One candidate for each segment.
    """
    corpus, places = index.corpus, list(segments)
    ids = segment_ids(index, np.array(places, np.int64))
    return (
        Candidate(i, Level(int(corpus.level[i])), corpus.render(i), id) for i, id in zip(places, ids, strict=True)
    )


def _neighbours(
    index: Index, stream: ops.Stream, moves: Sequence[Move], cursors: Cursors, limit: int
) -> list[list[int]]:
    """Return the segments of each move's expansion, without those already picked or skipped."""
    near: list[list[int]] = [[] for _ in moves]
    for kind in dict.fromkeys(move.expand for move in moves if move.expand is not None):
        which = [at for at, move in enumerate(moves) if move.expand == kind]
        if kind in ("relation", "row", "column"):
            for at in which:
                gone = set(cursors[at : at + 1].selected[1].tolist())
                if kind == "relation":
                    near[at] = _related(index, moves[at], gone, limit)
                else:
                    beside = chain.from_iterable(_across(index, stream, kind, i) for i in moves[at].of)
                    near[at] = list(islice(dict.fromkeys(i for i in beside if i not in gone), limit))
            continue
        lists = _lists([np.array(moves[at].of, np.int64) for at in which])
        neighbours = stream.neighbors(lists, kind, Cursors.join([cursors[at : at + 1] for at in which]), limit)
        for at, segments in zip(which, _split(*neighbours), strict=True):
            near[at] = segments
    return near


def _across(index: Index, stream: ops.Stream, kind: Literal["row", "column"], i: int) -> Iterable[int]:
    """Return the neighbours of a segment: cells, table rows or paragraphs.

    The neighbours of a cell are the other cells of its row or column.

    The neighbours of a table row are the rows before and after it, the nearest first. If `kind` is `column`,
    only rows that share a cell value with this row are neighbours.

    The neighbours of a paragraph are the paragraphs before and after it, the nearest first. The neighbours of
    a sentence are the paragraphs before and after the paragraph of this sentence. Only the `_HOPS` nearest
    rows and paragraphs are considered. For segments of other levels, the result is empty.
    """
    corpus = index.corpus
    if corpus.level[i] == Level.TABLE_CELL:
        return map(int, stream.neighbors([i], kind)[1])
    if corpus.level[i] == Level.SENTENCE:
        i = int(corpus.parent[i])
    if corpus.level[i] not in (Level.TABLE_ROW, Level.PARAGRAPH):
        return []
    siblings = chain.from_iterable(zip_longest(_before(index, i), _after(index, i)))
    beside = (it for it in islice(siblings, _HOPS) if it is not None)
    if kind == "row" or corpus.level[i] == Level.PARAGRAPH:
        return beside
    own = set(corpus.cells(i))
    return (it for it in beside if own.intersection(corpus.cells(it)))


def _before(index: Index, i: int) -> Iterator[int]:
    """Yield the segments before a segment that share its level and parent, the nearest first."""
    corpus = index.corpus
    parent, at = corpus.parent[i], i - 1
    while at > parent:
        while corpus.parent[at] > parent:
            at = int(corpus.parent[at])
        if corpus.level[at] == corpus.level[i]:
            yield at
        at -= 1


def _after(index: Index, i: int) -> Iterator[int]:
    """Yield the segments after a segment that share its level and parent, the nearest first."""
    corpus = index.corpus
    stop, at = int(corpus.subtree_end[corpus.parent[i]]), int(corpus.subtree_end[i])
    while at < stop:
        if corpus.level[at] == corpus.level[i]:
            yield at
        at = int(corpus.subtree_end[at])


def _related(index: Index, move: Move, gone: set[int], limit: int) -> list[int]:
    """Return segments that name an entity of the segments in `move.of` (see `EntityLinks.of`).

    The function takes the first `_HOPS` segments that it finds, without those in `gone`. If these are more
    than `limit`, it returns the `limit` segments that share the most words with the question.
    """
    hops = chain.from_iterable(links_of(index).of(i) for i in move.of)
    related = list(islice(dict.fromkeys(i for i in hops if i not in gone), _HOPS))
    if len(related) <= limit:
        return related
    words = _Words(index, move.view.question)
    shared = [-words.weight(words.within(index.corpus.render(i))) for i in related]
    return [related[at] for at in np.argsort(shared, kind="stable")[:limit].tolist()]


_LINKS: WeakKeyDictionary[Index, EntityLinks] = WeakKeyDictionary()


def links_of(index: Index) -> EntityLinks:
    """Return the entity links of an index's corpus.

    Args:
        index: The index.

    Returns:
        The links, which the first call computes.
    """
    if index not in _LINKS:
        _LINKS[index] = entity_links(index.corpus)
    return _LINKS[index]


def _lists(parts: Sequence[Int64]) -> Lists:
    return ends(parts), np.concatenate([np.empty(0, np.int64), *parts])


def _split(offsets: Int64, segments: Int64) -> list[list[int]]:
    return [segments[begin:end].tolist() for begin, end in pairwise(offsets.tolist())]


@dataclass(frozen=True, slots=True)
class LexicalSelection:
    """The texts picked from a window, best first, and how much of the question all picked texts cover so far."""

    picked: tuple[int, ...]
    """The positions of the picked texts in the window, from 0"""
    share: float
    """The weight of the question's words in all texts picked so far, divided by the weight of all the
    question's words: from 0 to 1. The texts picked before this window count too
    """


class _Words:
    """The words of a question, weighted by idf. Stop words, and words that are not in the index, are left out."""

    def __init__(self, index: Index, question: str) -> None:
        self._analysis = index.analysis
        asked = list(dict.fromkeys(index.analysis.tokens(question)))
        idfs = index.idfs(index.terms.find(asked)).tolist()
        self.idf: dict[str, float] = {word: idf for word, idf in zip(asked, idfs, strict=True) if idf}

    def within(self, text: str) -> set[str]:
        """Return the question's words that occur in the text."""
        return self.idf.keys() & set(self._analysis.tokens(text))

    def weight(self, words: set[str]) -> float:
        """Return the sum of the weights of these words."""
        return sum(self.idf[word] for word in sorted(words))


@of_index
def select_lexically(
    index: Index, items: Sequence[tuple[str, Sequence[str], Sequence[str]]], k: int
) -> list[LexicalSelection]:
    """Pick at most `k` more texts for each question, one after the other. The next text is always the one
    with the highest value.

    A text's value is the weight of the question's words that it contains; words that occur in no picked text count
    twice. Of several texts with the same value, the first is picked. A text without any of the question's words is
    never picked.

    Args:
        index: The index, whose idf weights the words.
        items: For each question: its text, the texts picked before, the texts of the window.
        k: The maximum number of texts to pick.

    Returns:
        For each question, the picked texts in the order in which they were picked.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index
        >>> from pyfast.systems.hseq.windows import select_lexically
        >>> texts = ["Titan is a moon of Saturn.", "Mars has two moons."]
        >>> select_lexically(Index(Path("IDX")), [("Which moon circles Saturn?", [], texts)], 1)[0].picked
        (0,)
    """
    return [_pick(index, question, before, window, k) for question, before, window in items]


def _pick(index: Index, question: str, before: Sequence[str], window: Sequence[str], k: int) -> LexicalSelection:
    words = _Words(index, question)
    known = {word for text in before for word in words.within(text)}
    texts = {at: shared for at, text in enumerate(window) if (shared := words.within(text))}
    picked: list[int] = []
    while texts and len(picked) < k:
        best = max(texts, key=lambda at: words.weight(texts[at]) + words.weight(texts[at] - known))
        picked.append(best)
        known |= texts.pop(best)
    whole = words.weight(set(words.idf))
    return LexicalSelection(tuple(picked), words.weight(known) / whole if whole else 0.0)
