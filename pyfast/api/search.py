"""Find passages in an index, and rank texts, without an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

import pyfast.ops as ops
from pyfast.api.index import index_of
from pyfast.engine import Evidence
from pyfast.errors import InputError
from pyfast.retrieval import Index, cite, evidence_of, search
from pyfast.retrieval.forward_index import weigh
from pyfast.retrieval.terms import WORDS, count_terms
from pyfast.utils.options import at_least_one


def retrieve(queries: Sequence[str], index: Index | str | Path, k: int = 20) -> list[list[Evidence]]:
    """Find the best passages for each query. All queries are searched together, and no LLM is called.

    Args:
        queries: Words, or questions.
        index: An index, or its folder.
        k: The maximum number of passages for each query.

    Returns:
        For each query, a list of passages, best first, with their uris, offsets and scores.

    Raises:
        InputError: `k` is below 1.
        IndexFormatError: The folder contains no index, or the index is damaged.

    Example:
        >>> import pyfast
        >>> from pyfast.api.search import retrieve
        >>> index = pyfast.build_index("corpus/", "RETRIEVE-IDX")
        >>> titan, mars = retrieve(["Who discovered Titan?", "moons of Mars"], index, k=3)
        >>> print(titan[0].uri, titan[0].line)
    """
    opened = index_of(index)
    at_least_one("k", k)
    if not queries:
        return []
    pools = search(opened, queries, k)
    return [
        [Evidence.read(item) for item in orjson.loads(items)]
        for items in cite(opened, [evidence_of(opened, pool) for pool in pools])
    ]


def rerank_texts(query: str, texts: Sequence[str], scores: Sequence[float] | None = None) -> list[float]:
    """Score texts for a query with `pyfast.ops.bridge_rank`.

    A text that shares words with the best texts gets a higher score.

    Args:
        query: The question.
        texts: The texts, such as passages that a vector store found. Word weights are computed from these texts
            alone.
        scores: Existing scores of the texts, where higher is better. None: the sum of the TF-IDF weights of the
            query's terms in each text.

    Returns:
        A score in [0, 1] for each text, in the order of the texts.

    Raises:
        InputError: The numbers of scores and texts differ, or a score is not finite.

    Example:
        >>> from pyfast.api.search import rerank_texts
        >>> texts = ["Cassini flew by Titan.", "Rome is a city.", "Titan was discovered by Huygens."]
        >>> scores = rerank_texts("Which moon did Cassini fly by, and who discovered it?", texts)
        >>> scores.index(min(scores))
        1
    """
    if scores is not None and (len(scores) != len(texts) or not np.isfinite(scores).all()):
        raise InputError(f"scores: expected {len(texts)} finite numbers, one per text")
    if not texts:
        return []
    counts, terms = count_terms(texts)
    if not terms:
        return [0.0] * len(texts)
    x = weigh(counts, terms)
    x.indices = x.indices.astype(np.int32)  # the dtype that the op reads
    words = set(WORDS.tokens(query))
    asked = [column for column, term in enumerate(terms) if term in words]
    if scores is None:
        semantic = np.asarray(x[:, asked].sum(axis=1), np.float32).ravel()
    else:
        semantic = np.asarray(scores, np.float32)
    ranked = ops.bridge_rank(x, [0, len(texts)], np.arange(len(texts)), semantic, ([0, len(asked)], asked))
    return [float(score) for score in ranked]
