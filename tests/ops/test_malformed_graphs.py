"""Malformed graphs: an `ArrayError` that names the array, and the next call undisturbed. Never a crash."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_problems import graph, random_matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_problems import spoil

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops import EvidenceGraph

# An empty pool, dense ones, a sparse one; the one that is spoilt last.
GOOD = graph([random_matrix(n, density, seed=n) for n, density in ((0, 1), (20, 1), (40, 0.05), (3, 1), (9, 1))])
LAST = int(GOOD.indptr[-1])
OPS = {"betweenness": ops.betweenness, "eigenvector": ops.eigenvector, "pagerank": ops.pagerank}
BEFORE = {name: op(GOOD) for name, op in OPS.items()}
NAN, INF = float("nan"), float("inf")


def altered(part: str, place: int, value: float) -> EvidenceGraph:
    array = getattr(GOOD, part).copy()
    array[place] = value
    return replace(GOOD, **{part: array})


BAD: dict[str, tuple[Any, str]] = {
    "NaN": (altered("weights", LAST - 1, NAN), "g.weights"),
    "first is NaN": (altered("weights", 0, NAN), "g.weights"),
    "infinite": (altered("weights", LAST - 2, INF), "g.weights"),
    "negative": (altered("weights", LAST - 30, -1e-45), "g.weights"),
    "minus infinite": (altered("weights", 5, -INF), "g.weights"),
    "fewer weights": (replace(GOOD, weights=GOOD.weights[:-1]), "g.weights"),
    "more weights": (replace(GOOD, weights=np.append(GOOD.weights, GOOD.weights)), "g.weights"),
    "2-D weights": (replace(GOOD, weights=GOOD.weights[None]), "g.weights"),
    "no weights": (replace(GOOD, weights=None), "g.weights"),
    "outside the pool": (altered("indices", LAST - 1, 9), "g.indices"),
    "huge": (altered("indices", LAST - 1, 2**31 - 1), "g.indices"),
    "below 0": (altered("indices", LAST - 8, -1), "g.indices"),
    "twice": (altered("indices", LAST - 1, GOOD.indices[LAST - 2]), "g.indices"),
    "unsorted": (altered("indices", LAST - 4, 8), "g.indices"),
    "unsorted in a long row": (altered("indices", 3, 0), "g.indices"),
    "beyond int32": (replace(GOOD, indices=GOOD.indices.astype(np.int64) + 2**32), "g.indices"),
    "float indices": (replace(GOOD, indices=GOOD.indices.astype(np.float64)), "g.indices"),
    "offset beyond": (altered("indptr", 30, 2**62), "g.indptr"),
    "offset negative": (altered("indptr", 30, -1), "g.indptr"),
    "offset decreasing": (altered("indptr", 30, 0), "g.indptr"),
    "offsets start late": (altered("indptr", 0, 1), "g.indptr"),
    "offsets end early": (altered("indptr", -1, LAST - 1), "g.indptr"),
    "no offsets": (replace(GOOD, indptr=[]), "g.indptr"),
    "float offsets": (replace(GOOD, indptr=GOOD.indptr.astype(float)), "g.indptr"),
    "pool beyond": (altered("pool_offsets", 2, 2**62), "g.pool_offsets"),
    "pool negative": (altered("pool_offsets", 2, -1), "g.pool_offsets"),
    "pools start late": (altered("pool_offsets", 0, 1), "g.pool_offsets"),
    "pools end early": (altered("pool_offsets", -1, 70), "g.pool_offsets"),
    "no pools": (replace(GOOD, pool_offsets=[]), "g.pool_offsets"),
    "no graph": (None, "g: expected an EvidenceGraph"),
    "a matrix": (GOOD.pool(1), "g: expected an EvidenceGraph"),
}


def check_undisturbed() -> None:
    assert all(np.array_equal(op(GOOD, threads=2), BEFORE[name]) for name, op in OPS.items())


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("op", OPS)
def test_refused(op: str, case: str) -> None:
    bad, name = BAD[case]
    for threads in (1, 2):
        with pytest.raises(ArrayError) as error:
            OPS[op](bad, threads=threads)
        assert name in str(error.value)
    check_undisturbed()


def test_minus_zero_is_zero() -> None:
    g = graph([[[0, 1], [1, 0]]])
    for op in OPS.values():
        assert np.array_equal(op(replace(g, weights=[-0.0, 1])), op(replace(g, weights=[0.0, 1])))


nasty = [0, 1, -1, 8, 9, 40, 2**31 - 1, -(2**31), LAST, LAST - 1, NAN, INF, -INF, -0.0, 1e-45, 3e38]
changes = st.tuples(
    st.sampled_from(["pool_offsets", "indptr", "indices", "weights"]),
    st.integers(0, 2**16),
    st.sampled_from(nasty) | st.integers(0, 31),
)


@settings(max_examples=120)
@given(changes=st.lists(changes, min_size=1, max_size=4))
def test_any_corruption_is_refused_or_harmless(changes: list[tuple[str, int, float]]) -> None:
    arrays = {name: getattr(GOOD, name).copy() for name in ("pool_offsets", "indptr", "indices", "weights")}
    spoil(arrays, changes)
    for op in OPS.values():
        try:
            found = op(EvidenceGraph(**arrays), threads=2)
        except ArrayError:
            continue
        assert np.isfinite(found).all() and np.all(found >= 0)
    check_undisturbed()
