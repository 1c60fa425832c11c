"""Use pyfast inside LangChain (`langchain`) and LlamaIndex (`llamaindex`). Each of these modules requires the
extra of the same name, and no other part of pyfast imports them.
"""

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
    scores. If `top_n` is None, the result contains all texts.
    """
    return sorted(enumerate(rerank_texts(query, texts)), key=lambda ranked: -ranked[1])[:top_n]
