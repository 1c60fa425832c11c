"""BM25 over the parts of a corpus. Only term counts are stored. For each query, the op computes the statistics
that BM25 needs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Csr, Float32, Int32, Int64, Ragged, UInt8, arguments, array, call, ragged

_NONE = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class TermCounts:
    """How often each term occurs in the documents of one part of a corpus, as a sparse matrix in CSC form.

    The counts do not depend on the rest of the corpus, so a part stays valid when other parts are
    added. The arrays can be memory-mapped files, because a query reads only the columns of its terms.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> part = ops.TermCounts.of(csr_array([[2, 1, 0], [0, 1, 1]]))
        >>> part.live, part.total_length
        (2, 5)
    """

    indptr: Int64
    """int64[columns + 1]: column c has the entries `indptr[c]` to `indptr[c + 1]` of `documents` and `counts`"""
    documents: Int32
    """int32[entries]: the document of each entry, counted from the part's first document. Ascending within a
    column"""
    counts: Int32 | UInt8
    """int32 or uint8 [entries]: how often the term occurs in the document, at least 1"""
    lengths: Int32
    """int32[documents]: the length of each document: the sum of its counts"""
    columns: Int32 | None = None
    """int32[terms]: the column of each term, or -1 if the part does not have the term. None: term t is column t"""
    deleted: UInt8 | None = None
    """uint8[documents]: 1 for documents that are deleted: a search neither returns nor counts them. None: no
    document is deleted
    """
    live: int = field(init=False)
    """The number of documents that are not deleted"""
    total_length: int = field(init=False)
    """The sum of the lengths of the documents that are not deleted"""

    def __post_init__(self) -> None:
        """Convert arrays that do not have the dtype of their field, and add up the lengths. Raises
        `ArrayError` if an array is malformed."""
        wanted: dict[str, type[np.generic]] = {"indptr": np.int64, "deleted": np.uint8}
        if getattr(self.counts, "dtype", None) == np.uint8:
            wanted["counts"] = np.uint8
        for name in ("indptr", "documents", "counts", "lengths", "columns", "deleted"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, array(name, given, wanted.get(name, np.int32)))
        lengths = self.lengths
        if self.deleted is not None:
            if len(self.deleted) != len(lengths):
                raise ArrayError(
                    f"deleted: expected one number for each document ({len(lengths)}), got {len(self.deleted)}"
                )
            lengths = lengths[self.deleted == 0]
        object.__setattr__(self, "live", len(lengths))
        object.__setattr__(self, "total_length", int(lengths.sum(dtype=np.int64)))

    def at(self, columns: npt.ArrayLike) -> TermCounts:
        """Return the same counts with other term ids. `columns` is int32[terms]: the column of each new term
        id, or -1 if the counts do not have the term."""
        other = copy(self)
        object.__setattr__(other, "columns", array("columns", columns, np.int32))
        return other

    @classmethod
    def of(cls, counts: Csr) -> TermCounts:
        """Make the counts from a SciPy sparse array of documents x terms."""
        by_term = counts.tocsc()
        by_term.sum_duplicates()  # This also sorts them.
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        indptr = by_term.indptr.astype(np.int64)
        small = by_term.data.max(initial=0) <= np.iinfo(np.uint8).max
        times = by_term.data.astype(np.uint8) if small else by_term.data.astype(np.int32)
        return cls(indptr, by_term.indices, times, lengths.astype(np.int32))


def bm25(
    parts: Sequence[TermCounts],
    query_offsets: npt.ArrayLike,
    query_terms: npt.ArrayLike,
    k: int = 20,
    filter: Ragged | None = None,
    k1: float = 1.5,
    b: float = 0.75,
    threads: int | None = None,
    sizes: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> tuple[Int64, Int32, Float32]:
    """Find the `k` best documents for each query with Lucene's variant of BM25, exactly.

    A document's score is a sum over the terms of the query. A term that occurs twice in the query counts twice.
    Each term adds `ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / average))`. N is
    the number of documents, df how many of them have the term, and tf how often this document has it. N, df and
    the average length count all parts together, without deleted documents, so the result does not depend on how
    the documents are divided into parts. It leaves out documents without a term of the query.

    Args:
        parts: The parts of the corpus. Documents are numbered through all parts, in their order.
        query_offsets: int64[Q + 1]. Query q has the terms `query_terms[query_offsets[q]:query_offsets[q + 1]]`.
        query_terms: int32, term ids.
        k: Maximum number of documents for a query.
        filter: (offsets, documents): lists of the documents that may be found, in ascending order. There is
            one list for each query, or one list for all queries. The filter does not change scores. None:
            each query may find every document.
        k1: How much repeated occurrences of a term add to the score; at least 0 (nothing).
        b: How much a document's length counts, 0 to 1.
        threads: See `pyfast.ops`.
        sizes: (documents int64[Q], lengths int64[Q]): for each query, the number N of documents that it searches,
            and the sum of their lengths. Use them if `parts` has many small corpora that share no column: a
            query with the columns of one corpus then searches only this corpus. None: N and the lengths are
            those of all parts.

    Returns:
        (offsets int64[Q + 1], documents int32, scores float32). The documents of each query are best first. If
        scores are equal, the document with the lower number comes first.

    Raises:
        ArrayError: An array or a number is malformed.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> part = ops.TermCounts.of(csr_array([[2, 1, 0], [0, 1, 1]]))
        >>> offsets, documents, scores = ops.bm25([part], [0, 2], [0, 1])
        >>> documents.tolist()
        [0, 1]
    """
    for part in parts:
        if not isinstance(part, TermCounts):
            raise ArrayError(f"parts: expected ops.TermCounts, got {type(part).__name__}")
    documents, lengths = sizes or ([sum(part.live for part in parts)], [sum(part.total_length for part in parts)])
    given = arguments(query_offsets=query_offsets, query_terms=query_terms, threads=threads)
    given["documents"] = array("sizes[0]", documents, np.int64)
    given["total_length"] = array("sizes[1]", lengths, np.int64)
    found = None if filter is None else ragged("filter", filter)
    return call(native.bm25, parts=list(map(_arrays, parts)), **given, filter=found, k=k, k1=k1, b=b)


def _arrays(part: TermCounts) -> tuple[npt.NDArray[Any], ...]:
    columns = _NONE if part.columns is None else part.columns
    deleted = _NONE.view(np.uint8) if part.deleted is None else part.deleted
    return part.indptr, part.documents, part.counts, part.lengths, columns, deleted
