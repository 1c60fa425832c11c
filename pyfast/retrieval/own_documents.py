"""Own documents: a question can name the few documents that it searches. They are an index of their own, with
their own statistics. One call serves a batch of such questions: the arrays of their indexes are joined into one
index, in which no two questions have a passage or a term in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from threading import RLock
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import pyfast.ops as ops
import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Corpus
from pyfast.errors import InputError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64, places_of, stack
from pyfast.retrieval.bm25 import BM25Retriever
from pyfast.retrieval.evidence import ScoredSegments, cite, narrate
from pyfast.retrieval.forward_index import ForwardIndex, smooth_idf, tfidf
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.index.part_maker import PassageSize, counted_terms
from pyfast.retrieval.part_files import RenderedPassages, find_documents, narrow, take_rows
from pyfast.retrieval.pools import Pool, split
from pyfast.retrieval.rerank import PassageList, bridge_select, rerank_lists, rerank_pools, search, search_and_fuse
from pyfast.retrieval.terms import stop_columns

TOGETHER: frozenset[Callable[..., Any]] = frozenset(
    {search, search_and_fuse, rerank_pools, rerank_lists, bridge_select, narrate, cite}
)
"""The functions that `together` can call"""
_MOST = 192
"""An index with more passages is used alone: it would make a batch slow. 128 indexes, as many as a batch can have,
have fewer than 25,000 passages. So `expand` reads as many entries for a seed as in each index alone
"""
_ARRAYS = {
    "row_sizes": ("passage", ""),
    "columns": ("entry", "term"),
    "counts": ("entry", ""),
    "weights": ("entry", ""),
    "value_sizes": ("passage", ""),
    "term_sizes": ("value", ""),
    "cell_terms": ("cell term", "term"),
}
"""The arrays of indexes: what they have one number for, and what these numbers count. `row_sizes`, `columns` and
`counts` are the term counts, as a sparse array of passages x terms. `weights` has their weights in X, 0 for stop
words. The others are the cell values
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """The arrays of the indexes of several questions that were made together, index after index."""

    arrays: dict[str, npt.NDArray[Any]]
    """The arrays in `_ARRAYS`"""
    ends: dict[str, list[int]]
    """Where the passages, terms, entries and so on of each index begin, and the end of the last index"""
    vocabularies: list[dict[str, int]]
    """For each index, the number of each term, from 0"""


class OwnDocuments(Index):
    """An index of some documents of another index: the same as `Index.within`. But most of it is made only when it
    is first read, because `together` does not need it."""

    def __init__(self, base: Index, uris: Sequence[str], begins: Int64, starts: Int64, rows: Int64) -> None:
        """`begins` has the first segment of each document in the corpus of `base`, and `starts` in this corpus,
        with the end of the last document. `rows` are the passages of `base`."""
        self._base, self._uris, self._making = base, uris, RLock()
        self._begins, self._segments, self._documents_at = begins, base.passages[rows], starts
        self.base_rows = rows
        """[passages] the number of each passage in `base`"""
        place = np.searchsorted(begins, self._segments, side="right") - 1
        self._passages: Int64 = self._segments - begins[place] + starts[place]
        self.made: tuple[_Made, int] | None = None
        """The arrays that `together` reads, and this index's number in them. None: `together` cannot use it"""
        if not base.rerankers:
            self.rerankers = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.make()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def make(self) -> None:
        """Make all of the index now."""
        with self._making:
            if "_commit" not in self.__dict__:
                self.__dict__ |= self._base.within(self._uris).__dict__

    @property
    def passages(self) -> Int64:
        """The segment of each passage."""
        return self._passages

    @property
    def has_graphs(self) -> bool:
        """Whether passages are from knowledge graphs."""
        return self._base.has_graphs and bool(self._base.corpus.in_graphs(self._segments).any())

    def in_base(self, segments: Int64) -> Int64:
        """Return the positions of segments in the corpus of `base`. A segment that does not exist gets -1."""
        place = np.searchsorted(self._documents_at, segments, side="right") - 1
        there = (place >= 0) & (place < len(self._begins))
        place[~there] = 0
        return np.where(there, segments - self._documents_at[place] + self._begins[place], -1)


def own_documents(index: Index, items: Sequence[Sequence[str]]) -> list[OwnDocuments]:
    """Make an index of the documents that each question names, for many questions together.

    Args:
        index: The index of all documents.
        items: The uris that each question names.

    Returns:
        One index for each item.

    Raises:
        InputError: A document is not in the index, or the documents of an item have no passages.
    """
    whole = index.whole
    corpus, passages = whole.corpus, np.asarray(whole.passages)
    found = find_documents(corpus, whole.files, list(dict.fromkeys(chain.from_iterable(items))))
    owns, roots = [], np.append(corpus.roots, len(corpus))
    for uris in items:
        if missing := next((uri for uri in uris if uri not in found), None):
            raise InputError(f"documents: {missing!r} is not in the index")
        sources = np.array(sorted({found[uri] for uri in uris}))
        begins, ends = roots[sources], roots[sources + 1]
        first, last = np.searchsorted(passages, begins), np.searchsorted(passages, ends)
        rows = np.concatenate([np.arange(*pair) for pair in zip(first, last, strict=True)])
        owns.append(OwnDocuments(index, uris, begins, np.append(0, np.cumsum(ends - begins)), rows))
    is_bm25 = isinstance(index.retriever, BM25Retriever) and not index.rerankers
    if small := [own for own in owns if is_bm25 and len(own.base_rows) <= _MOST]:
        made = _make(index, [own.base_rows for own in small])
        for number, own in enumerate(small):
            own.made = made, number
            if made.ends["entry"][number] == made.ends["entry"][number + 1]:
                raise InputError("documents: they have no passages")
    for own in owns:
        if own.made is None:
            own.make()  # here, in the thread of a batch
    return owns


def _make(index: Index, rows: Sequence[Int64]) -> _Made:
    """Count and weigh the terms of some passages of the index, separately for each question."""
    size, analysis = PassageSize.of(index.manifest["parameters"]), index.analysis
    each, places = np.unique(np.concatenate(rows), return_inverse=True)
    all_counts, terms, cells = counted_terms(index.corpus, index.passages[each], size, analysis)
    lengths, width = np.array(list(map(len, rows))), max(len(terms), 1)
    first_key = np.repeat(
        np.arange(len(rows)) * width, lengths
    )  # The key of a term is its question and its number.
    taken = take_rows(all_counts, places.astype(np.int32))
    of_entries = np.repeat(first_key, np.diff(taken.indptr)) + taken.indices
    keys, columns = np.unique(of_entries, return_inverse=True)
    number, idf = keys % width, smooth_idf(np.bincount(columns), lengths[keys // width])
    content = ~stop_columns(terms, analysis.stop(stop_words.ENGLISH))[taken.indices]
    ends = np.append(0, np.cumsum(content))[taken.indptr]
    weights = np.zeros(len(columns), np.float32)
    weights[content] = tfidf(taken.data[content], columns[content], ends, idf)
    values, of_values = places_of(cast(Int64, cells.value_offsets), places)
    value_ends, of_terms = places_of(cast(Int64, cells.term_offsets), of_values)
    value_sizes, term_sizes = np.diff(values), np.diff(value_ends)
    of_cells = np.repeat(np.repeat(first_key, value_sizes), term_sizes) + cells.term_ids[of_terms]
    cell_terms = np.searchsorted(keys, of_cells).astype(np.int32)
    made = (
        np.diff(taken.indptr),
        columns.astype(np.int32),
        taken.data,
        weights,
        value_sizes,
        term_sizes,
        cell_terms,
    )
    passage = np.append(0, np.cumsum(lengths))
    value = values[passage]
    term = np.searchsorted(keys, np.arange(len(rows) + 1) * width)
    cuts = zip(
        ("passage", "entry", "term", "value", "cell term"),
        (passage, taken.indptr[passage], term, value, value_ends[value]),
        strict=True,
    )
    words = [terms[i] for i in number.tolist()]
    vocabularies = [dict(zip(words[a:b], range(b - a), strict=True)) for a, b in pairwise(term.tolist())]
    return _Made(dict(zip(_ARRAYS, made, strict=True)), {name: cut.tolist() for name, cut in cuts}, vocabularies)


class _Joined(Index):
    """The indexes of several questions as one. It has what the functions in `TOGETHER` read."""

    def __init__(self, base: Index, owns: Sequence[OwnDocuments], asking: Sequence[OwnDocuments]) -> None:
        """`asking` has the index that each query searches."""
        self._base, self.analysis, self.rerankers = base, base.analysis, ()
        owns = list({id(own): own for own in owns}.values())
        self._made = [own.made for own in owns if own.made]
        self._base_rows = np.concatenate([own.base_rows for own in owns])
        number = {id(own): i for i, own in enumerate(owns)}
        self._asking = [number[id(own)] for own in asking]
        self._vocabularies = [made.vocabularies[i] for made, i in self._made]
        self._sizes = np.array([len(own.base_rows) for own in owns])
        rows, terms = (np.append(0, np.cumsum(some)) for some in (self._sizes, list(map(len, self._vocabularies))))
        self._begins = {"passage": rows, "term": terms}
        self.first = dict(zip(number, rows.tolist(), strict=False))
        """The number of each index's first passage, by the `id` of the index"""

    def _array(self, name: str) -> npt.NDArray[Any]:
        """Join an array of all indexes."""
        at, counted = _ARRAYS[name]
        arrays = [made.arrays[name][made.ends[at][i] : made.ends[at][i + 1]] for made, i in self._made]
        joined = np.concatenate(arrays)
        if counted:
            before = [made.ends[counted][i] for made, i in self._made]
            moves = (self._begins[counted][:-1] - before).astype(joined.dtype)
            joined += np.repeat(moves, list(map(len, arrays)))
        return joined

    def _offsets(self, name: str) -> Int64:
        return np.append(0, np.cumsum(self._array(name)))

    @property
    def corpus(self) -> Corpus:
        """The corpus of all documents."""
        return self._base.corpus

    @property
    def passages(self) -> Int64:
        """The segment of each passage in the corpus of all documents."""
        return self._base.passages[self._base_rows]

    @property
    def cells(self) -> Cells:
        """The cell values of each table row."""
        return Cells(self._offsets("value_sizes"), self._offsets("term_sizes"), self._array("cell_terms"))

    def _sparse(self, name: str) -> csr_array:
        shape = int(self._sizes.sum()), int(self._begins["term"][-1])
        return csr_array((self._array(name), self._array("columns"), self._offsets("row_sizes")), shape=shape)

    @cached_property
    def _weights(self) -> ForwardIndex:
        x = self._sparse("weights")
        x.eliminate_zeros()
        return ForwardIndex(narrow(x), narrow(x.T.tocsr()))

    def _terms(self, queries: Sequence[str]) -> list[list[int]]:
        """Return the ids of the terms of each query, in order, with repetitions."""
        found = []
        for query, number in zip(queries, self._asking, strict=True):
            known, first = self._vocabularies[number], int(self._begins["term"][number])
            found.append([first + known[word] for word in self.analysis.tokens(query) if word in known])
        return found

    def terms_of(self, questions: Sequence[str]) -> list[list[int]]:
        """Return the ids of the distinct terms of each question, ascending."""
        return [sorted(set(terms)) for terms in self._terms(questions)]

    def names(self, terms: Int32) -> list[str]:
        """Return the terms with these ids."""
        words = list(chain.from_iterable(self._vocabularies))
        return [words[term] for term in terms.tolist()]

    def search(self, queries: str | Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages for each query, in the index that it searches."""
        retriever, counts = cast(BM25Retriever, self._base.retriever), TermCounts.of(self._sparse("counts"))
        lengths = np.add.reduceat(counts.lengths, self._begins["passage"][:-1], dtype=np.int64)
        sizes = self._sizes[self._asking], lengths[self._asking]
        terms = stack(self._terms(queries), np.int32)
        return split(*ops.bm25([counts], *terms, k, k1=retriever.k1, b=retriever.b, sizes=sizes))

    def lines(self, passages: Int32) -> tuple[RenderedPassages, Int32]:
        """Return the texts of passages, as `Index.lines`."""
        return self._base.lines(self._base_rows[passages].astype(np.int32))

    def check_all(self) -> None:
        """Check the files of the index of all documents."""
        self._base.check_all()


def together(
    work: Callable[..., Sequence[Any]], base: Index, items: Sequence[tuple[OwnDocuments, Any]], *parameters: Any
) -> list[Any]:
    """Compute `work(own, [item], *parameters)[0]` for each pair (own, item), in one call of `work`.

    Args:
        work: A function of `TOGETHER`, or one that only writes evidence and lists of passages.
        base: The index of all documents.
        items: Indexes that `own_documents` made of `base`, each with an item.
        *parameters: The parameters of `work`.

    Returns:
        One result for each item.
    """
    asking = [own for own, item in items for _ in (item[0] if work is search_and_fuse else (item,))]
    index = _Joined(base, [own for own, _ in items], asking)
    moved = [_moved(item, own, index.first[id(own)]) for own, item in items]
    results = work(index, moved, *parameters)
    for (_, item), one in zip(items, moved, strict=True):
        _copy_lists(item, one)
    return [
        replace(result, passages=result.passages - index.first[id(own)]) if isinstance(result, Pool) else result
        for (own, _), result in zip(items, results, strict=True)
    ]


def _moved(item: Any, own: OwnDocuments, first: int) -> Any:
    """Return an item of a question with the numbers of a joined index."""
    if isinstance(item, Pool):
        if len(item) and not 0 <= item.passages.min() <= item.passages.max() < len(own.base_rows):
            raise IndexError(f"a passage is not among the {len(own.base_rows)} of the question's documents")
        return Pool(item.passages + np.int32(first), item.scores)
    if isinstance(item, ScoredSegments):
        return ScoredSegments(own.in_base(item.segments), item.scores)
    if isinstance(item, PassageList):
        return PassageList(_moved(item.pool, own, first), item.scored)
    if isinstance(item, tuple | list):
        return tuple(_moved(part, own, first) for part in item)
    return item


def _copy_lists(item: Any, moved: Any) -> None:
    """Give the lists of passages in an item what was written into their copies."""
    if isinstance(item, PassageList):
        item.segments = moved.segments
    elif isinstance(item, tuple | list):
        for pair in zip(item, moved, strict=True):
            _copy_lists(*pair)
