"""The bridge-aware selector, algorithm 1 of N2N-GQA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Csr, Float32, Int32, Int64, arguments, array, call, integers


@dataclass(frozen=True, slots=True)
class Cells:
    """The cell values of table rows, as term ids. A row has several values, and a value has several terms.
    Passages of text have no values."""

    value_offsets: Int32 | Int64
    """[documents + 1] document d has the values value_offsets[d] to value_offsets[d + 1]"""
    term_offsets: Int32 | Int64
    """[values + 1] value v has the terms term_offsets[v] to term_offsets[v + 1]"""
    term_ids: Int32


def bridge_select(
    X: Csr,
    pool_offsets: npt.ArrayLike,
    doc_ids: npt.ArrayLike,
    semantic: npt.ArrayLike,
    is_table: npt.ArrayLike,
    cells: Cells,
    beta: float = 0.2,
) -> Float32:
    """Boost the top table row and the top passage of text in each pool (algorithm 1 of N2N-GQA).

    The op adds the boost `beta` to the highest score of a table row, and also to the highest score of a
    passage of text, unless this row and this passage are linked (phi = 1 in the paper). They are linked if
    the passage contains all terms of one of the row's cell values.

    Args:
        X: The forward index, documents x terms.
        pool_offsets: int64[P + 1], where each pool begins.
        doc_ids: int32[N], documents of X.
        semantic: float32[N], the retrieval scores.
        is_table: [N], 1 for table rows, 0 for passages of text.
        cells: The cell values of all documents of X.
        beta: The boost, on the scale of `semantic`.

    Returns:
        float32[N], the scores with their boosts.

    Raises:
        ArrayError: An array is malformed.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from pyfast import ops
        >>> X = csr_array(np.array([[1, 0], [0, 1]], np.float32))  # document 1 is a row, its one value is term 1
        >>> cells = ops.Cells(np.array([0, 0, 1]), np.array([0, 1]), np.array([1], np.int32))
        >>> ops.bridge_select(X, [0, 2], [0, 1], [0.5, 0.25], [0, 1], cells, beta=0.25).tolist()
        [0.75, 0.5]
    """
    if not isinstance(cells, Cells):
        raise ArrayError(f"cells: expected Cells, got {type(cells).__name__}")
    given = arguments(X=X, pool_offsets=pool_offsets, doc_ids=doc_ids, semantic=semantic, is_table=is_table)
    for name in ("value_offsets", "term_offsets"):
        given[name] = integers(f"cells.{name}", getattr(cells, name))
    given["term_ids"] = array("cells.term_ids", cells.term_ids, np.int32)
    return call(native.bridge_select, **given, beta=beta)
