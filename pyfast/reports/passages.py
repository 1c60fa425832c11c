"""Find the passages whose ids a trace has, in the run's index and in the record itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyfast.engine import Record
from pyfast.engine.configuration import recorded_path, recorded_value
from pyfast.errors import PyfastError
from pyfast.reports.documents import Part, part_of
from pyfast.reports.paths import SEGMENT
from pyfast.reports.shared_terms import SharedTerms
from pyfast.retrieval import Index

EXCERPT = 160
"""The maximum number of characters shown of a passage that no step kept"""
HELD = 1 << 15
"""The maximum number of passages in the cache. Many questions show the same passages"""
Passage = dict[str, Any]
"""A passage in JSON types: `uri`, `text`, `title` if it is not the uri, `cut` if `text` is only its beginning.

A table row also has `header`, the names of its columns; `text` has a tab between two cells.
"""
_LOG = logging.getLogger("pyfast")


def index_of(run: Path) -> Index | None:
    """Open the index that a run searched, if it still exists.

    The index is opened in the version (commit) that the run used. If this version no longer exists, the
    current version is opened. If the index is missing or cannot be opened, the function logs a warning and
    returns None.
    """
    if not recorded_value(run, "places", "index"):
        return None
    try:
        place = recorded_path(run, "index")
        commit = recorded_value(run, "index", "commit")
        with contextlib.suppress(PyfastError, OSError):
            return Index(place, commit=commit)
        return Index(place)
    except (PyfastError, OSError) as error:
        _LOG.warning("%s; passages that are not evidence are shown by their ids", error)
        return None


class PassageFinder:
    """Finds segments by their ids. It keeps the sorted ids of all segments of the index."""

    def __init__(self, index: Index | None) -> None:
        self._index = index
        if index is not None:
            ids = index.corpus.ids[:]
            self._order = np.argsort(ids)
            self._sorted = ids[self._order]
        self._sources: dict[str, int] = {}
        self.shared_terms = SharedTerms()
        """Those of the index"""
        self.part = lru_cache(HELD)(self._part)
        """`part_of` of a segment of the index"""
        self._passage = lru_cache(HELD)(self._read)

    @property
    def index(self) -> Index | None:
        """The index, if there is one."""
        return self._index

    def find(
        self, ids: Iterable[str], whole: Iterable[str], segments: Mapping[str, int], record: Record
    ) -> dict[str, Passage]:
        """Find the passages with these ids, and the passages of the evidence. Ids that are not in `segments`
        are left out.

        Passages in `whole` get their complete text. Of other texts, only the beginning is shown. Passages that
        are not evidence are cached, because several questions can show them.
        """
        shown = _of_evidence(record)
        all_text = set(whole)
        for id in ids:
            if id not in shown and id in segments:
                shown[id] = self._passage(segments[id], id in all_text)
        for one in record.evidence:
            if one.segment in segments and "title" not in shown[one.segment]:
                title = self._passage(segments[one.segment], True).get("title")
                shown[one.segment] |= {"title": title} if title else {}
        return shown

    def look_for(self, uris: Iterable[str]) -> None:
        """Find all these documents in one pass over the index. After this call, `source` can return their
        numbers."""
        wanted = [uri for uri in dict.fromkeys(uris) if uri not in self._sources]
        if self._index is None or not wanted:
            return
        known = self._index.corpus.document_table.column("uri")
        places = pc.fill_null(pc.index_in(known, value_set=pa.array(wanted, known.type)), -1).to_numpy()
        found = np.flatnonzero(places >= 0).tolist()
        self._sources |= {wanted[places[source]]: source for source in reversed(found)}

    def source(self, uri: str) -> int | None:
        """Return the number of a document that `look_for` has found. None if the index does not have the
        document."""
        return self._sources.get(uri)

    def only_passage(self, source: int) -> str | None:
        """Return the id of the passage of a document that has only one passage. None if it has more."""
        assert self._index is not None
        passages, corpus = self._index.passages, self._index.corpus
        first = int(np.searchsorted(passages, corpus.roots[source]))
        found = [int(one) for one in passages[first : first + 2] if corpus.source[one] == source]
        return f"{int(corpus.ids[found[0]]):016x}" if len(found) == 1 else None

    def is_table(self, uri: str) -> bool:
        """Whether `look_for` has found this document, and it is a table."""
        source = self.source(uri)
        if self._index is None or source is None:
            return False
        return self._index.corpus.is_table(int(self._index.corpus.roots[source]))

    def segments(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the positions of segments in the corpus, by their ids. Unknown ids are left out."""
        numbers = {id: int(id, 16) for id in ids if SEGMENT.fullmatch(id)}
        if self._index is None or not numbers or not len(self._sorted):
            return {}
        values = np.array(list(numbers.values()), np.uint64)
        at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        there = self._sorted[at] == values
        places = self._order[at].tolist()
        return {id: place for id, place, known in zip(numbers, places, there.tolist(), strict=True) if known}

    def _part(self, segment: int) -> tuple[Part, list[int]]:
        assert self._index is not None
        return part_of(self._index.corpus, segment)

    def _read(self, segment: int, whole: bool) -> Passage:
        assert self._index is not None
        corpus = self._index.corpus
        source = int(corpus.source[segment])
        text = corpus.content(segment)
        header = corpus.header(source) if "\t" in text and corpus.is_table(segment) else ()
        shown = text if whole or header else text[:EXCERPT]
        return _passage(corpus.uri(source), corpus.title(source), shown, len(shown) == len(text), header)


def _of_evidence(record: Record) -> dict[str, Passage]:
    """Return the passages of the evidence of a record, by segment id."""
    return {
        one.segment: _passage(
            one.uri,
            str(one.metadata.get("title", "")),
            one.snippet,
            True,
            tuple(map(str, one.metadata.get("header") or ())) if "\t" in one.snippet else (),
        )
        for one in record.evidence
        if one.segment
    }


def _passage(uri: str, title: str, text: str, whole: bool, header: Sequence[str]) -> Passage:
    passage: Passage = {"uri": uri, "text": text}
    if title and title != uri:
        passage["title"] = title
    if not whole:
        passage["cut"] = True
    if header:
        passage["header"] = header
    return passage
