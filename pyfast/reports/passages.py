"""Find the passages that a trace names by their ids, in the run's index and in the record itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyfast.engine import Record
from pyfast.engine.configuration import recorded_path, recorded_value
from pyfast.errors import PyfastError
from pyfast.reports.paths import SEGMENT
from pyfast.retrieval import Index

EXCERPT = 160
"""The maximum number of characters shown of a passage that no step kept"""
_LOG = logging.getLogger("pyfast")


@dataclass(frozen=True, slots=True)
class Passage:
    """One segment, as a page shows it."""

    uri: str
    title: str
    text: str
    whole: bool
    """Whether `text` is the complete passage"""
    header: tuple[str, ...] = ()
    """For a table row: the names of its columns. `text` has a tab between two cells"""
    offsets: tuple[int, int] = (-1, -1)
    """As of `Evidence`"""


def index_of(run: Path) -> Index | None:
    """Open the index that a run searched, if it still exists.

    The index is opened at the run's commit, if it still has this commit. If the index is missing or cannot be
    opened, the function logs a warning.
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
        _LOG.warning("%s; passages that are not evidence are shown by id", error)
        return None


class PassageFinder:
    """Finds segments by id. It holds the sorted ids of the index's corpus."""

    def __init__(self, index: Index | None) -> None:
        self._index = index
        if index is not None:
            ids = index.corpus.ids[:]
            self._order = np.argsort(ids)
            self._sorted = ids[self._order]
        self._sources: dict[str, int] = {}

    @property
    def index(self) -> Index | None:
        """The index, if there is one."""
        return self._index

    def find(self, ids: Iterable[str], whole: Iterable[str], record: Record) -> dict[str, Passage]:
        """Find the passages with these ids. Unknown ids are left out. Passages in `whole` get their complete
        text.
        """
        shown = _of_evidence(record)
        all_text = set(whole)
        for id, segment in self.segments([*ids, *(id for id, one in shown.items() if not one.title)]).items():
            passage = self._passage(segment, id in all_text)
            shown[id] = replace(shown[id], title=passage.title) if id in shown else passage
        return shown

    def look_for(self, uris: Iterable[str]) -> None:
        """Find all these documents in one pass over the index. Then `source` knows them."""
        wanted = [uri for uri in dict.fromkeys(uris) if uri not in self._sources]
        if self._index is None or not wanted:
            return
        known = self._index.corpus.document_table.column("uri")
        places = pc.fill_null(pc.index_in(known, value_set=pa.array(wanted, known.type)), -1).to_numpy()
        found = np.flatnonzero(places >= 0).tolist()
        self._sources |= {wanted[places[source]]: source for source in reversed(found)}

    def source(self, uri: str) -> int | None:
        """The number of a document that `look_for` has found. None if the index does not have the document."""
        return self._sources.get(uri)

    def segments(self, ids: Iterable[str]) -> dict[str, int]:
        """The positions of segments in the corpus, by their ids. Unknown ids are left out."""
        numbers = {id: int(id, 16) for id in ids if SEGMENT.fullmatch(id)}
        if self._index is None or not numbers or not len(self._sorted):
            return {}
        values = np.array(list(numbers.values()), np.uint64)
        at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        there = self._sorted[at] == values
        places = self._order[at].tolist()
        return {id: place for id, place, known in zip(numbers, places, there.tolist(), strict=True) if known}

    def _passage(self, segment: int, whole: bool) -> Passage:
        assert self._index is not None
        corpus = self._index.corpus
        source = int(corpus.source[segment])
        text = corpus.content(segment)
        header = corpus.header(source) if corpus.is_table(segment) and "\t" in text else ()
        shown = text if whole or header else text[:EXCERPT]
        place = int(corpus.start[segment]), int(corpus.end[segment])
        whole = len(shown) == len(text)
        return Passage(corpus.uri(source), corpus.title(source), shown, whole, tuple(header), place)


def _of_evidence(record: Record) -> dict[str, Passage]:
    """The evidence by segment id."""
    return {
        one.segment: Passage(
            one.uri,
            str(one.metadata.get("title", "")),
            one.snippet,
            True,
            tuple(map(str, one.metadata.get("header") or ())) if "\t" in one.snippet else (),
            one.offsets,
        )
        for one in record.evidence
        if one.segment
    }


def as_json(
    passages: Mapping[str, Passage], spans: Mapping[str, tuple[str, list[int]]]
) -> dict[str, dict[str, Any]]:
    """Write the passages in JSON types, with their places in their documents.

    Fields that a passage does not have are left out.
    """
    return {
        id: {
            "uri": one.uri,
            "text": one.text,
            **({"title": one.title} if one.title and one.title != one.uri else {}),
            **({} if one.whole else {"cut": True}),
            **({"header": one.header} if one.header else {}),
            **({"part": spans[id][0], "span": spans[id][1]} if id in spans else {}),
        }
        for id, one in passages.items()
    }
