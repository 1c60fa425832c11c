"""Graphs made by hand: as a user may make them, and as `evidence_graph` never would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from pyfast.ops import EvidenceGraph

Array = npt.NDArray[Any]


def graph(pools: Sequence[Any]) -> EvidenceGraph:
    """The batch of these adjacency matrices; NaN stands for a stored edge of weight 0."""
    offsets, indptr, indices, weights = [0], [0], [], []
    for pool in pools:
        matrix = np.asarray(pool, dtype=np.float64).reshape(len(pool), len(pool))
        offsets.append(offsets[-1] + len(matrix))
        for row in matrix:
            held = np.flatnonzero(row)
            indices += held.tolist()
            weights += np.nan_to_num(row[held]).tolist()
            indptr.append(len(indices))
    return EvidenceGraph(
        np.array(offsets, dtype=np.int64),
        np.array(indptr, dtype=np.int64),
        np.array(indices, dtype=np.int32),
        np.array(weights, dtype=np.float32),
    )


def parts(g: EvidenceGraph, values: Array) -> list[Array]:
    """The values of each pool's nodes."""
    return np.split(values, g.pool_offsets[1:-1]) if len(g.pool_offsets) > 1 else []


def random_matrix(n: int, density: float, seed: int, symmetric: bool = True) -> Array:
    """float32 weights from 0.1 to 1.1, without self-loops."""
    random = np.random.default_rng(seed)
    matrix = (random.random((n, n), dtype=np.float32) + np.float32(0.1)) * (random.random((n, n)) < density)
    np.fill_diagonal(matrix, 0.0)
    if symmetric:
        matrix = np.triu(matrix)
        matrix = matrix + matrix.T
    return matrix.astype(np.float64)


@st.composite
def matrices(draw: st.DrawFn, symmetric: bool | None = None) -> Array:
    """One pool: up to 9 nodes, isolated ones, components, self-loops, stored zeros, equal and far-flung weights.

    Weights are powers of two, or float32 as they come.
    """
    n = draw(st.integers(0, 9))
    scale = 2.0 ** draw(st.sampled_from([0, 0, 0, -99, 53]))
    weight = draw(
        st.sampled_from([st.just(1.0), st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.floats(0.125, 8, width=32)])
    )
    mirrored = draw(st.booleans()) if symmetric is None else symmetric
    matrix = np.zeros((n, n))
    if n:
        places = st.integers(0, n - 1)
        for i, j, w in draw(st.lists(st.tuples(places, places, weight | st.just(np.nan)), max_size=n * n)):
            matrix[i, j] = w * scale
            if mirrored:
                matrix[j, i] = matrix[i, j]
    return matrix


def weights_of(matrix: Array) -> Array:
    """The matrix as references take it: stored zeros are zeros."""
    return np.nan_to_num(matrix)
