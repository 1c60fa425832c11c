"""Evidence: write passages as text for the LLM, and segments as JSON or as an evidence package of HSEQ (the
function kappa of its paper, A.3.5). Find evidence items (sentences, table rows, infobox pairs and triples), and
rank them by BM25.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from itertools import chain
from typing import Any

import numpy as np
import orjson

import pyfast.ops as ops
from pyfast.corpus import Corpus, Level, TableView, TextView, view
from pyfast.ops.arrays import Float32, Int64, ends
from pyfast.retrieval.analysis import WORDS, Analysis
from pyfast.retrieval.bm25 import BM25_PARAMETERS
from pyfast.retrieval.index import Index, of_index
from pyfast.retrieval.pools import Pool, stack_pools
from pyfast.retrieval.rerank import search


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


@dataclass(frozen=True, slots=True, eq=False)
class EvidencePackage:
    """The evidence from which HSEQ makes an answer, in the order of uris and offsets, without duplicates."""

    segments: tuple[int, ...]
    """The positions of the items in the corpus"""
    lines: tuple[str, ...]
    """Each item as the LLM reads it"""
    items: tuple[dict[str, Any], ...]
    """Each item with `id`, `level`, `uri`, `offsets`, `source_type`, `snippet` and `meta`, as `canonicalize`
    describes"""

    def json(self) -> bytes:
        """Return the items as a JSON array. In each object, the key `segment` replaces `id`, and the key
        `score` is added, with the value null. HSEQ computes no scores, but the evidence of other systems has
        this key.
        """
        renamed = ({"segment" if name == "id" else name: it for name, it in item.items()} for item in self.items)
        return orjson.dumps([{**item, "score": None} for item in renamed])


def canonicalize(index: Index, items: Sequence[Sequence[int]]) -> list[EvidencePackage]:
    """Make an evidence package from each list of segments (HSEQ's kappa).

    The package does not depend on the order in which the segments were picked.

    Items are ordered by uri, then by offsets, then by position in the corpus. If several segments of a text
    or table have the same uri and offsets, only the first of them in the corpus stays: it contains the
    others. Segments of knowledge graphs have no offsets, so all distinct segments stay.

    In texts, `offsets` are the positions of the first character (from 0) and of the character after the last.
    In tables they are [row, column], where -1 stands for all rows or columns. In knowledge graphs they are
    [-1, -1]. `meta` has `schema` (the header of a table), `time` (the time of each triple), `source_version`
    (the fingerprint of the corpus) and `sha1` (a checksum of the snippet). `schema` is null outside of
    tables, and `time` is null if no time is known.

    Args:
        index: The index.
        items: For each package, the positions of the picked segments in the corpus.

    Returns:
        One package for each list.
    """
    version = index.manifest["corpus"]
    return [_package(index.corpus, segments, version) for segments in items]


def _package(corpus: Corpus, segments: Sequence[int], version: str) -> EvidencePackage:
    def place(i: int) -> tuple[str, int, int]:
        return corpus.uri(int(corpus.source[i])), int(corpus.start[i]), int(corpus.end[i])

    first: dict[Any, int] = {}
    for i in sorted(set(segments), key=lambda i: (place(i), i)):
        first.setdefault(i if corpus.is_graph(i) else place(i), i)
    kept = tuple(first.values())
    return EvidencePackage(kept, tuple(map(corpus.render, kept)), tuple(_item(corpus, i, version) for i in kept))


def _item(corpus: Corpus, i: int, version: str) -> dict[str, Any]:
    item = corpus.segment(i)
    snippet = item.pop("snippet")
    schema = time = None
    match view(corpus, i):
        case TextView():
            source_type = "text"
        case TableView() as table:
            source_type, schema = "table", list(table.schema)
        case graph:
            source_type = "kg"
            times = [triple.time for triple in graph.triples]
            time = times if any(at is not None for at in times) else None
    digest = sha1(snippet.encode()).hexdigest()
    meta = {"schema": schema, "time": time, "source_version": version, "sha1": digest}
    return {**item, "source_type": source_type, "snippet": snippet, "meta": meta}
