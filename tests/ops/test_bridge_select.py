"""bridge_select against its reference, and the cases of the paper's algorithm 1."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Problem, lists, problems, random_problem
from references import bridge_select_reference
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.errors import ArrayError


@given(problem=problems(), beta=st.sampled_from([0.0, 0.2, 3.0]))
def test_reference(problem: Problem, beta: float) -> None:
    X, cells = problem.X, problem.cells
    found = ops.bridge_select(
        X, problem.offsets, problem.docs, problem.semantic, problem.is_table, cells, beta=beta
    )
    for p in range(len(problem)):
        terms = [set(X.indices[X.indptr[d] : X.indptr[d + 1]].tolist()) for d in problem.pool(p)]
        values = [
            [
                set(cells.term_ids[cells.term_offsets[v] : cells.term_offsets[v + 1]].tolist())
                for v in range(cells.value_offsets[d], cells.value_offsets[d + 1])
            ]
            for d in problem.pool(p)
        ]
        semantic, is_table = (problem.part(a, p) for a in (problem.semantic, problem.is_table))
        expected = bridge_select_reference(terms, semantic, is_table, values, beta)
        np.testing.assert_array_equal(problem.part(found, p), expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0, 1], [1.0, 1.25]),  # both terms of the cell value are in the passage: linked
        ([0, 2], [1.25, 1.25]),  # one is not
        ([], [1.25, 1.25]),  # an empty cell links nothing
    ],
)
def test_link(value: list[int], expected: list[float]) -> None:
    X = csr_array(np.array([[1, 1, 0], [0, 0, 1]], dtype=np.float32))  # a passage and a table row
    cells = ops.Cells(np.array([0, 0, 1]), *lists([value]))
    found = ops.bridge_select(X, [0, 2], [0, 1], [1, 1], [False, True], cells, beta=0.25)
    assert found.tolist() == expected


def test_malformed() -> None:
    problem = random_problem([3, 4])
    good = [problem.X, problem.offsets, problem.docs, problem.semantic, problem.is_table, problem.cells]
    cells = problem.cells
    bad = {
        "semantic": (3, np.full(7, np.nan, np.float32)),
        "is_table": (4, problem.is_table[:-1]),
        "doc_ids": (2, problem.docs + 1000),
        "cells.value_offsets": (5, replace(cells, value_offsets=cells.value_offsets[:-1])),
        "cells.term_offsets": (5, replace(cells, term_offsets=cells.term_offsets + 1)),
        "cells.term_ids": (5, replace(cells, term_ids=cells.term_ids.astype(np.float32))),
    }
    for name, (place, value) in bad.items():
        with pytest.raises(ArrayError, match=name):
            ops.bridge_select(*(value if i == place else v for i, v in enumerate(good)))
    with pytest.raises(ArrayError, match="beta"):
        ops.bridge_select(*good, beta=float("inf"))


def test_every_document_must_exist_also_where_its_row_is_not_read() -> None:
    problem = random_problem([3])
    semantic = np.array([0.0, 0.5, 1.0], dtype=np.float32)
    for is_table in ([0, 0, 0], [1, 1, 1]):
        for document in (-1, problem.X.shape[0]):
            with pytest.raises(ArrayError, match="doc_ids"):
                ops.bridge_select(problem.X, [0, 3], [document, 0, 1], semantic, is_table, problem.cells)
