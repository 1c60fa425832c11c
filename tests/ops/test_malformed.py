"""Malformed input: an `ArrayError` that names the argument, and the next call undisturbed. Never a crash."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_problems import OPS, READS_X, Problem, random_problem, same, spoil
from scipy.sparse import csr_array

from pyfast.errors import ArrayError

# Document 5 comes last, so that the workspace is in use when the error is found.
GOOD = replace(random_problem([0, 4, 3], terms=50), docs=np.array([0, 1, 2, 3, 4, 6, 5], dtype=np.int32))
BEFORE = {name: run(GOOD) for name, run in OPS.items()}
BEGIN, END = (int(GOOD.X.indptr[d]) for d in (5, 6))
TERMS = GOOD.X.shape[1]
NAN, INF = float("nan"), float("inf")


def trusted(indptr: Any, indices: Any, data: Any) -> csr_array:
    """A CSR array that holds what it is given, and says that its rows are in order."""
    x = GOOD.X.copy()
    x.indptr, x.indices, x.data = indptr, indices, data
    x.has_canonical_format = True
    return x


def altered(part: str, place: int, value: float, trust: bool = True, dtype: Any = None) -> Problem:
    """GOOD with one number of X changed."""
    arrays = {name: getattr(GOOD.X, name).copy() for name in ("indptr", "indices", "data")}
    arrays[part] = arrays[part].astype(dtype or arrays[part].dtype)
    arrays[part][place] = value
    x = trusted(**arrays)
    if not trust:
        del x._has_canonical_format
        del x._has_sorted_indices
    return replace(GOOD, X=x)


def check_undisturbed() -> None:
    assert all(same(run(GOOD), BEFORE[name]) for name, run in OPS.items())


BAD_X: dict[str, tuple[Problem, str]] = {
    "term too large": (altered("indices", END - 1, TERMS), "X"),
    "term huge": (altered("indices", END - 1, 2**31 - 1), "X"),
    "term beyond int32": (altered("indices", END - 1, 2**31, dtype=np.int64), "X.indices"),
    "negative term": (altered("indices", BEGIN, -1), "X"),
    "NaN": (altered("data", BEGIN, NAN), "X"),
    "negative weight": (altered("data", END - 1, -0.5), "X"),
    "infinite weight": (altered("data", BEGIN + 3, INF), "X"),
    "weight whose products overflow": (altered("data", BEGIN + 3, 1e30), "X"),
    "double beyond float": (altered("data", BEGIN + 3, 1e300, dtype=np.float64), "X"),
    "offset beyond": (altered("indptr", 6, 2**31 - 1), "X"),
    "offset beyond, int64": (altered("indptr", 6, 2**62, dtype=np.int64), "X"),
    "offset negative": (altered("indptr", 5, -1), "X"),
    "offset negative, int64": (altered("indptr", 5, -(2**62), dtype=np.int64), "X"),
    "offset decreasing": (altered("indptr", 6, BEGIN - 1), "X"),
    "offset beyond, unsorted": (altered("indptr", 3, 2**31 - 1, trust=False), "X.indptr"),
    "offset decreasing, unsorted": (altered("indptr", 6, BEGIN - 1, trust=False), "X.indptr"),
    "offset as float": (altered("indptr", 5, 1, dtype=np.float64), "X.indptr"),
    "offset as int16": (altered("indptr", 5, 1, dtype=np.int16), "X.indptr"),
    "indices as float": (altered("indices", 5, 1, dtype=np.float32), "X.indices"),
    "weights as text": (altered("data", 5, 1, dtype="U3"), "X.data"),
    "fewer weights": (replace(GOOD, X=trusted(GOOD.X.indptr, GOOD.X.indices, GOOD.X.data[:-1])), "X"),
    "no offsets": (replace(GOOD, X=trusted(GOOD.X.indptr[:0], GOOD.X.indices, GOOD.X.data)), "doc_ids"),
    "2-D indices": (replace(GOOD, X=trusted(GOOD.X.indptr, GOOD.X.indices[None], GOOD.X.data)), "X.indices"),
    "2-D offsets": (replace(GOOD, X=trusted(GOOD.X.indptr[None], GOOD.X.indices, GOOD.X.data)), "X.indptr"),
    "CSC": (replace(GOOD, X=GOOD.X.tocsc()), "X"),
    "dense": (replace(GOOD, X=GOOD.X.toarray()), "X"),
    "None": (replace(GOOD, X=None), "X"),
}
BAD_POOLS: dict[str, tuple[Problem, str]] = {
    "document too large": (replace(GOOD, docs=np.array([0, 1, 2, 3, 4, 6, GOOD.X.shape[0]])), "doc_ids"),
    "document huge": (replace(GOOD, docs=np.array([0, 1, 2, 3, 4, 6, 2**31 - 1])), "doc_ids"),
    "document beyond int32": (replace(GOOD, docs=np.array([0, 1, 2, 3, 4, 6, 2**40])), "doc_ids"),
    "negative document": (replace(GOOD, docs=np.array([0, 1, 2, 3, 4, 6, -1])), "doc_ids"),
    "float documents": (replace(GOOD, docs=GOOD.docs.astype(np.float64)), "doc_ids"),
    "2-D documents": (replace(GOOD, docs=GOOD.docs[None]), "doc_ids"),
    "text documents": (replace(GOOD, docs=GOOD.docs.astype(str)), "doc_ids"),
    "ragged documents": (replace(GOOD, docs=[[1], [2, 3]]), "doc_ids"),
    "no offsets": (replace(GOOD, offsets=[]), "pool_offsets"),
    "a scalar": (replace(GOOD, offsets=0), "pool_offsets"),
    "float offsets": (replace(GOOD, offsets=GOOD.offsets.astype(float)), "pool_offsets"),
    "start": (replace(GOOD, offsets=[1, 4, 7]), "pool_offsets"),
    "negative start": (replace(GOOD, offsets=[-1, 4, 7]), "pool_offsets"),
    "decreasing": (replace(GOOD, offsets=[0, 7, 4, 7]), "pool_offsets"),
    "too short": (replace(GOOD, offsets=[0, 4, 6]), "pool_offsets"),
    "too long": (replace(GOOD, offsets=[0, 4, 8]), "pool_offsets"),
    "huge": (replace(GOOD, offsets=[0, 4, 2**63 - 1]), "pool_offsets"),
    "beyond int64": (replace(GOOD, offsets=np.array([0, 4, 2**63], dtype=np.uint64)), "pool_offsets"),
}


def own_name(op: str, name: str) -> str:
    """What an op calls the argument: the pools of bridge_expand are seeds."""
    names = {"doc_ids": "seed_ids", "pool_offsets": "seed_offsets"} if op == "bridge_expand" else {}
    return names.get(name, name)


def raises(op: str, problem: Problem, name: str) -> None:
    for threads in (1, 2):
        with pytest.raises(ArrayError) as error:
            OPS[op](problem, threads)
        assert own_name(op, name) in str(error.value)
    check_undisturbed()


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("case", BAD_X)
@pytest.mark.parametrize("op", [op for op in READS_X if op != "bridge_select"])
def test_forward_index(op: str, case: str) -> None:
    raises(op, *BAD_X[case])


UNSORTED = {
    "duplicate term": altered("indices", BEGIN + 1, GOOD.X.indices[BEGIN]),
    "unsorted terms": altered("indices", BEGIN, TERMS - 1),
    "unsorted at the end": altered("indices", END - 1, GOOD.X.indices[BEGIN]),
}


@pytest.mark.parametrize("case", UNSORTED)
@pytest.mark.parametrize("op", READS_X)
def test_rows_out_of_order_are_the_matrix_that_they_are(op: str, case: str) -> None:
    problem = UNSORTED[case]
    x = problem.X
    in_order = csr_array((x.data.copy(), x.indices.copy(), x.indptr.copy()), shape=x.shape)
    in_order.sum_duplicates()
    assert same(OPS[op](problem), OPS[op](replace(problem, X=in_order)))


@pytest.mark.parametrize("case", BAD_POOLS)
@pytest.mark.parametrize("op", READS_X)
def test_pools(op: str, case: str) -> None:
    raises(op, *BAD_POOLS[case])


def test_the_error_of_the_first_bad_pool_is_raised() -> None:
    problem = random_problem([3] * 200)
    docs = problem.docs.copy()
    docs[50::3] = -np.arange(len(docs[50::3])) - 1
    for _ in range(20):
        with pytest.raises(ArrayError, match="document -1 "):
            OPS["evidence_graph sum"](replace(problem, docs=docs), 5)


nasty = [0, 1, -1, 7, 2**31 - 1, -(2**31), 2**15, TERMS - 1, TERMS, NAN, INF, -INF, 1e-45, 1e38]
parts = st.sampled_from(["indptr", "indices", "data", "docs", "offsets"])
changes = st.tuples(parts, st.integers(0, 2**16), st.sampled_from(nasty) | st.integers(0, 31))


@pytest.mark.parametrize("trust", [True, False])
@settings(max_examples=120)
@given(changes=st.lists(changes, min_size=1, max_size=4))
def test_any_corruption_is_refused_or_harmless(trust: bool, changes: list[tuple[str, int, float]]) -> None:
    problem = altered("indptr", 0, 0, trust=trust)
    arrays: dict[str, Any] = {name: getattr(problem.X, name) for name in ("indptr", "indices", "data")}
    arrays |= {"docs": GOOD.docs.copy(), "offsets": GOOD.offsets.copy()}
    spoil(arrays, changes)
    problem = replace(problem, docs=arrays["docs"], offsets=arrays["offsets"])
    for op in READS_X:
        try:
            result = OPS[op](problem, 2)
        except ArrayError:
            continue
        assert all(np.isfinite(part).all() for pool in result for part in pool)
    check_undisturbed()


@pytest.mark.parametrize("threads", [0, -3, 1.5, "2", None])
@pytest.mark.parametrize("op", ["evidence_graph sum", "weighted_degree sum", "bridge_rank"])
def test_threads(op: str, threads: Any) -> None:
    run: Callable[..., Any] = OPS[op]
    if threads is None:  # all cores
        assert same(run(GOOD, threads), BEFORE[op])
    else:
        with pytest.raises(ArrayError, match="threads"):
            run(GOOD, threads)


@pytest.mark.parametrize("op", READS_X)
@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("indptr", GOOD.X.indptr.astype(np.float64)),
        ("indices", GOOD.X.indices.astype(object)),
        ("indices", None),
        ("data", None),
        ("data", GOOD.X.data.astype(np.int32)),
        ("_shape", (GOOD.X.shape[0], 2**40)),
        ("_shape", (-1, -1)),
        ("_shape", (GOOD.X.shape[0],)),
    ],
)
def test_an_index_whose_parts_were_replaced(op: str, attribute: str, value: Any) -> None:
    X = GOOD.X.copy()
    setattr(X, attribute, value)
    with pytest.raises(ArrayError, match="X"):
        OPS[op](replace(GOOD, X=X), 2)
    check_undisturbed()
