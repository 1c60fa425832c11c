"""Evidence: write passages as text for the LLM, and segments as JSON. Find evidence items (sentences, table rows,
infobox pairs and triples), and rank them by BM25. A few native calls serve a batch of questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import orjson

import pyfast.ops as ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Float32, Int64, ends
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.retrieval.index.index import Index, of_index
from pyfast.retrieval.pools import Pool, stack_pools
from pyfast.retrieval.rerank import search
from pyfast.retrieval.terms import WORDS, Analysis


@of_index
def narrate(index: Index, pools: Sequence[Pool], characters: int) -> list[str]:
    """Write the passages of each pool as numbered lines, best first.

    Passages are added until the next one would make the text longer than `characters` characters. If the
    first passage alone is too long, it is cut.

    Args:
        index: The index.
        pools: The pools.
        characters: The maximum number of characters in a text.

    Returns:
        One text for each pool.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, narrate
        >>> index = Index(Path("IDX"))
        >>> text = narrate(index, index.search(["Who discovered Titan?"], 2), 400)[0]
        >>> text.startswith("[1] ")
        True
    """
    offsets, passages, _ = stack_pools(pools)
    rendered, places = index.lines(passages)
    return ops.narrate(rendered, offsets, places, characters)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSegments:
    """The segments that support an answer, best first."""

    segments: Int64
    """[n] the positions of the segments in the corpus"""
    scores: Float32
    """[n] the score of each segment"""

    def __len__(self) -> int:
        return len(self.segments)


def evidence_of(index: Index, pool: Pool) -> ScoredSegments:
    """Turn the passages of a pool into evidence.

    Args:
        index: The index.
        pool: A pool of this index.

    Returns:
        The segments of the pool's passages, with the passages' scores.
    """
    return ScoredSegments(index.passages[pool.passages], pool.scores)


@of_index
def cite(index: Index, items: Sequence[ScoredSegments]) -> list[bytes]:
    """Write lists of segments as JSON. Each object has `segment`, `uri`, `offsets`, `snippet` and `score` (see
    `ops.cite`).

    The snippet of a segment of a table has only cells. So the object of this segment also has the `title`,
    the `header` and, if there is one, the `section` of the table.

    Args:
        index: The index.
        items: Lists of segments with scores.

    Returns:
        One JSON array in UTF-8 for each list.

    Raises:
        ArrayError: The corpus has no segment at one of the positions.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, cite, evidence_of
        >>> index = Index(Path("IDX"))
        >>> (text,) = cite(index, [evidence_of(index, index.search("moon of Saturn", 1)[0])])
        >>> sorted(json.loads(text)[0])
        ['header', 'offsets', 'score', 'segment', 'snippet', 'title', 'uri']
    """
    segments = np.concatenate([np.empty(0, np.int64), *[item.segments for item in items]])
    scores = np.concatenate([np.empty(0, np.float64), *[item.scores for item in items]])
    corpus, offsets = index.corpus, ends(items)
    corpus.check(segments)
    level = corpus.columns.level.take(segments, mode="clip")
    of_tables = (level >= Level.TABLE) & (level <= Level.TABLE_CELL)
    tables, which = np.unique(corpus.source[segments[of_tables]], return_inverse=True)
    member_of = np.full(len(segments), -1, np.int32)
    member_of[of_tables] = which
    members = [orjson.dumps(corpus.table(source))[1:-1] for source in tables.tolist()]
    return ops.cite(corpus.columns, offsets, segments, scores, members, member_of)


@of_index
def find_evidence_items(index: Index, queries: Sequence[str], passages: int, k: int) -> list[ScoredSegments]:
    """Find at most `k` evidence items for each query, best first.

    There are two stages (section 4.1 of the paper of graph_convqa): a search returns passages, then BM25
    ranks the items in these passages. BM25 uses the document frequencies of the whole corpus, because in the
    found passages every word of the query is frequent. Items without a word of the query are left out. Items
    with equal scores keep the order of the passages.

    Args:
        index: The index.
        queries: The queries.
        passages: The number of passages that the search returns.
        k: The maximum number of items for a query.

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
    """Compute Lucene's BM25 score of each text for the words of a query.

    `frequencies` has, for each word of the query, the number of documents that contain it. `documents` is the
    number of all documents. The function does not use the library bm25s, because bm25s would count the
    frequencies in `texts`. Words that are in no document do not count.
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
