"""Retrievers that use vectors: dense vectors, sparse vectors, or a vector for each token. The hybrid
retriever combines other retrievers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

import pyfast.retrieval.vectors.passage_vectors as passage_vectors
import pyfast.retrieval.vectors.vector_search as vectors
from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32, stack
from pyfast.retrieval.index.index import Index
from pyfast.retrieval.part_files import take_rows
from pyfast.retrieval.pools import Pool, Retriever, reciprocal_ranks, stack_pools, weighted_scores
from pyfast.retrieval.rerank import expand
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.retrieval.vectors.encoders import LateEncoder, SparseEmbedder, encoder_of
from pyfast.retrieval.vectors.hardware import search_device
from pyfast.retrieval.vectors.passage_vectors import TokenStore

FUSED = 100
"""Hybrid and late retrievers take at least this many passages from each retriever on which they build"""
HYBRID = "bm25+dense"
_AT_ONCE = 64  # queries


class DenseRetriever:
    """A retriever that finds the passages whose vectors have the largest cosine with the query's vector."""

    def __init__(self, index: Index, model: str = "") -> None:
        """`model` is the new path of the model, if its folder has moved.

        Raises `InputError` if the index has no dense vectors, or another model made them.
        """
        encoder = encoder_of(index.manifest["parameters"], "dense", model, index.hardware)
        assert isinstance(encoder, Embedder)
        self._index, self._encoder = index, encoder
        self.fingerprint = f"dense:{self._encoder.fingerprint}"

    @cached_property
    def _vectors(self) -> vectors.Vectors | vectors.DeviceVectors:
        matrix: Float32 = np.asarray(self._index.whole.vectors["dense"])
        if search_device(self._index.hardware) != "cpu":
            return vectors.DeviceVectors(matrix, self._index.hardware)
        parts = self._index.parts
        coded = [number for number, part in enumerate(parts) if part.codes is not None]
        if len(matrix) <= passage_vectors.EXACT or not coded:
            return vectors.make(matrix, passage_vectors.EXACT)
        return self._around(max(coded, key=lambda number: len(parts[number].passages)), matrix)

    def _around(self, largest: int, matrix: Float32) -> vectors.Vectors:
        """Make the `Vectors` of all passages, whose vectors are in `matrix`. A search uses the codes of the
        part with the number `largest`. It compares the query with all vectors of the other parts.
        """
        part = self._index.parts[largest]
        base: Float32 = np.asarray(part.vectors["dense"])
        assert part.codes is not None
        if part.files is not None:
            part.files.check_all([passage_vectors.CODES])
        codes = vectors.load_codes(part.codes)
        if len(self._index.parts) == 1 and len(base) == len(matrix):
            return vectors.Vectors(matrix, codes)
        deleted = [counts.deleted for _, counts in self._index.searched]
        kept = [
            np.arange(len(one.passages)) if gone is None else np.flatnonzero(gone == 0)
            for one, gone in zip(self._index.parts, deleted, strict=True)
        ]
        owner = np.repeat(np.arange(len(kept)), [len(some) for some in kept])
        is_late = owner != largest
        rows = np.empty(len(matrix), np.int32)
        rows[~is_late] = kept[largest]
        rows[is_late] = len(base) + np.arange(is_late.sum())
        return vectors.Vectors(base, codes, matrix[is_late], rows)

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find the `k` nearest passages to each query, best first. Passages with equal cosines are in the
        order of the index.
        """
        return self._nearest(self._encoder.encode(queries), k)

    def near(self, passages: Int32, k: int) -> list[Pool]:
        """Find the `k` passages nearest to each passage. The result can include the passage itself."""
        return self._nearest(self._vectors.of(passages), k)

    def _nearest(self, encoded: Float32, k: int) -> list[Pool]:
        pools = []
        at_once = _AT_ONCE if isinstance(self._vectors, vectors.Vectors) else max(len(encoded), 1)
        for start in range(0, len(encoded), at_once):
            for places, cosines in zip(*self._vectors.search(encoded[start : start + at_once], k), strict=True):
                there = places >= 0
                pools.append(Pool(places[there].astype(np.int32), cosines[there]))
        return pools


class SparseRetriever:
    """A retriever that finds the passages whose learned sparse vectors have the largest dot product with the
    query's vector.
    """

    def __init__(self, index: Index, model: str = "") -> None:
        """`model` is the new path of the model, if its folder has moved.

        Raises `InputError` if the index has no sparse vectors, or another model made them.
        """
        encoder = encoder_of(index.manifest["parameters"], "sparse", model, index.hardware)
        matrix = index.whole.vectors["sparse"]
        assert isinstance(encoder, SparseEmbedder)
        assert isinstance(matrix, csr_array)
        self._encoder, self._matrix = encoder, matrix
        self.fingerprint = f"sparse:{self._encoder.fingerprint}"

    @cached_property
    def _by_term(self) -> csr_array:
        return csr_array(self._matrix.T.tocsr())

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find the `k` best passages for each query, best first. A found passage shares at least one term with the
        query.

        Passages with equal scores are in the order of the index.
        """
        return self._best(self._encoder.encode(queries), k)

    def near(self, passages: Int32, k: int) -> list[Pool]:
        """Find the `k` passages with the largest dot product with each passage. The result can include the passage
        itself."""
        return self._best(take_rows(self._matrix, passages), k)

    def _best(self, encoded: csr_array, k: int) -> list[Pool]:
        pools = []
        for start in range(0, encoded.shape[0], _AT_ONCE):
            products = csr_array(encoded[start : start + _AT_ONCE] @ self._by_term)
            for begin, end in pairwise(products.indptr.tolist()):
                passages, scores = products.indices[begin:end], products.data[begin:end]
                order = np.lexsort((passages, -scores))[:k]
                pools.append(Pool(passages[order].astype(np.int32), scores[order]))
        return pools


class LateRetriever:
    """A retriever that ranks the best passages of another retriever by late interaction.

    Before the ranking, passages that share terms with the best passages are added (`bridge_expand`).
    """

    def __init__(self, index: Index, of: str = "") -> None:
        """`of` is the retriever that finds the passages to score: `bm25`, `dense` or any other. Empty:
        `bm25`.

        Raises `InputError` if the index has no vectors of tokens, or there is no such retriever.
        """
        encoder = encoder_of(index.manifest["parameters"], "late", hardware=index.hardware)
        self._first: Retriever = index.retriever_named(of or "bm25")
        store = index.whole.vectors["late"]
        assert isinstance(encoder, LateEncoder)
        assert isinstance(store, TokenStore)
        self._index, self._encoder, self._store = index, encoder, store
        self._device = search_device(index.hardware)
        self.fingerprint = f"late({self._first.fingerprint}):{self._encoder.fingerprint}"

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find the `k` best passages for each query, best first. Passages with equal scores are in the order
        of the index."""
        pools = self._first.search(queries, max(k, FUSED))
        terms = stack([self._index.question_terms(query) for query in queries], np.int32)
        offsets, passages, _ = expand(self._index, *stack_pools(pools), terms)
        candidates = np.split(passages.astype(np.int32), offsets[1:-1])
        ranked = []
        for start in range(0, len(queries), _AT_ONCE):
            some = candidates[start : start + _AT_ONCE]
            asked = self._encoder.encode(queries[start : start + _AT_ONCE], are_queries=True)
            scored = self._store.scores(asked, some, self._device)
            for each, scores in zip(some, scored, strict=True):
                order = np.lexsort((each, -scores))[:k]
                ranked.append(Pool(each[order], scores[order]))
        return ranked


class HybridRetriever:
    """A retriever that joins the lists of several retrievers into one list, by reciprocal ranks or weighted
    scores.
    """

    def __init__(self, index: Index, of: str = "") -> None:
        """`of` is a text such as `bm25+dense` for reciprocal ranks, or `bm25*0.3+dense*0.7` for weighted
        scores. Empty: `bm25+dense`.

        Raises `InputError` if the text is not valid, or there is no such retriever.
        """
        parts = [part.rpartition("*") if "*" in part else (part, "", "") for part in (of or HYBRID).split("+")]
        self._weights = [_weight(weight, of) for _, star, weight in parts if star]
        if len(parts) < 2 or len(self._weights) not in (0, len(parts)):
            raise InputError(
                f"hybrid:{of}: expected at least two retrievers, such as bm25+dense; give weights to all of"
                " them or to none"
            )
        self._retrievers: list[Retriever] = [index.retriever_named(name) for name, _, _ in parts]
        names = [retriever.fingerprint for retriever in self._retrievers]
        if self._weights:
            names = [f"{name}*{weight}" for name, weight in zip(names, self._weights, strict=True)]
        self.fingerprint = f"hybrid({'+'.join(names)})"

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find the `k` best passages of the joined lists for each query, best first."""
        lists = [retriever.search(queries, max(k, FUSED)) for retriever in self._retrievers]
        if self._weights:
            return [weighted_scores(pools, self._weights).head(k) for pools in zip(*lists, strict=True)]
        return [reciprocal_ranks([pool.passages for pool in pools]).head(k) for pools in zip(*lists, strict=True)]


def _weight(text: str, of: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(f"hybrid:{of}: expected weights above 0, got {text!r}")
    return weight
