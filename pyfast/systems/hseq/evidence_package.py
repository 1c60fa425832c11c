"""Turn segments into HSEQ's evidence package (the function kappa in the paper, A.3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

import orjson

from pyfast.corpus import Corpus
from pyfast.retrieval import Index
from pyfast.systems.hseq.views import TableView, TextView, view


@dataclass(frozen=True, slots=True, eq=False)
class EvidencePackage:
    """The evidence from which HSEQ answers, ordered by uri and offsets, without duplicates."""

    segments: tuple[int, ...]
    """The positions of the items in the corpus"""
    lines: tuple[str, ...]
    """Each item as the LLM reads it"""
    items: tuple[dict[str, Any], ...]
    """Each item with `id`, `level`, `uri`, `offsets`, `source_type`, `snippet` and `meta`, as `canonicalize`
    describes"""

    def json(self) -> bytes:
        """Return the items as a JSON array. In each object, the key `segment` replaces `id`, and the key
        `score` is added with the value null: HSEQ computes no scores, but other systems' evidence has this
        key.
        """
        renamed = ({"segment" if name == "id" else name: it for name, it in item.items()} for item in self.items)
        return orjson.dumps([{**item, "score": None} for item in renamed])


def canonicalize(index: Index, items: Sequence[Sequence[int]]) -> list[EvidencePackage]:
    """Turn each list of segments into an evidence package (HSEQ's kappa).

    The package does not depend on the order in which the segments were picked.

    Items are ordered by uri, then by offsets, then by position in the corpus. If several segments of a text
    or table have the same uri and offsets, only the first of them in the corpus is kept, because it contains
    the others. Segments of knowledge graphs have no offsets, so all distinct ones are kept.

    In texts, `offsets` are the positions of the first character (from 0) and of the character after the last.
    In tables they are [row, column], where -1 stands for all rows or columns. In knowledge graphs they are
    [-1, -1]. `meta` contains `schema` (the header of a table), `time` (the time of each triple),
    `source_version` (the corpus's fingerprint) and `sha1` (a checksum of the snippet). `schema` is null
    outside of tables, and `time` is null if no time is known.

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
