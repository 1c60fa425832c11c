"""bm25 against its reference, bm25s, and its contract: however a corpus is divided, the same bits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import bm25_reference
from scipy.sparse import block_diag, csr_array, random_array

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.arrays import stack

Array = np.ndarray[Any, Any]
Lists = list[tuple[list[int], list[float]]]


def lists(found: tuple[Array, Array, Array]) -> Lists:
    offsets, documents, scores = found
    return [(documents[a:b].tolist(), scores[a:b].tolist()) for a, b in pairwise(offsets.tolist())]


def search(parts: list[ops.TermCounts], queries: list[list[int]], **options: Any) -> Lists:
    return lists(ops.bm25(parts, *stack(queries, np.int32), **options))


def part_of(counts: Array, vocabulary: bool = False, deleted: Array | None = None) -> ops.TermCounts:
    """These rows as a part; with `vocabulary` one that has columns for its own terms alone."""
    whole = ops.TermCounts.of(csr_array(counts))
    there = np.flatnonzero(counts.any(axis=0)) if vocabulary else None
    if there is not None:
        columns = np.full(counts.shape[1], -1)
        columns[there] = np.arange(len(there))
        indptr = np.append(whole.indptr[there], whole.indptr[-1])
    else:
        columns, indptr = None, whole.indptr
    return ops.TermCounts(indptr, whole.documents, whole.counts, whole.lengths, columns, deleted)


@st.composite
def corpora(draw: st.DrawFn) -> Array:
    terms = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 3), min_size=terms, max_size=terms)
    return np.array(draw(st.lists(row, min_size=1, max_size=12)), np.int32)


queries_of = st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=4)


@given(counts=corpora(), queries=queries_of, k=st.integers(1, 8))
def test_reference(counts: Array, queries: list[list[int]], k: int) -> None:
    queries = [[t for t in query if t < counts.shape[1]] for query in queries]
    for query, (documents, scores) in zip(queries, search([part_of(counts)], queries, k=k), strict=True):
        _, every = bm25_reference(counts, query, len(counts))
        np.testing.assert_allclose(scores, every[:k], rtol=1e-5)
        assert list(zip(scores, documents, strict=True)) == sorted(zip(scores, documents, strict=True), key=best)


def best(pair: tuple[float, int]) -> tuple[float, int]:
    return -pair[0], pair[1]


@given(counts=corpora(), queries=queries_of, k=st.integers(1, 8), data=st.data())
def test_any_division_into_parts_with_deletions_is_the_same_bit_for_bit(
    counts: Array, queries: list[list[int]], k: int, data: st.DataObject
) -> None:
    """Parts of any sizes, with documents between them that are deleted, against the live documents in one part."""
    queries = [[t for t in query if t < counts.shape[1]] for query in queries]
    live = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(counts)), max_size=3)))
    spans = pairwise([0, *cuts, len(counts)])
    own = data.draw(st.booleans())
    parts = [part_of(counts[a:b], own, (~live[a:b]).astype(np.uint8)) for a, b in spans]
    place = np.flatnonzero(live)
    expected = search([part_of(counts[live])], queries, k=k)
    assert search(parts, queries, k=k, threads=3) == [(place[d].tolist(), s) for d, s in expected]


@given(counts=corpora(), queries=queries_of, k=st.integers(1, 8), data=st.data())
def test_a_filter_leaves_scores_and_order_as_they_are(
    counts: Array, queries: list[list[int]], k: int, data: st.DataObject
) -> None:
    queries = [[t for t in query if t < counts.shape[1]] for query in queries]
    ids = st.lists(st.integers(0, len(counts) - 1), unique=True).map(sorted)
    allowed = data.draw(st.lists(ids, min_size=len(queries), max_size=len(queries)))
    cut = data.draw(st.integers(0, len(counts)))
    parts = [part_of(counts[:cut]), part_of(counts[cut:])]
    every = search(parts, queries, k=len(counts))
    expected = []
    for may, (documents, scores) in zip(allowed, every, strict=True):
        kept = [(d, s) for d, s in zip(documents, scores, strict=True) if d in may][:k]
        expected.append(([d for d, _ in kept], [s for _, s in kept]))
    assert search(parts, queries, k=k, filter=stack(allowed, np.int32)) == expected
    for_all = search(parts, queries, k=k, filter=stack(allowed[:1], np.int32))
    assert for_all[0] == expected[0]


@given(
    corpora=st.lists(corpora(), min_size=1, max_size=4), queries=queries_of, k=st.integers(1, 8), data=st.data()
)
def test_small_corpora_with_sizes_of_their_own_are_searched_as_each_alone(
    corpora: list[Array], queries: list[list[int]], k: int, data: st.DataObject
) -> None:
    """They stand in one part, in rows and columns of their own."""
    joined = ops.TermCounts.of(csr_array(block_diag(list(map(csr_array, corpora)), format="csr")))
    rows, columns = (np.cumsum([0, *(counts.shape[axis] for counts in corpora)]) for axis in (0, 1))
    of = data.draw(st.lists(st.integers(0, len(corpora) - 1), min_size=len(queries), max_size=len(queries)))
    queries = [[t for t in query if t < corpora[i].shape[1]] for query, i in zip(queries, of, strict=True)]
    expected = []
    for query, i in zip(queries, of, strict=True):
        ((documents, scores),) = search([part_of(corpora[i])], [query], k=k)
        expected.append(([int(rows[i]) + d for d in documents], scores))
    moved = [[int(columns[i]) + t for t in query] for query, i in zip(queries, of, strict=True)]
    sizes = [len(corpora[i]) for i in of], [int(corpora[i].sum()) for i in of]
    assert search([joined], moved, k=k, sizes=sizes) == expected


@pytest.fixture(scope="module")
def large() -> tuple[csr_array, list[list[int]]]:
    """Of more than a window's documents; columns dense and sparse."""
    draw = np.random.default_rng(0)
    counts = random_array(
        (30_000, 400), density=0.02, rng=draw, format="csr", data_sampler=lambda size: draw.integers(1, 9, size)
    )
    counts = csr_array(
        counts * (draw.random(400) < 0.7)[None, :]
        + csr_array(draw.random((30_000, 1)) < 0.5) @ csr_array(np.eye(1, 400))
    )
    counts.data = np.ceil(counts.data).astype(np.int32)
    return counts, [draw.integers(0, 400, size).tolist() for size in draw.integers(0, 12, 60)]


def test_bm25s_to_the_last_bit_of_a_float(large: tuple[csr_array, list[list[int]]]) -> None:
    counts, queries = large
    counts.sort_indices()
    tokens = [np.repeat(row.indices, row.data).tolist() for row in (counts[[i]] for i in range(counts.shape[0]))]
    oracle = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    oracle.index((tokens, {str(t): t for t in range(counts.shape[1])}), show_progress=False)
    part = ops.TermCounts.of(counts)
    for query, (documents, scores) in zip(queries, search([part], queries, k=50), strict=True):
        every = oracle.get_scores_from_ids(query) if query else np.zeros(counts.shape[0])
        order = np.argsort(-every, kind="stable")[:50]
        np.testing.assert_allclose(scores, every[order][every[order] > 0], rtol=1e-6)
        np.testing.assert_allclose(scores, every[documents], rtol=1e-6)


def test_the_same_alone_in_any_batch_and_with_any_threads(large: tuple[csr_array, list[list[int]]]) -> None:
    counts, queries = large
    parts = [ops.TermCounts.of(csr_array(counts[a:b])) for a, b in ((0, 9_000), (9_000, 9_000), (9_000, 30_000))]
    together = search(parts, queries, threads=4)
    assert together == search(parts, queries, threads=1) == search([ops.TermCounts.of(counts)], queries)
    assert together == [search(parts, [query])[0] for query in queries]


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 30),
    k1=st.sampled_from([0.0, 0.9, 1.5]),
    b=st.sampled_from([0.0, 0.75, 1.0]),
    cuts=st.lists(st.integers(0, 200_000), max_size=2).map(sorted),
    has_deleted=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_pruning_changes_no_bit(
    seed: int, k: int, k1: float, b: float, cuts: list[int], has_deleted: bool
) -> None:
    """Against a search that may find every document: a filter turns pruning off."""
    draw = np.random.default_rng(seed)
    counts = rare_and_common(draw)
    dead = (draw.random(counts.shape[0]) < 0.1 * has_deleted).astype(np.uint8)
    parts = []
    for first, last in pairwise([0, *cuts, counts.shape[0]]):
        part = ops.TermCounts.of(csr_array(counts[first:last]))
        parts.append(
            ops.TermCounts(part.indptr, part.documents, part.counts, part.lengths, None, dead[first:last])
        )
    queries = [[2, 0, 3], [3, 1, 2, 0, 4, 3], [0, 1, 1], [2, 3, 4], [4, 2, 3, 0, 5]]
    every = [0, counts.shape[0]], np.arange(counts.shape[0])
    options = {"k": k, "k1": k1, "b": b}
    pruned = search(parts, queries, threads=2, **options)
    assert pruned == search(parts, queries, filter=every, **options)
    if not has_deleted:
        dense = counts.toarray()
        for query, (_, scores) in zip(queries, pruned, strict=True):
            np.testing.assert_allclose(scores, bm25_reference(dense, query, k, k1, b)[1], rtol=1e-5)


def rare_and_common(draw: np.random.Generator) -> csr_array:
    """200,000 documents of five terms, the first two rare, with many equal scores."""
    shares = np.array([0.0005, 0.003, 0.3, 0.5, 0.1, 0.0])
    return csr_array((draw.random((200_000, 6)) < shares) * draw.integers(1, 4, (200_000, 6), np.int32))


def test_pruning_skips_entries_that_cannot_matter() -> None:
    """Only a full search reads a damaged entry of a common term, in a document without the rare term."""
    counts = rare_and_common(np.random.default_rng(0))
    part = ops.TermCounts.of(counts)
    last = part.documents[part.indptr[4] - 1]
    assert counts[[last], [0]] == 0
    part.counts[part.indptr[4] - 1] = 0
    assert len(search([part], [[0, 2, 3]], k=5)[0][0]) == 5
    with pytest.raises(ArrayError, match="counts must be at least 1"):
        search([part], [[0, 2, 3]], k=5, filter=([0, len(part.lengths)], np.arange(len(part.lengths))))


def test_nothing_to_search() -> None:
    assert search([], [[1], []]) == [([], []), ([], [])]
    part = part_of(np.zeros((3, 2), np.int32))
    assert search([part], [[0, 1]]) == [([], [])]
    assert search([part_of(np.eye(2, dtype=np.int32))], [[7]]) == [([], [])]  # no column has such a term


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"documents": [0, 5]}, "must ascend within a column and lie inside"),
        ({"documents": [-1, 1]}, "must ascend within a column and lie inside"),
        ({"documents": [0]}, "the same length"),
        ({"counts": [0, 1]}, "counts must be at least 1"),
        ({"lengths": [-2, 9]}, "lengths at least 0"),
        ({"indptr": [0, 9, 2]}, "starts at 0 and ends at 9"),
        ({"indptr": []}, "one more number than there are columns"),
        ({"columns": [3, 1]}, "is in column 3; number of columns: 2"),
        ({"columns": [-2, 1]}, "is in column -2; number of columns: 2"),
        ({"deleted": [0]}, r"for each document \(2\), got 1"),
        ({"documents": [0.5, 1]}, "expected int32"),
    ],
)
def test_malformed_parts(change: dict[str, Any], said: str) -> None:
    good: dict[str, Any] = {"indptr": [0, 2, 2], "documents": [0, 1], "counts": [1, 1], "lengths": [1, 1]}
    assert search([ops.TermCounts(**good)], [[0]])[0][0] == [0, 1]
    with pytest.raises(ArrayError, match=said):
        search([ops.TermCounts(**(good | change))], [[0]])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "k: must be at least 1"),
        ({"k1": -1.0}, "k1: must be"),
        ({"b": 1.5}, "b: must be"),
        ({"filter": ([0, 2], [1, 1])}, "must ascend"),
        ({"filter": ([0, 1], [2])}, "must ascend, from 0 to below 2"),
        ({"filter": ([0, 1, 1, 1], [0])}, r"list for each query \(2\), or one for all, got 3"),
        ({"filter": [0]}, "expected a pair"),
        ({"sizes": ([2], [2, 2])}, "documents, total_length: expected one number for each of 2 queries"),
        ({"sizes": ([2, 2, 2], [2, 2, 2])}, "documents, total_length: expected one number"),
        ({"sizes": ([2, -1], [2, 2])}, "documents, total_length: must be at least 0"),
        ({"sizes": ([0, 0], [2, 2])}, "documents: is 0, but term 0 is in 2"),
    ],
)
def test_malformed_arguments(options: dict[str, Any], said: str) -> None:
    part = part_of(np.ones((2, 1), np.int32))
    with pytest.raises(ArrayError, match=said):
        search([part], [[0], [0]], **options)
    with pytest.raises(ArrayError, match="query_offsets"):
        ops.bm25([part], [0, 5], [0])
    with pytest.raises(ArrayError, match="term -1"):
        ops.bm25([part], [0, 1], [-1])
    with pytest.raises(ArrayError, match="expected ops"):
        ops.bm25([([0], [])], [0, 1], [0])  # type: ignore[list-item]
