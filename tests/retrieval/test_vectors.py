"""Vectors found by codes: the nearest of all, the same whatever comes with a query, on however many threads."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pyfast.ops.arrays import Float32
from pyfast.retrieval.vectors import vector_search

faiss = pytest.importorskip("faiss")
DIMENSIONS = 48


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(vector_search, "EXACT", 1000)
    threads = faiss.omp_get_max_threads()
    yield
    faiss.omp_set_num_threads(threads)


def of_length_one(rows: Float32) -> Float32:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def matrix() -> Float32:
    """4,000 vectors around 100 centres, as texts have subjects."""
    drawn = np.random.default_rng(0)
    centres = drawn.standard_normal((100, DIMENSIONS), np.float32)
    return of_length_one(
        centres[drawn.integers(0, 100, 4000)] + drawn.standard_normal((4000, DIMENSIONS), np.float32)
    )


def test_the_nearest_are_found_whatever_comes_with_a_query(matrix: Float32) -> None:
    coded = vector_search.make(matrix)
    assert coded.codes is not None
    drawn = np.random.default_rng(1)
    queries = of_length_one(matrix[::9] + 0.05 * drawn.standard_normal(matrix[::9].shape, np.float32))
    found, scores = coded.search(queries, 5)
    exact = np.argsort(-(queries @ matrix.T), axis=1)[:, :5]
    held = [len({*some} & {*all_}) / 5 for some, all_ in zip(found.tolist(), exact.tolist(), strict=True)]
    assert np.mean(held) > 0.97
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ matrix.T, found, axis=1), atol=1e-6)
    for threads, batch in ((1, 1), (2, 7), (3, 64), (2, 100)):
        faiss.omp_set_num_threads(threads)
        parts = [coded.search(queries[i : i + batch], 5) for i in range(0, len(queries), batch)]
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), found)
        np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), scores)


def test_equal_cosines_are_in_the_order_of_their_places(matrix: Float32, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many texts are equal, and whatever comes with a query."""
    monkeypatch.setattr(vector_search, "EXACT", len(matrix))
    monkeypatch.setattr(vector_search, "_NUMBERS", 20 * 48 * 60)
    drawn = np.random.default_rng(5)
    repeated = matrix.copy()
    repeated[drawn.choice(len(matrix), 60, replace=False)] = matrix[7]
    repeated[7] = matrix[7]
    queries = matrix[:64]
    exact = np.einsum("nd,qd->qn", repeated, queries)
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :10]
    found, _ = vector_search.make(repeated).search(queries, 10)
    assert found[7].tolist() == np.flatnonzero((repeated == matrix[7]).all(axis=1))[:10].tolist()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(vector_search.make(repeated).search(queries[7:8], 10)[0][0], found[7])


def test_the_same_vectors_make_the_same_codes(matrix: Float32) -> None:
    made = []
    for threads in (1, 2, 5):
        faiss.omp_set_num_threads(threads)
        made.append(faiss.serialize_index(vector_search.make(matrix).codes).tobytes())
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("dimensions", [1, 3, 31, 384])
def test_any_number_of_dimensions(dimensions: int) -> None:
    few = of_length_one(np.random.default_rng(2).standard_normal((1100, dimensions), np.float32))
    found, _ = vector_search.make(few).search(few[:50], 1)
    assert np.mean(np.einsum("ij,ij->i", few[found[:, 0]], few[:50]) > 0.999) > 0.9


def test_changes_find_what_new_vectors_find(matrix: Float32, tmp_path: Path) -> None:
    """Texts go and come, again and again; files that stay are the same ones, until too much has changed."""
    drawn = np.random.default_rng(3)
    known, has = vector_search.make(matrix[:3000]), np.arange(3000)
    folders = [tmp_path / str(number) for number in range(12)]
    folders[0].mkdir()
    vector_search.save(folders[0], "facts", known)
    linked = []
    for before, folder in pairwise(folders):
        stays = np.sort(drawn.choice(len(has), len(has) - drawn.integers(0, 60), replace=False))
        new = drawn.choice(np.setdiff1d(np.arange(4000), has), drawn.integers(0, 80), replace=False)
        kept = np.concatenate([stays, np.full(len(new), -1)]).astype(np.int32)
        order = drawn.permutation(len(kept))
        has = np.concatenate([has[stays], new])[order]
        changed = vector_search.change(known, kept[order], matrix[has[kept[order] < 0]])
        np.testing.assert_array_equal(changed.of(np.arange(len(has))), matrix[has])
        folder.mkdir()
        vector_search.save(folder, "facts", changed, before, known)
        linked.append((folder / "facts.vectors.npy").samefile(before / "facts.vectors.npy"))
        known = vector_search.load(folder, "facts")
        queries = of_length_one(
            matrix[has[::7]] + 0.05 * drawn.standard_normal(matrix[has[::7]].shape, np.float32)
        )
        found, scores = known.search(queries, 5)
        exact = np.argsort(-(queries @ matrix[has].T), axis=1)[:, :5]
        held = [len({*some} & {*all_}) / 5 for some, all_ in zip(found.tolist(), exact.tolist(), strict=True)]
        assert np.mean(held) > 0.97
        np.testing.assert_array_equal(known.search(queries[:1], 5)[1][0], scores[0])
    assert any(linked) and not all(linked)


def test_equal_rows_are_found_and_no_others() -> None:
    drawn = np.random.default_rng(4)
    known = drawn.integers(0, 3, (200, 3))
    marks = drawn.integers(0, 4, (300, 3))
    first = {tuple(row): place for place, row in reversed(list(enumerate(known.tolist())))}
    assert vector_search.places_among(marks, known).tolist() == [
        first.get(tuple(row), -1) for row in marks.tolist()
    ]
    assert vector_search.places_among(marks[:0], known).size == 0
    assert vector_search.places_among(marks[:2], known[:0]).tolist() == [-1, -1]
