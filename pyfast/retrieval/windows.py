"""Windows on the hierarchical sequence (HSEQ, section 3.4), for the questions of a batch in a few native calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np

from pyfast import ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Int64, ends
from pyfast.ops.hseq_stream import Cursors, Lists, Neighbors
from pyfast.retrieval.index import Index
from pyfast.retrieval.lexical_selection import Words

Priority = tuple[Level, ...]
_HOPS = 64  # of what names the same entities, so many are compared with the question
_LARGEST = 1 << 14  # bytes of a neighbour: the parent of a row may be a table of millions


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment as a policy sees it."""

    position: int
    level: Level
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Where one question is in the stream, and what it sees there."""

    question: str
    cursor: Cursors
    """of this question alone"""
    front: tuple[int, ...]
    """what an expansion found, and comes before the stream"""
    window: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One question's way from its window to the next."""

    view: View
    done: tuple[int, ...]
    """what is not to be shown again: picked, or left behind"""
    expand: Neighbors | None = None
    """the neighbours to come next, of the segments `of`"""
    of: tuple[int, ...] = ()


def open_window(index: Index, questions: Sequence[str], width: int, prior: int, priority: Priority) -> list[View]:
    """Window(S_h; W, rho) for each question: the `prior` passages that a search finds come first, then rho."""
    stream = index.stream(priority)
    if prior:
        pools = index.search(questions, prior)
        priors = _lists([index.passages[pool.passages] for pool in pools])
        cursors = stream.cursors(priors=priors)
    else:
        cursors = stream.cursors(len(questions))
    return _views(index, stream, questions, cursors, [()] * len(questions), width)


def move_on(index: Index, moves: Sequence[Move], width: int, priority: Priority) -> list[View]:
    """Refresh(S_h, M_t; W, rho) for each question: without what is done, neighbours first.

    Neighbours take at most half of a window in a step. Where relations lead to more, those stay that share most
    with the question. What is very large, as whole documents are, stays out.
    """
    stream = index.stream(priority)
    cursors = Cursors.join([move.view.cursor for move in moves])
    cursors = stream.refresh(cursors, _lists([np.array(move.done, np.int64) for move in moves]))
    near = _neighbours(index, stream, moves, cursors, max(width // 2, 1))
    corpus = index.corpus
    fronts = []
    for move, found in zip(moves, near, strict=True):
        gone = set(move.done)
        small = (i for i in found if corpus.byte_end[i] - corpus.byte_start[i] <= _LARGEST)
        fronts.append(tuple(dict.fromkeys([*small, *(i for i in move.view.front if i not in gone)]))[:width])
    return _views(index, stream, [move.view.question for move in moves], cursors, fronts, width)


def _views(
    index: Index,
    stream: ops.Stream,
    questions: Sequence[str],
    cursors: Cursors,
    fronts: Sequence[tuple[int, ...]],
    width: int,
) -> list[View]:
    offsets, segments = stream.window(cursors, width)
    views = []
    for at, (question, front, shown) in enumerate(zip(questions, fronts, _split(offsets, segments), strict=True)):
        window = islice(dict.fromkeys([*front, *shown]), width)
        views.append(View(question, cursors[at : at + 1], front, tuple(candidates(index, window))))
    return views


def candidates(index: Index, segments: Iterable[int]) -> Iterable[Candidate]:
    """Segments with their level and their line."""
    corpus = index.corpus
    return (Candidate(i, Level(int(corpus.level[i])), corpus.render(i)) for i in segments)


def _neighbours(
    index: Index, stream: ops.Stream, moves: Sequence[Move], cursors: Cursors, limit: int
) -> list[list[int]]:
    """What each move's expansion brings: nothing that its cursor has done with."""
    near: list[list[int]] = [[] for _ in moves]
    for kind in dict.fromkeys(move.expand for move in moves if move.expand is not None):
        which = [at for at, move in enumerate(moves) if move.expand == kind]
        if kind == "relation":
            for at in which:
                near[at] = _related(index, moves[at], set(cursors[at : at + 1].selected[1].tolist()), limit)
            continue
        lists = _lists([np.array(moves[at].of, np.int64) for at in which])
        found = stream.neighbors(lists, kind, Cursors.join([cursors[at : at + 1] for at in which]), limit)
        for at, segments in zip(which, _split(*found), strict=True):
            near[at] = segments
    return near


def _related(index: Index, move: Move, gone: set[int], limit: int) -> list[int]:
    """The segments that name the same entities; of many those that share most with the question."""
    hops = chain.from_iterable(index.entity_links.of(i) for i in move.of)
    found = list(islice(dict.fromkeys(i for i in hops if i not in gone), _HOPS))
    if len(found) <= limit:
        return found
    words = Words(index, move.view.question)
    shared = [-words.weight(words.within(index.corpus.render(i))) for i in found]
    return [found[at] for at in np.argsort(shared, kind="stable")[:limit].tolist()]


def _lists(parts: Sequence[Int64]) -> Lists:
    return ends(parts), np.concatenate([np.empty(0, np.int64), *parts])


def _split(offsets: Int64, segments: Int64) -> list[list[int]]:
    return [segments[begin:end].tolist() for begin, end in pairwise(offsets.tolist())]
