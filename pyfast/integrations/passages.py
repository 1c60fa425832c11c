"""Make the metadata of passages for other frameworks, and rank texts from other frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyfast.api.search import rerank_texts
from pyfast.engine import Evidence
from pyfast.retrieval import Index


def passage_metadata(index: Index, passage: Evidence) -> dict[str, Any]:
    """Return the uri, title, score, offsets and other metadata of a passage."""
    return {
        **passage.metadata,
        "uri": passage.uri,
        "title": index.title(passage.uri),
        "score": passage.score,
        "offsets": list(passage.offsets),
    }


def best_places(query: str, texts: Sequence[str], top_n: int | None) -> list[tuple[int, float]]:
    """Rank texts by `bridge_rank`. Returns the positions of the best `top_n` texts, best first, with their
    scores. If `top_n` is None, the result has all texts.
    """
    scores = rerank_texts(query, texts)
    best = sorted(range(len(texts)), key=lambda place: -scores[place])[:top_n]
    return [(place, scores[place]) for place in best]
