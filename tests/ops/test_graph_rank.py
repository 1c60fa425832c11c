"""graph_rank against its reference and scikit-learn's MinMaxScaler."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from references import graph_rank_reference
from sklearn.preprocessing import MinMaxScaler

from pyfast import ops
from pyfast.errors import ArrayError

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(
    scores=st.integers(0, 12).flatmap(
        lambda n: arrays(np.float32, (2, n), elements=finite | st.sampled_from([0.0, 1.0, -1.0]))
    ),
    cut=st.integers(0, 12),
    alpha=st.sampled_from([0.0, 0.25, 0.85, 1.0]),
)
def test_reference(scores: np.ndarray, cut: int, alpha: float) -> None:
    n = scores.shape[1]
    cut = min(cut, n)
    found = ops.graph_rank(scores[0], scores[1], [0, cut, cut, n], alpha)
    for part in (slice(0, cut), slice(cut, n)):
        if part.stop > part.start:
            expected = graph_rank_reference(scores[0, part], scores[1, part], alpha)
            np.testing.assert_allclose(found[part], expected, rtol=1e-5, atol=1e-30)


def test_min_max_scaler() -> None:
    semantic, structural = np.random.default_rng(0).normal(size=(2, 500)).astype(np.float32)
    scaled = MinMaxScaler().fit_transform(np.stack([semantic, structural], axis=1).astype(np.float64))
    found = ops.graph_rank(semantic, structural, [0, 500], alpha=0.85)
    np.testing.assert_allclose(found, scaled[:, 0] * (1 + 0.15 * scaled[:, 1]), rtol=1e-5, atol=1e-7)


def test_all_equal_scores_count_as_one() -> None:
    assert ops.graph_rank([3, 3], [7, 7], [0, 2], alpha=0.5).tolist() == [1.5, 1.5]
    assert ops.graph_rank([0], [0], [0, 0, 1, 1]).tolist() == np.float32([1.15]).tolist()


def test_alpha_of_one_leaves_the_semantic_score() -> None:
    assert ops.graph_rank([1, 3, 2], [9, 0, 5], [0, 3], alpha=1.0).tolist() == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("semantic", "structural", "offsets", "alpha", "name"),
    [
        ([1, np.nan], [1, 2], [0, 2], 0.5, "semantic"),
        ([1, 2], [1, np.inf], [0, 2], 0.5, "structural"),
        ([1, 2], [1], [0, 2], 0.5, "structural"),
        ([1, 2], [1, 2], [0, 3], 0.5, "pool_offsets"),
        ([1, 2], [1, 2], [], 0.5, "pool_offsets"),
        ([1, 2], [1, 2], [1, 2], 0.5, "pool_offsets"),
        ([1, 2], [1, 2], [0, 2, 1, 2], 0.5, "pool_offsets"),
        ([1, 2], [1, 2], [0, 2.0], 0.5, "pool_offsets"),
        ([[1, 2]], [1, 2], [0, 2], 0.5, "semantic"),
        (["a", "b"], [1, 2], [0, 2], 0.5, "semantic"),
        ([1, 2], [1j, 2], [0, 2], 0.5, "structural"),
        ([1, 2], [1, 2], [0, 2], 1.01, "alpha"),
        ([1, 2], [1, 2], [0, 2], -0.01, "alpha"),
        ([1, 2], [1, 2], [0, 2], np.nan, "alpha"),
        ([1, 2], [1, 2], [0, 2], None, "alpha: expected a number"),
    ],
)
def test_malformed(semantic: object, structural: object, offsets: object, alpha: float, name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.graph_rank(semantic, structural, offsets, alpha)  # type: ignore[arg-type]
