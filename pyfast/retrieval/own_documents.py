"""Own documents: a question can name the few documents that it searches. They are an index of their own, with
their own statistics. One call serves a batch of such questions: the arrays of their indexes are joined into one
index, in which no two questions have a passage or a term in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
"""An index with more passages is used alone, because it would slow down a batch. 128 indexes, as many as a batch
can have, then have fewer than 25,000 passages, so that `expand` reads as many entries for a seed as in each index
alone
"""


class OwnDocuments(Index):
    """An index of some documents of another index, the same as `Index.within`, except that most of it is made only
    when it is first read, because `together` does not need it."""

    def __init__(self, base: Index, uris: Sequence[str], begins: Int64, starts: Int64, rows: Int64) -> None:
        """`begins` has the first segment of each document in the corpus of `base`; `starts` has those in this
        corpus, and the end of the last document. `rows` are the passages of `base`."""
        self._base, self._uris, self._making = base, uris, RLock()
        self._begins, self._segments, self._documents_at = begins, base.passages[rows], starts
        self.base_rows = rows
        """[passages] the number of each passage in `base`"""
        place = np.searchsorted(begins, self._segments, side="right") - 1
        self._passages: Int64 = self._segments - begins[place] + starts[place]
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        """What `together` reads: `row_sizes`, `columns` and `counts` are the term counts, as a sparse array of
        passages x terms. `weights` has their weights in X, 0 for stop words. `value_sizes`, `term_sizes` and
        `cell_terms` are the cell values. Empty: `together` cannot use this index"""
        self.numbers: dict[str, int] = {}
        """The number of each term, from 0"""
        if not base.rerankers:
            self.rerankers = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.make()
        return object.__getattribute__(self, name)

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
        if (missing := next((uri for uri in uris if uri not in found), None)) is not None:
            raise InputError(f"documents: {missing!r} is not in the index")
        sources = np.array(sorted({found[uri] for uri in uris}))
        begins, ends = roots[sources], roots[sources + 1]
        first, last = np.searchsorted(passages, begins), np.searchsorted(passages, ends)
        rows = np.concatenate([np.arange(*pair) for pair in zip(first, last, strict=True)])
        owns.append(OwnDocuments(index, uris, begins, np.append(0, np.cumsum(ends - begins)), rows))
    is_bm25 = isinstance(index.retriever, BM25Retriever) and not index.rerankers
    if small := [own for own in owns if is_bm25 and len(own.base_rows) <= _MOST]:
        _count(index, small)
    for own in owns:
        if not own.arrays:
            own.make()  # made now, because this is the thread of a batch
        elif not len(own.arrays["counts"]):
            raise InputError("documents: none of these documents has passages")
    return owns


def _count(index: Index, owns: Sequence[OwnDocuments]) -> None:
    """Count and weigh the terms of the passages of each index, and set its `arrays` and `numbers`."""
    size, analysis = PassageSize.of(index.manifest["parameters"]), index.analysis
    lengths = np.array([len(own.base_rows) for own in owns])
    each, places = np.unique(np.concatenate([own.base_rows for own in owns]), return_inverse=True)
    all_counts, terms, cells = counted_terms(index.corpus, index.passages[each], size, analysis)
    taken, width = take_rows(all_counts, places.astype(np.int32)), max(len(terms), 1)
    row_sizes, owner = np.diff(taken.indptr), np.repeat(np.arange(len(owns)), lengths)
    # The key of a term is the number of its index and its own number.
    of_entries = np.repeat(owner, row_sizes)
    keys, columns = np.unique(of_entries * width + taken.indices, return_inverse=True)
    idf = smooth_idf(np.bincount(columns), lengths[keys // width])
    idf[stop_columns(terms, analysis.stop(stop_words.ENGLISH))[keys % width]] = 0
    weights = tfidf(taken.data, columns, taken.indptr, idf)
    values, of_values = places_of(cast(Int64, cells.value_offsets), places)
    value_ends, of_terms = places_of(cast(Int64, cells.term_offsets), of_values)
    value_sizes, term_sizes = np.diff(values), np.diff(value_ends)
    of_cells = np.repeat(np.repeat(owner, value_sizes), term_sizes)
    cell_terms = np.searchsorted(keys, of_cells * width + cells.term_ids[of_terms])

    passage, term = np.cumsum(lengths), np.searchsorted(keys, np.arange(len(owns) + 1) * width)
    entry, value, words = taken.indptr[passage], values[passage], [terms[i] for i in (keys % width).tolist()]
    made = {
        "row_sizes": (row_sizes, passage),
        "columns": (columns - term[of_entries], entry),
        "counts": (taken.data, entry),
        "weights": (weights, entry),
        "value_sizes": (value_sizes, passage),
        "term_sizes": (term_sizes, value),
        "cell_terms": (cell_terms - term[of_cells], value_ends[value]),
    }
    parts = zip(*(np.split(array, ends[:-1]) for array, ends in made.values()), strict=True)
    for own, arrays, (begin, end) in zip(owns, parts, pairwise(term.tolist()), strict=True):
        own.arrays = dict(zip(made, arrays, strict=True))
        own.numbers = dict(zip(words[begin:end], range(end - begin), strict=True))


class _Joined(Index):
    """Several indexes as one. It has what the functions in `TOGETHER` read."""

    def __init__(self, base: Index, owns: Sequence[OwnDocuments], asking: Sequence[int]) -> None:
        """`asking` has the number of the index that each query searches."""
        self._base, self.analysis, self.rerankers = base, base.analysis, ()
        self._owns, self._asking = owns, asking
        self._base_rows = np.concatenate([own.base_rows for own in owns])
        self._sizes = np.array([len(own.base_rows) for own in owns])
        self.first = np.append(0, np.cumsum(self._sizes))
        """The number of each index's first passage"""
        self._first_term = np.append(0, np.cumsum([len(own.numbers) for own in owns]))

    def _array(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate([own.arrays[name] for own in self._owns])

    def _term_ids(self, name: str) -> Int32:
        sizes = [len(own.arrays[name]) for own in self._owns]
        return (self._array(name) + np.repeat(self._first_term[:-1], sizes)).astype(np.int32)

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
        return Cells(self._offsets("value_sizes"), self._offsets("term_sizes"), self._term_ids("cell_terms"))

    def _sparse(self, name: str) -> csr_array:
        shape = int(self.first[-1]), int(self._first_term[-1])
        return csr_array((self._array(name), self._term_ids("columns"), self._offsets("row_sizes")), shape=shape)

    @cached_property
    def _weights(self) -> ForwardIndex:
        x = self._sparse("weights")
        x.eliminate_zeros()
        return ForwardIndex(narrow(x), narrow(x.T.tocsr()))

    def _terms(self, queries: Sequence[str]) -> list[list[int]]:
        """Return the ids of the terms of each query, in order, with repetitions."""
        found = []
        for query, at in zip(queries, self._asking, strict=True):
            numbers, first = self._owns[at].numbers, int(self._first_term[at])
            found.append([first + numbers[word] for word in self.analysis.tokens(query) if word in numbers])
        return found

    def terms_of(self, questions: Sequence[str]) -> list[list[int]]:
        """Return the ids of the distinct terms of each question, ascending."""
        return [sorted(set(terms)) for terms in self._terms(questions)]

    def names(self, terms: Int32) -> list[str]:
        """Return the terms with these ids."""
        words = list(chain.from_iterable(own.numbers for own in self._owns))
        return [words[term] for term in terms.tolist()]

    def search(self, queries: str | Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages for each query, in the index that it searches."""
        retriever, counts = cast(BM25Retriever, self._base.retriever), TermCounts.of(self._sparse("counts"))
        lengths = np.add.reduceat(counts.lengths, self.first[:-1], dtype=np.int64)
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
    asking = [at for at, (_, item) in enumerate(items) for _ in (item[0] if work is search_and_fuse else (item,))]
    index = _Joined(base, [own for own, _ in items], asking)
    moved = [_moved(item, own, first) for (own, item), first in zip(items, index.first.tolist(), strict=False)]
    results = work(index, moved, *parameters)
    for (_, item), one in zip(items, moved, strict=True):
        _copy_lists(item, one)
    return [
        replace(result, passages=result.passages - np.int32(first)) if isinstance(result, Pool) else result
        for result, first in zip(results, index.first.tolist(), strict=False)
    ]


def _moved(item: Any, own: OwnDocuments, first: int) -> Any:
    """Return an item of a question with the numbers of a joined index."""
    if isinstance(item, Pool):
        if len(item) and not 0 <= item.passages.min() <= item.passages.max() < len(own.base_rows):
            raise IndexError(
                f"a passage number is out of range: the question's documents have {len(own.base_rows)} passages"
            )
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
