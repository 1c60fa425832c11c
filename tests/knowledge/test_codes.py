"""Vectors found by codes: the nearest of all, the same whatever comes with a query, on however many threads."""

from collections.abc import Iterator

import numpy as np
import pytest

from pyfast.knowledge import vectors
from pyfast.ops.arrays import Float32

faiss = pytest.importorskip("faiss")
DIMENSIONS = 48


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(vectors, "EXACT", 1000)
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


def texts_of(matrix: Float32) -> vectors.Vectors:
    return vectors.make([str(i) for i in range(len(matrix))], lambda texts: matrix[[int(i) for i in texts]], None)


def test_the_nearest_are_found_whatever_comes_with_a_query(matrix: Float32) -> None:
    coded = texts_of(matrix)
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


def test_the_same_vectors_make_the_same_codes(matrix: Float32) -> None:
    made = []
    for threads in (1, 2, 5):
        faiss.omp_set_num_threads(threads)
        made.append(faiss.serialize_index(texts_of(matrix).codes).tobytes())
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("dimensions", [1, 3, 31, 384])
def test_any_number_of_dimensions(dimensions: int) -> None:
    few = of_length_one(np.random.default_rng(2).standard_normal((1100, dimensions), np.float32))
    found, _ = texts_of(few).search(few[:50], 1)
    assert np.mean(np.einsum("ij,ij->i", few[found[:, 0]], few[:50]) > 0.999) > 0.9
