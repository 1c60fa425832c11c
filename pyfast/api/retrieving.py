"""`retrieve`: find the best passages for queries, without an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from pyfast.api.indexing import index_of
from pyfast.engine import Evidence
from pyfast.options import at_least_one
from pyfast.retrieval import Index, cite, evidence_of, search


def retrieve(queries: Sequence[str], index: Index | str | Path, k: int = 20) -> list[list[Evidence]]:
    """Find the best passages for each query. All queries are searched together, and no LLM is called.

    Args:
        queries: Words, or questions.
        index: An index, or its folder.
        k: The maximum number of passages for each query.

    Returns:
        For each query a list of passages, best first, with their uris, offsets and scores.

    Raises:
        InputError: `k` is below 1.
        IndexFormatError: The folder has no index, or the index is damaged.

    Example:
        >>> import pyfast
        >>> from pyfast.api.retrieving import retrieve
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
