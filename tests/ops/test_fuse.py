"""fuse against its reference, alone and together; malformed input."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Array, ends, lists
from references import fuse_reference

from pyfast import ops
from pyfast.errors import ArrayError

# Few distinct scores make ties; 0.1 and 1e-30 are no round numbers when they are normalised.
score = st.sampled_from([0.0, 0.1, 0.7, 1.0, 1e-30, -3.0, 1e30]) | st.floats(-1e6, 1e6, width=32)
pool = st.lists(st.tuples(st.integers(0, 9), score), max_size=12)
groups = st.lists(st.lists(pool, max_size=4), max_size=4)


def fuse(given_groups: list[Any], k: int) -> list[tuple[bytes, bytes]]:
    pools = [pool for group in given_groups for pool in group]
    offsets, documents = lists([[document for document, _ in pool] for pool in pools])
    scores = np.array([score for pool in pools for _, score in pool], dtype=np.float32)
    cuts, fused, best = ops.fuse(ends(given_groups), offsets, documents, scores, k)
    assert (cuts.dtype, fused.dtype, best.dtype) == (np.int64, np.int32, np.float32)
    assert len(cuts) == len(given_groups) + 1
    return [(fused[a:b].tobytes(), best[a:b].tobytes()) for a, b in pairwise(cuts.tolist())]


def arrays(pool: list[tuple[int, float]]) -> tuple[Array, Array]:
    return np.array([d for d, _ in pool], np.int32), np.array([s for _, s in pool], np.float32)


@given(groups, st.integers(1, 20))
def test_reference(given_groups: list[Any], k: int) -> None:
    found = fuse(given_groups, k)
    expected = [fuse_reference([arrays(pool) for pool in group], k) for group in given_groups]
    assert found == [(documents.tobytes(), scores.tobytes()) for documents, scores in expected]
    assert found == [fuse([group], k)[0] for group in given_groups]


GOOD = ([0, 2, 3], [0, 2, 2, 5], [4, 5, 6, 4, 5], [1.0, 0.5, 3.0, 2.0, 1.0], 3)


@pytest.mark.parametrize(
    ("place", "value", "name"),
    [
        (0, [], "list_offsets"),
        (0, [0, 2, 4], "list_offsets"),
        (0, [0, 4, 3], "list_offsets"),
        (0, [1, 2, 3], "list_offsets"),
        (0, [0, 2**62, 3], "list_offsets"),
        (0, [0.0, 3.0], "list_offsets"),
        (1, [0, 2, 2, 6], "pool_offsets"),
        (1, [0, 6, 2, 5], "pool_offsets"),
        (2, [4, 5, 6, 4], "pool_offsets"),
        (2, [4, 5, 6, 4, 2**31], "doc_ids"),
        (3, [1.0, 0.5], "semantic"),
        (3, [1.0, 0.5, 3.0, float("nan"), 1.0], "semantic"),
        (3, [1.0, 0.5, 3e38, -3e38, 1.0], "semantic"),
        (4, 0, "k"),
        (4, 1.5, "k: expected an integer"),
    ],
)
def test_malformed(place: int, value: Any, name: str) -> None:
    arguments: list[Any] = list(GOOD)
    arguments[place] = value
    with pytest.raises(ArrayError, match=name):
        ops.fuse(*arguments)
    assert ops.fuse(*GOOD)[1].tolist() == [4, 5, 6, 4, 5]
