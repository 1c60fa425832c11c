"""What an edge of the evidence graph stands on: the terms that its two documents share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyfast.errors import ArrayError
from pyfast.ops.arrays import Float32, Int32, array, forward
from pyfast.ops.evidence_graph import EdgeWeight, term_weights, weight_argument

if TYPE_CHECKING:
    from numba.core.ccallback import CFunc


def shared_terms(
    X: csr_array, i: int, j: int, weight: EdgeWeight | CFunc = "sum", mask_terms: npt.ArrayLike = ()
) -> tuple[Int32, Float32]:
    """(term ids, shares): what documents `i` and `j` of X share, and each term's share of their edge's weight.

    The largest share first (ties: the lower term id); the shares add up to the weight in `evidence_graph`, where
    `weight` and `mask_terms` are explained. For one edge at a time, as an explanation. Raises `ArrayError` on
    malformed input.
    """
    weight_argument(weight)  # refuses what is none
    indptr, indices, weights, _ = forward(X)
    documents = array("i, j", [i, j], np.int64)
    if documents.min() < 0 or documents.max() >= len(indptr) - 1:
        raise ArrayError(f"i, j: expected documents of the forward index of {len(indptr) - 1} documents")
    a, b = (slice(*indptr[d : d + 2].tolist()) for d in documents.tolist())
    terms, at_a, at_b = np.intersect1d(indices[a], indices[b], assume_unique=True, return_indices=True)
    shares = term_weights(weight, weights[a][at_a], weights[b][at_b]).astype(np.float32)
    order = np.argsort(-shares, kind="stable")
    order = order[~np.isin(terms[order], array("mask_terms", mask_terms, np.int32))]
    return terms[order], shares[order]
