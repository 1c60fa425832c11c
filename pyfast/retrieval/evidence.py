"""Evidence: write passages as text for the LLM, and segments as JSON or as an evidence package of HSEQ (the
function kappa of its paper, A.3.5). Find evidence items (sentences, table rows, infobox pairs and triples), and
rank them by BM25.

Divide the segments of a corpus into the windows that HSEQ shows for a question (section 3.4). Pick evidence of a
window by the words of the question, in place of an LLM. A few native calls serve a batch of questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from itertools import chain, islice, pairwise, zip_longest
from typing import Any, Literal

import numpy as np
import orjson

import pyfast.ops as ops
from pyfast.corpus import Corpus, Level, TableView, TextView, view
from pyfast.ops.arrays import Float32, Int64, ends
from pyfast.ops.hseq_stream import Cursors, Lists, Neighbors
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.retrieval.index.index import Index, of_index
from pyfast.retrieval.pools import Pool, stack_pools
from pyfast.retrieval.rerank import search, segment_ids
from pyfast.retrieval.terms import WORDS, Analysis


@of_index
def narrate(index: Index, pools: Sequence[Pool], characters: int) -> list[str]:
    """Write the passages of each pool as numbered lines, best first.

    Passages are added until the next one would make the text longer than `characters` characters. If the
    first passage alone is too long, it is cut.

    Args:
        index: The index.
        pools: The pools.
        characters: The maximum number of characters in a text.

    Returns:
        One text for each pool.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, narrate
        >>> index = Index(Path("IDX"))
        >>> text = narrate(index, index.search(["Who discovered Titan?"], 2), 400)[0]
        >>> text.startswith("[1] ")
        True
    """
    offsets, passages, _ = stack_pools(pools)
    rendered, places = index.lines(passages)
    return ops.narrate(rendered, offsets, places, characters)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSegments:
    """The segments that support an answer, best first."""

    segments: Int64
    """[n] the positions of the segments in the corpus"""
    scores: Float32
    """[n] the score of each segment"""

    def __len__(self) -> int:
        return len(self.segments)


def evidence_of(index: Index, pool: Pool) -> ScoredSegments:
    """Turn the passages of a pool into evidence.

    Args:
        index: The index.
        pool: A pool of this index.

    Returns:
        The segments of the pool's passages, with the passages' scores.
    """
    return ScoredSegments(index.passages[pool.passages], pool.scores)


@of_index
def cite(index: Index, items: Sequence[ScoredSegments]) -> list[bytes]:
    """Write lists of segments as JSON. Each object has `segment`, `uri`, `offsets`, `snippet` and `score` (see
    `ops.cite`).

    The snippet of a segment of a table has only cells. So the object of this segment also has the `title`,
    the `header` and, if there is one, the `section` of the table.

    Args:
        index: The index.
        items: Lists of segments with scores.

    Returns:
        One JSON array in UTF-8 for each list.

    Raises:
        ArrayError: The corpus has no segment at one of the positions.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, cite, evidence_of
        >>> index = Index(Path("IDX"))
        >>> (text,) = cite(index, [evidence_of(index, index.search("moon of Saturn", 1)[0])])
        >>> sorted(json.loads(text)[0])
        ['header', 'offsets', 'score', 'segment', 'snippet', 'title', 'uri']
    """
    segments = np.concatenate([np.empty(0, np.int64), *[item.segments for item in items]])
    scores = np.concatenate([np.empty(0, np.float64), *[item.scores for item in items]])
    corpus, offsets = index.corpus, ends(items)
    corpus.check(segments)
    level = corpus.columns.level.take(segments, mode="clip")
    of_tables = (level >= Level.TABLE) & (level <= Level.TABLE_CELL)
    tables, which = np.unique(corpus.source[segments[of_tables]], return_inverse=True)
    member_of = np.full(len(segments), -1, np.int32)
    member_of[of_tables] = which
    members = [orjson.dumps(corpus.table(source))[1:-1] for source in tables.tolist()]
    return ops.cite(corpus.columns, offsets, segments, scores, members, member_of)


@of_index
def find_evidence_items(index: Index, queries: Sequence[str], passages: int, k: int) -> list[ScoredSegments]:
    """Find at most `k` evidence items for each query, best first.

    There are two stages (section 4.1 of the paper of graph_convqa): a search returns passages, then BM25
    ranks the items in these passages. BM25 uses the document frequencies of the whole corpus, because in the
    found passages every word of the query is frequent. Items without a word of the query are left out. Items
    with equal scores keep the order of the passages.

    Args:
        index: The index.
        queries: The queries.
        passages: The number of passages that the search returns.
        k: The maximum number of items for a query.

    Returns:
        The items of each query, with their BM25 scores.
    """
    pools = search(index, queries, passages)
    return [_best(index, query, pool, k) for query, pool in zip(queries, pools, strict=True)]


def _best(index: Index, query: str, pool: Pool, k: int) -> ScoredSegments:
    segments = list(
        chain.from_iterable(index.corpus.evidence_items(i) for i in index.passages[pool.passages].tolist())
    )
    asked = sorted(set(index.analysis.tokens(query)))
    terms = index.terms.find(asked).tolist()
    words = {word: index.frequency(term) for word, term in zip(asked, terms, strict=True) if term >= 0}
    scores = bm25_scores(words, len(index.passages), [index.corpus.linearise(i) for i in segments], index.analysis)
    best = np.argsort(-scores, kind="stable")[: min(k, np.count_nonzero(scores > 0))]
    return ScoredSegments(np.array(segments, np.int64)[best], scores[best])


def bm25_scores(
    frequencies: Mapping[str, int], documents: int, texts: Sequence[str], analysis: Analysis = WORDS
) -> Float32:
    """Compute Lucene's BM25 score of each text for the words of a query.

    `frequencies` has, for each word of the query, the number of documents that contain it. `documents` is the
    number of all documents. The function does not use the library bm25s, because bm25s would count the
    frequencies in `texts`. Words that are in no document do not count.
    """
    k1, b = BM25_PARAMETERS["k1"], BM25_PARAMETERS["b"]
    tokens = [analysis.tokens(text) for text in texts]
    lengths = np.array([len(words) for words in tokens], np.float64)
    bounds = k1 * (1 - b + b * lengths / (lengths.mean() or 1.0)) if len(texts) else lengths
    scores = np.zeros(len(texts))
    counts = [Counter(word for word in words if word in frequencies) for words in tokens]
    for word, df in frequencies.items():
        if df:
            tf = np.array([count[word] for count in counts], np.float64)
            scores += np.log(1 + (documents - df + 0.5) / (df + 0.5)) * tf / (tf + bounds)
    return scores.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class EvidencePackage:
    """The evidence from which HSEQ makes an answer, in the order of uris and offsets, without duplicates."""

    segments: tuple[int, ...]
    """The positions of the items in the corpus"""
    lines: tuple[str, ...]
    """Each item as the LLM reads it"""
    items: tuple[dict[str, Any], ...]
    """Each item with `id`, `level`, `uri`, `offsets`, `source_type`, `snippet` and `meta`, as `canonicalize`
    describes"""

    def json(self) -> bytes:
        """Return the items as a JSON array. In each object, the key `segment` replaces `id`, and the key
        `score` is added, with the value null. HSEQ computes no scores, but the evidence of other systems has
        this key.
        """
        renamed = ({"segment" if name == "id" else name: it for name, it in item.items()} for item in self.items)
        return orjson.dumps([{**item, "score": None} for item in renamed])


def canonicalize(index: Index, items: Sequence[Sequence[int]]) -> list[EvidencePackage]:
    """Make an evidence package from each list of segments (HSEQ's kappa).

    The package does not depend on the order in which the segments were picked.

    Items are ordered by uri, then by offsets, then by position in the corpus. If several segments of a text
    or table have the same uri and offsets, only the first of them in the corpus stays: it contains the
    others. Segments of knowledge graphs have no offsets, so all distinct segments stay.

    In texts, `offsets` are the positions of the first character (from 0) and of the character after the last.
    In tables they are [row, column], where -1 stands for all rows or columns. In knowledge graphs they are
    [-1, -1]. `meta` has `schema` (the header of a table), `time` (the time of each triple), `source_version`
    (the fingerprint of the corpus) and `sha1` (a checksum of the snippet). `schema` is null outside of
    tables, and `time` is null if no time is known.

    Args:
        index: The index.
        items: For each package, the positions of the picked segments in the corpus.

    Returns:
        One package for each list.
    """
    version = index.manifest["corpus"]
    return [_package(index.corpus, segments, version) for segments in items]


def _package(corpus: Corpus, segments: Sequence[int], version: str) -> EvidencePackage:
    def place(i: int) -> tuple[str, int, int]:
        return corpus.uri(int(corpus.source[i])), int(corpus.start[i]), int(corpus.end[i])

    first: dict[Any, int] = {}
    for i in sorted(set(segments), key=lambda i: (place(i), i)):
        first.setdefault(i if corpus.is_graph(i) else place(i), i)
    kept = tuple(first.values())
    return EvidencePackage(kept, tuple(map(corpus.render, kept)), tuple(_item(corpus, i, version) for i in kept))


def _item(corpus: Corpus, i: int, version: str) -> dict[str, Any]:
    item = corpus.segment(i)
    snippet = item.pop("snippet")
    schema = time = None
    match view(corpus, i):
        case TextView():
            source_type = "text"
        case TableView() as table:
            source_type, schema = "table", list(table.schema)
        case graph:
            source_type = "kg"
            times = [triple.time for triple in graph.triples]
            time = times if any(at is not None for at in times) else None
    digest = sha1(snippet.encode()).hexdigest()
    meta = {"schema": schema, "time": time, "source_version": version, "sha1": digest}
    return {**item, "source_type": source_type, "snippet": snippet, "meta": meta}


Priority = tuple[Level, ...]
_HOPS = 64  # the maximum number of neighbours by shared entities or by position that are examined
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
    """The current window of a question, and how far the question is in the stream of segments."""

    question: str
    cursor: Cursors
    """The position of the question in the stream"""
    front: tuple[int, ...]
    """The segments of an expansion. They come before the segments of the stream"""
    window: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """How a question moves from one window to the next."""

    view: View
    done: tuple[int, ...]
    """The segments that are not shown again, because they were picked or skipped"""
    expand: Neighbors | None = None
    """The kind of expansion: which neighbours come next. They are neighbours of the segments in the field
    `of`. None: no expansion"""
    of: tuple[int, ...] = ()


@of_index
def open_window(index: Index, questions: Sequence[str], width: int, prior: int, priority: Priority) -> list[View]:
    """Make the first window of each question (Window in HSEQ's paper).

    A question sees first the `prior` best passages of a search, then other segments of their documents (at
    most 1,024), then all other segments. Within each of the last two groups, the segments are ordered by
    their levels, as in `priority`.

    Args:
        index: The index.
        questions: The questions.
        width: The number of segments in a window (W in the paper).
        prior: The number of passages from the search.
        priority: The order of levels (rho in the paper).

    Returns:
        The first window of each question.
    """
    stream = index.stream(priority)
    if prior:
        retrieved = [index.passages[pool.passages] for pool in search(index, questions, prior)]
        priors = _lists([np.concatenate([it, _beside(index, it, priority)]) for it in retrieved])
        cursors = stream.cursors(priors=priors)
    else:
        cursors = stream.cursors(len(questions))
    return _views(index, stream, questions, cursors, [()] * len(questions), width)


def _beside(index: Index, passages: Int64, priority: Priority) -> Int64:
    """Return at most `_BESIDE` other segments of the passages' documents. Their levels are in the order
    `priority`. Within a level, they are in the order of the documents.

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

    Picked and skipped segments leave the window. If the policy asked for neighbours of its picks, the
    neighbours come first and fill at most half of the window. If there are too many neighbours, the window
    gets the first of them. For the kind `relation`, the window gets those that share the most words with the
    question instead. Very large neighbours, such as whole documents, are left out.

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
    """Return the segments of each move's expansion, without the segments that were already picked or skipped."""
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
    a sentence are the paragraphs before and after the paragraph of this sentence. Of rows and paragraphs,
    only the `_HOPS` nearest are considered. For segments of other levels, the result is empty.
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
    """Yield the segments before a segment, the nearest first. All of them have the level and the parent of
    this segment."""
    corpus = index.corpus
    parent, at = corpus.parent[i], i - 1
    while at > parent:
        while corpus.parent[at] > parent:
            at = int(corpus.parent[at])
        if corpus.level[at] == corpus.level[i]:
            yield at
        at -= 1


def _after(index: Index, i: int) -> Iterator[int]:
    """Yield the segments after a segment, the nearest first. All of them have the level and the parent of
    this segment."""
    corpus = index.corpus
    stop, at = int(corpus.subtree_end[corpus.parent[i]]), int(corpus.subtree_end[i])
    while at < stop:
        if corpus.level[at] == corpus.level[i]:
            yield at
        at = int(corpus.subtree_end[at])


def _related(index: Index, move: Move, gone: set[int], limit: int) -> list[int]:
    """Return segments that name an entity of the segments in `move.of` (see `EntityLinks.of`).

    The function takes the first `_HOPS` segments that it finds, without the segments in `gone`. If these are more
    than `limit`, it returns the `limit` segments that share the most words with the question.
    """
    hops = chain.from_iterable(index.entity_links.of(i) for i in move.of)
    related = list(islice(dict.fromkeys(i for i in hops if i not in gone), _HOPS))
    if len(related) <= limit:
        return related
    words = _Words(index, move.view.question)
    shared = [-words.weight(words.within(index.corpus.render(i))) for i in related]
    return [related[at] for at in np.argsort(shared, kind="stable")[:limit].tolist()]


def _lists(parts: Sequence[Int64]) -> Lists:
    return ends(parts), np.concatenate([np.empty(0, np.int64), *parts])


def _split(offsets: Int64, segments: Int64) -> list[list[int]]:
    return [segments[begin:end].tolist() for begin, end in pairwise(offsets.tolist())]


@dataclass(frozen=True, slots=True)
class LexicalSelection:
    """The texts picked from a window, best first, and how much of the question is covered by the texts picked
    so far.
    """

    picked: tuple[int, ...]
    """The positions of the picked texts in the window, from 0"""
    share: float
    """The weight of the question's words in all texts picked so far, divided by the weight of all the
    question's words: from 0 to 1. The texts picked before this window count too
    """


class _Words:
    """The words of a question, each with its idf as weight. Stop words, and words that are not in the index,
    are left out.
    """

    def __init__(self, index: Index, question: str) -> None:
        self._analysis = index.analysis
        asked = list(dict.fromkeys(index.analysis.tokens(question)))
        idfs = index.idfs(index.terms.find(asked)).tolist()
        self.idf: dict[str, float] = {word: idf for word, idf in zip(asked, idfs, strict=True) if idf}

    def within(self, text: str) -> set[str]:
        """Return the words of the question that occur in the text."""
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

    The value of a text is the weight of the question's words in it. A word that is in no picked text counts twice.
    Of several texts with the same value, the first is picked. A text without a word of the question is never
    picked.

    Args:
        index: The index, whose idf weighs the words.
        items: For each question: its text, the texts picked before, the texts of the window.
        k: The maximum number of texts to pick.

    Returns:
        For each question, the picked texts in the order in which they were picked.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, select_lexically
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
