"""prune against its reference and the rules that it states."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from references import prune_reference

from pyfast import ops
from pyfast.errors import ArrayError

# Few distinct values make ties; 0.1 and 0.7 are no binary fractions, so a mean of equals may round.
scores = st.sampled_from([0.1, 0.7, 0.5, 1.0, 0.0, -3.0]) | st.integers(0, 64).map(lambda v: v / 64)


@st.composite
def pools(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(0, 30))
    elements = scores if draw(st.booleans()) else st.just(draw(scores))
    score = draw(st.lists(elements, min_size=n, max_size=n))
    return np.array(score, dtype=np.float32), draw(arrays(np.uint8, n, elements=st.integers(0, 1)))


@given(
    batch=st.lists(pools(), max_size=4),
    min_nodes=st.integers(0, 8),
    more=st.integers(1, 8),
    per_kind=st.integers(0, 9),
)
def test_reference(batch: list[tuple[np.ndarray, np.ndarray]], min_nodes: int, more: int, per_kind: int) -> None:
    bounds = (min_nodes, min_nodes + more, per_kind)
    sizes = np.cumsum([0, *(len(score) for score, _ in batch)])
    score, is_table = (np.concatenate([pool[i] for pool in batch] or [[]]) for i in (0, 1))
    offsets, nodes = ops.prune(score, is_table.astype(bool), sizes, *bounds)
    for p, pool in enumerate(batch):
        assert nodes[offsets[p] : offsets[p + 1]].tolist() == prune_reference(*pool, *bounds)


@given(pools())
def test_rules(pool: tuple[np.ndarray, np.ndarray]) -> None:
    score, is_table = pool
    nodes = ops.prune(score, is_table, [0, len(score)])[1]
    assert len(set(nodes.tolist())) == len(nodes) and min(len(score), 5) <= len(nodes) <= 10
    assert nodes.tolist() == sorted(nodes.tolist(), key=lambda v: (-score[v], v))
    for kind in (0, 1):
        assert (is_table[nodes] == kind).sum() >= min((is_table == kind).sum(), 2)


@pytest.mark.parametrize("n", [7, 10, 11, 49])
def test_equals_all_score_at_least_their_mean(n: int) -> None:
    nodes = ops.prune([0.1] * n, [0] * n, [0, n], min_nodes=1, max_nodes=40)[1]
    assert nodes.tolist() == list(range(min(n, 40)))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([1, np.nan], [0, 0], [0, 2]), "score"),
        (([1, 2], [0], [0, 2]), "is_table"),
        (([1, 2], [0, 300], [0, 2]), "is_table"),
        (([1, 2], [0, -1], [0, 2]), "is_table"),
        (([1, 2], [0.0, 1.0], [0, 2]), "is_table"),
        (([1, 2], [0, 0], [0, 1]), "pool_offsets"),
        (([1, 2], [0, 0], [0, 3, 2]), "pool_offsets"),
        (([1, 2], [0, 0], [0, 2], -1), "min_nodes"),
        (([1, 2], [0, 0], [0, 2], 5, 4), "max_nodes"),
        (([1, 2], [0, 0], [0, 2], 0, 0), "max_nodes"),
        (([1, 2], [0, 0], [0, 2], 0, 1, -1), "per_kind"),
        (([1, 2], [0, 0], [0, 2], 0.5), "min_nodes: expected an integer"),
    ],
)
def test_malformed(arguments: tuple[object, ...], name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.prune(*arguments)  # type: ignore[arg-type]
