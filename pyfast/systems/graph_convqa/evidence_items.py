"""Find evidence items (sentences, table rows, infobox pairs and triples), and rank them by BM25 (graph_convqa,
section 4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from pyfast.ops.arrays import Float32
from pyfast.retrieval import Index, Pool, ScoredSegments, search
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.retrieval.index.index import of_index
from pyfast.retrieval.terms import WORDS, Analysis


@of_index
def find_evidence_items(index: Index, queries: Sequence[str], passages: int, k: int) -> list[ScoredSegments]:
    """Find at most `k` evidence items for each query, best first.

    There are two stages (section 4.1 of graph_convqa's paper): a search returns passages, then BM25 ranks the
    items in these passages. BM25 uses the document frequencies of the whole corpus, because every query word
    is frequent in the retrieved passages. Items that contain no query word are left out. Items with equal
    scores keep the order of the passages.

    Args:
        index: The index.
        queries: The queries.
        passages: The number of passages that the search returns.
        k: The maximum number of items per query.

    Returns:
        The items of each query, with their BM25 scores.
    """
    pools = search(index, queries, passages)
    return [_best(index, query, pool, k) for query, pool in zip(queries, pools, strict=True)]


def _best(index: Index, query: str, pool: Pool, k: int) -> ScoredSegments:
    segments = list(
        chain.from_iterable(index.corpus.evidence_items(i) for i in index.passages[pool.passages].tolist())
    )
    asked = sorted(set(index.analysis.tokens(query)))
    terms = index.terms.find(asked).tolist()
    words = {word: index.frequency(term) for word, term in zip(asked, terms, strict=True) if term >= 0}
    scores = bm25_scores(words, len(index.passages), [index.corpus.linearise(i) for i in segments], index.analysis)
    best = np.argsort(-scores, kind="stable")[: min(k, np.count_nonzero(scores > 0))]
    return ScoredSegments(np.array(segments, np.int64)[best], scores[best])


def bm25_scores(
    frequencies: Mapping[str, int], documents: int, texts: Sequence[str], analysis: Analysis = WORDS
) -> Float32:
    """Compute Lucene's BM25 score of each text for a query's words.

    The function does not use the bm25s library, which would count the frequencies in `texts`. Words that
    occur in no document are ignored.

    Args:
        frequencies: For each query word, the number of documents that contain it.
        documents: The total number of documents.
        texts: The texts.
        analysis: How texts are split into words.

    Returns:
        The score of each text.
    """
    k1, b = BM25_PARAMETERS["k1"], BM25_PARAMETERS["b"]
    tokens = [analysis.tokens(text) for text in texts]
    lengths = np.array([len(words) for words in tokens], np.float64)
    bounds = k1 * (1 - b + b * lengths / (lengths.mean() or 1.0)) if len(texts) else lengths
    scores = np.zeros(len(texts))
    counts = [Counter(word for word in words if word in frequencies) for words in tokens]
    for word, df in frequencies.items():
        if df:
            tf = np.array([count[word] for count in counts], np.float64)
            scores += np.log(1 + (documents - df + 0.5) / (df + 0.5)) * tf / (tf + bounds)
    return scores.astype(np.float32)
