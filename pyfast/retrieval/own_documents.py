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

import pyfast.utils.stop_words as stop_words
from pyfast.corpus import Corpus
from pyfast.errors import InputError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Float32, Int32, Int64, places_of
from pyfast.retrieval.bm25 import BM25Retriever
from pyfast.retrieval.evidence import ScoredSegments, cite, narrate
from pyfast.retrieval.forward_index import ForwardIndex, smooth_idf, weighted
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.index.part_maker import PassageSize, counted_terms
from pyfast.retrieval.part_files import RenderedPassages, find_documents, take_rows, to_csr
from pyfast.retrieval.pools import Pool
from pyfast.retrieval.rerank import (
    PassageList,
    bridge_select,
    rerank_lists,
    rerank_pools,
    search,
    search_and_fuse,
)
from pyfast.retrieval.terms import stop_columns

TOGETHER: frozenset[Callable[..., Any]] = frozenset(
    (search, search_and_fuse, rerank_pools, rerank_lists, bridge_select, narrate, cite)
)
"""The functions that `together` can call"""
_MOST = 256
"""An index with more passages is used alone: with others, it would make their batches slow"""


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The arrays of one question's index. Passages, terms and entries count from 0."""

    words: list[str]
    """The terms, sorted"""
    vocabulary: dict[str, int]
    lengths: Int32
    """[passages], as in `TermCounts`"""
    frequencies: Int64
    """[terms] the number of passages with the term"""
    documents: Int32
    counts: npt.NDArray[Any]
    transposed: Float32
    """[entries] the passage and count of each entry, by term, and its weight in the transpose of X"""
    row_sizes: Int64
    """[passages] the number of entries of each row of X"""
    columns: Int32
    weights: Float32
    """The entries of X"""
    value_sizes: Int64
    """[passages] the number of cell values"""
    term_sizes: Int64
    """[cell values] the number of terms"""
    cell_terms: Int32


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
        self.block: _Block | None = None
        """What `together` needs. None: `together` cannot use this index"""
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
        for own, block in zip(small, _blocks(index, [own.base_rows for own in small]), strict=True):
            own.block = block
    for own in owns:
        if own.block is None:
            own.make()  # here, in the thread of a batch
        elif not own.block.lengths.any():
            raise InputError("documents: they have no passages")
    return owns


def _blocks(index: Index, rows: Sequence[Int64]) -> list[_Block]:
    """Count and weigh the terms of some passages of the index, separately for each question."""
    size, analysis = PassageSize.of(index.manifest["parameters"]), index.analysis
    each, places = np.unique(np.concatenate(rows), return_inverse=True)
    all_counts, terms, all_cells = counted_terms(index.corpus, index.passages[each], size, analysis)
    lengths = np.array([len(some) for some in rows])
    owner = np.repeat(np.arange(len(rows)), lengths)
    taken, width = take_rows(all_counts, places.astype(np.int32)), max(len(terms), 1)
    # The terms of each question, as one number of the question and the term
    keys, columns = np.unique(np.repeat(owner, np.diff(taken.indptr)) * width + taken.indices, return_inverse=True)
    counts = TermCounts.of(csr_array((taken.data, columns, taken.indptr), shape=(len(places), len(keys))))
    frequencies = np.diff(counts.indptr)
    stop = stop_columns(terms, analysis.stop(stop_words.ENGLISH))[keys % width]
    found = list(weighted(counts, stop, smooth_idf(frequencies, lengths[keys // width])))
    row_sizes, x_columns, x_weights = (np.concatenate([one[part] for one in found]) for part in range(3))
    transposed = np.zeros(len(counts.documents), np.float32)
    for _, _, _, entries, weights in found:
        transposed[entries] = weights
    values, of_values = places_of(cast(Int64, all_cells.value_offsets), places)
    ends, of_terms = places_of(cast(Int64, all_cells.term_offsets), of_values)
    value_sizes, term_sizes = np.diff(values), np.diff(ends)
    owner_of_cells = np.repeat(np.repeat(owner, value_sizes), term_sizes)
    cell_terms = np.searchsorted(keys, owner_of_cells * width + np.asarray(all_cells.term_ids)[of_terms])

    row = np.append(0, np.cumsum(lengths))
    column = np.searchsorted(keys, np.arange(len(rows) + 1) * width)
    x = np.append(0, np.cumsum(row_sizes))
    cuts = zip(
        *map(
            pairwise,
            (a.tolist() for a in (row, column, counts.indptr[column], x[row], values[row], ends[values[row]])),
        ),
        strict=True,
    )
    number = (keys % width).tolist()
    blocks = []
    for (r, r_end), (c, c_end), (e, e_end), (f, f_end), (v, v_end), (t, t_end) in cuts:
        words = [terms[i] for i in number[c:c_end]]
        blocks.append(
            _Block(
                words,
                dict(zip(words, range(len(words)), strict=True)),
                counts.lengths[r:r_end],
                frequencies[c:c_end],
                counts.documents[e:e_end] - r,
                counts.counts[e:e_end],
                transposed[e:e_end],
                row_sizes[r:r_end],
                x_columns[f:f_end] - c,
                x_weights[f:f_end],
                value_sizes[r:r_end],
                term_sizes[v:v_end],
                (cell_terms[t:t_end] - c).astype(np.int32),
            )
        )
    return blocks


class _Joined(Index):
    """The indexes of several questions as one. It has what the functions in `TOGETHER` read."""

    def __init__(self, base: Index, owns: Sequence[OwnDocuments], asking: Sequence[OwnDocuments]) -> None:
        """`asking` has the index that each query searches."""
        self._base, self.analysis, self.rerankers = base, base.analysis, ()
        self._owns = list({id(own): own for own in owns}.values())
        self._blocks = [own.block for own in self._owns if own.block]
        number = {id(own): i for i, own in enumerate(self._owns)}
        self._asking = [number[id(own)] for own in asking]
        self._first_row = np.append(0, np.cumsum([len(own.base_rows) for own in self._owns]))
        self._first_term = np.append(0, np.cumsum([len(block.words) for block in self._blocks]))
        self.first = {id(own): row for own, row in zip(self._owns, self._first_row.tolist(), strict=False)}
        """The number of each index's first passage"""

    def _array(self, name: str, first: Int64 | None = None) -> npt.NDArray[Any]:
        """Join an array of all indexes. `first` is added to the numbers of each index."""
        arrays = [getattr(block, name) for block in self._blocks]
        joined = np.concatenate(arrays)
        if first is not None:
            joined += np.repeat(first[:-1].astype(joined.dtype), [len(one) for one in arrays])
        return joined

    @cached_property
    def _base_rows(self) -> Int64:
        return np.concatenate([own.base_rows for own in self._owns])

    @property
    def corpus(self) -> Corpus:
        """The corpus of all documents."""
        return self._base.corpus

    @property
    def passages(self) -> Int64:
        """The segment of each passage in the corpus of all documents."""
        return self._base.passages[self._base_rows]

    @property
    def searched_passages(self) -> int:
        """The largest number of passages that a query searches."""
        return int(np.diff(self._first_row).max())

    @cached_property
    def is_table(self) -> npt.NDArray[np.uint8]:
        """For each passage: 1 if it is a table row, otherwise 0."""
        return self._base.is_table[self._base_rows]

    @property
    def cells(self) -> Cells:
        """The cell values of each table row."""
        values, terms = (np.append(0, np.cumsum(self._array(name))) for name in ("value_sizes", "term_sizes"))
        return Cells(values, terms, self._array("cell_terms", self._first_term))

    @cached_property
    def _counts(self) -> TermCounts:
        indptr = np.append(0, np.cumsum(self._array("frequencies")))
        documents = self._array("documents", self._first_row)
        return TermCounts(indptr, documents, self._array("counts"), self._array("lengths"))

    @cached_property
    def _weights(self) -> ForwardIndex:
        indptr = np.append(0, np.cumsum(self._array("row_sizes")))
        columns, terms = self._array("columns", self._first_term), int(self._first_term[-1])
        counts = self._counts
        return ForwardIndex(
            to_csr(self._array("weights"), columns, indptr, terms),
            to_csr(self._array("transposed"), counts.documents, counts.indptr, len(counts.lengths)),
        )

    def _terms(self, queries: Sequence[str]) -> list[list[int]]:
        """The ids of the terms of each query, in order, with repetitions."""
        found = []
        for query, number in zip(queries, self._asking, strict=True):
            known, first = self._blocks[number].vocabulary, int(self._first_term[number])
            found.append([first + known[word] for word in self.analysis.tokens(query) if word in known])
        return found

    def terms_of(self, questions: Sequence[str]) -> list[list[int]]:
        """Return the ids of the distinct terms of each question, ascending."""
        return [sorted(set(terms)) for terms in self._terms(questions)]

    def names(self, terms: Int32) -> list[str]:
        """Return the terms with these ids."""
        words = list(chain.from_iterable(block.words for block in self._blocks))
        return [words[term] for term in terms.tolist()]

    def search(self, queries: str | Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages for each query, in the index that it searches."""
        lengths = np.array([block.lengths.sum(dtype=np.int64) for block in self._blocks])
        sizes = np.diff(self._first_row)[self._asking], lengths[self._asking]
        retriever = cast(BM25Retriever, self._base.retriever)
        return retriever.search_each(self._counts, self._terms(queries), sizes, k)

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
