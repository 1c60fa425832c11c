"""The same work as its users write it without pyfast, one question at a time."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

Array = npt.NDArray[Any]


def scipy_graph(X: csr_array, pool: Array) -> csr_array:
    """The evidence graph from precomputed weights: sum over shared terms of x_it + x_jt."""
    rows = X[pool]
    held = csr_array((np.ones_like(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    one_way = rows @ held.T
    graph = (one_way + one_way.T).tocsr()
    graph.setdiag(0)
    graph.eliminate_zeros()
    return graph


def normalised(scores: Array) -> Array:
    """Min-max; scikit-learn's function checks its input for longer than it computes."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


def scipy_graph_rank(X: csr_array, pool: Array, semantic: Array, alpha: float = 0.85) -> Array:
    degree = scipy_graph(X, pool).sum(axis=1)
    return np.asarray(normalised(semantic) * (1 + (1 - alpha) * normalised(degree)))


def pool_weights(texts: list[str]) -> csr_array:
    return csr_array(TfidfVectorizer(dtype=np.float32).fit_transform(texts))


def networkx_graph(texts: list[str]) -> networkx.Graph:
    """TF-IDF of the question's own documents, and the graph as an object."""
    X = pool_weights(texts)
    return networkx.from_scipy_sparse_array(scipy_graph(X, np.arange(len(texts))))


def networkx_graph_rank(texts: list[str], semantic: Array, alpha: float = 0.85) -> Array:
    degree = np.array([degree for _, degree in networkx_graph(texts).degree(weight="weight")])
    return np.asarray(normalised(semantic) * (1 + (1 - alpha) * normalised(degree)))
