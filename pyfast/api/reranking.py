"""`rerank_texts`: rank texts by `bridge_rank`, without an index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import pyfast.ops as ops
from pyfast.errors import InputError
from pyfast.retrieval.forward_index import weigh
from pyfast.retrieval.terms import count_terms, term_ids


def rerank_texts(query: str, texts: Sequence[str], scores: Sequence[float] | None = None) -> list[float]:
    """Score texts for a query with `pyfast.ops.bridge_rank`.

    A text that shares words with the best texts gets a higher score.

    Args:
        query: The question.
        texts: The texts, such as passages that a vector store found. pyfast computes the weights of words from
            these texts alone.
        scores: Scores that the texts already have, where higher is better. None: the score of a text is the
            sum of the TF-IDF weights that the query's terms have in it.

    Returns:
        A score in [0, 1] for each text, in the order of the texts.

    Raises:
        InputError: The number of scores is not the number of texts, or a score is not finite.

    Example:
        >>> from pyfast.api.reranking import rerank_texts
        >>> texts = ["Cassini flew by Titan.", "Rome is a city.", "Titan was discovered by Huygens."]
        >>> scores = rerank_texts("Which moon did Cassini fly by, and who discovered it?", texts)
        >>> scores.index(min(scores))
        1
    """
    if scores is not None and (len(scores) != len(texts) or not np.isfinite(scores).all()):
        raise InputError(f"scores: expected {len(texts)} finite numbers, one for each text")
    if not texts:
        return []
    counts, terms = count_terms(texts)
    if not terms:
        return [0.0] * len(texts)
    x = weigh(counts, terms)
    x.indices = x.indices.astype(np.int32)  # the dtype that the op reads
    asked = sorted(set(term_ids(query, {term: i for i, term in enumerate(terms)})))
    if scores is None:
        semantic = np.asarray(x[:, asked].sum(axis=1), np.float32).ravel()
    else:
        semantic = np.asarray(scores, np.float32)
    ranked = ops.bridge_rank(x, [0, len(texts)], np.arange(len(texts)), semantic, ([0, len(asked)], asked))
    return [float(score) for score in ranked]
