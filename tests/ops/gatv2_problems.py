"""Layers for gatv2: drawn or random."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[Any]


class Layer(NamedTuple):
    """The arguments of gatv2, in its order."""

    x_src: Array
    x_dst: Array
    indptr: Array
    indices: Array
    att: Array

    def replace(self, **changes: Any) -> Layer:
        return self._replace(**changes)

    def astype(self, dtype: Any) -> Layer:
        return self.replace(**{name: getattr(self, name).astype(dtype) for name in ("x_src", "x_dst", "att")})

    def sources(self, destination: int) -> Array:
        return self.indices[self.indptr[destination] : self.indptr[destination + 1]]

    @property
    def edge_index(self) -> Array:
        """int64[2, E], as PyG has it."""
        return np.stack([self.indices, np.repeat(np.arange(len(self.x_dst)), np.diff(self.indptr))])


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Small ones: no nodes, no edges, isolated nodes, loops, edges that occur twice, features of one sign."""
    heads, channels = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3, 8, 16, 17]))
    n_src = draw(st.integers(0, 6))
    n_dst = n_src if draw(st.booleans()) else draw(st.integers(0, 6))
    sources = st.lists(st.integers(0, n_src - 1), max_size=7) if n_src else st.just([])
    rows = draw(st.lists(sources, min_size=n_dst, max_size=n_dst))
    # Multiples of 1/4: the sum of two features is exact, and often 0, where LeakyReLU has its corner.
    random = np.random.default_rng(draw(st.integers(0, 9999)))
    low = draw(st.sampled_from([-8, 0]))

    def features(*shape: int) -> Array:
        return (random.integers(low, 9, shape) / 4).astype(np.float32)

    x_src = features(n_src, heads, channels)
    x_dst = x_src if n_src == n_dst and draw(st.booleans()) else features(n_dst, heads, channels)
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array([j for row in rows for j in row], dtype=np.int64)
    return Layer(x_src, x_dst, indptr, indices, features(heads, channels))


def random_layer(n_src: int, n_dst: int, edges: int, heads: int, channels: int, seed: int = 0) -> Layer:
    """Sources in no order, some twice, some destinations without any."""
    random = np.random.default_rng(seed)
    destinations = np.sort((random.random(edges) ** 2 * n_dst).astype(np.int64))
    return Layer(
        random.standard_normal((n_src, heads, channels)).astype(np.float32),
        random.standard_normal((n_dst, heads, channels)).astype(np.float32),
        np.searchsorted(destinations, np.arange(n_dst + 1)).astype(np.int64),
        random.integers(0, max(n_src, 1), edges),
        random.standard_normal((heads, channels)).astype(np.float32),
    )
